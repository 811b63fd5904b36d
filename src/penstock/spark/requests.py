"""What is asked of Spark, whatever the format of the table: writes, reads and changes of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict
from uuid import UUID

import msgspec

from penstock.lake.calls import describe_commit
from penstock.lake.own_reads import OwnReads
from penstock.lake.row_changes import MergeClause
from penstock.lake.write_jobs import SaveMode
from penstock.model.commits import Commit
from penstock.model.keys import Key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.lake.call import CommitDescription
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table

Values: TypeAlias = Mapping[str, Any]
"""By the names of columns, with a part of a struct as ``address.city``: SQL text, a ``Column``, or any other
value of Python as itself."""


class WriteResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a write to a table came to."""

    key: Key
    branch: str
    commit: Commit | None
    """Of the lake, or of the transaction that it was written in; ``None`` of a job that an earlier attempt
    has done, if the history has no such commit any more."""
    version: int | None = None
    """Of the table, that has the rows; ``None`` if tables of its format have no versions of their own."""
    rows: int | None = None
    """How many were written; ``None`` if that is not known."""
    deleted: int | None = None
    """How many rows a change of a Delta table's rows deleted; ``None`` if that is not known, …"""
    updated: int | None = None
    """… how many it updated …"""
    inserted: int | None = None
    """… and how many it inserted."""
    job: str | None = None
    """The id of the job, by which it is done once, in formats whose writes have one."""
    is_repeated: bool = False
    """Whether the table had it already: this attempt, or this batch of an application, was committed
    before."""


class TableOptions(TypedDict, total=False):
    """Further arguments of writes to tables, and of streams into them."""

    create: bool
    """Whether a missing table is created. True by default."""
    properties: Mapping[str, str] | None
    """The properties of a new Delta table; for Lance tables and tables of files, those of the commit."""
    options: Mapping[str, Any] | None
    """For the writer of the files."""
    # The others are not for every format.
    partition_by: str | Sequence[str] | None
    """The partition columns of a new table."""
    partition_overwrite: str | None
    """``"dynamic"`` overwrites only the partitions that the new rows are in, ``"static"`` all rows."""
    replace_where: str | None
    """Overwrite only rows for which this condition is true, as it must be for every new row."""
    merge_schema: bool
    """Add columns that the table lacks."""
    overwrite_schema: bool
    """Replace the table's columns by those of the data."""
    description: str
    """Of a table that is created."""


class WriteOptions(TableOptions, total=False):
    """Further arguments of a write."""

    app_id: str | None
    """The application whose batches are numbered."""
    batch: int | None
    """The number of the batch: it is written once, and none after a later one."""
    job_id: str | UUID | None
    """The id of the job: a job with the same id is done once, however often it is tried."""
    job_branch: bool
    """Work on a branch of its own, which is merged at the end."""
    success_file: bool
    """Add ``_SUCCESS`` with a summary, in the same commit."""
    timeout_s: float | None
    """The number of seconds after which the job cannot commit any more."""


class ReadOptions(TypedDict, total=False):
    """Arguments of a read that are not for every format."""

    format: str | None
    """Of the files, where the table does not say it."""
    schema: str | StructType | None
    """Of the rows, where the table does not say it."""
    options: Mapping[str, Any] | None
    """For the reader of the files."""
    folder: str
    """Read only the files below this folder of the table."""


@dataclass(frozen=True, kw_only=True)
class WriteRequest:
    """A write of rows, as its caller asks for it."""

    lake: Lake
    key: Key
    branch: str | None
    source: str
    """The format, as Spark names it; empty if none is given."""
    mode: SaveMode
    create: bool = True
    options: dict[str, str] = field(default_factory=dict)
    """For the writer of the files."""
    properties: dict[str, str] = field(default_factory=dict)
    message: str | None
    author: str | None = None
    idempotency_key: str | None = None
    extra: WriteOptions = field(default_factory=WriteOptions)
    """What is not for every format."""
    own_reads: OwnReads = ()
    """What the rows are made of that the table has."""

    @property
    def branch_name(self) -> str:
        return self.branch if self.branch is not None else self.lake.default_branch

    @property
    def commit_meta(self) -> CommitDescription:
        return describe_commit(self.message, self.author)


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What is to be read of a table."""

    version: int | None = None
    timestamp: str | datetime | None = None
    where: str | None = None
    """Rows for which it is not true may be left out."""
    columns: Sequence[str] | None = None
    """Others may be left out."""
    extra: ReadOptions = field(default_factory=ReadOptions)
    """What is not for every format."""


@dataclass(frozen=True, kw_only=True)
class ChangeRequest:
    """A change of rows of a table: what a deletion, an update and a merge have in common."""

    spark: SparkSession
    lake: Lake
    key: Key
    branch: str | None
    message: str | None
    author: str | None
    idempotency_key: str | None
    own_reads: OwnReads = ()
    """What a source or a subquery reads of the table."""

    @property
    def table(self) -> Table:
        """As it is when this is called; in a transaction, looking at it does not count as a read."""
        return self.lake.table(self.key, self.branch).outside_read_set

    @property
    def commit_meta(self) -> CommitDescription:
        return describe_commit(self.message, self.author)


class RowMerge(NamedTuple):
    """Which rows belong together, and what is done with them."""

    source: DataFrame
    on: str | Column
    clauses: tuple[MergeClause, ...] = ()
    merge_schema: bool = False
    """Whether the table gets columns that clauses take from the source and that it lacks."""
