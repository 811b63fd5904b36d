"""The files of a Delta table that any retained commit references.

The log is read first, and the commits of the lake after it. So whatever the log shows by then, the commits
explain; and versions that are published only later are told by the commits that ratified them.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from penstock.errors import ForeignCommit, InvalidLog, PenstockError
from penstock.formats.delta.branch_log.branch_log import BranchLogEntry, decode_branch_log
from penstock.formats.delta.branch_log.ownership import TableOwner
from penstock.formats.delta.lake.former_files import read_note
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.log.referenced_files import DeltaNamedFiles, LogCoverage, read_log
from penstock.formats.delta.publishing.leftovers import PREFIX_LENGTH
from penstock.formats.delta.publishing.log_ownership import named_owner
from penstock.formats.delta.publishing.log_writer import BATCH_MAX, group_versions, read_ratified_commits
from penstock.formats.delta.publishing.side_files import UniqueLogEntries, side_files
from penstock.formats.sync import SyncState, out_of_sync
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable

PREFIX_LENGTH_PROPERTY: Final = "delta.randomPrefixLength"
PREFIX_LENGTH_MAX: Final = 1000
"""No name of a file has more letters."""


class RetainedFiles:
    """What is needed of one table. What stands against knowing it, only ``check_completeness`` raises."""

    def __init__(self, parts: DeltaServices, key: Key, content: DeltaTable, *, is_default: bool) -> None:
        """The log is read here and now; ``content`` is the table as a reference has it."""
        self.key, self.content = key, content
        self.place = parts.places.open_place(content.location)
        self.named = DeltaNamedFiles()
        self.beside: set[str] = set()
        """Files beside the log that are needed."""
        self.published = -1
        """How far the log surely reaches; -1 for a table that is not on the default branch."""
        self.prefix_length = PREFIX_LENGTH
        """How many letters the table's random prefixes have."""
        self.former: frozenset[str] = frozenset()
        """Data files with other names than writers give, of versions that an erase has ended."""
        self._tables, self._read = parts.owner.tables, parts.owner.tables.read_object
        self._entries = UniqueLogEntries(self._read)
        self._waiting: list[tuple[int, BranchLogEntry]] = []
        self._problem: PenstockError | None = None
        self._log = LogCoverage(commits={}, covered=())
        self._rests_on: set[int] = set()
        """Published versions that kept commits go on from."""
        self._told: set[int] = set()
        """Versions of the default branch that commits have told, beyond those in the log."""
        self._latest = -1
        self._owner: TableOwner | None = None
        self._ids: set[UUID | None] = {content.id}
        """All that the table has had: one that was released and adopted again has another since."""
        try:
            parts.publisher.check_owned(content)
            if is_default:
                self.published = parts.publisher.inspect_log(content)
            self.prefix_length = self._read_prefix_length()
            self.former = read_note(self.place)
            self._log = read_log(self.place, self.named)
            self._owner = named_owner(self.place) if self._log.latest_version >= 0 else None
        except PenstockError as problem:
            self._problem = problem

    def add_content(self, content: DeltaTable) -> None:
        """Learn what the table names as one kept commit has it."""
        if self._problem is not None:
            return
        try:
            line = decode_branch_log(content)
            self._ids.add(content.id)
            self._rests_on.add(line.published)
            self._latest = max(self._latest, line.fork_version)
            for version, entry in self._entries.find_unseen_entries(content):
                self.beside.update(side_files(version, entry))
                if not entry.line and self._log.commits.get(version) == entry.size:
                    continue  # named by the log
                self._waiting.append((version, entry))
            if len(self._waiting) >= BATCH_MAX:
                self._take_waiting()
        except PenstockError as problem:
            self._problem = problem

    def read_deferred_commits(self) -> None:
        """Read whatever ``add_content`` has put off."""
        try:
            if self._problem is None:
                self._take_waiting()
        except PenstockError as problem:
            self._problem = problem

    def check_completeness(self) -> None:
        """Raise what stands against knowing everything that is named, if anything does."""
        if self._problem is not None:
            raise self._problem
        log = self._log
        if log.latest_version >= 0:
            self._check_owner()
        if log.latest_version > self._latest:
            raise out_of_sync(self.key, self.place.url, SyncState(self._latest, log.latest_version))
        for version in sorted(self._rests_on - {-1}):
            unknown = (
                missing_version
                for missing_version in range(log.latest_version + 1, version + 1)
                if missing_version not in self._told
            )
            missing = (
                next(unknown, None)
                if version > log.latest_version or log.covers_version(version)
                else version
            )
            if missing is not None:
                raise InvalidLog(
                    f"version {missing} of the table at {self.place.url} can no longer be read from its "
                    "log, but a retained commit of the lake has it, so the files that it needs are not "
                    "known\n  Restore the log from a backup, or let that history expire: penstock horizon. "
                    "Expired history cannot be read.",
                    location=self.place.url,
                    version=missing,
                )

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for some in group_versions(waiting):
            for byte in read_ratified_commits(self.place, self.content, some, self._read):
                self.named.take_commit(self.place.url, byte.entry.get_staged_path(byte.version), byte.data)
                if not byte.entry.line:
                    self._told.add(byte.version)

    def _check_owner(self) -> None:
        """The log must name a table that the lake has had here: by its id, since those are nobody else's."""
        owner = self._owner
        if owner is None or owner.table not in self._ids:
            says = "no owner" if owner is None else f"table {owner.table or '(none)'} of {owner}"
            raise ForeignCommit(
                f"the log of {self.place.url} names {says}, but no retained commit of this lake has that "
                "table there, so the owner of the files is not known",
                location=self.place.url,
                id=str(self.content.id),
            )

    def _read_prefix_length(self) -> int:
        _, metadata = self._tables.parse_declared(decode_branch_log(self.content))
        text = metadata.configuration.get(PREFIX_LENGTH_PROPERTY, "").strip()
        length = int(text) if text.isdecimal() else PREFIX_LENGTH
        return length if 0 < length <= PREFIX_LENGTH_MAX else PREFIX_LENGTH
