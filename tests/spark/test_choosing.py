"""What the lake can tell of a condition that Spark evaluates: never more than is true."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from penstock.formats.delta.spark.rewrites.row_conditions import (
    make_necessary_condition,
    make_necessary_target_condition,
)
from penstock.formats.rows.schema import Field, StructType, Type
from penstock.spark.analysis import parse_condition
from penstock.spark.schemas import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

K = StructType((Field(name="k", type="long", nullable=True),))
COLUMNS: dict[str, Type] = {
    "k": "long",
    "p": "string",
    "d": "date",
    "t": "timestamp",
    "x": "float",
    "odd name": "string",
    # Called as the sides of a merge are, or with parts that are.
    "target": K,
    "s": StructType((Field(name="target", type=K, nullable=True),)),
}
SCHEMA = StructType(tuple(Field(name=name, type=kind, nullable=True) for name, kind in COLUMNS.items()))


@pytest.fixture
def df(started_spark: SparkSession) -> DataFrame:
    target = started_spark.createDataFrame([], to_spark_schema(SCHEMA)).alias("target")
    return target.crossJoin(started_spark.createDataFrame([], "id long, p string").alias("source"))


def told(df: DataFrame, where: str | Column) -> str | None:
    return make_necessary_target_condition(df, parse_condition(where), SCHEMA)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("k = 1 and target.p = 'a'", "(k = 1) and (p = 'a')"),
        ("((k = 1) and ((d > '2026-01-01')))", "(k = 1) and (d > '2026-01-01')"),
        ("target.k = source.id and target.k between 1 and 5", "(k between 1 and 5)"),
        ("k = 1 or target.p = 'a'", "(k = 1 or p = 'a')"),
        ("k = 1 or source.id = 2", None),
        ("k = 1 and source.id = 2 or k = 3", None),
        ("upper(target.p) = 'A' and k = 1", "(k = 1)"),
        ("not (k = 1 and d is null)", "(not (k = 1 and d is null))"),
        ("case when k = 1 and d is null then true end", None),
        ("x > 0.1 and k = 1", "(k = 1)"),
        ('target.p = "a"', None),
        ("target.p = 'it''s' and k = 1", None),
        ("k = 1 -- and so on", None),
        ("source.p = 'a' and k > 1", "(k > 1)"),
        ("target.p = 'target.k and source.id'", "(p = 'target.k and source.id')"),
        ("`Target` . `k` = 1", "(`k` = 1)"),
        ("target.target.k = 1 and s.target.k = 2", "(target.k = 1) and (s.target.k = 2)"),
        ("target.source.k = 1 and `source`.id = 2", None),
    ],
)
def test_parts_that_mean_the_same_to_both_are_kept_and_the_others_passed_over(
    df: DataFrame, where: str, wanted: str | None
) -> None:
    assert told(df, where) == wanted


def test_a_column_tells_as_much_as_a_text(df: DataFrame) -> None:
    from pyspark.sql import functions as f

    both = (f.col("k") == 1) & (f.col("d") >= date(2026, 11, 1)) & f.col("target.p").isin("a", "b")
    assert told(df, both) == "(k = 1) and (d >= DATE '2026-11-01') and (p IN ('a', 'b'))"
    assert told(df, (f.col("k") == f.col("id")) & f.col("odd name").isNull()) == "(`odd name` IS NULL)"
    assert told(df, f.col("target.p") == "it's") is None


def test_a_column_of_the_sources_frame_is_not_taken_for_one_of_the_table(started_spark: SparkSession) -> None:
    for source in (
        started_spark.createDataFrame([], "k long"),
        started_spark.createDataFrame([], "k long").alias("target"),
    ):
        target = started_spark.createDataFrame([], "k long").alias("target")
        pairs = target.crossJoin(source.alias("source"))
        assert make_necessary_target_condition(pairs, parse_condition(source["k"] == 1), K) is None
        assert make_necessary_target_condition(pairs, parse_condition(target["k"] == 1), K) == "(k = 1)"


@pytest.mark.parametrize("of", ["target", "source"])
def test_without_a_merge_target_and_source_are_columns_as_any(started_spark: SparkSession, of: str) -> None:
    schema = StructType((*SCHEMA.fields[:1], Field(name=of, type=K, nullable=True)))
    rows = started_spark.createDataFrame([], to_spark_schema(schema))
    assert make_necessary_condition(rows, parse_condition(f"{of}.k = 1"), schema) == f"({of}.k = 1)"
    assert make_necessary_condition(rows, parse_condition(rows[f"{of}.k"] == 1), schema) == f"({of}.`k` = 1)"


def test_names_that_differ_by_case_alone_are_not_taken_for_the_tables(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    target = spark.createDataFrame([], "k long").alias("target")
    pairs = target.crossJoin(spark.createDataFrame([], "K long").alias("source"))
    assert make_necessary_target_condition(pairs, parse_condition("K = 1"), K) is None


@pytest.mark.parametrize(("zone", "wanted"), [("UTC", "(t < '2026-01-01')"), ("Asia/Tokyo", None)])
def test_times_without_a_zone_are_told_where_the_session_is_in_utc(
    started_spark: SparkSession, df: DataFrame, zone: str, wanted: Any
) -> None:
    before = started_spark.conf.get("spark.sql.session.timeZone")
    started_spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert told(df, "t < '2026-01-01'") == wanted
    finally:
        started_spark.conf.set("spark.sql.session.timeZone", str(before))
