"""Statistics and partition values as columns of their own types, for tables that ask for it.

Readers skip files by them without parsing text. A statistic that cannot be understood is left out, which
only costs skipping; a partition value that cannot be is an error, since it would hide rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.clustering import clustering_columns
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.delta.rows.stats import indexed_leaves
from penstock.formats.rows.arrow_types import DECIMAL, find_arrow_type, pa
from penstock.formats.rows.partition_values import parse_value
from penstock.model.decoders import get_json_decoder

AS_JSON: Final = "delta.checkpoint.writeStatsAsJson"
AS_STRUCT: Final = "delta.checkpoint.writeStatsAsStruct"

Tree: TypeAlias = "dict[str, str | Tree]"
"""Plain types by the physical names of columns; of columns that hold others, a tree of these."""

_BOUNDED: Final = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz", "string"}
)
_STATS: Final = get_json_decoder(Any, float_hook=str)


class ParsedStatsColumns:
    """The columns beside the usual ones that the files of a table have in its checkpoints."""

    def __init__(self, snapshot: LogSnapshot) -> None:
        properties = snapshot.properties
        self._table, self._version = snapshot.table, snapshot.version
        self.has_json = properties.get(AS_JSON, "true").lower() != "false"
        """Whether statistics stand there as the log has them."""
        self._partitions: Tree = {}
        self._bounds: Tree = {}
        self._counts: Tree = {}
        if properties.get(AS_STRUCT, "false").lower() == "true":
            self._partitions = _list_partition_types(snapshot)
            self._counts = _find_indexed_columns(snapshot)
            self._bounds = _select_columns_with_bounds(self._counts)
        self.structs = self._make_struct_types() if self._partitions or self._counts else {}
        """The types of the columns, by their names."""

    def parse_values(self, name: str, files: Sequence[Add]) -> list[Any]:
        """What one of the columns holds for some files."""
        make = self._parse_statistics if name == "stats_parsed" else self._parse_partition_values
        return [make(file) for file in files]

    def _make_struct_types(self) -> dict[str, Any]:
        structs = {}
        if self._partitions:
            structs["partitionValues_parsed"] = _make_struct_type(self._partitions)
        if self._counts:
            stats = [("numRecords", pa.int64())]
            if self._bounds:
                bounds = _make_struct_type(self._bounds)
                stats += [("minValues", bounds), ("maxValues", bounds)]
            stats += [("nullCount", _make_struct_type(self._counts, "long")), ("tightBounds", pa.bool_())]
            structs["stats_parsed"] = pa.struct(stats)
        return structs

    def _parse_statistics(self, file: Add) -> dict[str, Any] | None:
        try:
            statistics = _STATS.decode(file.stats or "null")
        except (msgspec.MsgspecError, RecursionError):
            return None
        if not isinstance(statistics, dict):
            return None
        tight = statistics.get("tightBounds")
        return {
            "numRecords": _parse_statistic("long", statistics.get("numRecords")),
            "minValues": _parse_values(self._bounds, statistics.get("minValues")),
            "maxValues": _parse_values(self._bounds, statistics.get("maxValues")),
            "nullCount": _parse_values(self._counts, statistics.get("nullCount"), "long"),
            "tightBounds": tight if isinstance(tight, bool) else None,
        }

    def _parse_partition_values(self, file: Add) -> dict[str, Any]:
        values = {}
        for name, kind in self._partitions.items():
            assert isinstance(kind, str)
            text = file.partition_values.get(name)
            try:
                values[name] = _to_utc(parse_value(kind, text))
            except (ValueError, OverflowError) as problem:
                raise InvalidLog(
                    f"the partition value {name} = {text!r} of {file.path} is not a valid {kind}: "
                    f"{problem}\n  No checkpoint of {self._table} can be made at version {self._version}; it "
                    f"can without the property {AS_STRUCT}.",
                    table=self._table,
                    version=self._version,
                ) from None
        return values


def _list_partition_types(snapshot: LogSnapshot) -> Tree:
    mapping = get_column_mapping(snapshot.metadata)
    fields = (snapshot.schema.field(name) for name in snapshot.metadata.partition_columns)
    return {
        mapping.get_physical_name(field): field.type
        for field in fields
        if field is not None and isinstance(field.type, str)
    }


def _find_indexed_columns(snapshot: LogSnapshot) -> Tree:
    """The columns that have statistics."""
    tree: Tree = {}
    for leaf in indexed_leaves(snapshot.metadata, clustering_columns(snapshot.domains)):
        inner = tree
        for step in leaf.stored[:-1]:
            below = inner.setdefault(step, {})
            if not isinstance(below, dict):
                raise InvalidLog(f"two columns are both called {step!r} in the files of a table")
            inner = below
        inner[leaf.stored[-1]] = leaf.kind if isinstance(leaf.kind, str) else ""
    return tree


def _select_columns_with_bounds(tree: Tree) -> Tree:
    """The columns whose values have a least and a greatest."""
    bounds: Tree = {}
    for name, kind in tree.items():
        if isinstance(kind, dict):
            if inner := _select_columns_with_bounds(kind):
                bounds[name] = inner
        elif kind in _BOUNDED or DECIMAL.fullmatch(kind):
            bounds[name] = kind
    return bounds


def _make_struct_type(tree: Tree, every: str | None = None) -> Any:
    return pa.struct(
        {
            name: _make_struct_type(kind, every)
            if isinstance(kind, dict)
            else find_arrow_type(every or kind, name)
            for name, kind in tree.items()
        }
    )


def _parse_values(tree: Tree, stats: Any, every: str | None = None) -> dict[str, Any] | None:
    if not isinstance(stats, dict):
        return None
    return {
        name: _parse_values(kind, stats.get(name), every)
        if isinstance(kind, dict)
        else _parse_statistic(every or kind, stats.get(name))
        for name, kind in tree.items()
    }


def _parse_statistic(kind: str, value: Any) -> Any:
    """A statistic as a value of its column's type, ``None`` if it is none."""
    if kind == "string":
        return value if isinstance(value, str) else None
    if value is None or isinstance(value, bool | dict | list):
        return None
    try:
        return _to_utc(parse_value(kind, str(value)))
    except (ValueError, OverflowError):
        return None


def _to_utc(value: Any) -> Any:
    """Times as they are stored: those with a zone in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value
