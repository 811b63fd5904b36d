"""Which files can hold rows for which a condition is true.

Of a file its partition values are known, and by its statistics the smallest and largest value of a column
and how many nulls there are. From these follows what a condition may come to in any of its rows: true,
false, neither. A file is left out only if true is not among them. What is not known, or cannot be
understood, may be anything.

Statistics are read with the care that their writers make necessary: texts are cut, times are cut to
milliseconds in either direction, NaN may or may not have been counted, and a part of a struct may be null
because the struct is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import product
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

import msgspec

from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.partition_values import Value, parse_value
from penstock.formats.delta.protocol.schema import Type
from penstock.formats.delta.rows.mapping import mapping_of
from penstock.formats.delta.rows.predicates import (
    And,
    Column,
    Comparison,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
    as_float,
    columns_of,
    in_utc,
)

Outcome: TypeAlias = bool | None
Outcomes: TypeAlias = frozenset[Outcome]

SLACK: Final = timedelta(milliseconds=1)
"""By how much a time may lie outside of its statistics."""

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the values of a column in a file; nothing, unless it is said."""

    low: Any = None
    """No value that is not NaN is smaller; ``None`` if there may be any."""
    high: Any = None
    may_be_null: bool = True
    may_be_value: bool = True
    """There may be values that are neither null nor NaN."""
    may_be_nan: bool = False


class Pruner:
    """Tells which files of a table a condition cannot leave out."""

    def __init__(self, predicate: Predicate, metadata: Metadata) -> None:
        self._predicate = predicate
        self._partitions = frozenset(name.lower() for name in metadata.partition_columns)
        self._mapping = mapping_of(metadata)
        self._needs_stats = any(not self._is_partition(one) for one in columns_of(predicate))

    def keeps(self, file: Add) -> bool:
        """Whether the file may have a row for which the condition is true."""
        stats = _stats(file) if self._needs_stats else {}
        return True in outcomes(self._predicate, lambda column: self._known(column, file, stats))

    def _is_partition(self, column: Column) -> bool:
        return column.path[0].lower() in self._partitions

    def _known(self, column: Column, file: Add, stats: dict[str, Any]) -> Known:
        names = [self._mapping.physical(one) for one in column.fields]
        if self._is_partition(column):
            return partition_known(column.kind, file.partition_values.get(names[0]))
        return _by_stats(column, names, stats)


def outcomes(predicate: Predicate, known: Callable[[Column], Known]) -> Outcomes:
    """What a condition may come to, by what is known of each column. May name too much, never too little."""
    match predicate:
        case And():
            return reduce(_both, (outcomes(one, known) for one in predicate.parts))
        case Or():
            return _opposite(reduce(_both, (_opposite(outcomes(one, known)) for one in predicate.parts)))
        case Not():
            return _opposite(outcomes(predicate.inner, known))
        case IsNull():
            of = known(predicate.column)
            return _set((True, of.may_be_null), (False, of.may_be_value or of.may_be_nan))
        case Comparison():
            return _compared(known(predicate.column), predicate.operator, predicate.value)
        case OneOf():
            of = known(predicate.column)
            each = [_compared(of, "=", value) for value in predicate.values]
            return _set(
                (True, any(True in one for one in each)),
                (False, all(False in one for one in each)),
                (None, of.may_be_null),
            )
        case Like():
            return _like(known(predicate.column), predicate.prefix, predicate.pattern)


def partition_known(kind: Type, text: str | None) -> Known:
    """What a partition value tells, which is the value of every row."""
    try:
        value = partition_value(kind, text)
    except ValueError:
        return Known(may_be_nan=kind in {"float", "double"})
    if value is None:
        return Known(may_be_value=False)
    if isinstance(value, float) and isnan(value):
        return Known(may_be_null=False, may_be_value=False, may_be_nan=True)
    return Known(low=value, high=value, may_be_null=False)


def partition_value(kind: Type, text: str | None) -> Value:
    """A partition value as rows show it: times with zones in UTC. ``ValueError`` if it is none.

    A date in a column of times is one from before the column was widened.
    """
    if not isinstance(kind, str):
        raise ValueError("values of nested types cannot be partition values")
    is_date = kind == "timestamp_ntz" and len(text or "") == len("2026-11-14")
    value = parse_value(kind, f"{text} 00:00:00" if is_date else text)
    if kind == "timestamp" and isinstance(value, datetime):
        return in_utc(value)
    return as_float(value) if kind == "float" and isinstance(value, float) else value


def _compared(of: Known, operator: str, value: Value) -> Outcomes:
    compare = _COMPARE[operator]
    value_is_nan = isinstance(value, float) and isnan(value)
    if value_is_nan:
        # Every number is smaller than NaN, and NaN equals itself.
        by_value = _set((compare(0, 1), True))
        by_nan = _set((compare(0, 0), True))
    else:
        by_value = _by_bounds(of, operator, value)
        by_nan = _set((compare(1, 0), True))
    found = frozenset() if not of.may_be_value else by_value
    found = found | by_nan if of.may_be_nan else found
    return found | {None} if of.may_be_null else found


def _by_bounds(of: Known, operator: str, value: Any) -> Outcomes:
    """What a comparison comes to for values between two bounds."""
    low, high = of.low, of.high
    may_be_less = low is None or low < value
    may_be_more = high is None or high > value
    may_be_equal = (low is None or low <= value) and (high is None or value <= high)
    compare = _COMPARE[operator]
    signs = ((-1, may_be_less), (0, may_be_equal), (1, may_be_more))
    return frozenset(compare(sign, 0) for sign, possible in signs if possible)


def _like(of: Known, prefix: str, pattern: str) -> Outcomes:
    size = len(prefix)
    may_match = (of.low is None or of.low[:size] <= prefix) and (of.high is None or prefix <= of.high[:size])
    # Between two texts that both begin with it every text does.
    is_prefix_alone = pattern.endswith("%") and pattern[:-1] == prefix
    all_match = (
        is_prefix_alone
        and of.low is not None
        and of.high is not None
        and of.low.startswith(prefix)
        and of.high.startswith(prefix)
    )
    by_value = _set((True, may_match), (False, not all_match)) if of.may_be_value else frozenset()
    return by_value | {None} if of.may_be_null else by_value


def _by_stats(column: Column, names: Sequence[str], stats: dict[str, Any]) -> Known:
    kind = column.kind
    is_real = kind in {"float", "double"}
    rows = stats.get("numRecords")
    nulls = _nested(stats.get("nullCount"), names)
    if not isinstance(nulls, int):
        nulls = None
    low = _bound(kind, _nested(stats.get("minValues"), names), -SLACK)
    high = _bound(kind, _nested(stats.get("maxValues"), names), SLACK)
    return Known(
        low=low,
        high=high,
        # Not every writer counts a part as null where the whole is.
        may_be_null=nulls != 0 or len(names) > 1,
        may_be_value=nulls is None or nulls != rows,
        may_be_nan=is_real and (nulls is None or nulls != rows),
    )


def _bound(kind: Type, raw: Any, slack: timedelta) -> Any:
    """A smallest or largest value as what it is compared with; ``None`` if it is none that can be used."""
    try:
        if kind in {"timestamp", "timestamp_ntz"}:
            moment = datetime.fromisoformat(raw)
            moment = in_utc(moment) if kind == "timestamp" else moment
            return moment + slack if (moment.tzinfo is None) == (kind == "timestamp_ntz") else None
        if kind == "date":
            return date.fromisoformat(raw)
        if kind in {"float", "double"}:
            number = float(raw)
            return None if isnan(number) else as_float(number) if kind == "float" else number
    except (ValueError, TypeError, OverflowError):
        return None
    if kind == "string":
        return raw if isinstance(raw, str) else None
    if kind == "boolean":
        return raw if isinstance(raw, bool) else None
    is_number = isinstance(raw, int | Decimal) and not isinstance(raw, bool)
    return raw if is_number and isinstance(kind, str) and kind != "binary" else None


def _stats(file: Add) -> dict[str, Any]:
    """A file's statistics, with decimals as exact as they are written; none if there are none to be read."""
    try:
        found = json.loads(file.stats or "{}", parse_float=Decimal)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _nested(found: Any, names: Sequence[str]) -> Any:
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def _both(one: Outcomes, other: Outcomes) -> Outcomes:
    return frozenset(
        False if False in pair else None if None in pair else True for pair in product(one, other)
    )


def _opposite(found: Outcomes) -> Outcomes:
    return frozenset(None if one is None else not one for one in found)


def _set(*possible: tuple[Outcome, bool]) -> Outcomes:
    return frozenset(outcome for outcome, is_possible in possible if is_possible)
