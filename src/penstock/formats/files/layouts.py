"""Layouts: whether files of two of them can be read as one table, and how.

A table has one layout, by which all of its files are read. So files are refused that would be read otherwise
than they were written, or not at all, and columns that only some files have are columns of the table.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from penstock.formats.files.files import Layout

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


class Mixed(NamedTuple):
    """How two layouts differ whose files cannot be in one table: files *of this kind*, but *that*."""

    one: str
    other: str


def mixes(one: Layout, other: Layout) -> Mixed | None:
    """Whether files of two layouts cannot be in one table. What a layout does not tell is no difference."""
    if not one.format or not other.format:
        return None
    if one.format != other.format:
        return Mixed(f"of the format '{one.format}'", f"'{other.format}'")
    if one.partition_by != other.partition_by:
        return Mixed(_partitioned(one), f"files {_partitioned(other)}")
    if one.format not in SELF_TOLD and _options(one) != _options(other):
        return Mixed(f"written with {_spelled(one)}", f"files with {_spelled(other)}")
    return _mixed_columns(one, other)


def united(one: Layout, other: Layout) -> Layout:
    """The layout of files of two that do not mix: that of the second, with the columns of both."""
    known, coming = _fields(one), _fields(other)
    if known is None or coming is None:
        return other if known is None else msgspec.structs.replace(other, schema=one.schema)
    names = {field["name"] for field in known}
    fields = [*known, *(field for field in coming if field["name"] not in names)]
    schema = msgspec.json.encode({"type": "struct", "fields": fields}).decode()
    return msgspec.structs.replace(other, schema=one.schema if len(fields) == len(known) else schema)


def with_partition_columns(layout: Layout, known: Layout) -> Layout:
    """A layout with the types of partition columns that only another one tells: a job that writes into the
    folder of a partition does not know them."""
    fields, more = _fields(layout), _fields(known)
    if fields is None or more is None:
        return layout
    told = {field["name"].lower() for field in fields}
    missing = [
        field for field in more if field["name"].lower() not in told and field["name"] in layout.partition_by
    ]
    if not missing:
        return layout
    schema = msgspec.json.encode({"type": "struct", "fields": [*fields, *missing]}).decode()
    return msgspec.structs.replace(layout, schema=schema)


def _mixed_columns(one: Layout, other: Layout) -> Mixed | None:
    known, coming = _in_files(one), _in_files(other)
    if known is None or coming is None:
        return None
    if one.format in BY_PLACE and [*known] != [*coming]:
        return Mixed(f"with the columns {_named(known)}", f"{_named(coming)}, and such files have no names")
    spellings = {name.lower(): name for name in known}
    for name, kind in coming.items():
        before = spellings.get(name.lower(), name)
        if before != name:
            return Mixed(f"with the column '{before}'", f"'{name}'")
        if name in known and known[name] != kind:
            return Mixed(
                f"in which '{name}' is of the type {_type(known[name])}", f"it as one of {_type(kind)}"
            )
    return None


def _fields(layout: Layout) -> list[dict[str, Any]] | None:
    """The columns, as Spark tells them; ``None`` if they are not known."""
    try:
        found = msgspec.json.decode(layout.schema or "null")
    except msgspec.DecodeError:
        return None
    fields = found.get("fields") if isinstance(found, dict) else None
    return fields if isinstance(fields, list) else None


def _in_files(layout: Layout) -> dict[str, Any] | None:
    """The types of the columns that are in the files, not in their paths."""
    fields, outside = _fields(layout), {name.lower() for name in layout.partition_by}
    if fields is None:
        return None
    return {field["name"]: _plain(field["type"]) for field in fields if field["name"].lower() not in outside}


def _plain(kind: Any) -> Any:
    """A type without what files of it may differ in: whether values may be missing, and remarks."""
    if isinstance(kind, dict):
        return {name: _plain(value) for name, value in kind.items() if name not in _NOT_OF_THE_TYPE}
    return [_plain(one) for one in kind] if isinstance(kind, list) else kind


def _options(layout: Layout) -> dict[str, str]:
    """The options that differ from what a reader does without any."""
    found = {}
    for given, value in layout.options.items():
        name = _SAME_OPTION.get(given.lower(), given.lower())
        text = value.lower() if name == "encoding" or name in _SWITCHES else value
        if text != _DEFAULTS.get(name, "false" if name in _SWITCHES else None):
            found[name] = text
    return found


def _partitioned(layout: Layout) -> str:
    return f"partitioned by {', '.join(layout.partition_by)}" if layout.partition_by else "without partitions"


def _spelled(layout: Layout) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in sorted(_options(layout).items())) or "no options"


def _named(columns: dict[str, Any]) -> str:
    names = [f"'{name}'" for name in [*columns][:SHOWN_MAX]]
    return ", ".join([*names, "…"] if len(columns) > SHOWN_MAX else names) or "none"


def _type(kind: Any) -> str:
    return str(kind.get("type") if isinstance(kind, dict) else kind)
