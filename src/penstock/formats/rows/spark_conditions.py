"""Conditions that Penstock and Spark understand alike.

A condition is given in Spark's SQL, and it is Spark that decides which rows it is true for. Which files have
no such rows is decided by Penstock's own reading of the same text. Where the two might differ, in quoting, in
time zones, in how values of different types are compared, no file is left out.
"""

from __future__ import annotations

import math
import re
from typing import Final

from penstock.errors import InvalidRequest
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import list_columns
from penstock.formats.rows.schema import StructType, Type

UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
EXACT_DIGITS_MAX: Final = 18
"""Decimals up to so many digits are compared by Spark as they are, with whatever number."""

_OTHERWISE_QUOTED: Final = re.compile(r"\\|\"|''")
"""To Spark ``"a"`` is a text, and a backslash begins an escape."""
_TYPED_LITERAL: Final = re.compile(r"\b(?:date|timestamp)\s*'", re.IGNORECASE)
_REAL_OR_TEXT: Final = re.compile(r"[0-9.][eE][+-]?[0-9]|'")
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]+)\s*,\s*[0-9]+\s*\)")
_TEXT_OR_NAME: Final = re.compile(r"'[^']*'|`[^`]*`")
_NUMBER: Final = re.compile(r"(?<![\w.])(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DIGITS_MAX: Final = 38
"""Spark refuses numbers with more digits than its decimals have, and real ones beyond the largest double."""
_STEP: Final = r"(?:`[^`]*`|\w+)"
_LIST_WITH_TEXT: Final = re.compile(
    rf"({_STEP}(?:\s*\.\s*{_STEP})*)\s*(?:\bnot\s+)?\bin\s*\([^()]*'", re.IGNORECASE
)
"""The columns that are looked for in lists with texts. Spark, unless it is in its ANSI mode, compares their
values as texts then: 1 with '01', and 1.0 with 1."""
_ALIKE_AS_TEXT: Final = frozenset({"string", "date"})
_ALIKE: Final = frozenset({"boolean", "byte", "short", "integer", "long", "double", "date"})
_TIMES: Final = frozenset({"timestamp", "timestamp_ntz"})


def has_same_meaning_in_spark(where: str, schema: StructType, time_zone: str | None) -> bool:
    """Whether it is sure that a condition is true for the same rows to Spark and to Penstock.

    Files are left out, and whole partitions replaced, by that: neither may be true where the other is not.
    """
    if _OTHERWISE_QUOTED.search(where) or not _has_numbers_of_spark(where):
        return False
    try:
        predicate = parse_predicate(where, schema)
    except InvalidRequest:
        return False
    listed = {_unquote_name(name) for name in _LIST_WITH_TEXT.findall(where)}
    return all(
        _is_compared_alike(column.kind, where, time_zone)
        and (column.kind in _ALIKE_AS_TEXT or str(column).lower() not in listed)
        for column in list_columns(predicate)
    )


def _has_numbers_of_spark(where: str) -> bool:
    """Whether Spark reads every number of a condition. What it does not read must not be acted upon."""
    numbers = _NUMBER.findall(_TEXT_OR_NAME.sub("''", where))
    return not any(
        math.isinf(float(number)) if "e" in number.lower() else sum(map(str.isdigit, number)) > _DIGITS_MAX
        for number in numbers
    )


def _unquote_name(name: str) -> str:
    return ".".join(step.strip(" \n\t`") for step in name.lower().split("."))


def _is_compared_alike(kind: Type, where: str, time_zone: str | None) -> bool:
    if not isinstance(kind, str):
        return True  # it can only be asked whether it is null
    if kind in _TIMES:
        return time_zone in UTC_NAMES
    if kind == "string":
        # Spark would read the column's texts as dates.
        return not _TYPED_LITERAL.search(where)
    if _DECIMAL.fullmatch(kind):
        # Compared with a text, or with 1e3, a decimal becomes a double and loses digits.
        return is_exact_decimal(kind) and not _REAL_OR_TEXT.search(where)
    return kind in _ALIKE


def is_exact_decimal(kind: Type) -> bool:
    """Whether a type is a decimal that is compared digit by digit with what is known of its values."""
    decimal = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return decimal is not None and int(decimal[1]) <= EXACT_DIGITS_MAX
