"""Reads a Lance table with Spark: the rows that it has at a commit, each fragment by one task.

The driver opens the table as the commit has it, and the tasks are given what it saw: whatever is committed
later, and wherever the version's manifest goes, they read that version. They ask nobody but the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidRequest, VersionNotFound
from penstock.formats.lance.lake.calls import ListLanceVersions
from penstock.formats.lance.lake.failures import files_missing_error
from penstock.formats.lance.lake.rows import open_lance_dataset, require_version
from penstock.formats.lance.lake.table_rows import bind_columns, list_fragments
from penstock.formats.lance.spark import tasks
from penstock.formats.lance.spark.arrow import map_in_arrow
from penstock.formats.lance.spark.conditions import write_lance_condition
from penstock.formats.lance.spark.pickled_table import pickle_table
from penstock.formats.lance.spark.schemas import make_readable_schema
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.row_difference import StoredRows
from penstock.model.names import parse_time
from penstock.spark.format import ScannedTable
from penstock.spark.requests import ReadRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.formats.rows.reader import StoredRowPart
    from penstock.lake.table import Table

TASKS_MAX: Final = 10_000
"""Where a table has more fragments, a task reads several."""


def read_rows(spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
    """The rows of a Lance table, at the commit that ``table`` names by its id.

    Rows for which ``where`` is true are all there, and perhaps others. Of the columns, those that are named
    as ``columns`` or by ``where`` are there. ``VersionNotFound`` without such a version, ``InvalidRequest``
    for columns of types that Spark has not.
    """
    version, timestamp, where = request.version, request.timestamp, request.where
    if version is not None and timestamp is not None:
        raise InvalidRequest("give a version or a timestamp, not both")
    if version is None:
        table.note_read()
    opened = _open_version(table.outside_read_set, version, timestamp)
    schema = make_readable_schema(_find_needed_columns(opened.schema, where, request.columns))
    fragments = [fragment.fragment_id for fragment in opened.get_fragments()]
    return _read_fragments(spark, table, opened, fragments, schema, where)


def scan_table(spark: SparkSession, table: Table) -> ScannedTable:
    """The rows of a Lance table, and its fragments, of which some can be read by themselves."""
    table.note_read()
    opened = _open_version(table.outside_read_set, None, None)
    schema = make_readable_schema(opened.schema)
    parts = list(list_fragments(opened))

    def read_parts(chosen: Sequence[StoredRowPart] | None) -> DataFrame:
        fragments = [part.source.fragment_id for part in (parts if chosen is None else chosen)]
        return _read_fragments(spark, table, opened, fragments, schema)

    return ScannedTable(read_parts(()).schema, read_parts, StoredRows(parts, bind_columns(opened)))


def _read_fragments(
    spark: SparkSession,
    table: Table,
    opened: Any,
    fragments: list[int],
    schema: Any,
    where: str | None = None,
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    shown = from_arrow_schema(schema)
    zone = spark.conf.get("spark.sql.session.timeZone", None)
    condition = write_lance_condition(where, shown, opened.schema, zone)
    task = tasks.make_scan_task(
        pickle_table(opened), fragments, schema, condition, str(files_missing_error(table.key))
    )
    places = spark.range(0, len(fragments), 1, max(1, min(len(fragments), TASKS_MAX)))
    return map_in_arrow(places, task, shown)


def _open_version(table: Table, version: int | None, timestamp: str | datetime | None) -> Any:
    number = _find_version_at(table, timestamp) if timestamp is not None else require_version(table, version)
    return open_lance_dataset(table, version=number)


def _find_version_at(table: Table, timestamp: str | datetime) -> int:
    """The newest version that the table had at a time."""
    time = timestamp if isinstance(timestamp, datetime) else parse_time(timestamp)
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    listing = ListLanceVersions(key=table.key, at=table.ref, via=table.via)
    for page in table.lake.pages(listing, None, lambda last: {"below": last.version}):
        if page.created is not None and page.created <= time:
            return page.version
    raise VersionNotFound(f"'{table.key}' has no version from {timestamp} or earlier")


def _find_needed_columns(schema: Any, where: str | None, columns: Sequence[str] | None) -> Any:
    """The columns that have to be read. Whatever a condition may mean by a name is among them."""
    if columns is None:
        return schema
    named = {column.lower() for column in columns}
    text = "" if where is None else where.replace("``", "`").lower()
    fields = [field for field in schema if field.name.lower() in named or field.name.lower() in text]
    return pa.schema(fields or [*schema])
