"""Erasing a Delta table: deleted rows that live files still hold, and all that tells of earlier versions.

Rows that were deleted by deletion vectors are still in their files: these are rewritten, by a commit like any
other. Then a version is committed that changes nothing. The history of the table begins with it, so that the
versions which deleted rows, and what they say of them, are not part of it any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import HistoryExpired, TableConflict, TableStateRefused, Unavailable
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.format import check_phase
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, TableCommit, WriterReads
from penstock.formats.delta.lake.clone_needs import clone_holders
from penstock.formats.delta.lake.former_files import list_other_names, read_note, remove_note, write_note
from penstock.formats.delta.lake.sweep import DeltaSweep
from penstock.formats.delta.lake.table import encode_actions, pack_lines_for_call
from penstock.formats.delta.log.cleanup import GRACE_MS
from penstock.formats.delta.log.erasure import earlier_files, end_log
from penstock.formats.delta.log.referenced_files import DeltaNamedFiles
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.ownership.clones import SourceFinder
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, Remove, parse_commit
from penstock.formats.delta.protocol.clustering import clustering_columns
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.delta.protocol.names import LAST_CHECKPOINT, LOG, SIDECARS, parse_name
from penstock.formats.delta.protocol.row_ids import collect_row_ids
from penstock.formats.delta.publishing.leftovers import DeltaNeeds, judge_files
from penstock.formats.delta.rows.file_addresses import open_table_place
from penstock.kernel.format import FormatRefused
from penstock.lake.answers import SweptTable
from penstock.lake.call import CommitDescription
from penstock.lake.calls import SweepTables
from penstock.lake.erase import FirstVersionKept, LeftoverFiles, TableHolder, make_leftover_files
from penstock.lake.fork_notes import ForkNotes
from penstock.model.clock import to_utc_datetime
from penstock.model.content import ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import SCRATCH, Place
from penstock.storage.sweep_decisions import SweepDecision

if TYPE_CHECKING:
    from penstock.formats.delta.lake.services import DeltaServices
    from penstock.kernel.reachable import Progress
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded

TRIES_MAX: Final = 10
"""How often files are rewritten because others change them at the same time."""
FOREVER_US: Final = 2**63
SECOND_US: Final = 1_000_000


class DeltaErasure:
    """What an erase does to a Delta table of the default branch."""

    def __init__(self, lake: Embedded, parts: DeltaServices, key: Key, who: str) -> None:
        self._lake, self._parts, self._key, self._who = lake, parts, key, who
        self._kernel, self._tables = lake.kernel, parts.owner.tables
        self._first: int | None = None
        """The version with which history is to begin, if that is one of the table's past."""
        self._dropped_columns: dict[tuple[str, str], bool] = {}
        """Whether files have columns that a schema does not."""

    @property
    def content(self) -> DeltaTable:
        return self._tables.require_managed(self._tables.find_head(), self._key)

    @property
    def _place(self) -> Place:
        content = self.content
        _, metadata = self._tables.parse_declared(decode_branch_log(content))
        return open_table_place(self._lake.places, content.location, metadata.configuration)

    def require_erasable(self) -> None:
        """``ManagedElsewhere`` for a table of another lake, ``OutOfSync`` for one whose log has what the lake
        does not know; ``TableStateRefused`` for one that is on its way in or out."""
        content = self.content
        self._parts.publisher.check_owned(content)
        try:
            check_phase(decode_branch_log(content))
        except FormatRefused as refused:
            raise TableStateRefused(f"'{self._key}' {refused}", key=str(self._key)) from None
        self._parts.log_check.require_in_sync(self._key, content, is_default=True, again=True)

    def read_latest_version(self) -> int:
        return decode_branch_log(self.content).latest

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:  # noqa: ARG002
        """Whether a branch has versions of the table that the default branch does not have."""
        return isinstance(content, DeltaTable) and decode_branch_log(content).tail is not None

    def find_holders(self, first_version: int | None) -> Iterator[TableHolder]:  # noqa: ARG002 - it is known here
        """Clones that need files which are to go, beside those that every table may have."""
        return clone_holders(self._kernel, self._parts, self.content, self._list_going)

    def _list_going(self) -> list[str]:
        """The names of the files that the erase is to remove."""
        rewritten = {add.key.path for add in self._list_files_to_rewrite(self._read_snapshot())}
        return [entry.key for entry in self._list_unneeded_entries()] + sorted(rewritten)

    # -- before anything goes --------------------------------------------------------------------------------

    def count_files_to_rewrite(self) -> int:
        """How many files hold deleted rows beside others. Raises as ``rewrite``."""
        snapshot = self._read_snapshot()
        old = self._list_files_to_rewrite(snapshot)
        if old:
            from penstock.formats.delta.rows.file_writer import check_features

            check_features(snapshot.metadata)
        return len(old)

    def _list_files_to_rewrite(self, snapshot: LogSnapshot) -> list[Add]:
        """The files of a version that hold what was removed; if history is to begin in the past, those with
        what was removed before."""
        adds = self._list_files_with_removed_rows(snapshot)
        if not adds or self._first is None:
            return adds
        old = {add.key.path for add in self._list_files_with_removed_rows(self._read_snapshot(self._first))}
        return [add for add in adds if add.key.path in old]

    def _list_files_with_removed_rows(self, snapshot: LogSnapshot) -> list[Add]:
        """The files of a version that hold rows which are deleted, or columns which were dropped."""
        is_mapped = get_column_mapping(snapshot.metadata) is not ColumnMapping.NONE
        return [
            file
            for file in snapshot.read_files()
            if file.deletion_vector is not None or (is_mapped and self._has_dropped_columns(snapshot, file))
        ]

    def _has_dropped_columns(self, snapshot: LogSnapshot, file: Add) -> bool:
        """Whether a file has columns that a version does not. Its footer never changes, and is read once."""
        pair = (file.key.path, snapshot.metadata.schema_string)
        if pair not in self._dropped_columns:
            from penstock.formats.delta.log.scan import has_further_columns

            self._dropped_columns[pair] = has_further_columns(snapshot, self._place, file)
        return self._dropped_columns[pair]

    def is_state_kept(self, content: ManagedTable) -> bool:  # noqa: ARG002 - its states have versions
        return False

    def is_history_cut_at(self, content: ManagedTable, first_version: int) -> bool:
        """Whether a retained state of the table needs versions before ``first_version``, which go."""
        assert isinstance(content, DeltaTable)
        return self._parts.format.cut_content(content, first_version) != content

    def find_first_kept_version(self, start: ManagedTable, moment_us: int) -> int | None:  # noqa: ARG002
        """Let history begin with a state that the table had: with which version. ``None`` if that is the
        table's first."""
        assert isinstance(start, DeltaTable)
        self._first = decode_branch_log(start).latest
        return self._first if self._first > 0 else None

    def rewrite_files(self) -> int:
        """Rewrite files that hold deleted rows beside others; how many.

        ``UnsupportedFeature`` if the table uses something for which other writers are needed.
        """
        for _ in range(TRIES_MAX):
            now = self._lake.do(GetTableVersions(key=self._key, limit=0))
            snapshot = self._read_snapshot(now.latest_version)
            old = self._list_files_to_rewrite(snapshot)
            if not old:
                return 0
            actions = self._rewrite_files(snapshot, old)
            info = CommitInfo({"operation": "REORG", "operationParameters": {"applyPurge": "true"}})
            commit = TableCommit(
                key=self._key,
                actions=pack_lines_for_call(lambda: self._place, encode_actions([info, *actions])),
                table=now.id,
                read_version=now.latest_version,
                read_tip=now.tip,
                reads=WriterReads(),
            )
            said = CommitDescription(message=f"files of {self._key} without the rows that are deleted")
            try:
                self._lake.do(CommitTables(tables=(commit,), said=said, who=self._who))
            except TableConflict:
                self._place.delete([action.path for action in actions if isinstance(action, Add)])
                continue
            return len(old)
        raise Unavailable(
            f"files of '{self._key}' that hold deleted rows were changed by other writers {TRIES_MAX} "
            "times while they were rewritten; erase the table when there are fewer writes",
            key=str(self._key),
        )

    def _rewrite_files(self, snapshot: LogSnapshot, old: list[Add]) -> list[Action]:
        # Here, since these load the library for Parquet, which takes a while and much memory.
        from penstock.formats.delta.log.scan import read_rows_of_files
        from penstock.formats.delta.rows.file_writer import write_files

        now_ms = self._kernel.clock() // 1000
        actions: list[Action] = []
        for file in old:
            removed = msgspec.structs.replace(make_remove(file, now_ms), data_change=False)
            new = write_files(
                self._place,
                snapshot.metadata,
                read_rows_of_files(snapshot, self._place, [file], final_row_ids=collect_row_ids([file])),
                clustering=clustering_columns(snapshot.domains),
                are_checked=True,
                with_row_ids=True,
            )
            actions += [removed, *(msgspec.structs.replace(add, data_change=False) for add in new)]
        return actions

    def commit_first_version(self, erase: str) -> FirstVersionKept:
        """Commit the version with which the history begins, once however often it is asked for; its number.

        Another one follows: what the lake has of a table names the last version that is known to be
        published, and that has to be this one. ``Unavailable`` if the log cannot be published.

        Where history begins in the past, they say only that the table is published up to there, and that
        whatever was about to come in before the erase was known has done so.
        """
        first, _ = self._commit_nothing(f"erase-{erase}-first")
        last, content = self._commit_nothing(f"erase-{erase}-next")
        if decode_branch_log(content).published < first:
            raise Unavailable(
                f"it is not known whether '{self._key}' is published to its log up to version {first}"
            )
        if self._first is not None:
            return FirstVersionKept(self._first)
        # Whatever came in between may have deleted rows, and they are for another erase.
        is_clean = last == first + 1 and not self._list_files_with_removed_rows(self._read_snapshot(last))
        return FirstVersionKept(first, content=content if is_clean else None)

    def _commit_nothing(self, idempotency_key: str) -> tuple[int, DeltaTable]:
        """Ratify and publish a version that changes nothing: its number, and the table as it is then."""
        branch = self._tables.default_branch
        self._parts.owner.publish_table(branch, self._key)
        info = CommitInfo({"operation": "ERASE", "operationParameters": {}})
        commit = TableCommit(key=self._key, actions=encode_actions([info]).decode(), table=self.content.id)
        ratified = self._lake.do(
            CommitTables(
                tables=(commit,),
                said=CommitDescription(message=f"erase deleted rows of {self._key}"),
                who=self._who,
                idempotency_key=idempotency_key,
            )
        )
        self._parts.owner.publish_table(branch, self._key)
        content = self._tables.require_managed(bytes.fromhex(ratified.commit.id), self._key)
        return ratified.tables[0].version, content

    # -- what goes -------------------------------------------------------------------------------------------

    def count_earlier_log_files(self) -> int:
        """How many files of the log would go."""
        first = self.read_latest_version() + 1 if self._first is None else self._first
        return len(earlier_files(self._place, first))

    def list_unneeded_file_sizes(self) -> list[int]:
        """The sizes of data files that the newest version does not need, nor any from the first one on."""
        return [entry.size for entry in self._list_unneeded_entries()]

    def _list_unneeded_entries(self) -> list[BucketEntry]:
        live = DeltaNamedFiles()
        for file in self._read_snapshot(self._first).read_files():
            live.take_key(file.key)
        if self._first is not None:
            for name, data in self._parts.commits.read_log_tail(
                self.content, self._first, self._tables.read_object
            ):
                live.take_commit(self._place.url, name, data)
        former = read_note(self._place) | list_other_names(self._place)
        judged = judge_files(self._place.entries(), _make_needs(live, former))
        return [judged_file.entry for judged_file in judged if judged_file.fate is SweepDecision.DATA]

    def cut_history(self, first_version: int) -> tuple[int, int, str]:
        """Let the log begin with a version: how many files went, until when others have to wait in
        microseconds, and what these are; 0 and nothing if none do."""
        grace_us = self._find_scratch_time_us()
        write_note(self._place)
        ended = end_log(
            self._place, first_version, now_ms=self._kernel.clock() // 1000, grace_ms=grace_us // 1000
        )
        if not ended.waiting:
            return ended.removed, 0, ""
        until_us = max(entry.modified_us for entry in ended.waiting) + grace_us
        return ended.removed, until_us, f"{len(ended.waiting)} unreferenced checkpoint files"

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        """Remove data files that no retained version names and that nobody can be about to commit."""
        call = SweepTables(key=self._key, remove_data=True, limit=None)
        sweep = DeltaSweep(self._kernel, self._parts, call, progress)
        (swept,) = sweep.sweep_locations(sweep.list_locations())
        self._place.remove_empty_folders()
        return swept

    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles:
        """Files that no retained version names and that are there still."""
        call = SweepTables(key=self._key, dry_run=True)
        needs = DeltaSweep(self._kernel, self._parts, call).needs_of_one()
        remove_note(self._place, needs.named)
        entries = [*self._place.entries()]
        everything = msgspec.structs.replace(needs, data_us=FOREVER_US, scratch_us=FOREVER_US)
        judged = [*judge_files(entries, everything)]
        keys = {judged_file.entry.key for judged_file in judged}
        strangers = tuple(
            entry.key
            for entry in entries
            if entry.key not in keys and entry.key not in needs.named and _may_have_rows(entry.key)
        )
        times_us = [judged_file.entry.modified_us for judged_file in judged if judged_file.fate.is_to_go]
        grace_us = self._kernel.graces.find_sweep_grace().data_us
        needed = (
            () if horizon.moment_us is None else tuple(self._find_needed_files(horizon.first, needs.named))
        )
        pinned_us = ForkNotes(self._kernel.store, self._lake.places).find_pinned_time_us()
        leftovers = make_leftover_files(times_us, pinned_us, grace_us)
        elsewhere = tuple(
            f"files at {source}, which '{self._key}' was cloned from, may hold rows that were deleted here: "
            "erase that table as well"
            for source in SourceFinder(self._tables).find_sources(self.content)
        )
        return leftovers._replace(strangers=strangers, needed=needed, elsewhere=elsewhere)

    def _find_needed_files(self, first_version: int, named: Container[str]) -> Iterator[str]:
        """Describe files with rows deleted before the first retained version that retained versions still
        need."""
        old = {
            add.key.path
            for add in self._list_files_with_removed_rows(self._read_snapshot(first_version))
            if add.key.path in named
        }
        if not old:
            return
        files = f"{len(old)} data files" if len(old) > 1 else "1 data file"
        yield (
            f"{files} with rows or columns that were removed before that: later versions need the files; "
            f"an erase older than {self._find_end_time(first_version, old)}, or one without older_than, "
            "removes them"
        )

    def _find_end_time(self, first_version: int, old: set[str]) -> str:
        """The second from which on the default branch had no file of these any more."""
        content, last = self.content, first_version
        for version, (_, data) in enumerate(
            self._parts.commits.read_log_tail(content, first_version, self._tables.read_object),
            first_version + 1,
        ):
            actions = [line.action for line in parse_commit(data)]
            if not old.isdisjoint(action.key.path for action in actions if isinstance(action, Remove)):
                last = version
        # By the times of the lake's commits, as an erase takes it: a version's own time may be earlier.
        seconds = range(self._kernel.clock() // SECOND_US + 1)
        second = bisect_left(seconds, True, key=lambda second: self._had_version(last, second))
        return f"{to_utc_datetime(second * SECOND_US).strftime('%Y-%m-%dT%H:%M:%SZ')} (version {last})"

    def _had_version(self, version: int, second: int) -> bool:
        """Whether the default branch had a version of the table in a second of the past."""
        assert self.content.id is not None
        try:
            commit = self._kernel.history.find_commit_at_time(self._tables.find_head(), second * SECOND_US)
        except HistoryExpired:
            return False
        content = None if commit == NO_COMMIT else self._tables.find_last_state(commit, self.content.id)
        return content is not None and decode_branch_log(content).latest >= version

    def _find_scratch_time_us(self) -> int:
        return min(GRACE_MS * 1000, self._kernel.graces.find_sweep_grace().data_us)

    def _read_snapshot(self, version: int | None = None) -> LogSnapshot:
        return self._parts.commits.read_snapshot(self.content, self._tables.read_object, version)


def _may_have_rows(name: str) -> bool:
    """Whether a file that is not known here may have values of rows: what an engine left in the log on the
    way, or a data file that is called otherwise than usual."""
    if name.startswith(LOG):
        is_known = parse_name(name) is not None or name.startswith(SIDECARS) or name == LAST_CHECKPOINT
        return not is_known and not name.endswith(".crc")
    return not name.startswith(f"{SCRATCH}/") and name.endswith((".parquet", ".bin"))


def _make_needs(named: DeltaNamedFiles, former: Container[str]) -> DeltaNeeds:
    return DeltaNeeds(
        named=named,
        beside=(),
        published=FOREVER_US,
        data_us=FOREVER_US,
        scratch_us=FOREVER_US,
        former=former,
    )
