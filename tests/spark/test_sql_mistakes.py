"""Statements with a mistake in them: what they say, and which name was probably meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.lake import Lake
from penstock.spark.spark_errors import unwrap
from tests.spark.sql_session import refusal, run
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSPELT = (
    "SELECT * FROM lake.sales.ordres",
    "SELECT id FROM lake.sales.orders WHERE id IN (SELECT id FROM lake.sale.orders)",
    "SELECT * FROM lake.orders",
    "INSERT INTO lake.sales.ordres VALUES (1)",
    "DELETE FROM lake.sales.ordres",
    "UPDATE lake.sales.ordres SET id = 1",
    "MERGE INTO lake.sales.orders t USING lake.sales.ordres s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "CREATE TABLE lake.sales.copy AS SELECT * FROM lake.sales.ordres",
    "DESCRIBE lake.sales.ordres",
    "ALTER TABLE lake.sales.ordres ADD COLUMN x INT",
    "TRUNCATE TABLE lake.sales.ordres",
    "CACHE TABLE lake.sales.ordres",
    "DROP TABLE lake.sales.ordres",
)


def parse_error(spark: SparkSession, statement: str) -> str:
    from pyspark.errors import ParseException

    with pytest.raises(ParseException) as caught:
        spark.sql(statement)
    text = str(caught.value)
    assert "\tat " not in text
    return text


def test_a_name_of_no_table_is_answered_with_the_one_that_was_meant(lake: Lake, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    lake.table("sales.orders").write(rows(1))
    for statement in MISSPELT:
        with pytest.raises(AnalysisException) as caught:
            run(spark, statement)
        assert caught.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND", statement
        assert "Did you mean 'sales.orders'?" in str(caught.value), statement
        assert "\tat " not in str(caught.value)
        assert isinstance(unwrap(caught.value), KeyNotFound), statement
    # What may be absent is still no mistake.
    run(spark, "DROP TABLE IF EXISTS lake.sales.ordres", "UNCACHE TABLE IF EXISTS lake.sales.ordres")
    assert not spark.catalog.tableExists("lake.sales.ordres")
    assert len(lake.log()) == 1


def test_a_table_of_another_branch_or_time_is_looked_for_there(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    lake.branch("dev").create()
    lake.table("s.late").write(rows(1))
    for statement in (
        "SELECT * FROM lake.s.`late@dev`",
        "SELECT * FROM lake.s.late VERSION AS OF 'dev'",
        "SELECT * FROM lake.s.late TIMESTAMP AS OF '2020-01-01'",
    ):
        assert "It is there at 'main'" in refusal(spark, statement).message, statement
    run(spark, "USE REFERENCE dev IN lake")
    error = refusal(spark, "SELECT * FROM lake.s.late")
    assert "there is no 's.late' at 'dev'" in error.message
    assert error.details["is_at"] == "main"


def test_a_statement_about_branches_that_is_incomplete_says_how_it_is_written(
    lake: Lake, spark: SparkSession
) -> None:
    for statement, form in (
        ("CREATE BRANCH", "CREATE BRANCH [IF NOT EXISTS] name"),
        ("create branch one two IN lake", "CREATE BRANCH [IF NOT EXISTS] name"),
        ("SHOW DIFF main dev", "SHOW DIFF revision TO revision"),
        ("SHOW LOG LIMIT many", "SHOW LOG [revision]"),
        ("MERGE BRANCH dev main", "MERGE BRANCH name [INTO branch]"),
        ("DESCRIBE HISTORY lake.s.t LIMIT many", "DESCRIBE HISTORY table"),
        ("SHOW BRANCHES IN lake", "SHOW REFERENCES [IN catalog]"),
    ):
        assert form in parse_error(spark, statement), statement
    assert "is written as" not in parse_error(spark, "CREATE BRANCHES")
    assert "there is lake" in parse_error(spark, "USE REFERENCE main IN laek")
    spark.conf.set("spark.sql.catalog.second", "io.penstock.spark.PenstockCatalog")
    assert "say which catalog is meant" in parse_error(spark, "SHOW LOG")
    assert len(lake.branches()) == 1


def test_a_procedure_that_is_not_there_is_answered_with_the_one_that_was_meant(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1))
    error = refusal(spark, "CALL lake.system.optimise('s.t')")
    assert "did you mean 'system.optimize'?" in error.message
    error = refusal(spark, "CALL lake.system.restore('s.t')")
    assert isinstance(error, InvalidRequest)
    assert "'to_ref', 'version' and 'timestamp'" in error.message
