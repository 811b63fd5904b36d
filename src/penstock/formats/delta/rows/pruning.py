"""Which files can hold rows for which a condition is true.

Of a file its partition values are known, and by its statistics the smallest and largest value of a column
and how many nulls there are. From these follows what a condition may come to in any of its rows: true,
false, neither. A file is left out only if true is not among them. What is not known, or cannot be
understood, may be anything.

Statistics are read with the care that their writers make necessary: texts are cut, sometimes so that the
largest one is too small; times are cut to milliseconds in either direction; delta-rs notes decimals as
doubles; NaN may or may not have been counted, and a part of a struct may be null because the struct is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isnan
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.column_mapping import get_column_mapping
from penstock.formats.delta.protocol.predicate_outcomes import (
    KnownValue,
    evaluate_predicate,
    make_known_partition_value,
)
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    OneOf,
    Predicate,
    list_columns,
    to_float,
    to_utc,
)
from penstock.formats.rows.schema import Type
from penstock.model.decoders import make_own_json_decoder

TYPE_CHANGES: Final = "delta.typeChanges"
"""In the metadata of a column whose type was widened."""
SLACK: Final = timedelta(milliseconds=1)
"""By how much a time may lie outside of its statistics."""
DOUBLE_DIGITS: Final = 15
"""Decimals of so many digits come back from a double as they were."""
DOUBLE_DIGITS_MAX: Final = 17
"""A double is written with no more digits."""
DOUBLE_ERROR: Final = Decimal(2) ** -50
"""The part of it by which a decimal that went through a double may be another one: a few units of the last
of 53 bits."""
PLACES_MAX: Final = 40
"""No decimal is larger than a number of so many digits, or smaller."""
TIE_BREAKER: Final = "\ufffd"
"""What older Delta Spark puts behind the largest text where it cuts it."""

_BOUNDS: Final = ("minValues", "maxValues", "nullCount")
_REAL: Final = frozenset({"float", "double"})
"""Of which NaN is larger than the largest value that statistics tell."""
_STATS: Final = json.JSONDecoder(parse_float=Decimal)
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,.*")


class BoundedColumn(NamedTuple):
    """A column whose values are known to lie between two others."""

    names: tuple[str, ...]
    """In files."""
    kind: str


class BoundTest(NamedTuple):
    """A part of a condition that the bounds of a column can rule out."""

    column: BoundedColumn
    lowest: Any = None
    """What the largest value must not be below; ``None`` if it may be anything. The following likewise."""
    is_lowest_out: bool = False
    """Whether it must be above it."""
    highest: Any = None
    is_highest_out: bool = False


class FilePruner:
    """Tells which files of a table a condition cannot leave out."""

    def __init__(self, predicate: Predicate, metadata: Metadata) -> None:
        self._parts = predicate.parts if isinstance(predicate, And) else (predicate,)
        self._partitions = frozenset(name.lower() for name in metadata.partition_columns)
        mapping = get_column_mapping(metadata)
        self._names = {
            column.path: tuple(mapping.get_physical_name(field) for field in column.fields)
            for column in list_columns(predicate)
        }
        self._read_stats = _stats_reader(
            [names for path, names in self._names.items() if not self._is_partition(path)]
        )

    def may_match(self, file: Add) -> bool:
        """Whether the file may have a row for which the condition is true."""
        stats = self._read_stats(file)
        known_values: dict[tuple[str, ...], KnownValue] = {}

        def look_up(column: Column) -> KnownValue:
            path = column.path
            known_value = known_values.get(path)
            if known_value is None:
                known_value = known_values[path] = self._known_value(column, path, file, stats)
            return known_value

        return all(True in evaluate_predicate(part, look_up) for part in self._parts)

    @property
    def bound_tests(self) -> tuple[BoundTest, ...]:
        """What the bounds of columns fulfil in every file that is kept, and maybe in others."""
        tests = (self._bound_test(part) for part in self._parts)
        return tuple(test for test in tests if test is not None)

    def _bound_test(self, part: Predicate) -> BoundTest | None:
        if not isinstance(part, ComparedValues | OneOf):
            return None
        kind, path = part.column.kind, part.column.path
        if not isinstance(kind, str) or kind in _REAL or self._is_partition(path):
            return None
        column = BoundedColumn(self._names[path], kind)
        if isinstance(part, OneOf):
            values: list[Any] = [value for value in part.values if value is not None]
            return BoundTest(column, min(values), highest=max(values)) if values else None
        value = part.value
        match part.operator:
            case "=":
                return BoundTest(column, value, highest=value)
            case "<" | "<=":
                return BoundTest(column, highest=value, is_highest_out=part.operator == "<")
            case ">" | ">=":
                return BoundTest(column, value, is_lowest_out=part.operator == ">")
            case _:
                return None

    def _is_partition(self, path: tuple[str, ...]) -> bool:
        return path[0].lower() in self._partitions

    def _known_value(
        self, column: Column, path: tuple[str, ...], file: Add, stats: dict[str, Any]
    ) -> KnownValue:
        names = self._names[path]
        if self._is_partition(path):
            return make_known_partition_value(column.kind, file.partition_values.get(names[0]))
        return read_known_value(column, names, stats)


def read_known_value(column: Column, names: Sequence[str], stats: dict[str, Any]) -> KnownValue:
    """What a file's statistics say of a column, which has these names in files."""
    kind = column.kind
    is_real = kind in {"float", "double"}
    rows = stats.get("numRecords")
    nulls = _nested_value(stats.get("nullCount"), names)
    if not isinstance(nulls, int):
        nulls = None
    low = _decode_bound(kind, _nested_value(stats.get("minValues"), names), -SLACK)
    high = _decode_bound(kind, _nested_value(stats.get("maxValues"), names), SLACK)
    if kind == "double" and TYPE_CHANGES in column.fields[-1].metadata:
        # A file from when it was a float: 0.1 is noted, and what the file holds is a little more.
        low = None if low is None else min(low, to_float(low))
        high = None if high is None else max(high, to_float(high))
    return KnownValue(
        low=low,
        high=high,
        # Not every writer counts a part as null where the whole is.
        may_be_null=nulls != 0 or len(names) > 1,
        may_be_value=nulls is None or nulls != rows,
        may_be_nan=is_real and (nulls is None or nulls != rows),
    )


def bounds_reader(columns: Sequence[BoundedColumn]) -> Callable[[Add], list[tuple[Any, Any]]]:
    """Reads the smallest and the largest value of some columns; ``None`` for one that is not known."""
    read = _stats_reader([column.names for column in columns])

    def read_bounds(file: Add) -> list[tuple[Any, Any]]:
        stats = read(file)
        lows, highs = stats.get("minValues"), stats.get("maxValues")
        return [
            (
                _decode_bound(column.kind, _nested_value(lows, column.names), -SLACK),
                _decode_bound(column.kind, _nested_value(highs, column.names), SLACK),
            )
            for column in columns
        ]

    return read_bounds


def _decode_bound(kind: Type, raw: Any, slack: timedelta) -> Any:
    """A smallest or largest value as what it is compared with; ``None`` if it is none that can be used."""
    try:
        if kind in {"timestamp", "timestamp_ntz"}:
            moment = datetime.fromisoformat(raw)
            moment = to_utc(moment) if kind == "timestamp" else moment
            return moment + slack if (moment.tzinfo is None) == (kind == "timestamp_ntz") else None
        if kind == "date":
            return date.fromisoformat(raw)
        if kind in {"float", "double"}:
            number = float(raw)
            return None if isnan(number) else to_float(number) if kind == "float" else number
    except (ValueError, TypeError, OverflowError):
        return None
    is_high = slack > timedelta()
    if kind == "string":
        return (_make_larger_text(raw) if is_high else raw) if isinstance(raw, str) else None
    if kind == "boolean":
        return raw if isinstance(raw, bool) else None
    is_number = isinstance(raw, int | Decimal) and not isinstance(raw, bool)
    if not is_number or not isinstance(kind, str) or kind == "binary":
        return None
    return _widen_decimal_bound(kind, raw, is_high=is_high)


def _widen_decimal_bound(kind: str, raw: int | Decimal, *, is_high: bool) -> int | Decimal:
    """A bound as far from the values as a double may have moved it, if it can have come from one."""
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is None or int(decimal[1]) <= DOUBLE_DIGITS:
        return raw
    number = Decimal(raw)
    if _count_digits(number) > DOUBLE_DIGITS_MAX or abs(number.adjusted()) > PLACES_MAX:
        return raw
    error = abs(number) * DOUBLE_ERROR
    return number + error if is_high else number - error


def _count_digits(number: Decimal) -> int:
    """How many digits a number has, without zeros at its ends."""
    return len("".join(map(str, number.as_tuple().digits)).strip("0"))


def _make_larger_text(text: str) -> str | None:
    """A text that is larger than all of a file, by the one that its statistics have.

    Java compares halves of characters beyond the first 65,536. So older Delta Spark takes its tie-breaker for
    larger than those, and cuts in the middle of one, of which a question mark is left. What is cut may be any
    text that begins so.
    """
    if not text.endswith(TIE_BREAKER):
        return text
    start = text.rstrip(TIE_BREAKER)
    if start.endswith("?") or "\ud800" <= start[-1:] <= "\udfff":
        start = start[:-1]
    start = start.rstrip("\U0010ffff")
    if not start:
        return None
    return start[:-1] + chr(ord(start[-1]) + 1)


def _stats_reader(columns: Sequence[tuple[str, ...]]) -> Callable[[Add], dict[str, Any]]:
    """Reads what statistics say of some columns, each by its names in files; the rest is passed over."""
    if not columns:
        return lambda _: {}
    bounds = _object_type(columns) | None
    # By names in files, so that the types are made here.
    fields = {"numRecords": Any} | dict.fromkeys(_BOUNDS, bounds)
    stats_type = TypedDict("stats_type", fields, total=False)  # type: ignore[misc]
    decoder = make_own_json_decoder(stats_type, float_hook=Decimal)

    def decode_stats(file: Add) -> dict[str, Any]:
        try:
            stats: dict[str, Any] = decoder.decode(file.stats or "{}")
        except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
            return read_stats(file)  # which takes others' spellings, and knows what is none
        return stats

    return decode_stats


def _object_type(columns: Sequence[tuple[str, ...]]) -> Any:
    """The type of an object that has columns, or parts of them, and other things."""
    if any(not names for names in columns):
        return Any
    parts: dict[str, list[tuple[str, ...]]] = {}
    for first, *names in columns:
        parts.setdefault(first, []).append(tuple(names))
    fields = {
        name: Any if any(not names for names in its) else _object_type(its) | None
        for name, its in parts.items()
    }
    return TypedDict("fields", fields, total=False)  # type: ignore[operator]


def read_stats(file: Add) -> dict[str, Any]:
    """A file's statistics, with decimals as exact as they are written; none if there are none to be read."""
    try:
        stats = _STATS.decode(file.stats or "{}")
    except (ValueError, RecursionError):
        return {}
    return stats if isinstance(stats, dict) else {}


def _nested_value(stats: Any, names: Sequence[str]) -> Any:
    for name in names:
        if not isinstance(stats, dict):
            return None
        stats = stats.get(name)
    return stats
