"""Reads a table by ``format("penstock")``: one version of it, chosen when the read is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.spark.source.conditions import check_condition
from penstock.formats.delta.spark.source.file_groups import group_files, read_group, readable_schema
from penstock.formats.rows.arrow_types import find_arrow_type
from penstock.formats.rows.schema import StructType
from penstock.lake.calls import Resolve
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.similar_names import describe_names
from penstock.spark.source.options import SourceOptions
from penstock.spark.spark_errors import mark_errors


class PinnedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a table at one commit of the lake, which never changes."""

    commit: str
    via: str | None
    """The reference that led to the commit."""
    version: int
    metadata: Metadata

    def open_table(self, lake: Lake, options: SourceOptions) -> Table:
        return Table(lake, options.table, self.commit, self.via)


def pin_table(options: SourceOptions) -> PinnedTable:
    """What the options name, as it is now."""
    with options.open() as lake:
        resolved = lake.do(Resolve(revision=options.ref))
        if options.version is None and options.timestamp is None:
            call = GetTableVersions(key=options.table, at=resolved.commit, via=resolved.name, limit=0)
            try:
                now = lake.do(call)
            except NotManaged as problem:
                raise NotManaged(
                    f"{problem.message}\n  format('penstock') reads Delta tables only; "
                    f"penstock.spark.read(spark, '{options.table}') reads tables of every format.",
                    key=str(options.table),
                ) from problem
            version, (_, metadata) = now.latest_version, now.parse_declared()
        else:
            table = Table(lake, options.table, resolved.commit, resolved.name)
            snapshot = table.snapshot(options.version, options.timestamp)
            version, metadata = snapshot.version, snapshot.metadata
        return PinnedTable(commit=resolved.commit, via=resolved.name, version=version, metadata=metadata)


class TableReader(DataSourceReader):
    """Reads a version of a table. The tasks share its files; each yields batches of Arrow.

    There is no push-down of filters: Spark's way of doing it for sources in Python gives wrong answers where
    a DataFrame is used twice. The option ``where`` skips files and rows instead.
    """

    def __init__(self, options: SourceOptions, pin: PinnedTable, schema: StructType) -> None:
        check_condition(options.where, pin.metadata)
        self._options, self._pin = options, pin
        self._columns = select_column_names(schema, pin.metadata)

    def partitions(self) -> Sequence[InputPartition]:
        with mark_errors(), self._options.open() as lake:
            table = self._pin.open_table(lake, self._options)
            if self._options.version is None and self._options.timestamp is None:
                table.note_read(self._options.where)
            snapshot = table.snapshot(self._pin.version)
            files = snapshot.files(self._options.where)
            return group_files(lake.places, snapshot.location, snapshot.protocol, snapshot.metadata, files)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with mark_errors():
            yield from read_group(partition, self._columns, self._options.where)


def select_column_names(schema: StructType, metadata: Metadata) -> tuple[str, ...]:
    """The columns that are read for a schema, which is the table's or names some of its columns.

    ``InvalidRequest`` for a column that the table does not have, or has in another type.
    """
    table_schema = readable_schema(metadata)
    for wanted_field in schema.fields:
        table_field = table_schema.field(wanted_field.name)
        if table_field is None or table_field.name != wanted_field.name:
            choices = describe_names(wanted_field.name, [field.name for field in table_schema.fields])
            raise InvalidRequest(f"the table has no column '{wanted_field.name}'{choices}")
        if find_arrow_type(table_field.type, table_field.name) != find_arrow_type(
            wanted_field.type, wanted_field.name
        ):
            raise InvalidRequest(
                f"the column '{wanted_field.name}' of the table has the type {table_field.type}, not "
                f"{wanted_field.type}; read it as {table_field.type}, then cast it"
            )
    return tuple(field.name for field in schema.fields)
