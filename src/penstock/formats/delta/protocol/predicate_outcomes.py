"""What a condition may come to, by what is known of the values of its columns: true, false, neither.

What is not known may be anything. Where the value of each column is known, as that of a partition column is
for all rows of a file, there is one answer and it is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import reduce
from itertools import product
from math import isnan
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

import msgspec

from penstock.formats.rows.partition_values import Value, parse_value
from penstock.formats.rows.predicates import (
    And,
    Column,
    ComparedValues,
    IsNull,
    Like,
    Not,
    OneOf,
    Or,
    Predicate,
    to_float,
    to_utc,
)
from penstock.formats.rows.schema import Type

Outcome: TypeAlias = bool | None
Outcomes: TypeAlias = frozenset[Outcome]

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


class KnownValue(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the values of a column; nothing, unless it is said."""

    low: Any = None
    """No value that is not NaN is smaller; ``None`` if there may be any."""
    high: Any = None
    may_be_null: bool = True
    may_be_value: bool = True
    """There may be values that are neither null nor NaN."""
    may_be_nan: bool = False
    is_exact: bool = False
    """The bounds are the one value that there is."""


def evaluate_predicate(predicate: Predicate, known: Callable[[Column], KnownValue]) -> Outcomes:
    """What a condition may come to, by what is known of each column. May name too much, never too little."""
    match predicate:
        case And():
            return reduce(join_outcomes, (evaluate_predicate(part, known) for part in predicate.parts))
        case Or():
            return _negate_outcomes(
                reduce(
                    join_outcomes,
                    (_negate_outcomes(evaluate_predicate(part, known)) for part in predicate.parts),
                )
            )
        case Not():
            return _negate_outcomes(evaluate_predicate(predicate.inner, known))
        case IsNull():
            of = known(predicate.column)
            return _make_outcomes((True, of.may_be_null), (False, of.may_be_value or of.may_be_nan))
        case ComparedValues():
            return _compare_outcomes(known(predicate.column), predicate.operator, predicate.value)
        case OneOf():
            of = known(predicate.column)
            each = [_compare_outcomes(of, "=", value) for value in predicate.values]
            return _make_outcomes(
                (True, any(True in part_outcomes for part_outcomes in each)),
                (False, all(False in part_outcomes for part_outcomes in each)),
                (None, of.may_be_null),
            )
        case Like():
            return _evaluate_like(known(predicate.column), predicate)


def make_known_partition_value(kind: Type, text: str | None) -> KnownValue:
    """What a partition value tells, which is the value of every row."""
    try:
        value = partition_value(kind, text)
    except ValueError:
        return KnownValue(may_be_nan=kind in {"float", "double"})
    if value is None:
        return KnownValue(may_be_value=False)
    if isinstance(value, float) and isnan(value):
        return KnownValue(may_be_null=False, may_be_value=False, may_be_nan=True)
    return KnownValue(low=value, high=value, may_be_null=False, is_exact=True)


def partition_value(kind: Type, text: str | None) -> Value:
    """A partition value as rows show it: times with zones in UTC. ``ValueError`` if it is none.

    A date in a column of times is one from before the column was widened.
    """
    if not isinstance(kind, str):
        raise ValueError("the column has a nested type, which a partition column cannot have")
    is_date = kind == "timestamp_ntz" and len(text or "") == len("2026-11-14")
    value = parse_value(kind, f"{text} 00:00:00" if is_date else text)
    if kind == "timestamp" and isinstance(value, datetime):
        return to_utc(value)
    return to_float(value) if kind == "float" and isinstance(value, float) else value


def is_same_value(kind: Type, one: str | None, other: str | None) -> bool | None:
    """Whether two texts are one partition value to readers, in whatever spelling; ``None`` if a text cannot
    be understood."""
    try:
        first_value, second_value = partition_value(kind, one), partition_value(kind, other)
    except ValueError:
        return True if one == other else None
    if isinstance(first_value, float) and isinstance(second_value, float) and isnan(first_value):
        return isnan(second_value)
    return first_value == second_value


def may_be_same_value(kind: Type, one: str | None, other: str | None) -> bool:
    """The same to somebody who must not miss one: in doubt they are.

    There is doubt where a text cannot be understood, and between a timestamp with a zone and one without,
    which may have been any time to its writer.
    """
    if is_same_value(kind, one, other) is not False:
        return True
    if kind != "timestamp" or not one or not other:
        return False
    zones = [isinstance(value := parse_value(kind, text), datetime) and value.tzinfo for text in (one, other)]
    return (zones[0] is None) != (zones[1] is None)


def _compare_outcomes(known_value: KnownValue, operator: str, value: Value) -> Outcomes:
    compare = _COMPARE[operator]
    value_is_nan = isinstance(value, float) and isnan(value)
    if value_is_nan:
        # Every number is smaller than NaN, and NaN equals itself.
        by_value = _make_outcomes((compare(0, 1), True))
        by_nan = _make_outcomes((compare(0, 0), True))
    else:
        by_value = _compare_bounds(known_value, operator, value)
        by_nan = _make_outcomes((compare(1, 0), True))
    result = frozenset() if not known_value.may_be_value else by_value
    result = result | by_nan if known_value.may_be_nan else result
    return result | {None} if known_value.may_be_null else result


def _compare_bounds(known_value: KnownValue, operator: str, value: Any) -> Outcomes:
    """What a comparison comes to for values between two bounds."""
    low, high = known_value.low, known_value.high
    may_be_less = low is None or low < value
    may_be_more = high is None or high > value
    may_be_equal = (low is None or low <= value) and (high is None or value <= high)
    compare = _COMPARE[operator]
    signs = ((-1, may_be_less), (0, may_be_equal), (1, may_be_more))
    return frozenset(compare(sign, 0) for sign, possible in signs if possible)


def _evaluate_like(known_value: KnownValue, like: Like) -> Outcomes:
    if known_value.is_exact:
        return _make_outcomes((like.matches(known_value.low), True))
    prefix, size = like.prefix, len(like.prefix)
    may_match = (known_value.low is None or known_value.low[:size] <= prefix) and (
        known_value.high is None or prefix <= known_value.high[:size]
    )
    # Between two texts that both begin with it every text does.
    is_prefix_alone = like.pattern.endswith("%") and like.pattern[:-1] == prefix
    all_match = (
        is_prefix_alone
        and known_value.low is not None
        and known_value.high is not None
        and known_value.low.startswith(prefix)
        and known_value.high.startswith(prefix)
    )
    by_value = (
        _make_outcomes((True, may_match), (False, not all_match)) if known_value.may_be_value else frozenset()
    )
    return by_value | {None} if known_value.may_be_null else by_value


def join_outcomes(outcomes: Outcomes, other: Outcomes) -> Outcomes:
    """What two conditions joined by ``and`` may come to."""
    return frozenset(
        False if False in pair else None if None in pair else True for pair in product(outcomes, other)
    )


def _negate_outcomes(outcomes: Outcomes) -> Outcomes:
    return frozenset(None if outcome is None else not outcome for outcome in outcomes)


def _make_outcomes(*possible: tuple[Outcome, bool]) -> Outcomes:
    return frozenset(outcome for outcome, is_possible in possible if is_possible)
