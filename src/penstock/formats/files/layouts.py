"""Layouts: whether files of two of them can be read as one table, and how.

A table has one layout, by which all of its files are read. So files are refused that would be read otherwise
than they were written, or not at all, and columns that only some files have are columns of the table.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.formats.files.files import FilesLayout

BY_PLACE: Final = frozenset({"csv", "text"})
"""Formats whose readers know columns by where they are, not by name."""
SELF_TOLD: Final = frozenset({"parquet", "orc", "avro"})
"""Formats whose files tell how they are to be read."""
SHOWN_MAX: Final = 10
"""How many columns a message names."""

_SAME_OPTION: Final = {"delimiter": "sep", "charset": "encoding"}
_DEFAULTS: Final = {"sep": ",", "quote": '"', "escape": "\\", "encoding": "utf-8"}
_SWITCHES: Final = frozenset({
    "header", "multiline", "ignoreleadingwhitespace", "ignoretrailingwhitespace",
})  # fmt: skip
"""Options that are off where nothing is said."""
_NOT_OF_THE_TYPE: Final = frozenset({"nullable", "containsNull", "valueContainsNull", "metadata"})


class LayoutDifference(NamedTuple):
    """How two layouts differ, so that their files cannot be in one table: one phrase for each."""

    one: str
    other: str


def find_difference(layout: FilesLayout, other: FilesLayout) -> LayoutDifference | None:
    """Why files of two layouts cannot be in one table, or ``None``. Unset parts of a layout count as
    equal."""
    if not layout.format or not other.format:
        return None
    if layout.format != other.format:
        return LayoutDifference(f"of the format '{layout.format}'", f"'{other.format}'")
    if layout.partition_by != other.partition_by:
        return LayoutDifference(_describe_partitions(layout), f"files {_describe_partitions(other)}")
    if layout.format not in SELF_TOLD and _list_reader_options(layout) != _list_reader_options(other):
        return LayoutDifference(
            f"written with {_describe_options(layout)}", f"files with {_describe_options(other)}"
        )
    return _find_column_difference(layout, other)


def unite_layouts(layout: FilesLayout, other: FilesLayout) -> FilesLayout:
    """The second layout with the columns of both, for two layouts whose files do not mix."""
    fields_before, coming = _list_schema_fields(layout), _list_schema_fields(other)
    if fields_before is None or coming is None:
        return other if fields_before is None else msgspec.structs.replace(other, schema=layout.schema)
    names = {field["name"] for field in fields_before}
    fields = [*fields_before, *(field for field in coming if field["name"] not in names)]
    schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
    return msgspec.structs.replace(
        other, schema=layout.schema if len(fields) == len(fields_before) else schema
    )


def with_partition_columns(layout: FilesLayout, known_layout: FilesLayout) -> FilesLayout:
    """A layout with the types of partition columns that only another one tells: a job that writes into the
    folder of a partition does not know them."""
    fields, more = _list_schema_fields(layout), _list_schema_fields(known_layout)
    if fields is None or more is None:
        return layout
    names_in_schema = {field["name"].lower() for field in fields}
    missing = [
        field
        for field in more
        if field["name"].lower() not in names_in_schema and field["name"] in layout.partition_by
    ]
    if not missing:
        return layout
    schema = msgspec.json.encode({"type": "struct", "fields": [*fields, *missing]}).decode()
    return msgspec.structs.replace(layout, schema=schema)


def _find_column_difference(layout: FilesLayout, other: FilesLayout) -> LayoutDifference | None:
    columns_before, coming = _list_columns_in_files(layout), _list_columns_in_files(other)
    if columns_before is None or coming is None:
        return None
    if layout.format in BY_PLACE and [*columns_before] != [*coming]:
        return LayoutDifference(
            f"with the columns {_quote_columns(columns_before)}",
            f"{_quote_columns(coming)}, and files of this format do not contain column names",
        )
    spellings = {name.lower(): name for name in columns_before}
    for name, kind in coming.items():
        before = spellings.get(name.lower(), name)
        if before != name:
            return LayoutDifference(f"with the column '{before}'", f"'{name}'")
        if name in columns_before and columns_before[name] != kind:
            return LayoutDifference(
                f"with the column '{name}' of type {_spark_type_name(columns_before[name])}",
                f"it with the type {_spark_type_name(kind)}",
            )
    return None


def _list_schema_fields(layout: FilesLayout) -> list[dict[str, Any]] | None:
    """The columns, as Spark tells them; ``None`` if they are not known."""
    try:
        schema = msgspec.json.decode(layout.schema or "null")
    except msgspec.DecodeError:
        return None
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return fields if isinstance(fields, list) else None


def _list_columns_in_files(layout: FilesLayout) -> dict[str, Any] | None:
    """The types of the columns that are in the files, not in their paths."""
    fields, outside = _list_schema_fields(layout), {name.lower() for name in layout.partition_by}
    if fields is None:
        return None
    return {
        field["name"]: _make_comparable_type(field["type"])
        for field in fields
        if field["name"].lower() not in outside
    }


def _make_comparable_type(kind: Any) -> Any:
    """A type without what files of it may differ in: whether values may be missing, and remarks."""
    if isinstance(kind, dict):
        return {
            name: _make_comparable_type(value) for name, value in kind.items() if name not in _NOT_OF_THE_TYPE
        }
    return [_make_comparable_type(part) for part in kind] if isinstance(kind, list) else kind


def _list_reader_options(layout: FilesLayout) -> dict[str, str]:
    """The options that differ from what a reader does without any."""
    options = {}
    for option, value in layout.options.items():
        name = _SAME_OPTION.get(option.lower(), option.lower())
        text = value.lower() if name == "encoding" or name in _SWITCHES else value
        if text != _DEFAULTS.get(name, "false" if name in _SWITCHES else None):
            options[name] = text
    return options


def _describe_partitions(layout: FilesLayout) -> str:
    return f"partitioned by {', '.join(layout.partition_by)}" if layout.partition_by else "without partitions"


def _describe_options(layout: FilesLayout) -> str:
    return (
        ", ".join(f"{name}={value!r}" for name, value in sorted(_list_reader_options(layout).items()))
        or "no options"
    )


def _quote_columns(columns: dict[str, Any]) -> str:
    names = [f"'{name}'" for name in [*columns][:SHOWN_MAX]]
    return ", ".join([*names, "…"] if len(columns) > SHOWN_MAX else names) or "none"


def _spark_type_name(kind: Any) -> str:
    return str(kind.get("type") if isinstance(kind, dict) else kind)
