"""Expressions that are stored with a table, of generated columns, defaults and constraints, computed without
Spark; that Spark computes the same is tested with it (``tests/spark/test_computed_columns.py``)."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import make_arrow_schema
from penstock.formats.rows.expression_text import parse_expression
from penstock.formats.rows.row_expressions import TABLE, RowFrames, SqlExpression
from penstock.formats.rows.schema import Field, StructType

SCHEMA: Final = StructType(
    (
        Field(name="a", type="integer", nullable=True),
        Field(name="l", type="long", nullable=True),
        Field(name="f", type="double", nullable=True),
        Field(name="t", type="timestamp", nullable=True),
        Field(name="d", type="date", nullable=True),
        Field(name="s", type="string", nullable=True),
        Field(name="odd name", type="string", nullable=True),
    )
)
ROWS: Final[list[dict[str, Any]]] = [
    {
        "a": 7,
        "l": 2**40,
        "f": 0.5,
        "t": datetime(2026, 1, 2, 23, 30, tzinfo=UTC),
        "d": date(2026, 5, 6),
        "s": "Straße",
        "odd name": " x ",
    },
    {
        "a": -7,
        "l": 3,
        "f": -2.0,
        "t": datetime(1960, 12, 31, 3, 1, tzinfo=UTC),
        "d": date(1900, 2, 28),
        "s": "abc",
        "odd name": "",
    },
    dict.fromkeys(("a", "l", "f", "t", "d", "s", "odd name")),
]
COMPUTED: Final[dict[str, list[Any]]] = {
    "a + 1": [8, -6, None],
    "a * l - 2": [7 * 2**40 - 2, -23, None],
    "a / 2": [3.5, -3.5, None],
    "f * 2 + a": [8.0, -11.0, None],
    "a % 3": [1, -1, None],
    "l div 2": [2**39, 1, None],
    "-a": [-7, 7, None],
    "abs(a)": [7, 7, None],
    "(a + 1) * 2": [16, -12, None],
    "CAST(t AS DATE)": [date(2026, 1, 2), date(1960, 12, 31), None],
    "to_date(t)": [date(2026, 1, 2), date(1960, 12, 31), None],
    "year(t)": [2026, 1960, None],
    "QUARTER(d)": [2, 1, None],
    "month(d)": [5, 2, None],
    "dayofmonth(d)": [6, 28, None],
    "dayofyear(d)": [126, 59, None],
    "hour(t)": [23, 3, None],
    "minute(t)": [30, 1, None],
    "date_format(t, 'yyyy-MM')": ["2026-01", "1960-12", None],
    "date_format(d, 'yyyyMMdd')": ["20260506", "19000228", None],
    "trunc(d, 'MM')": [date(2026, 5, 1), date(1900, 2, 1), None],
    "trunc(d, 'week')": [date(2026, 5, 4), date(1900, 2, 26), None],
    "date_trunc('HOUR', t)": [
        datetime(2026, 1, 2, 23, tzinfo=UTC),
        datetime(1960, 12, 31, 3, tzinfo=UTC),
        None,
    ],
    "substring(s, 2, 3)": ["tra", "bc", None],
    "substr(s, 0, 1)": ["S", "a", None],
    "left(s, 2)": ["St", "ab", None],
    "upper(s)": ["STRASSE", "ABC", None],
    "lower(s)": ["straße", "abc", None],
    "length(s)": [6, 3, None],
    "trim(`odd name`)": ["x", "", None],
    "concat(s, '-', a)": ["Straße-7", "abc--7", None],
    "s || '!'": ["Straße!", "abc!", None],
    "coalesce(a, 0)": [7, -7, 0],
    "CAST(a AS STRING)": ["7", "-7", None],
    "CAST(a AS DECIMAL(12,2))": [Decimal("7.00"), Decimal("-7.00"), None],
    "CAST(CAST(d AS STRING) AS DATE)": [date(2026, 5, 6), date(1900, 2, 28), None],
    "CAST('12' AS INT) + a": [19, 5, None],
    "1.50": [Decimal("1.50")] * 3,
    "DATE'2020-02-29'": [date(2020, 2, 29)] * 3,
    "true": [True] * 3,
    "a / l": [7 / 2**40, -7 / 3, None],
    "a = 7 or s like 'a%'": [True, True, None],
    "a > 1.5 and f >= 0.5": [True, False, None],
    "case when a > 0 then s else upper(s) end": ["Straße", "ABC", None],
    "a in (7, null)": [True, None, None],
    "if(f < 0, -f, f)": [0.5, 2.0, None],
    "hour(d)": [0, 0, None],
    "l % -5": [1, 3, None],
    "f % 0.3": [math.fmod(0.5, 0.3), math.fmod(-2.0, 0.3), None],
    "99999999999999999999": [Decimal(10**20 - 1)] * 3,
    "5L": [5] * 3,
}


def parse(text: str) -> SqlExpression:
    return parse_expression(text, {TABLE: SCHEMA}, is_stored=True)


def compute(text: str, rows: list[dict[str, Any]]) -> Any:
    return parse(text).evaluate(
        RowFrames.of(table=pa.RecordBatch.from_pylist(rows, schema=make_arrow_schema(SCHEMA.fields)))
    )


@pytest.mark.parametrize("text", COMPUTED)
def test_an_expression_is_computed(text: str) -> None:
    assert compute(text, ROWS).to_pylist() == COMPUTED[text]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rand()", "the function 'rand' is not supported without Spark"),
        ("upper()", "the function 'upper' takes 1 argument, got 0"),
        ("upper(s, s)", "the function 'upper' takes 1 argument, got 2"),
        ("substring(s)", "the function 'substring' takes 2 to 3 arguments, got 1"),
        ("nope + 1", "no column 'nope'"),
        ("'a''b'", "quotes"),
        ('s = "abc"', "quotes"),
        ("CAST(t AS STRING)", "timestamp is not cast to string"),
        ("CAST(s AS TIMESTAMP)", "zone"),
        ("TIMESTAMP'2020-01-01 00:00:00'", "zone"),
        ("t > '2020-01-01 00:00:00'", "cast it"),
        ("CAST(a AS FLOAT) + a", "by its mode"),
        ("a +", "ends where"),
        ("a --1", "has '--1' at character 3"),
        ("a /* b */", "at character 3"),
        ("(" * 80 + "a" + ")" * 80, "nested"),
        ("- " * 80 + "a", "nested"),
        ("a" + " + a" * 200, "more than 100 operations"),
        ("9" * 40, "more digits"),
    ],
)
def test_what_spark_may_compute_otherwise_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse(text)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a + 1", {"a": 2**31 - 1}),
        ("CAST(s AS DATE)", {"s": "x"}),
        ("CAST(s AS INT)", {"s": "0x1F"}),
        ("-l", {"l": -(2**63)}),
        ("a / l", {"a": 1, "l": 0}),
        ("l div a", {"a": -1, "l": -(2**63)}),
    ],
)
def test_a_row_for_which_there_is_no_value_is_refused(text: str, row: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="cannot be evaluated for all rows"):
        compute(text, [row])


def test_the_longest_expressions_are_computed() -> None:
    assert compute("a" + " + a" * 100, [{"a": 1}]).to_pylist() == [101]
    assert compute("(" * 60 + "a" + ")" * 60 + " * 2", [{"a": 1}]).to_pylist() == [2]
    assert compute(" || ".join(["s"] * 101), [{"s": "x"}]).to_pylist() == ["x" * 101]
    assert compute(" or ".join(f"a = {number}" for number in range(5000)), [{"a": 1}]).to_pylist() == [True]
