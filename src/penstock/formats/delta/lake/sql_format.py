"""Delta tables for engines of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from penstock.formats.delta.branch_log.ownership import PROTECTED
from penstock.formats.delta.lake.calls import GetTableVersions
from penstock.formats.delta.lake.file_columns import shown_schema
from penstock.formats.delta.lake.scan_conditions import readable_condition, skip_files
from penstock.formats.delta.lake.scan_plan import plan_scan
from penstock.formats.delta.lake.sql_writes import commit_write, plan_write
from penstock.formats.delta.lake.statement_changes import alter_table
from penstock.formats.delta.log.snapshot import check_readable
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import (
    CURRENT_DEFAULT,
    EXPLICIT,
    GENERATED,
    IDENTITY_START,
    IDENTITY_STEP,
    is_computed,
    list_default_expressions,
)
from penstock.formats.rows.schema import StructType, parse_schema, write_schema
from penstock.lake.scan_files import ScanCondition, SkippedFiles, TableScan
from penstock.lake.sql_catalog.formats import SqlFormat
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    ColumnValues,
    EmptyTable,
    RowOrder,
    StatementChange,
    TableDescription,
    TableFacts,
    WritePlan,
    WrittenRows,
)
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


_NOTES_OF_SPARK: Final = frozenset(
    {
        CURRENT_DEFAULT,
        "EXISTS_DEFAULT",
        "GENERATION_EXPRESSION",
        "identity.start",
        "identity.step",
        "identity.allowExplicitInsert",
    }
)
"""In the metadata of a column: what Spark notes of its values, which is told apart from that."""


class DeltaSql(SqlFormat):
    """Delta tables: read by their files, their statistics and deletion vectors."""

    content_type = DeltaTable.content_type
    described = "Delta table"
    source_name = "delta"
    is_default = True

    def describe_table(self, table: Table, version: int | None) -> TableDescription:
        location, metadata = _version_metadata(table.outside_read_set, version)
        return TableDescription(
            provider="delta",
            schema=write_schema(shown_schema(metadata)),
            partition_by=metadata.partition_columns,
            properties={
                name: value for name, value in metadata.configuration.items() if name not in PROTECTED
            },
            location=location,
            description=metadata.description or "",
            defaults=dict(list_default_expressions(metadata)),
            computed=tuple(
                field.name for field in parse_schema(metadata.schema_string).fields if is_computed(field)
            ),
        )

    def plan_scan(self, table: Table, request: CatalogRequest) -> TableScan:
        assert request.table is not None
        noted = table.snapshot(request.table.version)
        snapshot = noted.outside_read_set
        condition = readable_condition(snapshot, request.where, request.zone)
        noted.note_read(condition)
        facts = TableFacts(key=table.key.elements, pin=request.known_table.pin, version=snapshot.version)
        origin = f"{table.key}@{table.ref}"
        return plan_scan(snapshot, snapshot.files(condition), origin, {"facts": msgspec.to_builtins(facts)})

    def skip_files(
        self, table: Table, version: int | None, conditions: Sequence[ScanCondition], among: Sequence[str]
    ) -> SkippedFiles:
        return skip_files(table.snapshot(version).outside_read_set, conditions, among)

    def create_table(self, lake: Lake, table: EmptyTable) -> None:
        lake.create_table(
            table.key,
            schema=_add_value_notes(table),
            partition_by=table.partition_by,
            cluster_by=table.cluster_by,
            properties=table.properties,
            description=table.description,
            branch=table.branch,
        )

    def plan_write(self, lake: Lake, order: RowOrder) -> WritePlan:
        return plan_write(lake, order)

    def commit_write(self, lake: Lake, order: RowOrder, written: WrittenRows) -> None:
        commit_write(lake, order, written)

    def truncate_table(self, lake: Lake, table: EmptyTable) -> None:
        lake.table(table.key, table.branch).delete(
            message=f"TRUNCATE TABLE {table.key}", idempotency_key=table.statement
        )

    def alter_table(
        self, lake: Lake, key: Key, branch: str | None, changes: Sequence[StatementChange]
    ) -> None:
        alter_table(lake, key, branch, changes)


def _version_metadata(table: Table, version: int | None) -> tuple[str, Metadata]:
    """Where a table is, and what it is at a version. What it is now takes no look at its log."""
    if version is not None:
        snapshot = table.snapshot(version).outside_read_set
        return snapshot.location, snapshot.metadata
    call = GetTableVersions(key=table.key, at=table.ref, via=table.via, limit=0)
    latest = table.lake.do(call)
    protocol, metadata = latest.parse_declared()
    check_readable(latest.location, protocol, metadata)
    return latest.location, metadata


def _add_value_notes(table: EmptyTable) -> StructType:
    """The columns of a new table, with what is noted of their values as Delta notes it."""
    values = {column.name: _make_value_notes(column) for column in table.column_values}
    schema = parse_schema(table.schema)
    fields = (
        replace(
            field,
            metadata={name: note for name, note in field.metadata.items() if name not in _NOTES_OF_SPARK}
            | values.get(field.name, {}),
        )
        for field in schema.fields
    )
    return StructType(tuple(fields))


def _make_value_notes(column: ColumnValues) -> dict[str, Any]:
    if column.identity is not None:
        return {
            IDENTITY_START: column.identity.start,
            IDENTITY_STEP: column.identity.step,
            EXPLICIT: column.identity.allows_explicit,
        }
    if column.generated is not None:
        return {GENERATED: column.generated}
    return {CURRENT_DEFAULT: column.default}
