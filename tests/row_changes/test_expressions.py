"""Expressions over rows: what they come to, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.expression_text import parse_condition_text, parse_expression
from penstock.formats.rows.row_expressions import RowFrames, find_needed_predicate

NAN = float("nan")
ROWS = pa.RecordBatch.from_pydict(
    {
        "a": pa.array([1, 2, None, 4], pa.int32()),
        "b": [0.0, NAN, 2.5, None],
        "s": ["x", "Ab ", None, "straße"],
        "d": [dt.date(2026, 1, 1)] * 4,
        "m": pa.array([Decimal("1.50"), None, Decimal("2.25"), Decimal(0)], pa.decimal128(10, 2)),
        "st": [{"c": 1}, None, {"c": 3}, {"c": None}],
    }
)
SCHEMA = make_schema(ROWS.schema)
FRAMES = RowFrames.of(t=ROWS)

VALUES: list[tuple[str, list[Any]]] = [
    ("a + 1", [2, 3, None, 5]),
    ("a * 1.5", [Decimal("1.5"), Decimal("3.0"), None, Decimal("6.0")]),
    ("a / 2", [0.5, 1.0, None, 2.0]),
    ("-a % 3", [-1, -2, None, -1]),
    ("b > 1", [False, True, True, None]),
    ("b = b", [True, True, True, None]),
    ("b < b * 2", [False, False, True, None]),
    ("a > 1 and s = 'x'", [False, False, None, False]),
    ("case when a > 1 then 10 / a else 0 end", [0.0, 5.0, 0.0, 2.5]),
    ("case a when 1 then 'one' when 2 then 'two' end", ["one", "two", None, None]),
    ("a <> 1 and 4 / (a - 1) > 2", [False, True, None, False]),
    ("a = 1 or 4 / (a - 1) > 2", [True, True, None, False]),
    ("coalesce(s, 'none')", ["x", "Ab ", "none", "straße"]),
    ("upper(s)", ["X", "AB ", None, "STRASSE"]),
    ("trim(s) || '!'", ["x!", "Ab!", None, "straße!"]),
    ("concat(a, '-', s)", ["1-x", "2-Ab ", None, "4-straße"]),
    ("length(s)", [1, 3, None, 6]),
    ("substring(s, 2, 2)", ["", "b ", None, "tr"]),
    ("substring(s, -2)", ["x", "b ", None, "ße"]),
    ("replace(s, 'x', 'y')", ["y", "Ab ", None, "straße"]),
    ("a in (1, 4)", [True, False, None, True]),
    ("a not in (1, a)", [False, False, None, False]),
    ("a between 1 and 2", [True, True, None, False]),
    ("s like 'A%'", [False, True, None, False]),
    ("d >= '2025-01-01'", [True] * 4),
    ("d = date '2026-01-01'", [True] * 4),
    ("m * 2", [Decimal("3.00"), None, Decimal("4.50"), Decimal("0.00")]),
    ("m + a", [Decimal("2.50"), None, None, Decimal("4.00")]),
    ("m > 1.75", [False, None, True, False]),
    ("st.c + 1", [2, None, 4, None]),
    ("cast(a as string)", ["1", "2", None, "4"]),
    ("cast('12' as int) + a", [13, 14, None, 16]),
    ("cast(m as int)", [1, None, 2, 0]),
    ("cast(m as decimal(10,1))", [Decimal("1.5"), None, Decimal("2.3"), Decimal("0.0")]),
    ("cast(2.5 as int)", [2] * 4),
    ("not (a = 1 or s is null)", [False, True, False, True]),
    ("if(a = 1, 'y', null)", ["y", None, None, None]),
    ("nullif(a, 1)", [None, 2, None, 4]),
    ("greatest(a, 2)", [2, 2, 2, 4]),
    ("year(d) * 100 + month(d)", [202601] * 4),
    ("abs(1 - a)", [0, 1, None, 3]),
    ("t.a + `a`", [2, 4, None, 8]),
]


@pytest.mark.parametrize(("text", "values"), VALUES, ids=[text for text, _ in VALUES])
def test_an_expression_comes_to_what_sql_says(text: str, values: list[Any]) -> None:
    assert parse_expression(text, {"t": SCHEMA}).evaluate(FRAMES).to_pylist() == values


REFUSED = [
    ("a +", "a column, a literal or a function"),
    ("nope = 1", "no column 'nope'"),
    ("s + 1", "takes numbers, not string; cast it"),
    ("s > a", "the types differ; cast one of them"),
    ("m / 2", "cast one side to double"),
    ("regexp_replace(s, 'a', 'b')", "not supported without Spark"),
    ("a = 'x'", "not a whole number"),
    ("(" * 70 + "a" + ")" * 70, "nested more than 64 deep"),
    ("cast(b as string)", "not cast to string here"),
    ("a ? 1", "has '? 1' at character 3"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why.replace("?", r"\?").replace("(", r"\(")):
        parse_expression(text, {"t": SCHEMA})


@pytest.mark.parametrize("text", ["1 / (a - 1)", "2147483647 + a", "cast(s as int)", "cast(b as int)"])
def test_what_cannot_be_computed_is_an_error_and_never_null(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be evaluated for all rows"):
        parse_expression(text, {"t": SCHEMA}).evaluate(FRAMES)


@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (10, 2), (15, 14), (18, 4), (38, 10)])
def test_decimals_become_the_nearest_doubles(precision: int, scale: int) -> None:
    random = Random(precision)
    limit = 10**precision
    values = [Decimal(random.randrange(1 - limit, limit)).scaleb(-scale) for _ in range(500)]
    rows = pa.RecordBatch.from_pydict({"m": pa.array([*values, None], pa.decimal128(precision, scale))})
    expression = parse_expression("cast(m as double)", {"t": make_schema(rows.schema)})
    assert expression.evaluate(RowFrames.of(t=rows)).to_pylist() == [*map(float, values), None]


def test_a_condition_is_a_boolean() -> None:
    with pytest.raises(InvalidRequest, match="is not a condition: its type is integer"):
        parse_condition_text("a + 1", {"t": SCHEMA})


def test_files_are_left_out_by_the_parts_of_a_condition_that_statistics_tell() -> None:
    condition = parse_condition_text("a > 1 and upper(s) = 'X' and (s = 'x' or a = 2)", {"t": SCHEMA})
    needed = find_needed_predicate(condition.root, "t")
    assert needed is not None
    assert len(needed.parts) == 2  # type: ignore[union-attr]


def test_a_column_of_two_tables_is_named_with_its_table() -> None:
    tables = {"target": SCHEMA, "source": SCHEMA}
    assert parse_condition_text("target.a = source.a", tables).tables() == {"target", "source"}
    with pytest.raises(InvalidRequest, match=r"say target\.a or source\.a"):
        parse_condition_text("a = 1", tables)
