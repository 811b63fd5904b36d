"""Spark as the oracle of statements that change rows without it: random expressions and random statements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.expression_text import parse_expression
from penstock.formats.rows.row_expressions import TABLE, RowFrames
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.schemas import from_spark_schema
from tests.spark.random_expressions import FAMILIES, SCHEMA, Expressions, make_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPRESSIONS = 120
FAILING_MAX = 4
STATEMENTS = 6
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.verify) for seed in (2, 3, 4))]
SPARK_TYPES = {"i": "int", "h": "smallint", "l": "bigint", "f": "float", "d": "double", "m": "decimal(10,2)"}


@pytest.fixture
def frames(spark: SparkSession) -> Any:
    """Rows as a table of Spark's, in UTC; compiling expressions takes longer than interpreting them."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")

    def frame(rows: list[dict[str, Any]], name: str) -> DataFrame:
        made = spark.createDataFrame(pa.Table.from_pylist(rows, SCHEMA))
        made.createOrReplaceTempView(name)
        return made

    return frame


def spell(values: Any) -> list[str]:
    return [repr(value) for value in values]


def spell_rows(rows: Any) -> list[str]:
    return sorted(repr([row[name] for name in SCHEMA.names]) for row in rows)


def find_failing(frame: DataFrame, texts: list[str]) -> list[str]:
    """The expressions that Spark does not evaluate, of some."""
    try:
        frame.selectExpr(*texts).toArrow()
    except Exception as problem:
        if len(texts) == 1:
            return [f"{texts[0]}: {str(problem)[:300]}"]
        half = len(texts) // 2
        return [*find_failing(frame, texts[:half]), *find_failing(frame, texts[half:])]
    return []


@pytest.mark.parametrize("seed", SEEDS)
def test_expressions_come_to_what_spark_says(spark: SparkSession, frames: Any, seed: int) -> None:
    random = Random(seed)
    rows = make_rows(random, range(12))
    frame = frames(rows, "t")
    batch = RowFrames.of(table=pa.RecordBatch.from_pylist(rows, SCHEMA))
    make = Expressions(random)
    values: dict[str, Any] = {}
    failing: list[str] = []
    kinds: dict[str, Any] = {}
    while len(values) < EXPRESSIONS:
        text = make.make(random.choice(list(FAMILIES)))
        try:
            expression = parse_expression(text, {TABLE: make_schema(SCHEMA)})
        except InvalidRequest:
            continue  # refused by name
        try:
            values[text] = expression.evaluate(batch).to_pylist()
            kinds[text] = expression.root.kind
        except InvalidRequest:
            failing.append(text)
    try:
        theirs = frame.selectExpr(*(f"{text} as c{at}" for at, text in enumerate(values)))
        by_spark = theirs.toArrow()
    except Exception:
        pytest.fail("Spark refuses " + "\n".join(find_failing(frame, list(values))))
    wrong = [
        f"{text}: {mine}, Spark {other}"
        for (text, mine), column in zip(values.items(), by_spark.columns, strict=True)
        if spell(mine) != spell(other := column.to_pylist())
    ]
    assert not wrong, "\n".join(wrong)
    types = zip(kinds.items(), from_spark_schema(theirs.schema).fields, strict=True)
    differ = [f"{text}: {kind}, Spark {field.type}" for (text, kind), field in types if kind != field.type]
    assert not differ, "\n".join(differ)
    for text in failing[:FAILING_MAX]:
        with pytest.raises(Exception, match=r"\[[A-Z_.]+\]"):  # an error class of Spark's
            frame.selectExpr(text).toArrow()


def assign(random: Random, make: Expressions) -> dict[str, str]:
    """New values for two columns."""
    families = random.sample([family for family in FAMILIES if family != "condition"], 2)
    return {random.choice(FAMILIES[family]): make.make(family, 2) for family in families}


def branches(values: dict[str, str], condition: str) -> dict[str, str]:
    """Of each column what it becomes where a condition is true, as a branch of ``case``."""
    return {
        name: f"when {condition} then cast({value} as {SPARK_TYPES[name]})"
        if name in SPARK_TYPES
        else f"when {condition} then {value}"
        for name, value in values.items()
    }


def run_delete(table: Table, random: Random) -> str:
    """Delete rows at random; returns the query that gives those that stay."""
    where = Expressions(random).make("condition")
    table.delete(where)
    return f"select * from target where not coalesce({where}, false)"


def run_update(table: Table, random: Random) -> str:
    make = Expressions(random)
    where, values = make.make("condition", 2), assign(random, make)
    table.update(values, where)
    cases = branches(values, f"({where})")
    columns = [
        f"case {cases[name]} else {name} end as {name}" if name in cases else name for name in SCHEMA.names
    ]
    return f"select {', '.join(columns)} from target"


def run_merge(table: Table, random: Random, source: list[dict[str, Any]]) -> str:
    both = Expressions(random, ("target.", "source."))
    of_source, of_target = Expressions(random, ("source.",)), Expressions(random, ("target.",))
    on = f"target.id = source.id and coalesce({both.make('condition', 1)}, true)"
    deleted, updated, inserted, left = (
        make.make("condition", 1) for make in (both, both, of_source, of_target)
    )
    matched_values, left_values = assign(random, both), assign(random, of_target)
    new_values = {"id": "source.id + 100", **assign(random, of_source)}
    (
        table.merge(pa.Table.from_pylist(source, SCHEMA), on=on)
        .when_matched_delete(deleted)
        .when_matched_update(matched_values, updated)
        .when_not_matched_insert(new_values, inserted)
        .when_not_matched_by_source_update(left_values, left)
        .commit()
    )
    is_matched = "source.id is not null"
    changed = branches(matched_values, f"{is_matched} and ({updated})")
    others = branches(left_values, f"not ({is_matched}) and ({left})")
    columns = [
        f"case {changed.get(name, '')} {others.get(name, '')} else target.{name} end as {name}"
        if name in changed or name in others
        else f"target.{name}"
        for name in SCHEMA.names
    ]
    new = branches(new_values, "true")
    new_columns = [
        f"case {new[name]} end as {name}" if name in new else f"null as {name}" for name in SCHEMA.names
    ]
    return (
        f"select {', '.join(columns)} from target left join source on {on}"
        f" where not coalesce({is_matched} and ({deleted}), false) union all"
        f" select {', '.join(new_columns)} from source left anti join target on {on} where {inserted}"
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("vectors", ["false", pytest.param("true", marks=pytest.mark.verify)])
def test_statements_leave_the_rows_that_spark_would(
    spark: SparkSession, lake: Lake, frames: Any, seed: int, vectors: str
) -> None:
    random = Random(f"{seed}{vectors}")
    properties = {"delta.enableDeletionVectors": vectors}
    table = lake.delta.create("t", schema=SCHEMA, properties=properties)
    done = 0
    while done < STATEMENTS:
        rows, source = make_rows(random, range(12)), make_rows(random, range(8, 16))
        table.overwrite(pa.Table.from_pylist(rows, SCHEMA))
        runs: list[Callable[[Table, Random], str]] = [
            run_delete,
            run_update,
            partial(run_merge, source=source),
        ]
        run = random.choice(runs)
        try:
            query = run(table, random)
        except InvalidRequest:
            continue  # refused by name, or a row has no value
        frames(rows, "target")
        frames(source, "source")
        mine = table.to_arrow().to_pylist()
        theirs = spark.sql(query).toArrow().to_pylist()
        assert spell_rows(mine) == spell_rows(theirs), query
        done += 1
