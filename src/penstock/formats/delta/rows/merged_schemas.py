"""Schemas of rows as Delta's: of new tables, and of tables that get new columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from penstock.formats.delta.protocol.properties import CHANGE_DATA_FEED, is_on
from penstock.formats.rows.arrow_types import DECIMAL, allow_nulls
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type, parse_schema

PLAIN: Final = frozenset({
    "byte", "short", "integer", "long", "float", "double", "boolean",
    "string", "binary", "date", "timestamp", "timestamp_ntz", "variant",
})  # fmt: skip
_OTHERS_RULES: Final = ("__", "delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "parquet.field.")
"""What Spark or Delta note at a column for their own use. Rows that are copied take none of it along."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAMELESS: Final = "there is a column without a name"

_OF_FEED: Final = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
_OF_JOBS: Final = ("__is_cdc", "__penstock_")
"""How the names of columns begin that jobs put beside a table's own."""


def new_table_schema(schema: StructType) -> StructType:
    """The schema of a new table for rows of a schema. All columns may be null, as Spark has it.

    ``InvalidRequest`` lists the columns of types that no table has, those that differ in case alone, and
    names that cannot be.
    """
    refuse_problems(_find_problems(schema, "") if schema.fields else ["there are no columns"])
    return StructType(tuple(_make_field(field) for field in schema.fields))


def merge_schemas(
    table: StructType, data: StructType, *, case_sensitive: bool = False, path: str = ""
) -> StructType:
    """The table's schema with the columns and parts of columns that only the data has, after its own.

    ``InvalidRequest`` as ``new_table_schema``, for those. A column of both is the table's, whatever the data
    has there. To a session that minds case, a column may be new whose name differs in case alone: it is
    refused, for to others the table would have one column twice.
    """
    new = {fold_case(field.name, case_sensitive): field for field in data.fields}
    fields = []
    for field in table.fields:
        other = new.pop(fold_case(field.name, case_sensitive), None)
        if other is not None:
            inside = _merge_types(field.type, other.type, case_sensitive, join_path(path, field.name))
            field = replace(field, type=inside)
        fields.append(field)
    names = {field.name.lower(): field.name for field in fields}
    alike = [field for field in new.values() if field.name.lower() in names]
    refuse_problems(
        f"'{join_path(path, field.name)}' would be a new column that differs from "
        f"'{names[field.name.lower()]}' only in case"
        for field in alike
    )
    refuse_problems(_find_problems(StructType(tuple(new.values())), path))
    return StructType((*fields, *(_make_field(field) for field in new.values())))


def check_names(metadata: Metadata) -> None:
    """``InvalidRequest`` for columns of a table whose names mean something else to its writers or readers.

    Asked before a job writes rows of such a table. Names of the change data feed are free where there is
    none.
    """
    has_feed = is_on(metadata.configuration, CHANGE_DATA_FEED)
    for field in parse_schema(metadata.schema_string).fields:
        name = field.name.lower()
        if name.startswith(_OF_JOBS):
            raise InvalidRequest(
                f"the column name '{field.name}' is reserved: Penstock uses it while a job runs\n  Rename "
                "the column.",
                column=field.name,
            )
        if has_feed and name in _OF_FEED:
            raise InvalidRequest(
                f"the column name '{field.name}' is reserved in a table with a change data feed\n  Rename "
                "the column, or turn off delta.enableChangeDataFeed.",
                column=field.name,
            )


def _find_problems(kind: Type, path: str) -> Iterator[str]:
    """What keeps a type from being one of a table's: types that no table has, and names that are not apart,
    or none."""
    match kind:
        case StructType():
            seen: set[str] = set()
            for field in kind.fields:
                name = join_path(path, field.name)
                if field.name.lower() in seen:
                    yield f"duplicate column '{name}' (names are not case-sensitive)"
                seen.add(field.name.lower())
                if not field.name:
                    yield f"there is a column without a name in '{path}'" if path else _NAMELESS
                elif _CONTROL.search(field.name):
                    yield f"the name of the column {name!r} contains a control character"
                yield from _find_problems(field.type, name)
        case ArrayType():
            yield from _find_problems(kind.element_type, f"{path}.element")
        case MapType():
            yield from _find_problems(kind.key_type, f"{path}.key")
            yield from _find_problems(kind.value_type, f"{path}.value")
        case str() if kind not in PLAIN and not DECIMAL.fullmatch(kind):
            yield f"'{path}' has the type {kind}, which Delta tables do not support"


def _make_field(field: Field) -> Field:
    """A field as one of a new table's, or a new one of a table's."""
    noted = {name: value for name, value in field.metadata.items() if not name.startswith(_OTHERS_RULES)}
    return Field(
        name=field.name, type=_make_plain_notes(allow_nulls(field.type)), nullable=True, metadata=noted
    )


def _make_plain_notes(kind: Type) -> Type:
    match kind:
        case StructType():
            return StructType(tuple(_make_field(field) for field in kind.fields))
        case ArrayType():
            return replace(kind, element_type=_make_plain_notes(kind.element_type))
        case MapType():
            return replace(
                kind, key_type=_make_plain_notes(kind.key_type), value_type=_make_plain_notes(kind.value_type)
            )
        case _:
            return kind


def _merge_types(table: Type, data: Type, case_sensitive: bool, path: str) -> Type:
    match table, data:
        case StructType(), StructType():
            return merge_schemas(table, data, case_sensitive=case_sensitive, path=path)
        case ArrayType(), ArrayType():
            element = _merge_types(table.element_type, data.element_type, case_sensitive, f"{path}.element")
            return replace(table, element_type=element)
        case MapType(), MapType():
            key = _merge_types(table.key_type, data.key_type, case_sensitive, f"{path}.key")
            value = _merge_types(table.value_type, data.value_type, case_sensitive, f"{path}.value")
            return replace(table, key_type=key, value_type=value)
        case _:
            return table


def fold_case(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def refuse_problems(problems: Iterable[str], way_out: str = "") -> None:
    """``InvalidRequest`` with all that was found, if anything was."""
    reasons = list(problems)
    if reasons:
        shown = "; ".join(reasons)
        raise InvalidRequest(
            f"the rows do not fit the table: {shown}" + (f"\n  {way_out}." if way_out else "")
        )
