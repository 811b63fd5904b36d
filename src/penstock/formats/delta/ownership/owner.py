"""The owner of Delta tables: what a lake can be asked about the tables whose commits it decides.

The decisions themselves are the format's, at a change's turn, and the log's. This is where they are asked
for: ratify versions of one or several tables, tell which there are, have them published, bring tables into
the lake and out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile

import msgspec

from penstock.errors import CommitConflict, Denied, InvalidRequest, Unavailable, VersionNotFound
from penstock.formats.delta.branch_log.branch_log import BranchLogEntry, OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import NAME, CommitIntent, decode_intent
from penstock.formats.delta.branch_log.ownership import NewTable, OwnerIdentity
from penstock.formats.delta.ownership.bulk_handover import BulkHandover
from penstock.formats.delta.ownership.handover import Handover, HandoverResult
from penstock.formats.delta.ownership.recovery import RecoveryResult, TableRecovery
from penstock.formats.delta.ownership.status import PublicationOverview, PublicationStatus
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest, decode_line_and_id
from penstock.formats.delta.ownership.winners import WinnerLookup
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.description import require_unmoved
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change, Operation
from penstock.storage.places import Places

CheckLocation = Callable[[str], str]
"""The location, normalised, if tables may be there; ``LocationRefused`` otherwise."""


class OwnerRatifiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A version that a table got."""

    key: Key
    version: int
    """Of a repeated change whose version nobody knows any more: the latest, which has it."""
    timestamp_ms: int
    """0 of a repeated one that is in no log any more."""
    name: str = ""
    """A file below the table's root that holds it; empty as long as only the lake does."""
    repeated: bool = False
    """The table had it already."""


class OwnerRatified(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit of Delta tables came to."""

    commit: ObjectId
    tables: tuple[OwnerRatifiedTable, ...]
    """In the order of the request."""


class LogTailCommit(msgspec.Struct, frozen=True):
    """A commit by the file that holds it, which exists, or beside its bytes cannot be made."""

    version: int
    name: str
    size: int
    timestamp_ms: int
    data: bytes | None = None
    """Its bytes, where storage can only be read and may lack the file."""


class LogTail(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader needs beside the table's log, all of one moment."""

    latest_version: int
    """-1 before anything was ratified."""
    published: int
    """Versions up to this one are read from the log; those after it are in ``commits``, without a gap."""
    commits: tuple[LogTailCommit, ...]


class DeltaOwner:
    """Owns the Delta tables of a lake. Used by many threads at once."""

    def __init__(
        self,
        kernel: Kernel,
        places: Places,
        publisher: Publisher,
        commits: CommitReader,
        identity: OwnerIdentity,
        check_location: CheckLocation | None = None,
        log_check: LogCheck | None = None,
    ) -> None:
        publisher.publish_for(identity)
        self.tables = DeltaTableStore(kernel)
        log_check = log_check or LogCheck(
            places, publisher, self.tables.find_last, partial(require_unmoved, kernel.store)
        )
        self.handover = Handover(self.tables, places, publisher, commits, identity)
        self._recovery = TableRecovery(self.tables, places, self.handover, identity)
        self._overview = PublicationOverview(
            self.tables, places, publisher, self.handover, identity, log_check
        )
        self._kernel, self._publisher, self._commits = kernel, publisher, commits
        self._check_location: CheckLocation = check_location or (lambda location: location)
        self._log_check, self._identity = log_check, identity

    # -- versions --------------------------------------------------------------------------------------

    def commit_versions(
        self,
        branch: str,
        changes: Sequence[Operation],
        meta: CommitMeta | None = None,
        *,
        key: str | None = None,
        fingerprint: Callable[[], bytes] | None = None,
        base: ObjectId | None = None,
    ) -> OwnerRatified:
        """Ratify versions of one or several tables, all or none, with whatever else is asked for.

        ``TableConflict`` tells which commits came first.
        """

        def ratify_versions() -> RequestOutcome:
            return self._kernel.commit(branch, changes, meta, key=key, fingerprint=fingerprint, base=base)

        wanted_changes = [
            change for change in changes if isinstance(change, Change) and change.format == NAME
        ]
        try:
            outcome = ratify_versions()
        except CommitConflict as conflict:
            if not self._finish_begun(branch, wanted_changes):
                raise self._add_winners(branch, wanted_changes, conflict) from None
            try:
                outcome = ratify_versions()
            except CommitConflict as again:
                raise self._add_winners(branch, wanted_changes, again) from None
        return self._make_ratified_answer(outcome, wanted_changes)

    def list_commits(
        self, key: Key, content: DeltaTable, start: int | None = None, end: int | None = None
    ) -> LogTail:
        """The ratified commits of a table that are not known to be published, from one version to another.

        ``content`` is the table at a commit of the lake, so all of this is of one moment. The files that are
        named exist, or the bytes are told as well.
        """
        if start is not None and end is not None and start > end:
            raise InvalidRequest(f"invalid range of versions of '{key}': {start} to {end}", key=str(key))
        line = decode_branch_log(content)
        if line.phase is OwnershipPhase.ADOPTING:
            # Its last entry is a promise, which the log has yet to decide.
            return LogTail(latest_version=line.latest - 1, published=line.latest - 1, commits=())
        first = max(0 if start is None else start, line.published + 1)
        last = line.latest if end is None else min(end, line.latest)
        held: dict[int, bytes] = {}
        try:
            names = self._publisher.provide_files(content, first - 1, last) if first <= last else {}
        except Denied:
            names, held = self._publisher.read_held(content, first - 1, last)
        entries = takewhile(
            lambda one: one[0] <= last, line.read_entries_after(first - 1, self.tables.read_object)
        )
        log_entries = tuple(
            LogTailCommit(version, names[version], entry.size, entry.timestamp_ms, held.get(version))
            for version, entry in entries
        )
        return LogTail(latest_version=line.latest, published=line.published, commits=log_entries)

    def publish_table(self, branch: str, key: Key, version: int | None = None) -> int:
        """Have all versions up to one, or all there are, in the table's log; tell how far it reaches.

        On another than the default branch nothing is published: its commits are put where its readers find
        them. May be asked any number of times.
        """
        content = self._settle_table(branch, key)
        line = decode_branch_log(content)
        if version is not None and not 0 <= version <= line.latest:
            raise InvalidRequest(
                f"version {version} of '{key}' cannot be published: the latest is {line.latest}",
                key=str(key),
                version=version,
            )
        if branch != self.tables.default_branch:
            self._publisher.provide_files(content)
            return line.published
        target_version = line.latest if version is None else version
        published = self._publisher.publish_line(content, target_version)
        if published < target_version:
            raise Unavailable(
                f"'{key}' is published up to version {published} only, not {target_version}; try again",
                key=str(key),
            )
        return published

    def _make_ratified_answer(self, outcome: RequestOutcome, changes: Sequence[Change]) -> OwnerRatified:
        commit = outcome.commits[-1] if outcome.commits else outcome.head
        parent = None
        if outcome.commits and len(changes) > 1:
            parent = self._kernel.history.read_commit(commit).parent
        tables = tuple(self._make_ratified_table(outcome, commit, parent, change) for change in changes)
        return OwnerRatified(commit=commit, tables=tables)

    def _make_ratified_table(
        self, outcome: RequestOutcome, commit: ObjectId, parent: ObjectId | None, change: Change
    ) -> OwnerRatifiedTable:
        content = self.tables.require_managed(commit, change.key)
        line, identity = decode_line_and_id(content)
        intent = decode_intent(change.intent)
        given_version = intent.version if isinstance(intent, CommitIntent) else None
        # A commit of one change exists because that changed something; of several, some may not have.
        before = None if parent is None else self.tables.find_content(parent, change.key)
        stayed = not outcome.commits or before == content
        version = given_version if stayed and given_version is not None else line.latest
        entry = line.find_entry(version, self.tables.read_object)
        name = ""
        if given_version is not None and entry is not None:
            name = entry.get_staged_path(version)
        elif version <= self._publisher.published_version(identity) and line.tail is None:
            name = str(CommitName(version))
        return OwnerRatifiedTable(
            key=change.key,
            version=version,
            timestamp_ms=self._read_timestamp_ms(change.key, content, version, entry),
            name=name,
            repeated=outcome.repeated or stayed,
        )

    def _read_timestamp_ms(
        self, key: Key, content: DeltaTable, version: int, entry: BranchLogEntry | None
    ) -> int:
        """Of a version; of one that is published and forgotten, its own commit has to tell.

        0 if the log has been cleaned up past it: it was committed all the same.
        """
        if entry is not None:
            return entry.timestamp_ms
        line = decode_branch_log(content)
        if version == line.latest:
            return line.timestamp_ms
        try:
            info = self._commits.read_commit_info(
                self.tables.as_format_table(key, content), content.location, version, None
            )
        except VersionNotFound:
            return 0
        return (info and info.in_commit_timestamp) or 0

    def _finish_begun(self, branch: str, changes: Sequence[Change]) -> bool:
        """Whether one of the tables was half adopted, and is the lake's now."""
        if branch != self.tables.default_branch:
            return False
        is_finished = False
        for key, content in self._find_unfinished_handovers(changes):
            resolved = self.handover.settle_handover(key, content)
            is_finished = is_finished or (
                resolved is not None and decode_branch_log(resolved).phase is OwnershipPhase.OWNED
            )
        return is_finished

    def _find_unfinished_handovers(self, changes: Sequence[Change]) -> Iterator[tuple[Key, DeltaTable]]:
        head = self.tables.find_head()
        for change in changes:
            content = self.tables.find_content(head, change.key)
            if not isinstance(content, DeltaTable) or not content.state:
                continue
            if decode_branch_log(content).phase is not OwnershipPhase.OWNED:
                yield change.key, content

    def _add_winners(
        self, branch: str, changes: Sequence[Change], conflict: CommitConflict
    ) -> CommitConflict:
        """The conflict, with the commits that landed first if it is about versions."""
        return WinnerLookup(self.tables, self._commits, branch).add_winners(changes, conflict)

    def _settle_table(self, branch: str, key: Key) -> DeltaTable:
        """A table of a branch, after an unfinished adoption or release of it has been settled."""
        content = self.tables.require_managed(self.tables.find_head(branch), key)
        if branch != self.tables.default_branch:
            return content
        resolved = self.handover.settle_handover(key, content)
        return (
            resolved
            if resolved is not None
            else self.tables.require_managed(self.tables.find_head(branch), key)
        )

    # -- tables ----------------------------------------------------------------------------------------

    def create_table(
        self,
        branch: str,
        key: Key,
        new: NewTable,
        *,
        warehouse: str = "",
        location: str | None = None,
        sole_writer: bool = False,
        request: TableRequest = TableRequest(),
    ) -> HandoverResult:
        """Create a table: at a place of its own in the warehouse, or at a named one.

        At a named place others may be creating one, too; exactly one of all wins, and the others are told.
        """
        if location is None:
            return self.handover.create_table(branch, key, new, warehouse, request)
        self._require_default_branch(branch, f"'{key}' cannot be created at {location}")
        return self.handover.create_at(key, new, self._check_location(location), request, sole_writer)

    def adopt_table(
        self,
        location: str,
        key: Key | None = None,
        *,
        sole_writer: bool = False,
        request: TableRequest = TableRequest(),
    ) -> HandoverResult:
        """Take a table over from the file system, onto the default branch. See ``Handover.adopt_table``."""
        where = self._check_location(location)
        return self.handover.adopt_table(key or _make_key(where), where, request, sole_writer)

    def release_table(self, key: Key, *, request: TableRequest = TableRequest()) -> HandoverResult:
        """Hand a table back to the file system. See ``Handover.release_table``."""
        return self.handover.release_table(key, request)

    @property
    def bulk_handover(self) -> BulkHandover:
        """What adopts and releases many tables at once."""
        return BulkHandover(self.tables, self.handover, self._log_check, self._identity)

    def recover_table(
        self,
        location: str,
        key: Key | None = None,
        *,
        lost: str | None = None,
        any_lake: bool = False,
        request: TableRequest = TableRequest(),
    ) -> RecoveryResult:
        """Own a table whose lake was lost. See ``TableRecovery.recover_table``."""
        where = self._check_location(location)
        return self._recovery.recover_table(
            key or _make_key(where), where, request, lost=lost, any_lake=any_lake
        )

    def settle_handover(self, key: Key, content: DeltaTable) -> DeltaTable | None:
        """Finish what was begun of a table, if anything. See ``Handover.resolve``."""
        return self.handover.settle_handover(key, content)

    def _require_default_branch(self, branch: str, subject: str) -> None:
        if branch != self.tables.default_branch:
            raise InvalidRequest(
                f"{subject}: a location can be given only on '{self.tables.default_branch}'; on "
                f"'{branch}' the "
                "lake chooses it",
                name=branch,
            )

    # -- all of them -----------------------------------------------------------------------------------

    def catch_up(self, is_wanted: Callable[[], bool] = lambda: True) -> int:
        """Finish and publish what earlier processes did not. See ``PublicationOverview.catch_up``."""
        return self._overview.catch_up(is_wanted)

    def list_statuses(self, key: Key | None = None) -> tuple[PublicationStatus, ...]:
        """How far tables are published. See ``PublicationOverview.list_statuses``."""
        return self._overview.list_statuses(key)


def _make_key(location: str) -> Key:
    """What a table is called if nobody says: the last part of where it is."""
    name = location.rstrip("/").rpartition("/")[2]
    if not name:
        raise InvalidRequest(
            f"{location} has no last part to use as the name of the table; give the table a key"
        )
    return Key(name)
