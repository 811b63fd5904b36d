"""Partition values: the text in the log and what it stands for."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.delta.protocol.predicate_outcomes import is_same_value, may_be_same_value
from penstock.formats.rows.partition_values import Value, parse_value

TYPES = (
    "string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double",
    "decimal(10,2)", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", " x ", " x "),
        ("binary", "\\u0001", "\\u0001"),
        ("boolean", "true", True),
        ("byte", "-128", -128),
        ("long", "9223372036854775807", 2**63 - 1),
        ("integer", "+007", 7),
        ("double", "1.5E10", 1.5e10),
        ("double", "-Infinity", float("-inf")),
        ("decimal(5,2)", "-123.45", Decimal("-123.45")),
        ("decimal(5,2)", "1.2000", Decimal("1.2")),
        ("decimal(5,0)", "1E+2", Decimal(100)),
        ("date", "2024-02-29", date(2024, 2, 29)),
        ("timestamp", "2024-02-29 01:02:03.004", datetime(2024, 2, 29, 1, 2, 3, 4000)),  # noqa: DTZ001
        ("timestamp", "2024-02-29T01:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    ],
)
def test_a_text_stands_for_a_value(kind: str, text: str, value: Value) -> None:
    assert parse_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "TRUE"),
        ("byte", "128"),
        ("integer", "1.0"),
        ("integer", " 1"),
        ("integer", "1_0"),
        ("long", "9" * 5_000),
        ("double", "nan"),
        ("double", "1_0"),
        ("decimal(5,2)", "1234.5"),
        ("decimal(5,2)", "1.234"),
        ("decimal(5,2)", "NaN"),
        ("decimal(5,2)", "one"),
        ("date", "2023-02-29"),
        ("date", "20240229"),
        ("timestamp", "2024-02-29"),
        ("timestamp", "2024-02-29 25:00:00"),
        ("timestamp_ntz", "2024-02-29T01:02:03Z"),
        ("interval", "1"),
    ],
)
def test_a_text_that_stands_for_nothing_is_told(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_value(kind, text)


@pytest.mark.parametrize("kind", TYPES)
def test_no_text_and_none_at_all_are_null_and_equal_each_other_alone(kind: str) -> None:
    assert parse_value(kind, "") is None
    assert parse_value(kind, None) is None
    assert may_be_same_value(kind, "", None)
    sample = {"boolean": "true", "date": "2024-01-01", "string": "x", "binary": "x"}.get(kind, "1")
    sample = "2024-01-01 00:00:00" if "timestamp" in kind else sample
    assert may_be_same_value(kind, sample, sample)
    assert not may_be_same_value(kind, sample, "")


@pytest.mark.parametrize(
    ("kind", "one", "other", "equal"),
    [
        ("double", "NaN", "NaN", True),
        ("double", "NaN", "1", False),
        ("double", "1", "1.0", True),
        ("decimal(5,2)", "1.50", "1.5", True),
        ("float", "0.1", "0.10000000149011612", True),
        ("double", "0.1", "0.10000000149011612", False),
        ("timestamp", "2026-11-01 00:00:00", "2026-11-01T02:00:00+02:00", True),
        ("timestamp", "2026-11-01T00:00:00Z", "2026-11-01T02:00:00Z", False),
        ("timestamp_ntz", "2026-11-01 00:00:00", "2026-11-01 00:00:00.000", True),
        ("timestamp", "2026-11-01 00:00:00", None, False),
    ],
)
def test_values_are_compared_by_what_they_stand_for(kind: str, one: str, other: str, equal: bool) -> None:
    for compare in (is_same_value, may_be_same_value):
        assert compare(kind, one, other) is equal
        assert compare(kind, other, one) is equal


@pytest.mark.parametrize(
    ("kind", "one", "other", "same"),
    [
        ("integer", "nonsense", "1", None),
        ("unknown", "1", "2", None),
        ("timestamp", "2026-11-01 00:00:00", "2026-11-02T00:00:00Z", False),
    ],
)
def test_whoever_must_not_miss_a_value_takes_those_in_doubt_for_the_same(
    kind: str, one: str, other: str, same: bool | None
) -> None:
    assert is_same_value(kind, one, other) is same
    assert is_same_value(kind, other, one) is same
    assert may_be_same_value(kind, one, other)
    assert may_be_same_value(kind, other, one)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.sampled_from(TYPES), st.text() | st.from_regex(r"[0-9eE+\-.:TZ ]{1,20}"))
def test_any_text_has_a_value_or_is_refused_and_equals_itself(kind: str, text: str) -> None:
    with suppress(ValueError):
        parse_value(kind, text)
    assert may_be_same_value(kind, text, text)
