"""A Delta table that a job works on: as it is when the job begins, and how its files become part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec

from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, Looked, Part
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.lake.table import clustering_of, table_commit
from penstock.formats.delta.lake.written_files import removed_if_refused
from penstock.formats.delta.protocol.actions import Action, Add, Cdc, CommitInfo, Metadata
from penstock.formats.delta.spark.job.files import write_files
from penstock.formats.rows.schema import StructType, parse_schema
from penstock.lake.answers import Ratified
from penstock.lake.call import Said
from penstock.lake.job_files import Began
from penstock.lake.transactions.reading import is_serializable, note_reads
from penstock.model.keys import Key
from penstock.model.reads import Read
from penstock.spark.schemas import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType as SparkSchema

    from penstock.lake.lake import Lake
    from penstock.storage.places import Place


class JobTable:
    """A table of a branch, and one job that changes it.

    What the table is was asked once, when this was made. ``NotManaged`` if its commits are not the lake's,
    ``KeyNotFound`` if it is not there.
    """

    def __init__(
        self, lake: Lake, key: str | Key, branch: str | None = None, options: Mapping[str, str] = {}
    ) -> None:
        """``options`` are for Spark's Parquet writer."""
        self.lake, self.key = lake, Key.parse(key)
        self.branch = branch if branch is not None else lake.default_branch
        self.job = uuid4()
        self._options = options
        self._began = Began.now(lake)
        # At one commit: if the branch is set to another, a version there may have the same number.
        self._table = lake.at(self.branch).unnoted.table(self.key)
        self._now = lake.do(GetTableVersions(key=self.key, at=self._table.ref, via=self._table.via, limit=0))
        self.protocol, self.metadata = self._now.declared()

    @property
    def id(self) -> UUID:
        return self._now.id

    @property
    def location(self) -> str:
        return self._now.location

    @property
    def place(self) -> Place:
        """Where its files are."""
        return self.lake.places.at(self.location)

    @property
    def version(self) -> int:
        """The version that the job reads."""
        return self._now.latest_version

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def to_spark_schema(self) -> SparkSchema:
        return to_spark_schema(self.schema)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @cached_property
    def snapshot(self) -> TableSnapshot:
        """The version that the job reads, with its files."""
        return self._table.snapshot(self.version)

    def candidates(self, needed: str | None) -> list[Add]:
        """The files that may hold rows for which a condition is true, all of them without one.

        Who changes rows looks at them for that. In a serializable transaction it counts as read; in others a
        row that somebody else adds meanwhile is as one that came later.
        """
        if is_serializable(self.lake, self.branch):
            note_reads(self.lake, self.branch, None, Read(key=self.key, part=needed))
        return list(self.snapshot.files(needed))

    def again(self) -> JobTable:
        """The table as it is now, for the same job."""
        found = JobTable(self.lake, self.key, self.branch, self._options)
        found.job, found._began = self.job, self._began
        return found

    def write(
        self, df: DataFrame, *, has_changes: bool = False, metadata: Metadata | None = None
    ) -> list[Add | Cdc]:
        """Write rows as files of the table, and return the actions that would make them part of it.

        The rows have exactly the table's columns: those of ``metadata``, if it is to get others. With changes
        they also have ``CHANGES``, and those for which it is true have ``_change_type``: these become
        files of the change data feed.

        ``InvalidRequest`` for rows that the table cannot have, and ``UnsupportedFeature`` if it asks for more
        than Penstock does; then no file is left, as far as possible. Else whatever Spark raises.
        """
        return write_files(
            df,
            self.lake,
            self.location,
            self.metadata if metadata is None else metadata,
            branch=self.branch,
            has_changes=has_changes,
            clustering=clustering_of(self._table, self.protocol),
            options=self._options,
        )

    def commit(
        self,
        actions: Sequence[Action],
        *,
        operation: str,
        parameters: dict[str, Any],
        reads: Looked = Looked(),
        replaces: Sequence[Part] | None = None,
        said: Said = Said(),
        idempotency_key: str | None = None,
        keep_files: bool = False,
    ) -> Ratified:
        """Make actions the table's next version, if nothing landed since that they cannot stand with.

        If it is refused, the files of the actions are removed, as far as possible: nobody else can name them.
        With ``keep_files`` they stay, for another try. They also stay if it is not known what came of it.
        """
        with removed_if_refused(self.place, () if keep_files else actions):
            self._began.check_in_time()
            info = CommitInfo({"operation": operation, "operationParameters": parameters})
            one = table_commit(self._table, [info, *actions])
            wanted = msgspec.structs.replace(
                one,
                table=self.id,
                read_version=self.version,
                read_tip=self._now.tip,
                reads=reads,
                replaces=None if replaces is None else tuple(replaces),
            )
            return self.lake.do(
                CommitTables(
                    tables=(wanted,),
                    branch=self.branch,
                    said=said
                    if said.message
                    else msgspec.structs.replace(said, message=self._deed(operation)),
                    idempotency_key=idempotency_key if idempotency_key is not None else str(self.job),
                    who=self.lake.author,
                )
            )

    def _deed(self, operation: str) -> str:
        """What the lake's history says of a commit that nobody said anything of."""
        return f"{_WORDS.get(operation, 'write')} {self.key}"


_WORDS: Final = {"DELETE": "delete from", "UPDATE": "update", "MERGE": "merge into"}
