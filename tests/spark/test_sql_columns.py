"""Columns that give themselves values, and types that a lake does not keep, by statements of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.column_rules import CURRENT_DEFAULT
from penstock.formats.rows.schema import Field, StructType
from penstock.lake.lake import Lake
from tests.spark.sql_session import refusal, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "SELECT * FROM lake.s.t ORDER BY id"


def test_rows_that_come_without_a_column_have_its_default(lake: Lake, spark: SparkSession) -> None:
    default = Field(name="x", type="long", nullable=True, metadata={CURRENT_DEFAULT: "7"})
    number = Field(name="id", type="long", nullable=True, metadata={})
    lake.delta.create("s.t", schema=StructType((number, default)))
    run(
        spark,
        "INSERT INTO lake.s.t (id) VALUES (1)",
        "INSERT INTO lake.s.t VALUES (2, DEFAULT), (3, NULL), (4, 40)",
        "INSERT INTO lake.s.t BY NAME SELECT 5 AS id",
    )
    spark.sql("SELECT 6L AS id").writeTo("lake.s.t").append()
    run(
        spark,
        "MERGE INTO lake.s.t t USING (SELECT 8 AS id) s ON t.id = s.id "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, DEFAULT)",
        "UPDATE lake.s.t SET x = DEFAULT WHERE id = 4",
    )
    assert run(spark, ROWS) == [(1, 7), (2, 7), (3, None), (4, 7), (5, 7), (6, 7), (8, 7)]


def test_statements_create_columns_with_defaults_expressions_and_numbers(
    lake: Lake, spark: SparkSession
) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5),"
        " x INT DEFAULT 3, y BIGINT GENERATED ALWAYS AS (CAST(x AS BIGINT) * 2), made TIMESTAMP DEFAULT"
        " current_timestamp())",
        "INSERT INTO lake.s.t (x) SELECT 1",
        "INSERT INTO lake.s.t (made) VALUES (NULL)",
    )
    spark.sql("SELECT 9 AS x, 18L AS y").writeTo("lake.s.t").append()
    found = run(spark, "SELECT id, x, y, made IS NULL FROM lake.s.t ORDER BY x")
    assert found == [(found[0][0], 1, 2, False), (found[1][0], 3, 6, True), (found[2][0], 9, 18, False)]
    assert len({row[0] for row in found} & {10, 15, 20, 25, 30}) == 3
    before = lake.table("s.t").version
    assert isinstance(refusal(spark, "INSERT INTO lake.s.t VALUES (1, 1, 2, NULL)"), InvalidRequest)
    assert isinstance(refusal(spark, "INSERT INTO lake.s.t (x, y) VALUES (1, 3)"), InvalidRequest)
    assert lake.table("s.t").version == before
    for using in ("USING parquet", "USING lance"):
        error = refusal(spark, f"CREATE TABLE lake.s.other (x INT DEFAULT 3) {using}")
        assert "'x'" in error.message
    assert [str(table.key) for table in lake.tables()] == ["s.t"]


@pytest.mark.verify
def test_a_collation_is_refused_and_never_lost(lake: Lake, spark: SparkSession) -> None:
    for statement in (
        "CREATE TABLE lake.s.t (c STRING COLLATE UNICODE_CI)",
        "CREATE TABLE lake.s.t (c STRUCT<a: ARRAY<STRING COLLATE UNICODE_CI>>)",
        "CREATE TABLE lake.s.t (c STRING) DEFAULT COLLATION UNICODE_CI",
        "CREATE TABLE lake.s.t USING parquet AS SELECT 'A' COLLATE UNICODE_CI AS c",
        "CREATE TABLE lake.s.t AS SELECT 'A' COLLATE UNICODE_CI AS c",
    ):
        assert "UNICODE_CI" in refusal(spark, statement).message
    run(spark, "CREATE TABLE lake.s.t (c STRING COLLATE UTF8_BINARY)", "INSERT INTO lake.s.t VALUES ('A')")
    for statement in (
        "ALTER TABLE lake.s.t ADD COLUMN d STRING COLLATE UNICODE_CI",
        "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 'b' COLLATE UNICODE_CI AS d",
    ):
        assert "UNICODE_CI" in refusal(spark, statement).message
    assert run(spark, "SELECT * FROM lake.s.t WHERE c COLLATE UNICODE_CI = 'a'") == [("A",)]
    assert len(lake.log()) == 2


@pytest.mark.verify
def test_a_table_is_created_again_by_what_is_shown_of_it(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, name STRING COMMENT 'of whom', x INT DEFAULT 3, day DATE) "
        "PARTITIONED BY (day) COMMENT 'all' TBLPROPERTIES ('team' = 'a')",
    )
    ((shown,),) = run(spark, "SHOW CREATE TABLE lake.s.t")
    before = lake.table("s.t").snapshot().metadata
    run(spark, "DROP TABLE lake.s.t", shown)
    after = lake.table("s.t").snapshot().metadata
    assert run(spark, "SHOW CREATE TABLE lake.s.t") == [(shown,)]
    assert (after.schema_string, after.partition_columns) == (before.schema_string, before.partition_columns)
    assert (after.description, after.configuration["team"]) == ("all", "a")
    run(spark, "INSERT INTO lake.s.t (id) VALUES (1)")
    assert run(spark, "SELECT id, x FROM lake.s.t") == [(1, 3)]
    if hasattr(spark.read, "changes"):  # newer than 4.1
        run(spark, "CREATE TABLE lake.s.same LIKE lake.s.t")
        assert run(spark, "DESCRIBE lake.s.same") == run(spark, "DESCRIBE lake.s.t")
        assert run(spark, "SELECT * FROM lake.s.same") == []
