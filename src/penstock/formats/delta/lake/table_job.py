"""A Delta table that a job works on: as it is when the job begins, and how its files become part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID, uuid4

import msgspec

from penstock.errors import Denied, RequestError
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, TablePart, WriterReads
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.lake.table import data_folder, get_clustering, table_commit
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, Metadata
from penstock.formats.delta.protocol.row_ids import FileRowIds, collect_row_ids, get_row_tracking_columns
from penstock.formats.delta.rows.file_addresses import open_table_place
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.job_files import JobStart
from penstock.lake.query_pins import PinnedCommit
from penstock.lake.transactions.read_set import is_serializable, note_reads
from penstock.lake.views import Snapshot
from penstock.model.keys import Key
from penstock.model.reads import Read

if TYPE_CHECKING:
    from penstock.formats.delta.lake.answers import TableVersions
    from penstock.formats.delta.lake.table import Clustering
    from penstock.lake.lake import Lake
    from penstock.storage.places import Place


class DeltaJob:
    """A table of a branch, and one job that changes it, whichever engine runs the job.

    What the table is was asked once, when this was made. ``NotManaged`` if its commits are not the lake's,
    ``KeyNotFound`` if it is not there.
    """

    def __init__(
        self, lake: Lake, key: str | Key, branch: str | None = None, *, at: PinnedCommit | None = None
    ) -> None:
        """``at`` is the commit of the branch at which the job reads the table, by default its head."""
        self.lake, self.key = lake, Key.parse(key)
        self.branch = branch if branch is not None else lake.default_branch
        self.job = uuid4()
        self._began = JobStart.at_lake_time(lake)
        # At one commit: if the branch is set to another, a version there may have the same number.
        snapshot = lake.at(self.branch) if at is None else Snapshot(lake, at.commit, at.via)
        self._table = snapshot.outside_read_set.table(self.key)
        self._now = lake.do(GetTableVersions(key=self.key, at=self._table.ref, via=self._table.via, limit=0))
        self.protocol, self.metadata = self._now.parse_declared()

    @property
    def id(self) -> UUID:
        return self._now.id

    @property
    def location(self) -> str:
        return self._now.location

    @property
    def place(self) -> Place:
        """Where its files are."""
        return open_table_place(self.lake.places, self.location, self.metadata.configuration)

    @property
    def version(self) -> int:
        """The version that the job reads."""
        return self._now.latest_version

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @cached_property
    def snapshot(self) -> TableSnapshot:
        """The version that the job reads, with its files."""
        return self._table.snapshot(self.version)

    def with_metadata(self, metadata: Metadata) -> Self:
        """The same job on the table as it is to become: its rows are read with the columns that it gets."""
        became = copy(self)
        became.metadata, became.snapshot = metadata, self.snapshot.with_metadata(metadata)
        return became

    def find_candidate_files(self, needed: str | None) -> list[Add]:
        """The files that may hold rows for which a condition is true, all of them without one.

        Who changes rows looks at them for that. In a serializable transaction it counts as read; in others a
        row that somebody else adds meanwhile is as one that came later.
        """
        if is_serializable(self.lake, self.branch):
            note_reads(self.lake, self.branch, None, Read(key=self.key, part=needed))
        return list(self.snapshot.files(needed))

    def final_row_ids(self, files: Sequence[Add]) -> dict[str, FileRowIds] | None:
        """The ids that rows of files keep when they are written to others; ``None`` without row tracking."""
        return final_row_ids(self.lake, self._now, files)

    def reopen_table(self) -> Self:
        """The table as it is now, for the same job."""
        fresh = self._open_job()
        fresh.job, fresh._began = self.job, self._began
        return fresh

    def _open_job(self) -> Self:
        return type(self)(self.lake, self.key, self.branch)

    @property
    def clustering(self) -> Clustering:
        """The columns that the table is clustered by, as its files call them."""
        return get_clustering(self._table, self.protocol)

    @property
    def data_folder(self) -> str:
        """Where below the table's root the job writes its files."""
        return data_folder(self.lake, self.branch)

    def commit_actions(
        self,
        actions: Sequence[Action],
        *,
        operation: str,
        parameters: dict[str, Any],
        metrics: Mapping[str, int] = {},
        reads: WriterReads = WriterReads(),
        replaces: Sequence[TablePart] | None = None,
        description: CommitDescription = CommitDescription(),
        idempotency_key: str | None = None,
        keep_files: bool = False,
    ) -> TableCommitResult:
        """Make actions the table's next version, if nothing landed since that they cannot stand with.

        If it is refused, the files of the actions are removed, as far as possible: nobody else can name them.
        With ``keep_files`` they stay, for another try. They also stay if it is not known what came of it.
        """
        with remove_files_if_refused(self.place, () if keep_files else actions):
            self._began.check_in_time()
            fields: dict[str, Any] = {"operation": operation, "operationParameters": parameters}
            if metrics:
                fields["operationMetrics"] = {name: str(count) for name, count in metrics.items()}
            info = CommitInfo(fields)
            one = table_commit(self._table, [info, *actions])
            table_change = msgspec.structs.replace(
                one,
                table=self.id,
                read_version=self.version,
                read_tip=self._now.tip,
                reads=reads,
                replaces=None if replaces is None else tuple(replaces),
            )
            return self.lake.do(
                CommitTables(
                    tables=(table_change,),
                    branch=self.branch,
                    said=description
                    if description.message
                    else msgspec.structs.replace(description, message=self._default_message(operation)),
                    idempotency_key=idempotency_key if idempotency_key is not None else str(self.job),
                    who=self.lake.author,
                )
            )

    def _default_message(self, operation: str) -> str:
        """What the lake's history says of a commit that nobody said anything of."""
        return f"{_WORDS.get(operation, 'write')} {self.key}"


_WORDS: Final = {
    "DELETE": "delete from",
    "UPDATE": "update",
    "MERGE": "merge into",
    "OPTIMIZE": "optimize",
}


def final_row_ids(lake: Lake, now: TableVersions, files: Sequence[Add]) -> dict[str, FileRowIds] | None:
    """Of some files of a table as it is ``now`` on a branch, those whose rows have ids that they keep, with
    these, by decoded paths; ``None`` if the table does not track rows."""
    _, metadata = now.parse_declared()
    if get_row_tracking_columns(metadata) is None:
        return None
    by_path = collect_row_ids(files)
    final = {path: ids for path, ids in by_path.items() if not ids.is_provisional}
    own = by_path.keys() - final.keys()
    return {**final, **_landed_row_ids(lake, now, own)} if own else final


def _landed_row_ids(lake: Lake, now: TableVersions, paths: set[str]) -> dict[str, FileRowIds]:
    """The ids of those files that are in the table on the default branch."""
    with suppress(RequestError, Denied):  # it is not there, or not for this reader
        snapshot = lake.at(lake.default_branch).outside_read_set.table(now.key).snapshot()
        if snapshot.location == now.location:
            return collect_row_ids(file for file in snapshot.files() if file.key.path in paths)
    return {}
