"""Statistics of a data file, as its ``add`` notes them: rows, nulls, smallest and largest values.

Readers leave out files by them, so a bound may be too wide and never too narrow. Texts are cut, the largest
one so that it stays larger than what was cut. Times are cut to milliseconds, which readers know. A file with
NaN has no largest value in that column, because to some readers NaN is the largest of all, and what JSON
cannot write has no bound at all. A zero of either sign is -0.0 as the smallest value and 0.0 as the largest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.schema import Field, StructType, Type, parse_schema

INDEXED: Final = "delta.dataSkippingNumIndexedCols"
"""Of how many columns statistics are noted, counted over the parts of structs; -1 for all."""
INDEXED_BY_NAME: Final = "delta.dataSkippingStatsColumns"
"""The names of these columns, instead of their number."""
INDEXED_DEFAULT: Final = 32
TEXT_MAX: Final = 32
"""How many characters of a text are noted."""
TEXT_SEARCH_MAX: Final = 64
"""How far into a text a place is looked for at which the largest one can be cut."""
LAST_CHARACTER: Final = "\U0010ffff"
LAST_OF_ASCII: Final = "\x7f"

_WITHOUT_BOUNDS: Final = frozenset({"binary", "boolean", "variant"})
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_NAMES: Final = re.compile(r"\s*((?:`(?:[^`]|``)+`|[^`,.\s]+)(?:\.(?:`(?:[^`]|``)+`|[^`,.\s]+))*)\s*(?:,|$)")
_STEPS: Final = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StatsLeaf(msgspec.Struct, frozen=True):
    """A column, or a part of a struct, that holds plain values, an array or a map."""

    path: tuple[str, ...]
    kind: Type
    stored: tuple[str, ...]
    """The path by the names that files and statistics have for it."""


def indexed_leaves(
    metadata: Metadata, clustering: Collection[tuple[str, ...]] = frozenset()
) -> tuple[StatsLeaf, ...]:
    """The columns of which a table wants statistics. ``InvalidRequest`` if its properties make no sense.

    Those that it is clustered by, as files call them, are always among them.
    """
    schema = parse_schema(metadata.schema_string)
    partitions = {name.lower() for name in metadata.partition_columns}
    mapping = get_column_mapping(metadata)
    leaves = [leaf for leaf in _list_leaves(schema.fields, mapping) if leaf.path[0].lower() not in partitions]
    if (names := metadata.configuration.get(INDEXED_BY_NAME)) is not None:
        paths = [tuple(step.lower() for step in path) for path in _parse_column_paths(names)]
        chosen = {leaf.path for leaf in leaves if any(_is_within(leaf, path) for path in paths)}
    else:
        text = metadata.configuration.get(INDEXED, str(INDEXED_DEFAULT))
        if not re.fullmatch(r"-1|[0-9]{1,9}", text.strip()):
            raise InvalidRequest(f"the property {INDEXED} must be a number of columns, or -1, got {text!r}")
        count = int(text)
        chosen = {stats_leaf.path for stats_leaf in (leaves if count < 0 else leaves[:count])}
    return tuple(leaf for leaf in leaves if leaf.path in chosen or leaf.stored in clustering)


class Statistics:
    """Collects the statistics of a file, batch by batch."""

    def __init__(self, leaves: Sequence[StatsLeaf]) -> None:
        self.rows = 0
        self._columns = [_StatsColumn(leaf) for leaf in leaves]

    def add_batch(self, batch: Any) -> None:
        self.rows += batch.num_rows
        for column in self._columns:
            column.add_batch(batch)

    def encode_stats(self) -> str:
        """What ``add.stats`` holds."""
        return encode_stats(
            self.rows,
            (
                (column.leaf, column.nulls, column.find_smallest(), column.find_largest())
                for column in self._columns
            ),
        )


def encode_stats(rows: int, columns: Iterable[tuple[StatsLeaf, int | None, Any, Any]]) -> str:
    """What ``add.stats`` holds: of each column its nulls, its smallest and its largest value, where known."""
    stats: dict[str, Any] = {"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf, nulls, smallest, largest in columns:
        _put_value(stats["nullCount"], leaf.stored, nulls)
        _put_value(stats["minValues"], leaf.stored, -0.0 if _is_zero(smallest) else smallest)
        _put_value(stats["maxValues"], leaf.stored, 0.0 if _is_zero(largest) else largest)
    return _ENCODER.encode(stats).decode()


def _is_zero(bound: Any) -> bool:
    """Whether a bound is a zero of either sign. Some readers take -0.0 for the smaller one, as Parquet does:
    as a bound it stands for both."""
    return isinstance(bound, float) and bound == 0


def mend_negative_zeros(stats: str | None) -> str | None:
    """Statistics with 0.0 where a largest value is -0.0, as Penstock 0.1 noted it; ``None`` if none is."""
    if stats is None or "-0.0" not in stats:
        return None
    try:
        parsed = json.loads(stats, parse_float=Decimal)
        mended = {**parsed, "maxValues": _without_negative_zero(parsed["maxValues"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return None if str(mended) == str(parsed) else _ENCODER.encode(mended).decode()


def _without_negative_zero(bounds: Any) -> Any:
    if isinstance(bounds, dict):
        return {name: _without_negative_zero(bound) for name, bound in bounds.items()}
    return Decimal("0.0") if isinstance(bounds, Decimal) and bounds.is_zero() else bounds


def encode_bound(kind: Type, value: Any) -> Any:
    """A bound as JSON has it, ``None`` if it has no word for it.

    Dates are given as days, times as microseconds, since 1970.
    """
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    try:
        if kind == "date":
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        if kind in {"timestamp", "timestamp_ntz"}:
            moment = _EPOCH + timedelta(milliseconds=value // 1000)
            text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds")
            return f"{text}Z" if kind == "timestamp" else text
    except OverflowError:
        return None
    return value


def cut_smallest(text: str) -> str:
    """A text that is not larger, and not long."""
    return text[:TEXT_MAX]


def cut_largest(text: str) -> str | None:
    """A text that is not smaller, and not long; ``None`` if there is none that is easily found."""
    if len(text) <= TEXT_MAX:
        return text
    for size in range(TEXT_MAX, min(len(text), TEXT_SEARCH_MAX)):
        dropped = text[size]
        if dropped < LAST_OF_ASCII:
            return text[:size] + LAST_OF_ASCII
        if dropped < LAST_CHARACTER:
            return text[:size] + LAST_CHARACTER
    return text if len(text) <= TEXT_SEARCH_MAX else None


class _StatsColumn:
    """What has been seen of one column: times and dates as numbers, all else as it is."""

    def __init__(self, leaf: StatsLeaf) -> None:
        self.leaf = leaf
        self.nulls = 0
        self._low: Any = None
        self._high: Any = None
        self._has_nan = False
        self._has_bounds = isinstance(leaf.kind, str) and leaf.kind not in _WITHOUT_BOUNDS

    def add_batch(self, batch: Any) -> None:
        array = batch.column(self.leaf.path[0])
        for name in self.leaf.path[1:]:
            array = pc.struct_field(array, name)
        self.nulls += array.null_count
        if not self._has_bounds or array.null_count == len(array):
            return
        if pa.types.is_floating(array.type):
            is_nan = pc.is_nan(array)
            self._has_nan = self._has_nan or bool(pc.any(is_nan).as_py())
            array = array.filter(pc.invert(is_nan))
        elif pa.types.is_date32(array.type):
            array = array.cast(pa.int32())
        elif pa.types.is_timestamp(array.type):
            array = array.cast(pa.int64())
        bounds = pc.min_max(array)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None:
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def find_smallest(self) -> Any:
        return (
            cut_smallest(self._low) if isinstance(self._low, str) else encode_bound(self.leaf.kind, self._low)
        )

    def find_largest(self) -> Any:
        if isinstance(self._high, str):
            return cut_largest(self._high)
        return None if self._has_nan else encode_bound(self.leaf.kind, self._high)


def _list_leaves(
    fields: Sequence[Field],
    mapping: ColumnMapping,
    above: tuple[str, ...] = (),
    stored_above: tuple[str, ...] = (),
) -> Iterator[StatsLeaf]:
    for field in fields:
        path, stored = (*above, field.name), (*stored_above, mapping.get_physical_name(field))
        if isinstance(field.type, StructType):
            yield from _list_leaves(field.type.fields, mapping, path, stored)
        else:
            yield StatsLeaf(path, field.type, stored)


def _parse_column_paths(names: str) -> Iterator[tuple[str, ...]]:
    """The columns that a list names: ``a, b.c, `odd,name```."""
    at = 0
    while at < len(names.rstrip()):
        match = _NAMES.match(names, at)
        if match is None:
            raise InvalidRequest(
                f"the property {INDEXED_BY_NAME} is {names!r}, which is not a list of columns"
            )
        yield tuple(quoted.replace("``", "`") or plain for quoted, plain in _STEPS.findall(match[1]))
        at = match.end()


def _is_within(leaf: StatsLeaf, path: tuple[str, ...]) -> bool:
    return tuple(step.lower() for step in leaf.path[: len(path)]) == path


def _put_value(stats: dict[str, Any], path: Sequence[str], value: Any) -> None:
    if value is None:
        return
    for step in path[:-1]:
        stats = stats.setdefault(step, {})
    stats[path[-1]] = value
