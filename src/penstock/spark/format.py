"""What Spark asks of a table format, and the formats that answer.

``penstock.spark`` checks what is the same for all formats, and asks the format of a table for the rest. It
names none: a format that Spark can work with declares its part (``penstock.formats.registry``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged, TableExists
from penstock.formats.registry import list_table_formats, load_part
from penstock.lake.sql_catalog.requests import EmptyTable, StatementChange, TableDescription
from penstock.lake.write_jobs import SaveMode
from penstock.model.keys import Key
from penstock.spark.requests import ReadRequest, WriteRequest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from penstock.formats.rows.reader import StoredRowPart
    from penstock.formats.rows.row_difference import StoredRows
    from penstock.lake.lake import Lake
    from penstock.lake.scan_files import TableScan
    from penstock.lake.table import Table
    from penstock.lake.upkeep import OptimizedTable, OptimizeOrder
    from penstock.spark.requests import (
        ChangeRequest,
        RowMerge,
        Values,
        WriteResult,
    )
    from penstock.spark.source.options import SourceOptions

T = TypeVar("T")

ReadByPlans: TypeAlias = "Callable[[SparkSession], DataFrame]"
"""Makes the rows of a table in a session."""


class TableSource(Protocol):
    """A table as ``format("penstock")`` reads and writes it, in processes of Spark's own. It is pickled."""

    def schema(self) -> StructType: ...
    def reader(self, schema: StructType) -> DataSourceReader: ...
    def writer(self, schema: StructType, *, is_overwrite: bool) -> DataSourceWriter: ...
    def stream_reader(self, schema: StructType) -> DataSourceStreamReader: ...
    def stream_writer(self, schema: StructType, *, is_overwrite: bool) -> DataSourceStreamWriter: ...


class ScannedTable(NamedTuple):
    """A table at a commit, of which Spark can read all rows, or those of some files."""

    schema: StructType
    read: Callable[[Sequence[StoredRowPart] | None], DataFrame]
    """The rows of some of what is stored, or all rows."""
    stored: StoredRows | None = None
    """What the rows are stored in; ``None`` if the format cannot read some of it by itself."""


class SparkFormat:
    """What Spark does with tables of a format. What a format cannot do is refused here, by its name."""

    content_type: ClassVar[str]
    """What a lake calls a table of the format."""
    described: ClassVar[str]
    """What a table of the format is called."""
    source_name: ClassVar[str | None] = None
    """How writes and reads name the format; ``None`` for tables that are files of any source of Spark's."""
    is_default: ClassVar[bool] = False
    """Whether tables are of the format where a write names none."""
    write_hint: ClassVar[str] = ""
    """How a table of the format is written to, for who named no format."""
    write_options: ClassVar[frozenset[str]] = frozenset()
    """The further arguments of a write that it takes, of those that are not for every format."""
    read_options: ClassVar[frozenset[str]] = frozenset()
    """The same for a read."""
    others_options: ClassVar[str] = "cannot be used with format='{}'"
    """What is said of an argument that only others take; braces stand for the format's name."""

    def write_rows(self, df: DataFrame, request: WriteRequest) -> WriteResult | None:
        """Write rows; ``None`` if there is nothing to do. ``NotManaged`` for a table of another format."""
        raise NotImplementedError

    def read_table(self, spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
        """The rows of a table, at the commit that it names by its id. ``NotManaged`` if it is of another
        format."""
        raise NotImplementedError

    def plan_read(
        self,
        table: Table,
        request: ReadRequest,
        zone: str | None,  # noqa: ARG002
    ) -> TableScan | ReadByPlans:
        """The same for a session whose JVM has Penstock's classes: as data, of which these make the rows,
        where that says it all. ``zone`` is that of the session."""
        return lambda spark: self.read_table(spark, table, request)

    def scan_table(self, spark: SparkSession, table: Table) -> ScannedTable:
        """The rows of a table, at the commit that it names by its id, and what they are stored in."""
        rows = self.read_table(spark, table, ReadRequest())
        return ScannedTable(rows.schema, lambda _: rows)

    def delete_rows(self, change: ChangeRequest, where: str | Column | None) -> WriteResult | None:  # noqa: ARG002
        raise self._unsupported_error(change.key, "delete rows of")

    def update_rows(
        self,
        change: ChangeRequest,
        values: Values,  # noqa: ARG002
        where: str | Column | None,  # noqa: ARG002
    ) -> WriteResult | None:
        raise self._unsupported_error(change.key, "update rows of")

    def merge_rows(self, change: ChangeRequest, plan: RowMerge) -> WriteResult | None:  # noqa: ARG002
        raise self._unsupported_error(change.key, "merge rows into")

    def optimize_table(self, change: ChangeRequest, order: OptimizeOrder) -> OptimizedTable:
        """Rewrite files with the same rows. Where Spark has no part in it, this process does it."""
        return change.table.optimize(
            **order._asdict(),
            message=change.message,
            author=change.author,
        )

    def describe_table(self, spark: SparkSession, table: Table, version: int | None) -> TableDescription:
        """A table as SQL sees it. It counts as no read."""
        rows = self.read_table(spark, table.outside_read_set, ReadRequest(version=version))
        return TableDescription(provider=self.source_name or "", schema=rows.schema.json())

    def describe_stored(self, table: Table, version: int | None) -> TableDescription | None:  # noqa: ARG002
        """The same where it takes no Spark; ``None`` where it does."""
        return None

    def widen_schema(self, spark: SparkSession, table: Table, schema: str) -> str:  # noqa: ARG002
        """The columns of a table, and those that rows of a schema add to it: both as Spark's JSON."""
        raise self._unsupported_error(table.key, "add columns to")

    def create_table(self, spark: SparkSession, lake: Lake, table: EmptyTable) -> None:
        """Create a table without rows. ``TableExists`` if there is one."""
        from pyspark.sql.types import StructType

        if lake.table(table.key, table.branch).outside_read_set.exists:
            raise TableExists(f"the table '{table.key}' already exists", key=str(table.key))
        if table.cluster_by:
            raise InvalidRequest(f"a {self.described} cannot be clustered: leave out CLUSTER BY")
        request = WriteRequest(
            lake=lake,
            key=table.key,
            branch=table.branch,
            source=table.source,
            mode=SaveMode.ERROR,
            create=True,
            options={},
            properties=table.properties,
            message=f"CREATE TABLE {table.key}",
            author=None,
            idempotency_key=None,
            extra={"partition_by": table.partition_by} if table.partition_by else {},
        )
        self.write_rows(
            spark.createDataFrame([], StructType.fromJson(msgspec.json.decode(table.schema))), request
        )

    def alter_table(
        self,
        spark: SparkSession,  # noqa: ARG002
        lake: Lake,  # noqa: ARG002
        key: Key,
        branch: str | None,  # noqa: ARG002
        changes: Sequence[StatementChange],  # noqa: ARG002
    ) -> None:
        """Change columns or properties of a table, as ALTER TABLE says."""
        raise self._unsupported_error(key, "alter")

    def read_changes(self, spark: SparkSession, table: Table, first: int, last: int | None) -> DataFrame:  # noqa: ARG002
        """The changes of rows from one version to another, both included; to the latest if none is named."""
        raise self._unsupported_error(
            table.key, "read the changes of", "read it at two commits, as 'ref', and compare"
        )

    def open_source(self, options: SourceOptions) -> TableSource:
        """The table that ``format("penstock")`` is told of."""
        raise self._unsupported_error(
            options.table, "use format('penstock') for", "use penstock.spark.read and write"
        )

    def answer_session(self, lake: Lake, step: str, request: str) -> Any:
        """The answer to a step of a read or write by code that knows only its session, as JSON has it."""
        raise NotImplementedError

    def _unsupported_error(self, key: Key, deed: str, way: str | None = None) -> NotManaged:
        way = f"overwrite it instead: {self.write_hint}" if way is None else way
        return NotManaged(f"'{key}' is a {self.described}, so Spark cannot {deed} it; {way}", key=str(key))


@cache
def spark_formats() -> tuple[SparkFormat, ...]:
    """All formats that Spark can work with."""
    return tuple(_spark_formats())


@cache
def default_format() -> SparkFormat:
    """The format of tables that are written without naming one. Formats that are declared after it stay
    unloaded: processes of Spark's that read and write by ``format("penstock")`` need no other."""
    return next(spark_format for spark_format in _spark_formats() if spark_format.is_default)


@cache
def files_format() -> SparkFormat:
    """The format whose tables are files, as any source of Spark's writes them."""
    return next(spark_format for spark_format in spark_formats() if spark_format.source_name is None)


def _spark_formats() -> Iterator[SparkFormat]:
    return (
        _load_format(table_format.spark)
        for table_format in list_table_formats()
        if table_format.spark is not None
    )


@cache
def _load_format(path: str) -> SparkFormat:
    made: SparkFormat = load_part(path)()
    return made


def get_named_format(name: str) -> SparkFormat:
    """The format that a write or read names: one of its own name, or a source of Spark's."""
    return next(
        (spark_format for spark_format in spark_formats() if spark_format.source_name == name), files_format()
    )


def find_format(table: Table) -> SparkFormat | None:
    """The format of a table, if Spark can work with it.

    That alone is not to be remembered as read; that there is no such table is.
    """
    try:
        kind = table.outside_read_set.type
    except KeyNotFound:
        table.note_read()
        raise
    return next((spark_format for spark_format in spark_formats() if spark_format.content_type == kind), None)


def ask_format(table: Table, ask: Callable[[SparkFormat], T]) -> T:
    """Ask the format of a table. The default one is asked first: its tables cost no further request."""
    try:
        return ask(default_format())
    except NotManaged:
        other = find_format(table)
        if other is None or other is default_format():
            raise
    return ask(other)


def check_known(given: Mapping[str, Any], known: frozenset[str], subject: str) -> None:
    """``InvalidRequest`` for an argument that there is not."""
    if unknown := sorted(set(given) - known):
        raise InvalidRequest(
            f"{subject} has no argument '{unknown[0]}'; the arguments are {', '.join(sorted(known))}"
        )


def check_options(given: Mapping[str, Any], taken: frozenset[str], why: str) -> None:
    """``InvalidRequest`` for the first argument that was given and means nothing to a format."""
    for name, value in given.items():
        if name in taken or value is None or value is False or value == "" or value == {}:
            continue
        raise InvalidRequest(f"'{name}' {why}")
