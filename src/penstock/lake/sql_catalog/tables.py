"""Tables of a catalog: how SQL sees them, and what statements that create and alter them say."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    KeyNotFound,
    LakeNotFound,
    NotManaged,
    TableExists,
)
from penstock.lake.scan_files import SkippedFiles, TableScan
from penstock.lake.sql_catalog.entries import check_properties
from penstock.lake.sql_catalog.formats import (
    find_sql_format,
    find_sql_format_by_name,
    make_needs_python_error,
)
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    EmptyTable,
    StatementChange,
    TableDescription,
    TableFacts,
    find_table,
    open_table_at_facts,
)
from penstock.lake.sql_catalog.views import describe_view, find_view, is_view
from penstock.model.content import SqlView
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table

Describe: TypeAlias = Callable[["Table", int | None], TableDescription | SqlView]
"""Describes a table at a version, or has the view of that name; ``KeyNotFound`` if there is none."""

_CLUSTERING: Final = "cluster_by("
_TYPES: Final = ("type", "elementType", "keyType", "valueType")
"""Where Spark's JSON of a type has others."""
_COLLATIONS: Final = "__COLLATIONS"
"""In Spark's JSON of a column: the collations of texts in it."""
_PLAIN_COLLATION: Final = "UTF8_BINARY"
_NAMED_PLAIN: Final = f'"string collate {_PLAIN_COLLATION}"'
"""The usual collation where a statement names it: it is the type that texts have without."""
_OF_LENGTH: Final = re.compile(r"(?:var)?char\(([0-9]+)\)")
RESERVED: Final = frozenset({"provider", "owner", "comment", "external", "is_managed_location", "collation"})
"""Properties that are Spark's own words: what they say has a place of its own, or is not for the lake."""


def describe_table(lake: Lake, request: CatalogRequest, describe: Describe) -> TableFacts:
    """A table as a name stands for it, described by the engine's side of its format."""
    try:
        named = find_table(lake, request)
    except LakeNotFound:  # the first write makes one
        if request.must_exist:
            raise
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
        if request.must_exist:
            raise lake.key_not_found(named.table.key, named.pin_name or lake.default_branch) from None
        return TableFacts(is_absent=True)
    if isinstance(described, SqlView):
        return _describe_view(facts, described, request)
    properties = {
        **described.properties,
        "provider": described.provider,
        **({"location": described.location, "is_managed_location": "true"} if described.location else {}),
        **({"comment": described.description} if described.description else {}),
    }
    return replace(
        facts,
        provider=described.provider,
        schema=described.schema,
        partition_by=described.partition_by,
        properties=properties,
        defaults=described.defaults,
        computed=described.computed,
    )


def _describe_view(facts: TableFacts, view: SqlView, request: CatalogRequest) -> TableFacts:
    key = Key(*facts.key)
    if facts.version is not None:
        raise InvalidRequest(
            f"'{key}' is a view, which has no versions of its own: name a branch, a tag, a commit or a time"
        )
    return replace(
        facts,
        properties={**view.properties, **({"comment": view.comment} if view.comment else {})},
        view=describe_view(key, view, request),
    )


def parse_new_table(request: CatalogRequest) -> EmptyTable:
    """The table without rows that CREATE TABLE describes."""
    key, branch = request.written_key
    schema = write_plain_types(request.schema)
    if request.constraints:
        raise InvalidRequest(f"'{key}' is created without constraints; add them as table properties")
    if (collation := request.properties.get("collation")) not in (None, "", _PLAIN_COLLATION):
        raise _make_collation_error(f"'{key}'", str(collation))
    check_columns(key, schema)
    return EmptyTable(
        key=key,
        branch=branch,
        source=(request.properties.get("provider") or "").lower(),
        schema=schema,
        partition_by=parse_partition_columns(request.partitioning),
        cluster_by=parse_clustering_columns(request.partitioning),
        properties=select_table_properties(request.properties),
        description=request.properties.get("comment") or "",
        column_values=request.column_values,
    )


def find_replaced(lake: Lake, request: CatalogRequest) -> bool:
    """Whether there is a table that a statement replaces. ``KeyNotFound`` if there has to be one."""
    key, branch = request.written_key
    exists = lake.table(key, branch).outside_read_set.exists
    if exists and is_view(lake, key, branch):
        raise TableExists(f"'{key}' is a view, which no table can replace; choose another name", key=str(key))
    if not exists and not request.create:
        raise KeyNotFound(
            f"there is no table '{key}' to replace; CREATE OR REPLACE TABLE also creates one", key=str(key)
        )
    return exists


def is_taken(lake: Lake, table: EmptyTable, problem: TableExists | CommitConflict) -> bool:
    """Whether a table cannot be created because its name is that of another table, or of a view."""
    return isinstance(problem, TableExists) or is_view(lake, table.key, table.branch)


def check_column_values(table: EmptyTable, *, is_default: bool) -> None:
    """``InvalidRequest`` for values of columns that the tables of a format cannot have."""
    if table.column_values and not is_default:
        raise InvalidRequest(
            f"the column '{table.column_values[0].name}' of '{table.key}' has a default, is generated or is "
            "an identity column, which only Delta tables can have: leave that out, or create a Delta table"
        )


def check_changes(key: Key, changes: tuple[StatementChange, ...]) -> tuple[StatementChange, ...]:
    """What a statement changes, as the lake spells types. ``InvalidRequest`` for columns of types that no
    table of a lake has."""
    for change in changes:
        column = ".".join(change.column)
        if change.type:
            _check_type(key, column, _decode_json(change.type))
        if change.collation:
            raise _make_collation_error(f"the column '{column}' of '{key}'", change.collation)
    return tuple(replace(change, type=write_plain_types(change.type)) for change in changes)


def check_columns(key: Key, schema: str, known: Collection[str] = ()) -> None:
    """The same for the columns of a table, as Spark writes them in JSON, but for some that it has already."""
    for field in _list_schema_fields(_decode_json(schema)):
        name = str(field.get("name") if isinstance(field, dict) else None)
        if name.lower() not in known:
            _check_type(key, name, field)


def write_plain_types(schema: str) -> str:
    """Columns or a type, as Spark writes them in JSON, without the collation that is no other than usual."""
    return schema.replace(_NAMED_PLAIN, '"string"')


def _make_collation_error(what: str, collation: str) -> InvalidRequest:
    return InvalidRequest(
        f"{what} is declared with the collation {collation.rpartition('.')[2]}, and a lake keeps no "
        "collations: leave it out, and compare texts by COLLATE in queries"
    )


def _check_type(key: Key, column: str, kind: Any) -> None:
    """``InvalidRequest`` for a type, as Spark writes it in JSON, that has a length or a collation in it."""
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
            noted = part.get("metadata")
            if (
                isinstance(noted, dict)
                and isinstance(collations := noted.get(_COLLATIONS), dict)
                and collations
            ):
                raise _make_collation_error(
                    f"the column '{column}' of '{key}'", str(next(iter(collations.values())))
                )
            parts.extend(part.get(name) for name in _TYPES)
            parts.extend(_list_schema_fields(part))


def _list_schema_fields(schema: Any) -> list[Any]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return fields if isinstance(fields, list) else []


def _decode_json(text: str) -> Any:
    """JSON; ``None`` for what is none, which is refused by who needs it."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def select_table_properties(properties: dict[str, str | None]) -> dict[str, str]:
    """Those that are for the table, without what Spark says by such names."""
    return {
        name: value
        for name, value in check_properties(properties, RESERVED).items()
        if not name.startswith("option.")
    }


def parse_partition_columns(partitioning: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a table is partitioned by. ``InvalidRequest`` for anything but plain columns."""
    names = [name for name in partitioning if not name.startswith(_CLUSTERING)]
    for name in names:
        if name.endswith(")") and "(" in name:
            raise InvalidRequest(
                f"a table can only be partitioned by columns, not by {name}: add a column with that value"
            )
    return tuple(names)


def parse_clustering_columns(partitioning: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a table is clustered by."""
    lists = [text for text in partitioning if text.startswith(_CLUSTERING)]
    inside = [text.removeprefix(_CLUSTERING).removesuffix(")") for text in lists]
    return tuple(name.strip() for names in inside for name in names.split(","))


def skip_files(lake: Lake, request: CatalogRequest) -> SkippedFiles:
    """Which files of a table the filters of a query leave out, at the commit that the query reads."""
    table = open_table_at_facts(lake, request.known_table).outside_read_set
    version = request.known_table.version
    return find_sql_format(table).skip_files(table, version, request.conditions, request.files)


# -- for engines without Python ----------------------------------------------------------------------------


def describe_files(lake: Lake, request: CatalogRequest) -> TableFacts:
    """A table for an engine that reads its files by itself."""

    def describe(table: Table, version: int | None) -> TableDescription | SqlView:
        try:
            sql_format = find_sql_format(table)
        except NotManaged:
            if (view := find_view(table)) is not None:
                return view
            raise
        return sql_format.describe_table(table, version)

    return describe_table(lake, request, describe)


def scan_table(lake: Lake, request: CatalogRequest) -> TableScan:
    """The files of a table at the commit that its query reads."""
    table = open_table_at_facts(lake, request.known_table)
    return find_sql_format(table).plan_scan(table, request)


def create_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Create a table without rows."""
    table = parse_new_table(request)
    sql_format = find_sql_format_by_name(table.source)
    check_column_values(table, is_default=sql_format.is_default)
    if request.is_replace and find_replaced(lake, request):
        raise make_needs_python_error(f"'{table.key}' exists, and cannot be replaced by another table")
    try:
        plan = sql_format.create_table(lake, table)
    except (TableExists, CommitConflict) as problem:
        if is_taken(lake, table, problem):
            return {"is_there": True}
        raise
    return {} if plan is None else {"write": plan}


def truncate_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Remove all rows of a table."""
    facts = request.known_table
    key, branch = request.written_table
    empty_table = EmptyTable(
        key=key,
        branch=branch,
        source=facts.provider,
        schema=facts.schema,
        statement=request.statement or None,
    )
    plan = find_sql_format(lake.table(key, branch).outside_read_set).truncate_table(lake, empty_table)
    return {} if plan is None else {"write": plan}


def alter_table(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Change columns and properties of a table."""
    key, branch = request.written_key
    changes = check_changes(key, request.changes)
    find_sql_format(lake.table(key, branch)).alter_table(lake, key, branch, changes)
    return {}
