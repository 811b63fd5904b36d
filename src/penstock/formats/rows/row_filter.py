"""Rows for which a condition is true.

The parts of a condition are computed one after the other, and not as one expression of Arrow, which walks an
expression as deep as it is and falls over conditions with thousands of parts.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from math import isnan
from typing import Any, Final

from penstock.formats.rows.arrow_types import find_arrow_type, pa, pc
from penstock.formats.rows.partition_values import Value
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
)

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WIDE_DIGITS: Final = 76
"""The most digits of a decimal that Arrow computes with."""


def select_matching_rows(predicate: Predicate, batch: Any) -> Any:
    """The rows of a batch for which a condition is true."""
    return batch.filter(evaluate_predicate(predicate, batch))


def evaluate_predicate(predicate: Predicate, batch: Any) -> Any:
    """Of each row whether a condition is true or false, or null if it is neither."""
    match predicate:
        case And():
            return reduce(pc.and_kleene, (evaluate_predicate(part, batch) for part in predicate.parts))
        case Or():
            return reduce(pc.or_kleene, (evaluate_predicate(part, batch) for part in predicate.parts))
        case Not():
            return pc.invert(evaluate_predicate(predicate.inner, batch))
        case IsNull():
            return pc.is_null(_read_column_values(predicate.column, batch))
        case Like():
            return pc.match_like(_read_column_values(predicate.column, batch), predicate.pattern)
        case ComparedValues():
            values = _read_column_values(predicate.column, batch)
            return _compare_values(values, predicate.column, predicate.operator, predicate.value)
        case OneOf():
            return _is_one_of(predicate, _read_column_values(predicate.column, batch))


def _read_column_values(column: Column, batch: Any) -> Any:
    array = batch.column(column.path[0])
    for name in column.path[1:]:
        array = pc.struct_field(array, name)
    return array


def _is_one_of(predicate: OneOf, values: Any) -> Any:
    if any(isinstance(candidate, float | Decimal) for candidate in predicate.values):
        # Zero has two spellings and decimals have many, which a look-up would tell apart.
        return reduce(
            pc.or_kleene,
            (_compare_values(values, predicate.column, "=", candidate) for candidate in predicate.values),
        )
    is_whole = pa.types.is_integer(values.type)
    candidates = pa.array(predicate.values, pa.int64() if is_whole else values.type)
    is_among = pc.is_in(values.cast(pa.int64()) if is_whole else values, candidates)
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), is_among)


def _compare_values(values: Any, column: Column, sign: str, value: Value) -> Any:
    if isinstance(value, float):
        return _compare_floats(values, sign, value, column)
    if isinstance(value, Decimal):
        return _compare_decimals(values, sign, value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _COMPARE[sign](values.cast(pa.int64()), pa.scalar(value, pa.int64()))
    return _COMPARE[sign](values, pa.scalar(value, find_arrow_type(column.kind)))


def _compare_floats(values: Any, sign: str, value: float, column: Column) -> Any:
    """Arrow finds NaN neither equal to nor larger than anything; here it equals itself and is the largest."""
    is_nan = pc.is_nan(values)
    if not isnan(value):
        is_true = _COMPARE[sign](values, pa.scalar(value, find_arrow_type(column.kind)))
        return pc.or_kleene(is_true, is_nan) if sign in {">", ">="} else is_true
    # Compared with NaN, what is NaN is equal, and everything else is less.
    return _COMPARE[sign](is_nan, pa.scalar(True))


def _compare_decimals(values: Any, sign: str, value: Decimal) -> Any:
    """Compared with room for the digits of both, so that neither is rounded."""
    _, _, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # of a finite number
    wide = pa.decimal256(_WIDE_DIGITS, max(values.type.scale, -exponent, 0))
    return _COMPARE[sign](values.cast(wide), pa.scalar(value, wide))
