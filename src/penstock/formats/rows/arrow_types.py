"""The types of Delta tables as Arrow's, and values brought from one shape into another.

This is the one module of the row side that imports pyarrow: the others take it from here, so that whoever
does not have it is told how to get it.

Timestamps are microseconds since 1970: ``timestamp`` in UTC, ``timestamp_ntz`` without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from penstock.errors import InvalidRequest, UnsupportedFeature
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type

try:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
except ModuleNotFoundError:
    raise InvalidRequest(
        "rows of Delta tables need the library pyarrow: pip install 'penstock[delta]'"
    ) from None

__all__ = [
    "DECIMAL_DIGITS_MAX",
    "allow_nulls",
    "find_arrow_type",
    "make_arrow_field",
    "make_arrow_schema",
    "make_schema",
    "pa",
    "pc",
    "pq",
    "read_csv",
    "reshape_array",
    "write_type_name",
]

DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
DECIMAL_DIGITS_MAX: Final = 38

_PLAIN: Final[dict[str, Any]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    # A value in a binary encoding of its own, as files have it.
    "variant": pa.struct(
        [pa.field("value", pa.binary(), nullable=False), pa.field("metadata", pa.binary(), nullable=False)]
    ),
}

Match: TypeAlias = Callable[[Any, StructType, str], Sequence[int | None]]
"""For each field of a struct, where it is found among the fields of an Arrow struct, or ``None``."""
Cast: TypeAlias = Callable[[Any, Any, str], Any]
"""An array as another plain type, or an error that names the column."""


def make_arrow_schema(fields: Iterable[Field]) -> Any:
    """The Arrow schema of some columns. Raises as ``find_arrow_type``."""
    return pa.schema([make_arrow_field(field) for field in fields])


def make_arrow_field(field: Field, path: str = "") -> Any:
    return pa.field(field.name, find_arrow_type(field.type, path or field.name), field.nullable)


def find_arrow_type(kind: Type, path: str = "") -> Any:
    """The Arrow type that holds values of a type. ``InvalidRequest`` names a type that has none."""
    match kind:
        case StructType():
            return pa.struct([make_arrow_field(field, f"{path}.{field.name}") for field in kind.fields])
        case ArrayType():
            inner = find_arrow_type(kind.element_type, f"{path}.element")
            return pa.list_(pa.field("element", inner, kind.contains_null))
        case MapType():
            key = find_arrow_type(kind.key_type, f"{path}.key")
            value = find_arrow_type(kind.value_type, f"{path}.value")
            return pa.map_(key, pa.field("value", value, kind.value_contains_null))
        case str() if kind in _PLAIN:
            return _PLAIN[kind]
        case str() if decimal := DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise InvalidRequest(
        f"the column '{path}' is of the type {kind}, which Penstock cannot read; name the columns to "
        "read, without this one"
    )


def allow_nulls(kind: Type) -> Type:
    """The same type with nulls allowed at every depth.

    Where a struct is null its parts are null too, whatever the table says of them, and Arrow does not write
    an array that has nulls where its type has none.
    """
    match kind:
        case StructType():
            return StructType(
                tuple(replace(field, type=allow_nulls(field.type), nullable=True) for field in kind.fields)
            )
        case ArrayType():
            return ArrayType(element_type=allow_nulls(kind.element_type), contains_null=True)
        case MapType():
            key, value = allow_nulls(kind.key_type), allow_nulls(kind.value_type)
            return MapType(key_type=key, value_type=value, value_contains_null=True)
        case _:
            return kind


def make_schema(schema: Any) -> StructType:
    """The schema of a table that can hold data of an Arrow schema.

    Unsigned numbers get the next larger signed type, and text and bytes lose what only says how they lie in
    memory. Columns without a zone become ``timestamp_ntz``, which a table must list as a feature.
    ``InvalidRequest`` names a column of a type that no table has, and columns that differ in case alone.
    """
    return _make_struct(schema, "")


def read_csv(path: Any) -> Any:
    """The rows of a CSV file with a header, as a reader."""
    from pyarrow import csv

    return csv.open_csv(path)


def write_type_name(kind: Any) -> str:
    """The type of Delta that holds an Arrow type, as people write it; Arrow's own word if there is none."""
    if kind == _PLAIN["variant"]:
        return "variant"
    try:
        delta_type = _find_type(kind, "")
    except InvalidRequest:
        return str(kind)
    return delta_type if isinstance(delta_type, str) else str(kind)


def reshape_array(array: Any, kind: Type, match: Match, cast: Cast, path: str) -> Any:
    """An array as a type: fields found by ``match``, missing ones null, plain values taken by ``cast``.

    The array's own error, or ``TypeError`` if it is not nested as the type is; both name the column.
    """
    arrow_type = find_arrow_type(kind, path)
    if array.type == arrow_type:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if kind == "variant" and pa.types.is_struct(array.type):
        return _convert_variant(array, path)
    if isinstance(kind, str) or pa.types.is_null(array.type):
        return cast(array, arrow_type, path)
    match kind:
        case StructType() if pa.types.is_struct(array.type):
            return _convert_struct(array, kind, match, cast, path)
        case ArrayType() if _is_list(array.type):
            offsets, values = _list_parts(array)
            inner = reshape_array(values, kind.element_type, match, cast, f"{path}.element")
            return pa.ListArray.from_arrays(offsets, inner, type=arrow_type, mask=_find_nulls(array))
        case MapType() if pa.types.is_map(array.type):
            offsets, first, length = _list_offsets(array)
            keys = reshape_array(array.keys.slice(first, length), kind.key_type, match, cast, f"{path}.key")
            items = reshape_array(
                array.items.slice(first, length), kind.value_type, match, cast, f"{path}.value"
            )
            return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type, mask=_find_nulls(array))
    raise TypeError(
        f"the column '{path}' has values of the type {array.type}, but its type in the table is {arrow_type}"
    )


def _convert_variant(array: Any, path: str) -> Any:
    """Variants, whose two parts may be in any order. ``UnsupportedFeature`` for shredded ones."""
    names = [array.type.field(place).name for place in range(array.type.num_fields)]
    if "typed_value" in names:
        raise UnsupportedFeature(
            f"the column '{path}' has shredded variants, which only Spark can read: use "
            "penstock.spark.read, or name the columns to read, without this one",
            feature="variantShredding",
            column=path,
        )
    variants = _PLAIN["variant"]
    if sorted(names) != ["metadata", "value"]:
        raise TypeError(
            f"the column '{path}' has values of the type {array.type}, but a variant is {variants}"
        )
    is_null = array.is_null()
    parts = [array.field(names.index(field.name)).cast(pa.binary()) for field in variants]
    for part in parts:
        if part.null_count and pc.any(pc.and_not(part.is_null(), is_null)).as_py():
            raise TypeError(f"the column '{path}' has a variant without a value or metadata")
    parts = [pc.fill_null(part, b"") for part in parts]
    return pa.StructArray.from_arrays(parts, fields=list(variants), mask=is_null)


def _convert_struct(array: Any, kind: StructType, match: Match, cast: Cast, path: str) -> Any:
    places = match(array.type, kind, path)
    children = [
        pa.nulls(len(array), find_arrow_type(field.type, f"{path}.{field.name}"))
        if place is None
        else reshape_array(array.field(place), field.type, match, cast, f"{path}.{field.name}")
        for field, place in zip(kind.fields, places, strict=True)
    ]
    fields = [make_arrow_field(field, f"{path}.{field.name}") for field in kind.fields]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())


def _is_list(kind: Any) -> bool:
    kinds = pa.types
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _list_parts(array: Any) -> tuple[Any, Any]:
    """The offsets of a list, from 0, and the values that they count."""
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    offsets, first, length = _list_offsets(array)
    return offsets, array.values.slice(first, length)


def _list_offsets(array: Any) -> tuple[Any, int, int]:
    """Offsets from 0, and the part of the values that they cover: an array may be a slice of a larger one."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[len(array)].as_py()
    return pc.subtract(offsets, pa.scalar(first, pa.int32())), first, last - first


def _find_nulls(array: Any) -> Any:
    return array.is_null() if array.null_count else None


def _make_struct(fields: Iterable[Any], path: str) -> StructType:
    fields_by_name: dict[str, Field] = {}
    for field in fields:
        name = f"{path}.{field.name}" if path else field.name
        if field.name.lower() in fields_by_name:
            earlier_name = fields_by_name[field.name.lower()].name
            raise InvalidRequest(
                f"the columns '{earlier_name}' and '{name}' differ only in upper and lower case"
            )
        fields_by_name[field.name.lower()] = Field(
            name=field.name, type=_find_type(field.type, name), nullable=field.nullable
        )
    return StructType(tuple(fields_by_name.values()))


def _find_type(kind: Any, path: str) -> Type:
    kinds = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _find_type(kind.storage_type, path)
    if kinds.is_dictionary(kind):
        return _find_type(kind.value_type, path)
    if kinds.is_struct(kind):
        return _make_struct(kind, path)
    if _is_list(kind):
        field = kind.value_field
        return ArrayType(element_type=_find_type(field.type, f"{path}.element"), contains_null=field.nullable)
    if kinds.is_map(kind):
        return MapType(
            key_type=_find_type(kind.key_type, f"{path}.key"),
            value_type=_find_type(kind.item_type, f"{path}.value"),
            value_contains_null=kind.item_field.nullable,
        )
    if kinds.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if kinds.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    for test, name in _TESTS:
        if test(kind):
            return name
    if kinds.is_null(kind):
        raise InvalidRequest(
            f"the column '{path}' contains only nulls, so its type is not known: give it a type"
        )
    raise InvalidRequest(f"the column '{path}' has the Arrow type {kind}, which Delta tables do not support")


_TESTS: Final[tuple[tuple[Callable[[Any], bool], str], ...]] = (
    (pa.types.is_int8, "byte"),
    (pa.types.is_int16, "short"),
    (pa.types.is_uint8, "short"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_uint16, "integer"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_uint64, "decimal(20,0)"),
    (pa.types.is_float16, "float"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date, "date"),
)
