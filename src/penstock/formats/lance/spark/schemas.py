"""Schemas of Lance tables: of those that Spark makes, and whether rows of Spark's fit one that is there.

Everything here is decided on the driver, before a task writes anything. Values are converted by the tasks, so
what only a value tells (a vector of another length, a null where there may be none) ends the job there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import pa
from penstock.model.keys import Key

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

ZONE: Final = "UTC"
"""Of times in new tables. They are instants: a session's own zone says only how it shows them."""
_RESERVED: Final = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)
"""What Lance itself calls columns that every table has."""
_NO_COLUMNS: Final = "the rows have no columns; a table needs at least one"


class ColumnFit(msgspec.Struct, frozen=True, kw_only=True):
    """How rows of Spark's become rows of a table."""

    schema: Any
    """The table's, as Arrow has it."""
    columns: tuple[str | None, ...]
    """For every column of the table the one of the rows; nothing for one that is null in all of them."""


def to_arrow_schema(schema: StructType) -> Any:
    """A schema of Spark's as Arrow has it; ``InvalidRequest`` lists columns of types that Lance has not."""
    problems = [f"'{field.name}' has the type {field.dataType.simpleString()}" for field in schema
                if not _is_known(field.dataType)]  # fmt: skip
    if problems:
        raise _refusal_error("Lance tables do not support columns of these types", problems)
    from pyspark.sql.pandas.types import to_arrow_type

    # Spark 4.1 takes no zone: its times are in UTC unless it is told otherwise.
    zone: dict[str, Any] = {"timezone": ZONE} if "timezone" in signature(to_arrow_type).parameters else {}
    return pa.schema([pa.field(field.name, to_arrow_type(field.dataType, **zone)) for field in schema])


def make_table_schema(schema: Any, vectors: Mapping[str, int]) -> Any:
    """The schema of a new table for rows of a schema. All columns may be null, as Spark has it.

    ``vectors`` names columns of arrays that are vectors, with how many numbers they have.
    """
    if not schema.names:
        raise InvalidRequest(_NO_COLUMNS)
    _check_names(schema.names, str.lower)
    absent = sorted(set(vectors) - set(schema.names))
    if absent:
        names = ", ".join(schema.names)
        raise InvalidRequest(
            f"the option names a vector column {', '.join(map(repr, absent))}, which the data does not "
            "have; its "
            f"columns are {names}"
        )
    return pa.schema([_make_field(field, vectors.get(field.name)) for field in schema])


def fit_columns(key: Key, given: Any, table: Any, *, case_sensitive: bool) -> ColumnFit:
    """How rows of a schema become rows of a table, by the names of columns.

    ``InvalidRequest`` lists the columns that do not fit. Those that the rows lack become null.
    """
    folded = str if case_sensitive else str.lower
    _check_names(given.names, folded)
    names = {folded(name): name for name in given.names}
    problems, columns = [], list[str | None]()
    for field in table:
        name = names.pop(folded(field.name), None)
        columns.append(name)
        if name is None and not field.nullable:
            problems.append(f"'{field.name}' is missing, but is not nullable in the table")
        elif name is not None and not _does_type_fit(given.field(name).type, field.type):
            problems.append(f"'{name}' is {given.field(name).type}, but {field.type} in the table")
    problems += [f"'{name}' is not a column of the table" for name in names.values()]
    if problems:
        raise _refusal_error(f"the rows do not fit '{key}'", problems)
    return ColumnFit(schema=table, columns=tuple(columns))


def make_readable_schema(table: Any) -> Any:
    """The schema in which Spark can read a table's rows; ``InvalidRequest`` lists columns that it cannot.

    Types that only Arrow has become the next larger one of Spark's.
    """
    problems, fields = [], []
    for field in table:
        kind = _find_spark_type(field.type)
        if not field.name or "`" in field.name:
            problems.append(f"{field.name!r} is not a valid column name for Lance")
        elif kind is None:
            problems.append(f"'{field.name}' has the type {field.type}")
        else:
            fields.append(pa.field(field.name, kind, field.nullable))
    if problems:
        raise _refusal_error("Spark cannot read these columns; leave them out by 'columns'", problems)
    return pa.schema(fields)


# -- names -------------------------------------------------------------------------------------------------


def _check_names(names: Sequence[str], folded: Callable[[str], str]) -> None:
    """``InvalidRequest`` for columns that Lance could not have, or not find, under their names."""
    all_folded = [folded(name) for name in names]
    alike = sorted({name for name in names if all_folded.count(folded(name)) > 1})
    if alike:
        raise _refusal_error("duplicate columns (names are not case-sensitive)", map(repr, alike))
    impossible = [name for name in names if not name or "." in name or "`" in name or name in _RESERVED]
    if impossible:
        raise _refusal_error(
            "Lance tables do not support these column names; rename them", map(repr, impossible)
        )


# -- types -------------------------------------------------------------------------------------------------


def _is_known(kind: DataType) -> bool:
    from pyspark.sql import types as t

    match kind:
        case t.ArrayType():
            return _is_known(kind.elementType)
        case t.MapType():
            return _is_known(kind.keyType) and _is_known(kind.valueType)
        case t.StructType():
            return all(_is_known(field.dataType) for field in kind)
    plain = (t.NumericType, t.StringType, t.BinaryType, t.BooleanType, t.DateType, t.TimestampType)
    return isinstance(kind, (*plain, t.TimestampNTZType, t.DayTimeIntervalType))


def _make_field(field: Any, length: int | None) -> Any:
    if length is None:
        return pa.field(field.name, _with_nullable_values(field.type))
    if not pa.types.is_list(field.type) or not pa.types.is_floating(field.type.value_type):
        raise InvalidRequest(
            f"'{field.name}' cannot be a vector column: it is {field.type}, not an array of floating-point "
            "numbers"
        )
    return pa.field(field.name, pa.list_(field.type.value_type, length))


def _with_nullable_values(kind: Any) -> Any:
    """A type whose values may be null at every depth."""
    if pa.types.is_list(kind):
        return pa.list_(pa.field("item", _with_nullable_values(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _with_nullable_values(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_nullable_values(kind.key_type), _with_nullable_values(kind.item_type))
    return kind


def _does_type_fit(given: Any, table_kind: Any) -> bool:
    """Whether every value of a type, or every one that is not too long, can be one of the other."""
    of = pa.types
    if given == table_kind or of.is_null(given):
        return True
    if _is_list(given) and _is_list(table_kind):
        return _does_type_fit(given.value_type, table_kind.value_type)
    if of.is_struct(given) and of.is_struct(table_kind):
        return [field.name for field in given] == [field.name for field in table_kind] and all(
            _does_type_fit(field.type, other.type) for field, other in zip(given, table_kind, strict=True)
        )
    if of.is_map(given) and of.is_map(table_kind):
        return _does_type_fit(given.key_type, table_kind.key_type) and _does_type_fit(
            given.item_type, table_kind.item_type
        )
    if of.is_signed_integer(given) and of.is_signed_integer(table_kind):
        return bool(given.bit_width <= table_kind.bit_width)
    if of.is_floating(given) and of.is_floating(table_kind):
        # Numbers of 16 bits are for vectors, and Spark has none: they are rounded.
        return bool(given.bit_width <= table_kind.bit_width or of.is_float16(table_kind))
    if of.is_decimal(given) and of.is_decimal(table_kind):
        return bool(given.scale == table_kind.scale and given.precision <= table_kind.precision)
    if of.is_timestamp(given) and of.is_timestamp(table_kind):
        return (given.tz is None) == (table_kind.tz is None)
    if of.is_dictionary(table_kind):
        return _does_type_fit(given, table_kind.value_type)
    kinds = ((of.is_string, of.is_large_string), (of.is_binary, of.is_large_binary, of.is_fixed_size_binary))
    return any(
        any(is_kind(given) for is_kind in kind) and any(is_kind(table_kind) for is_kind in kind)
        for kind in kinds
    )


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_LARGER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
}


def _find_spark_type(kind: Any) -> Any:
    """The type of Spark's for one of Arrow's, as Arrow writes it; nothing if there is none."""
    of = pa.types
    if kind in _LARGER:
        return _LARGER[kind]
    if of.is_dictionary(kind):
        return _find_spark_type(kind.value_type)
    if of.is_fixed_size_binary(kind):
        return pa.binary()
    if of.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else ZONE)
    if of.is_duration(kind):
        return pa.duration("us")
    if _is_list(kind):
        inside = _find_spark_type(kind.value_type)
        return None if inside is None else pa.list_(pa.field("element", inside, kind.value_field.nullable))
    if of.is_struct(kind):
        fields = [(field, _find_spark_type(field.type)) for field in kind]
        if any(inside is None for _, inside in fields):
            return None
        return pa.struct([pa.field(field.name, inside, field.nullable) for field, inside in fields])
    if of.is_map(kind):
        key, item = _find_spark_type(kind.key_type), _find_spark_type(kind.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    plain = (
        of.is_boolean,
        of.is_signed_integer,
        of.is_floating,
        of.is_decimal128,
        of.is_string,
        of.is_binary,
    )
    return kind if any(is_kind(kind) for is_kind in (*plain, of.is_date32, of.is_null)) else None


def _refusal_error(subject: str, problems: Iterable[str]) -> InvalidRequest:
    found_problems = list(problems)
    return InvalidRequest(f"{subject}: {'; '.join(found_problems)}", problems=found_problems)
