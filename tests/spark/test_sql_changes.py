"""The changes of a table in SQL: ``table_changes``, and CHANGES where Spark has the clause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import InvalidRequest, NotManaged, VersionNotFound
from penstock.lake.lake import Lake
from penstock.spark.change_feed import changes
from penstock.spark.spark_errors import unwrap
from tests.spark.sql_session import refusal, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN: Final = "SELECT id, name, _change_type, _commit_version FROM"
MADE: Final = [
    (1, "a", "insert", 1),
    (1, "a", "update_preimage", 2),
    (1, "b", "update_postimage", 2),
    (1, "b", "delete", 3),
]


@pytest.fixture
def feed(spark: SparkSession) -> None:
    """A table with a change of every kind."""
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, name STRING) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO lake.s.t VALUES (1, 'a')",
        "UPDATE lake.s.t SET name = 'b'",
        "DELETE FROM lake.s.t",
    )


@pytest.mark.usefixtures("feed")
def test_the_changes_of_versions_are_those_that_python_reads(lake: Lake, spark: SparkSession) -> None:
    def made(source: str) -> list[tuple[object, ...]]:
        return sorted(run(spark, f"{SHOWN} {source}"), key=lambda row: (row[3], row[1], str(row[2])))

    assert made("table_changes('lake.s.t', 0)") == sorted(MADE, key=lambda row: (row[3], row[1], row[2]))
    whole = sorted(map(tuple, changes(spark, "s.t", 0, lake=lake).collect()), key=str)
    assert sorted(run(spark, "SELECT * FROM table_changes('lake.s.t', 0)"), key=str) == whole
    assert made("TABLE_CHANGES('lake.s.t', 3, 3)") == MADE[3:]
    # In a subquery, in a join with itself, and in a view.
    last = "SELECT max(_commit_version) FROM table_changes('lake.s.t', 1)"
    assert made(f"table_changes('lake.s.t', 1) WHERE _commit_version = ({last})") == MADE[3:]
    both = "table_changes('lake.s.t', 1, 1) a JOIN table_changes('lake.s.t', 3, 3) b USING (id)"
    assert run(spark, f"SELECT a._change_type, b._change_type FROM {both}") == [("insert", "delete")]
    run(spark, "USE lake.s", "CREATE BRANCH dev IN lake", "INSERT INTO `t@dev` VALUES (2, 'c')")
    assert made("table_changes('`t@dev`', 4)") == [(2, "c", "insert", 4)]
    run(spark, "USE spark_catalog")
    if hasattr(spark.read, "changes"):
        assert made("lake.s.t CHANGES FROM VERSION 3 TO VERSION 3") == MADE[3:]
        assert made("lake.s.t CHANGES FROM VERSION 2 EXCLUSIVE") == MADE[3:]
        by_reader = spark.read.option("startingVersion", 3).changes("lake.s.t").select("_change_type")
        assert by_reader.collect() == [("delete",)]


@pytest.mark.usefixtures("feed")
def test_changes_that_cannot_be_shown_say_why(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE TABLE lake.s.plain (id BIGINT)", "CREATE TABLE lake.s.f (id BIGINT) USING parquet")
    kinds = {
        "table_changes('lake.s.t', 9)": VersionNotFound,
        "table_changes('lake.s.plain', 0)": InvalidRequest,
        "table_changes('lake.s.f', 0)": NotManaged,
    }
    for source, kind in kinds.items():
        assert isinstance(refusal(spark, f"SELECT * FROM {source}"), kind), source
    sentences = {
        "table_changes('lake.s.t', 'yesterday')": "its first version",
        "table_changes('lake.s.t')": "its first version",
        "table_changes('lake.s.absent', 0)": "table_changes",
        "table_changes('elsewhere', 0)": "table_changes",
    }
    if hasattr(spark.read, "changes"):
        sentences["lake.s.t CHANGES FROM TIMESTAMP '2026-01-01'"] = "by versions"
        sentences["lake.s.t CHANGES FROM VERSION 'main'"] = "no version"
    for source, words in sentences.items():
        with pytest.raises(Exception, match=words) as caught:
            run(spark, f"SELECT * FROM {source}")
        assert "\tat " not in str(caught.value)
        assert unwrap(caught.value) is None or "\n" not in str(unwrap(caught.value))
    assert lake.branch().head == lake.at("main").id
