"""A Delta table that a job works on: as it is when the job begins, and how its files become part of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import ConflictError, InvalidRequest, RequestError
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    Metadata,
    Protocol,
    parse_action,
)
from penstock.formats.delta.protocol.schema import StructType, parse_schema
from penstock.lake.call import Said
from penstock.lake.calls import GetAbout
from penstock.lake.delta import table_commit
from penstock.lake.delta_answers import Ratified
from penstock.lake.delta_calls import CommitTables, GetTableVersions, Looked, Part
from penstock.lake.delta_snapshot import TableSnapshot
from penstock.model.keys import Key
from penstock.spark.job.files import names_of, remove_files, write_files
from penstock.spark.scan.columns import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType as SparkSchema

    from penstock.lake.lake import Lake

DAY_S: Final = 24 * 3600.0


class Began(msgspec.Struct, frozen=True):
    """When a job began, by two clocks: one stops while a machine sleeps, the other may be set back."""

    monotonic_s: float
    time_s: float
    grace_s: float
    """How long files stay that nobody has committed."""

    @classmethod
    def now(cls, lake: Lake) -> Began:
        return cls(time.monotonic(), time.time(), lake.do(GetAbout()).data_grace_days * DAY_S)

    def check_in_time(self) -> None:
        """``InvalidRequest`` if the job took so long that a sweep may soon take its files for leftovers."""
        ago_s = max(time.monotonic() - self.monotonic_s, time.time() - self.time_s)
        if ago_s > self.grace_s / 2:
            raise InvalidRequest(
                f"the job took {ago_s / DAY_S:.1f} days, and files that nobody has committed may be swept "
                f"after {self.grace_s / DAY_S:g}; nothing was committed. The setting 'data_grace_days' must "
                "be more than twice as long as any job"
            )


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
        self._table = lake.table(self.key, self.branch)
        self._now = lake.do(GetTableVersions(key=self.key, at=self.branch, limit=0))
        metadata, protocol = (
            parse_action(self._now.metadata.encode()),
            parse_action(self._now.protocol.encode()),
        )
        assert isinstance(metadata, Metadata)
        assert isinstance(protocol, Protocol)
        self.metadata, self.protocol = metadata, protocol

    @property
    def id(self) -> UUID:
        return self._now.id

    @property
    def location(self) -> str:
        return self._now.location

    @property
    def version(self) -> int:
        """The version that the job reads."""
        return self._now.latest_version

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schema_string)

    @property
    def spark_schema(self) -> SparkSchema:
        return spark_schema(self.schema)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.metadata.partition_columns

    @cached_property
    def snapshot(self) -> TableSnapshot:
        """The version that the job reads, with its files."""
        return self._table.snapshot(self.version)

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
        they also have ``jobs.CHANGES``, and those for which it is true have ``_change_type``: these become
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
            options=self._options,
        )

    def forget(self, names: Iterable[str]) -> None:
        """Remove files, named below the table's root, that no commit has, or will have."""
        remove_files(self.lake, self.location, names)

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
        try:
            self._began.check_in_time()
            info = CommitInfo({"operation": operation, "operationParameters": parameters})
            one = table_commit(self._table, [info, *actions])
            wanted = msgspec.structs.replace(
                one,
                table=self.id,
                read_version=self.version,
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
        except (RequestError, ConflictError):  # whatever else it is, it may have been done, or be done yet
            if not keep_files:
                self.forget(names_of(actions))
            raise

    def _deed(self, operation: str) -> str:
        """What the lake's history says of a commit that nobody said anything of."""
        return f"{_WORDS.get(operation, 'write')} {self.key}"


_WORDS: Final = {"DELETE": "delete from", "UPDATE": "update", "MERGE": "merge into"}
