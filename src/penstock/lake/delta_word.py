"""The owner's word on a table's files: what all kept commits of the lake name of them.

The log is read first, and the commits of the lake after it. So whatever the log shows by then, the commits
explain; and versions that are published only later are told by the commits that ratified them.
"""

from __future__ import annotations

from penstock.errors import ForeignCommit, InvalidLog, PenstockError
from penstock.formats.delta.lines.line import Entry, line_of
from penstock.formats.delta.log.named import LogRead, NamedFiles, read_log
from penstock.formats.delta.log.scratch import Entries, beside
from penstock.formats.delta.publishing.backfill import BATCH_MAX, batches, bytes_of
from penstock.formats.delta.publishing.naming import named_owner
from penstock.lake.delta_parts import DeltaParts
from penstock.model.content import DeltaTable
from penstock.model.keys import Key


class OwnersWord:
    """What is needed of one table. What stands against knowing it is raised by ``check``, not before."""

    def __init__(self, parts: DeltaParts, key: Key, content: DeltaTable, *, is_default: bool) -> None:
        """The log is read here and now; ``content`` is the table as a reference has it."""
        self.key, self.content = key, content
        self.place = parts.places.at(content.location)
        self.named = NamedFiles()
        self.beside: set[str] = set()
        """Files beside the log that are needed."""
        self.published = -1
        """How far the log surely reaches; -1 for a table that is not on the default branch."""
        self._read = parts.owner.tables.read
        self._entries = Entries(self._read)
        self._waiting: list[tuple[int, Entry]] = []
        self._problem: PenstockError | None = None
        self._log = LogRead(commits={}, covered=())
        self._rests_on: set[int] = set()
        """Published versions that kept commits go on from."""
        self._told: set[int] = set()
        """Versions of the default branch that commits have told, beyond those in the log."""
        self._latest = -1
        try:
            parts.publisher.check_owned(content)
            if is_default:
                self.published = parts.publisher.look(content)
            self._log = read_log(self.place, self.named)
            self._check_owner()
        except PenstockError as problem:
            self._problem = problem

    def take(self, content: DeltaTable) -> None:
        """Learn what the table names as one kept commit has it."""
        if self._problem is not None:
            return
        try:
            line = line_of(content)
            self._rests_on.add(line.published)
            self._latest = max(self._latest, line.fork)
            for version, entry in self._entries.news(content):
                self.beside.update(beside(version, entry))
                if not entry.line and self._log.commits.get(version) == entry.size:
                    continue  # named by the log
                self._waiting.append((version, entry))
            if len(self._waiting) >= BATCH_MAX:
                self._take_waiting()
        except PenstockError as problem:
            self._problem = problem

    def settle(self) -> None:
        """Read whatever ``take`` has put off."""
        try:
            if self._problem is None:
                self._take_waiting()
        except PenstockError as problem:
            self._problem = problem

    def check(self) -> None:
        """Raise what stands against knowing everything that is named, if anything does."""
        if self._problem is not None:
            raise self._problem
        log = self._log
        if log.latest > self._latest:
            raise ForeignCommit(
                f"the log of {self.place.url} has version {log.latest}, and the lake knows of none after "
                f"{self._latest}: either this is an older copy of the lake, or something writes to the log "
                "without asking",
                location=self.place.url,
                version=log.latest,
            )
        for version in sorted(self._rests_on - {-1}):
            unknown = (one for one in range(log.latest + 1, version + 1) if one not in self._told)
            missing = next(unknown, None) if version > log.latest or log.covers(version) else version
            if missing is not None:
                raise InvalidLog(
                    f"version {missing} of the table at {self.place.url} cannot be read from its log any "
                    "more, and a kept commit of the lake has it: what it names is not known\n"
                    "  Bring the log back from a backup, or let that history expire: penstock horizon",
                    location=self.place.url,
                    version=missing,
                )

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for some in batches(waiting):
            for one in bytes_of(self.place, self.content, some, self._read):
                self.named.take_commit(self.place.url, one.entry.name(one.version), one.data)
                if not one.entry.line:
                    self._told.add(one.version)

    def _check_owner(self) -> None:
        if self._log.latest < 0:
            return
        owner = named_owner(self.place)
        if owner is None or owner.table != self.content.id:
            raise ForeignCommit(
                f"the log of {self.place.url} says that the table belongs to {owner or 'the file system'}, "
                "and not to this lake",
                location=self.place.url,
                id=str(self.content.id),
            )
