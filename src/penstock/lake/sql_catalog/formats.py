"""What an engine of SQL without Python is told of tables, by their formats.

Such an engine reads files by itself. A format that can tell which files, columns and deleted rows make up a
table declares its part (``penstock.formats.registry``); tables of the others need a driver with Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.registry import list_table_formats, load_part
from penstock.lake.scan_files import ScanCondition, SkippedFiles, TableScan
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    EmptyTable,
    RowOrder,
    StatementChange,
    TableDescription,
    WritePlan,
    WrittenRows,
)
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


WITH_PYTHON: Final = (
    "use PySpark, with penstock.spark.session(lake), or name a Python that has Penstock in the catalog's "
    "setting 'python' (spark.sql.catalog.<name>.python)"
)
"""What brings Python to a driver."""


class SqlFormat:
    """What engines without Python do with tables of a format. What they cannot do is refused here."""

    content_type: ClassVar[str]
    """What a lake calls a table of the format."""
    described: ClassVar[str]
    """What a table of the format is called."""
    source_name: ClassVar[str | None] = None
    """How ``USING`` names the format; ``None`` for tables that are files of any source of Spark's."""
    is_default: ClassVar[bool] = False
    """Whether tables are of the format where a statement names none."""

    def describe_table(self, table: Table, version: int | None) -> TableDescription:
        """A table as SQL sees it. It counts as no read. Without a schema, the engine asks for a scan."""
        raise NotImplementedError

    def plan_scan(self, table: Table, request: CatalogRequest) -> TableScan:
        """What the engine is to read for the rows of a table."""
        raise NotImplementedError

    def skip_files(
        self,
        table: Table,  # noqa: ARG002
        version: int | None,  # noqa: ARG002
        conditions: Sequence[ScanCondition],  # noqa: ARG002
        among: Sequence[str],  # noqa: ARG002
    ) -> SkippedFiles:
        """Which files of a table have no row for which all conditions are true. It counts as no read.

        ``among`` has the names of the files that are asked about; all of the table's if it is empty.
        """
        return SkippedFiles(is_kept=False, files=())

    def create_table(self, lake: Lake, table: EmptyTable) -> WritePlan | None:
        """Create a table without rows, or have the engine write none. ``TableExists`` if there is one."""
        raise NotImplementedError

    def alter_table(
        self,
        lake: Lake,  # noqa: ARG002
        key: Key,
        branch: str | None,  # noqa: ARG002
        changes: Sequence[StatementChange],  # noqa: ARG002
    ) -> None:
        """Change columns or properties of a table, as ALTER TABLE says."""
        raise NotManaged(f"'{key}' is a {self.described}, which cannot be altered", key=str(key))

    def plan_write(self, lake: Lake, order: RowOrder) -> WritePlan:  # noqa: ARG002
        """How the engine is to write rows to a table."""
        raise make_needs_python_error(
            f"rows cannot be written to '{order.key}', which is a {self.described},"
        )

    def commit_write(self, lake: Lake, order: RowOrder, written: WrittenRows) -> None:  # noqa: ARG002
        """Commit the files of a job whose plan says that they are told."""
        raise InvalidRequest(f"'{order.key}' is a {self.described}, whose jobs commit their files themselves")

    def truncate_table(self, lake: Lake, table: EmptyTable) -> WritePlan | None:
        """Remove all rows of a table, or have the engine put none in their place."""
        raise NotImplementedError


def find_sql_format(table: Table) -> SqlFormat:
    """The format of a table. ``NotManaged`` if only a driver with Python can read it."""
    try:
        kind = table.outside_read_set.type
    except KeyNotFound:
        table.note_read()  # that there is none
        raise
    for sql_format in _list_sql_formats():
        if sql_format.content_type == kind:
            return sql_format
    raise NotManaged(
        f"'{table.key}' is a {kind}, which Spark reads only in a driver with Python: {WITH_PYTHON}",
        key=str(table.key),
    )


def find_sql_format_by_name(name: str) -> SqlFormat:
    """The format that ``USING`` names; the default one if it names none."""
    if not name:
        return next(sql_format for sql_format in _list_sql_formats() if sql_format.is_default)
    for declared in list_table_formats():
        if declared.name == name and declared.sql is None:
            raise make_needs_python_error(f"a {declared.content_type} cannot be created")
    by_source = {sql_format.source_name: sql_format for sql_format in _list_sql_formats()}
    return by_source.get(name) or by_source[None]


def make_needs_python_error(subject: str) -> InvalidRequest:
    """The error for a statement whose work is done by Python."""
    return InvalidRequest(f"{subject} by a Spark driver without Python: {WITH_PYTHON}")


def _list_sql_formats() -> Iterator[SqlFormat]:
    return (_load_format(declared.sql) for declared in list_table_formats() if declared.sql is not None)


@cache
def _load_format(path: str) -> SqlFormat:
    made: SqlFormat = load_part(path)()
    return made
