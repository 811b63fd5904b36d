"""Values of one type as values of another, as Spark converts them in its ANSI mode.

A value that the other type cannot hold is an error, and never becomes null. Numbers lose what follows the
point where whole numbers are wanted, and are rounded half away from zero where a decimal has fewer digits.
Times without a zone are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

from penstock.formats.rows.arrow_types import DECIMAL, DECIMAL_DIGITS_MAX, find_arrow_type, pa, pc
from penstock.formats.rows.partition_values import parse_value
from penstock.formats.rows.predicates import to_utc
from penstock.formats.rows.schema import ArrayType, MapType, StructType, Type

WHOLE: Final = ("byte", "short", "integer", "long")
REAL: Final = ("float", "double")
TIMES: Final = ("date", "timestamp", "timestamp_ntz")
VOID: Final = "void"
"""The type of a null that nothing else is known of."""
EXACT_DIGITS_MAX: Final = 15
"""Whole numbers of so many digits are exact as doubles."""
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_SPELLED: Final = frozenset({*WHOLE, "boolean", "date", "string"})
"""What Arrow spells as Spark does."""
_SPACES: Final = re.compile(r"^\s+|\s+$")
_WHOLE_TEXT: Final = r"^[+-]?[0-9]+$"
_BOOLEANS: Final = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def find_precision_and_scale(kind: Type) -> tuple[int, int] | None:
    """Precision and scale of a decimal type, or of the decimal that holds a whole number."""
    if not isinstance(kind, str):
        return None
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = DECIMAL.fullmatch(kind)
    return None if match is None else (int(match[1]), int(match[2]))


def is_decimal(kind: Type) -> bool:
    return isinstance(kind, str) and DECIMAL.fullmatch(kind) is not None


def is_number(kind: Type) -> bool:
    return kind in WHOLE or kind in REAL or is_decimal(kind)


def find_common_type(first: Type, second: Type) -> Type | None:
    """The type as which values of two types are compared or put together; ``None`` if there is none."""
    if first == second or second == VOID:
        return first
    if first == VOID:
        return second
    if first in REAL or second in REAL:
        if not (is_number(first) and is_number(second)):
            return None
        return "double"  # also for float and whole numbers, of which some would lose digits
    if first in WHOLE and second in WHOLE:
        return max(first, second, key=WHOLE.index)
    first_parts, second_parts = find_precision_and_scale(first), find_precision_and_scale(second)
    if first_parts is not None and second_parts is not None:
        scale = max(first_parts[1], second_parts[1])
        digits = max(first_parts[0] - first_parts[1], second_parts[0] - second_parts[1]) + scale
        return f"decimal({digits},{scale})" if digits <= DECIMAL_DIGITS_MAX else None
    if first in TIMES and second in TIMES and "date" in (first, second):
        return second if first == "date" else first
    return None


def may_store(kind_before: Type, kind_after: Type) -> bool:
    """Whether values of a type may be assigned to a column of another one, by the rules of ANSI SQL."""
    if kind_before in (VOID, kind_after):
        return True
    match kind_before, kind_after:
        case ArrayType(), ArrayType():
            return may_store(kind_before.element_type, kind_after.element_type)
        case MapType(), MapType():
            pairs = (
                (kind_before.key_type, kind_after.key_type),
                (kind_before.value_type, kind_after.value_type),
            )
            return all(may_store(*pair) for pair in pairs)
        case StructType(), StructType():
            names = [field.name.lower() for field in kind_before.fields]
            return names == [field.name.lower() for field in kind_after.fields] and all(
                may_store(first.type, second.type)
                for first, second in zip(kind_before.fields, kind_after.fields, strict=True)
            )
        case StructType(), "variant":  # its two parts
            parts = sorted((field.name, str(field.type)) for field in kind_before.fields)
            return parts == [("metadata", "binary"), ("value", "binary")]
        case str(), str():
            if is_number(kind_before) and is_number(kind_after):
                return True
            if kind_after == "string":
                return kind_before in _SPELLED or is_decimal(kind_before)
            return kind_before in TIMES and kind_after in TIMES
        case _:
            return False


def may_cast(kind_before: Type, kind_after: Type) -> bool:
    """Whether ``cast`` makes values of a type from those of another one."""
    if not isinstance(kind_before, str) or not isinstance(kind_after, str):
        return kind_before == kind_after
    if may_store(kind_before, kind_after):
        return True
    if kind_before == "string":
        return kind_after in ("boolean", *TIMES) or is_number(kind_after)
    return {kind_before, kind_after} < {"boolean", *WHOLE}


def convert_values(array: Any, kind_before: Type, kind_after: Type) -> Any:
    """An array as another plain type. ``pa.ArrowInvalid`` if a value does not fit."""
    kind = find_arrow_type(kind_after) if kind_after != VOID else pa.null()
    if array.type == kind:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    assert isinstance(kind_before, str)
    assert isinstance(kind_after, str)
    if kind_before == "string" and kind_after != "string":
        return _read_texts(array, kind_after, kind)
    if kind_after in WHOLE:
        return _convert_to_whole_numbers(array, kind_before, kind)
    if kind_after in REAL:
        numbers = _convert_to_nearest_doubles(array) if is_decimal(kind_before) else array
        return numbers.cast(kind, safe=False)
    if parts := DECIMAL.fullmatch(kind_after):
        return _convert_decimals(array, kind_before, kind, int(parts[2]))
    if kind_after in TIMES and kind_before in TIMES:
        return _convert_times(array, kind_after, kind)
    return array.cast(kind)


def _convert_to_nearest_doubles(array: Any) -> Any:
    """Decimals as the nearest doubles; Arrow's own cast is often off by the last bit."""
    precision, scale = array.type.precision, array.type.scale
    if precision > EXACT_DIGITS_MAX:
        return _convert_each_value(array, pa.float64(), float)
    digits = pc.multiply(array, pa.scalar(Decimal(10**scale), pa.decimal128(scale + 1, 0))).cast(pa.int64())
    return pc.divide(digits.cast(pa.float64()), 10.0**scale)  # of two exact numbers, and so rounded once


def _convert_to_whole_numbers(array: Any, kind_before: str, kind: Any) -> Any:
    if kind_before in REAL:
        return pc.trunc(array).cast(kind)
    if is_decimal(kind_before):
        return pc.round(array, 0, round_mode="towards_zero").cast(pa.int64()).cast(kind)
    return array.cast(kind)


def _convert_decimals(array: Any, kind_before: str, kind: Any, scale: int) -> Any:
    if kind_before in REAL:
        return _convert_each_value(array, kind, lambda value: _round_decimal(repr(value), scale))
    if kind_before in WHOLE:
        return array.cast(pa.decimal128(DECIMAL_DIGITS_MAX, 0)).cast(kind)
    if array.type.scale > scale:
        array = pc.round(array, scale, round_mode="half_towards_infinity")
    return array.cast(kind)


def _convert_times(array: Any, kind_after: str, kind: Any) -> Any:
    plain = array.cast(pa.timestamp("us"))
    if kind_after == "date":
        return pc.floor_temporal(plain, unit="day").cast(pa.date32())
    return plain.cast(kind)


def _read_texts(array: Any, kind_after: str, kind: Any) -> Any:
    if kind_after in REAL:
        return pc.utf8_trim_whitespace(array).cast(kind)
    if kind_after in WHOLE:
        texts = pc.utf8_trim_whitespace(array)
        is_whole = pc.match_substring_regex(texts, _WHOLE_TEXT)
        if pc.all(is_whole).as_py() is False:
            text = texts[pc.index(is_whole, False).as_py()].as_py()
            raise pa.ArrowInvalid(f"{text!r} is no whole number")
        return pc.utf8_ltrim(texts, "+").cast(kind)
    if parts := DECIMAL.fullmatch(kind_after):
        scale = int(parts[2])
        return _convert_each_value(array, kind, lambda value: _round_decimal(value, scale))

    def parse_text(text: str) -> Any:
        text = _SPACES.sub("", text)
        if kind_after == "boolean":
            text = str(_BOOLEANS.get(text.lower(), text)).lower()
        value = parse_value(kind_after, text)
        if value is None:
            raise ValueError("the text is empty")
        return to_utc(value) if kind_after == "timestamp" else value  # type: ignore[arg-type]

    return _convert_each_value(array, kind, parse_text)


def _convert_each_value(array: Any, kind: Any, convert: Callable[[Any], Any]) -> Any:
    """Each value of an array converted by itself, where Arrow has no way of its own."""
    values = []
    for value in array.to_pylist():
        try:
            values.append(None if value is None else convert(value))
        except (ValueError, InvalidOperation) as problem:
            raise pa.ArrowInvalid(f"{value!r} is no {kind}: {problem}") from None
    return pa.array(values, kind)


def _round_decimal(text: str, scale: int) -> Decimal:
    value = Decimal(text.strip())
    if not value.is_finite():
        raise ValueError("not a decimal number")
    return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
