"""Partition values: text in the log that stands for values of a column's type.

One value may have several spellings (``1`` and ``01``; a timestamp with a blank or a ``T``), so values are
compared as what they stand for (``outcomes.is_same_value``). ``""`` stands for null.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final, TypeAlias

Value: TypeAlias = str | int | float | bool | Decimal | date | datetime | None

_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_REAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity")
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def parse_value(kind: str, text: str | None) -> Value:
    """The value that a text stands for in a column of a plain type. ``ValueError`` says why it is none."""
    if text is None or text == "":
        return None
    if kind in {"string", "binary"}:
        return text
    if kind == "boolean":
        return _parse_boolean(text)
    if kind in _BITS:
        return _parse_integer(text, _BITS[kind])
    if kind in {"float", "double"}:
        return _parse_float(text)
    if decimal := _DECIMAL.fullmatch(kind):
        return _parse_decimal(text, int(decimal[1]), int(decimal[2]))
    if kind == "date":
        return _parse_date(text)
    if kind in {"timestamp", "timestamp_ntz"}:
        return _parse_timestamp(text, zoned=kind == "timestamp")
    raise ValueError(f"values of the type {kind} cannot be partition values")


def _parse_boolean(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("neither 'true' nor 'false'")
    return text == "true"


def _parse_integer(text: str, bits: int) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError("not a whole number")
    # Longer ones are too large anyway, and Python refuses to read very long ones.
    value = int(text) if len(text) < 64 else 1 << 64
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"does not fit into {bits} bits")
    return value


def _parse_float(text: str) -> float:
    if not _REAL.fullmatch(text):
        raise ValueError("not a number")
    return float(text)


def _parse_decimal(text: str, precision: int, scale: int) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError("not a decimal number") from None
    if not value.is_finite():
        raise ValueError("not a decimal number")
    _, digits, exponent = value.normalize().as_tuple()
    assert isinstance(exponent, int)  # of a finite number
    if -exponent > scale or len(digits) + exponent > precision - scale:
        raise ValueError(f"the number does not fit into decimal({precision},{scale})")
    return value


def _parse_date(text: str) -> date:
    if not _DATE.fullmatch(text):
        raise ValueError("not a date as in 2024-02-29")
    return date.fromisoformat(text)


def _parse_timestamp(text: str, *, zoned: bool) -> datetime:
    if not _TIME.fullmatch(text):
        raise ValueError("not a timestamp as in 2024-02-29 23:59:59.000001")
    value = datetime.fromisoformat(text)
    if value.tzinfo is not None and not zoned:
        raise ValueError("the timestamp has a time zone, but the column has none")
    return value
