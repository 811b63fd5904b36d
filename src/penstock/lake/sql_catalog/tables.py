"""Tables of a catalog: how SQL sees them, and what statements that create and alter them say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidRequest, KeyNotFound, LakeNotFound, TableExists
from penstock.lake.scan_files import SkippedFiles, TableScan
from penstock.lake.sql_catalog.entries import check_properties
from penstock.lake.sql_catalog.formats import sql_format_named, sql_format_of
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    EmptyTable,
    StatementChange,
    TableDescription,
    TableFacts,
    find_table,
    table_of,
)

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key

Describe: TypeAlias = Callable[["Table", int | None], TableDescription]
"""Describes a table at a version; ``KeyNotFound`` if there is none."""

_CLUSTERING: Final = "cluster_by("
_TYPES: Final = ("type", "elementType", "keyType", "valueType")
"""Where Spark's JSON of a type has others."""
_OF_LENGTH: Final = re.compile(r"(?:var)?char\(([0-9]+)\)")
RESERVED: Final = frozenset({"provider", "owner", "comment", "external", "is_managed_location", "collation"})
"""Properties that are Spark's own words: what they say has a place of its own, or is not for the lake."""


def describe_table(lake: Lake, request: CatalogRequest, describe: Describe) -> TableFacts:
    """A table as a name stands for it, described by the engine's side of its format."""
    try:
        named = find_table(lake, request)
    except LakeNotFound:  # the first write makes one
        return TableFacts(is_absent=True)
    facts = TableFacts(
        key=named.table.key.elements,
        pin_name=named.pin_name,
        pin=named.pin,
        branch=named.branch,
        is_past=named.is_past,
        version=named.version,
    )
    try:
        described = describe(named.table, named.version)
    except KeyNotFound:
        return TableFacts(is_absent=True)
    properties = {
        **described.properties,
        "provider": described.provider,
        "penstock.commit": named.pin.commit,
        **({"location": described.location} if described.location else {}),
        **({"comment": described.description} if described.description else {}),
    }
    return replace(
        facts,
        provider=described.provider,
        schema=described.schema,
        partition_by=described.partition_by,
        properties=properties,
    )


def new_table(request: CatalogRequest) -> EmptyTable:
    """The table without rows that CREATE TABLE describes."""
    key, branch = request.written_key
    if request.constraints:
        raise InvalidRequest(f"'{key}' is created without constraints; add them as table properties")
    for field in _schema_fields(_decode_json(request.schema)):
        name = field.get("name") if isinstance(field, dict) else None
        _check_lengths(key, str(name), field)
    return EmptyTable(
        key=key,
        branch=branch,
        source=(request.properties.get("provider") or "").lower(),
        schema=request.schema,
        partition_by=partition_names(request.partitioning),
        cluster_by=clustering_names(request.partitioning),
        properties=table_properties(request.properties),
        description=request.properties.get("comment") or "",
    )


def check_changes(key: Key, changes: tuple[StatementChange, ...]) -> None:
    """``InvalidRequest`` for columns of types that no table of a lake has."""
    for change in changes:
        if change.type:
            _check_lengths(key, ".".join(change.column), _decode_json(change.type))


def _check_lengths(key: Key, column: str, kind: Any) -> None:
    """``InvalidRequest`` for a type, as Spark writes it in JSON, with a text of a given length in it."""
    parts = [kind]
    while parts:
        part = parts.pop()
        if isinstance(part, str) and (length := _OF_LENGTH.fullmatch(part)):
            raise InvalidRequest(
                f"the column '{column}' of '{key}' is declared as {part.upper()}, and a lake keeps no "
                "lengths of texts: declare it as STRING\n  A Delta table can check the length by a property "
                f"such as 'delta.constraints.{column}_length' = 'length({column}) <= {length[1]}'.",
                table=str(key),
                column=column,
            )
        if isinstance(part, dict):
            parts.extend(part.get(name) for name in _TYPES)
            parts.extend(_schema_fields(part))


def _schema_fields(schema: Any) -> list[Any]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return fields if isinstance(fields, list) else []


def _decode_json(text: str) -> Any:
    """JSON; ``None`` for what is none, which is refused by who needs it."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def table_properties(properties: dict[str, str | None]) -> dict[str, str]:
    """Those that are for the table, without what Spark says by such names."""
    return {
        name: value
        for name, value in check_properties(properties, RESERVED).items()
        if not name.startswith("option.")
    }


def partition_names(partitioning: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a table is partitioned by. ``InvalidRequest`` for anything but plain columns."""
    names = [name for name in partitioning if not name.startswith(_CLUSTERING)]
    for name in names:
        if name.endswith(")") and "(" in name:
            raise InvalidRequest(
                f"a table can only be partitioned by columns, not by {name}: add a column with that value"
            )
    return tuple(names)


def clustering_names(partitioning: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a table is clustered by."""
    lists = [text for text in partitioning if text.startswith(_CLUSTERING)]
    inside = [text.removeprefix(_CLUSTERING).removesuffix(")") for text in lists]
    return tuple(name.strip() for names in inside for name in names.split(","))


def skip_files(lake: Lake, request: CatalogRequest) -> SkippedFiles:
    """Which files of a table the filters of a query leave out, at the commit that the query reads."""
    table = table_of(lake, request.known_table).outside_read_set
    return sql_format_of(table).skip_files(table, request.known_table.version, request.conditions)


# -- for engines without Python ----------------------------------------------------------------------------


def describe_files(lake: Lake, request: CatalogRequest) -> TableFacts:
    """A table for an engine that reads its files by itself."""
    return describe_table(lake, request, lambda table, version: sql_format_of(table).describe(table, version))


def scan_table(lake: Lake, request: CatalogRequest) -> TableScan:
    """The files of a table at the commit that its query reads."""
    table = table_of(lake, request.known_table)
    return sql_format_of(table).scan(table, request)


def create_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Create a table without rows."""
    table = new_table(request)
    try:
        plan = sql_format_named(table.source).create(lake, table)
    except TableExists:
        return {"is_there": True}
    return {} if plan is None else {"write": plan}


def truncate_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Remove all rows of a table."""
    facts = request.known_table
    key, branch = request.written_table
    known = EmptyTable(
        key=key,
        branch=branch,
        source=facts.provider,
        schema=facts.schema,
        statement=request.statement or None,
    )
    plan = sql_format_of(lake.table(key, branch).outside_read_set).truncate(lake, known)
    return {} if plan is None else {"write": plan}


def alter_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Change columns and properties of a table."""
    key, branch = request.written_key
    check_changes(key, request.changes)
    sql_format_of(lake.table(key, branch)).alter(lake, key, branch, request.changes)
    return {}
