"""Writers of DataFrames by name, and what is easily passed over in silence: options, revisions, caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest, PenstockError, ReferenceChanged
from penstock.lake.lake import Lake
from penstock.spark.spark_errors import unwrap
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import ids as lake_ids
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


def refused(work: Callable[[], object]) -> PenstockError | None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, the caller asks
        work()
    assert "\tat " not in str(caught.value)
    return unwrap(caught.value)


@pytest.fixture
def days(spark: SparkSession) -> DataFrame:
    """Two rows of two days, which are in the table, too."""
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, day STRING) PARTITIONED BY (day)",
        "INSERT INTO lake.s.t VALUES (1, 'mo'), (2, 'tu')",
    )
    return spark.sql("SELECT 10L AS id, 'mo' AS day")


def test_an_overwrite_by_a_writer_replaces_what_its_options_say(
    lake: Lake, spark: SparkSession, days: DataFrame
) -> None:
    overwrite = days.write.mode("overwrite")
    overwrite.option("replaceWhere", "day = 'mo'").saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [2, 10]
    assert lake.table("s.t").snapshot().partition_columns == ("day",)
    days.selectExpr("id + 1 AS id", "day").write.mode("overwrite").option(
        "partitionOverwriteMode", "dynamic"
    ).saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [2, 11]
    append = days.write.mode("append").option("txnAppId", "app").option("txnVersion", 7)
    append.saveAsTable("lake.s.t")
    append.saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [2, 10, 11]
    wrong = days.write.mode("append").option("replaceWhere", "day = 'mo'")
    assert isinstance(refused(lambda: wrong.saveAsTable("lake.s.t")), InvalidRequest)
    days.write.mode("overwrite").saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [10]


@pytest.mark.verify
def test_inserts_take_the_same_options(lake: Lake, spark: SparkSession, days: DataFrame) -> None:
    days.write.mode("overwrite").option("replaceWhere", "day = 'mo'").insertInto("lake.s.t")
    assert ids(spark, "lake.s.t") == [2, 10]
    days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").insertInto("lake.s.t")
    assert ids(spark, "lake.s.t") == [2, 10]
    days.writeTo("lake.s.t").option("compression", "gzip").append()
    assert ids(spark, "lake.s.t") == [2, 10, 10]


def test_statements_past_an_open_transaction_are_refused(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "BEGIN TRANSACTION IN lake", "INSERT INTO lake.s.t VALUES (2)")
    for statement in (
        "INSERT INTO lake.s.`t@main` VALUES (3)",
        "DELETE FROM lake.s.`t@main`",
        "CREATE TABLE lake.s.`u@main` (id BIGINT)",
        "CREATE TABLE lake.s.`u@main` AS SELECT 1 AS id",
        "TRUNCATE TABLE lake.s.`t@main`",
        "DROP TABLE lake.s.`t@main`",
    ):
        assert isinstance(refusal(spark, statement), InvalidRequest), statement
    assert ids(spark, "lake.s.`t@main`") == [1]  # to read it is no harm
    run(spark, "ROLLBACK IN lake")
    assert lake_ids(lake, "s.t") == [1]
    assert len(lake.log()) == 1


def test_a_reference_is_dropped_and_moved_only_from_where_it_is_expected(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1))
    lake.branch("dev").create()
    seen = lake.branch("dev").head
    lake.table("s.t", "dev").write(rows(2))
    assert isinstance(refusal(spark, f"DROP BRANCH dev AT `{seen}` IN lake"), ReferenceChanged)
    moved = f"CALL lake.system.assign_branch(name => 'dev', to_ref => 'main', expected => '{seen}')"
    assert isinstance(refusal(spark, moved), ReferenceChanged)
    assert lake_ids(lake, "s.t", "dev") == [1, 2]
    head = lake.branch("dev").head
    assert run(spark, f"DROP BRANCH dev AT {head} IN lake") == [("branch", "dev", head)]


def test_what_cannot_be_altered_is_said_and_not_passed_over(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    assert isinstance(refusal(spark, "ALTER TABLE lake.s.t SET LOCATION '/elsewhere'"), InvalidRequest)
    with pytest.raises(Exception, match=r"delta\.constraints") as caught:
        run(spark, "ALTER TABLE lake.s.t ADD CONSTRAINT c CHECK (id > 0)")
    assert "\tat " not in str(caught.value)
    assert len(lake.log()) == 1


def test_a_cached_table_is_freed_at_whatever_commit_it_was_cached(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    lake.table("s.other").write(rows(1))
    run(spark, "CACHE TABLE lake.s.t", "CACHE TABLE lake.s.other")
    run(spark, "INSERT INTO lake.s.t VALUES (2)", "CACHE TABLE lake.s.t", "UNCACHE TABLE lake.s.t")
    manager = spark._jsparkSession.sharedState().cacheManager()
    assert spark.catalog.isCached("lake.s.other")
    run(spark, "UNCACHE TABLE lake.s.other")
    assert manager.isEmpty()


def test_a_statement_has_the_format_that_it_names_and_a_program_the_usual_one(
    lake: Lake, spark: SparkSession
) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.named (id BIGINT, day STRING) USING parquet PARTITIONED BY (day)",
        "CREATE TABLE lake.s.unnamed (id BIGINT, day STRING)",
    )
    spark.catalog.createTable("lake.s.made", schema=spark.range(1).schema)
    assert [lake.table(f"s.{name}").type for name in ("named", "unnamed", "made")] == [
        "FILES_TABLE",
        "DELTA_LAKE_TABLE",
        "DELTA_LAKE_TABLE",
    ]
