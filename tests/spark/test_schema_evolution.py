"""Columns that a table gets by what writes them: WITH SCHEMA EVOLUTION, ``mergeSchema``, ``merge_schema``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import CommitConflict, InvalidRequest, NotManaged
from penstock.lake.lake import Lake
from penstock.spark.merge_builder import merge
from tests.spark.sql_session import refusal, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def columns(lake: Lake, key: str = "s.t", branch: str | None = None) -> list[str]:
    return [field.name for field in lake.table(key, branch).snapshot().schema.fields]


@pytest.fixture
def table(spark: SparkSession) -> None:
    """One row of two columns."""
    run(spark, "CREATE TABLE lake.s.t (id BIGINT, day STRING) PARTITIONED BY (day)")
    run(spark, "INSERT INTO lake.s.t VALUES (1, 'mo')")


@pytest.mark.usefixtures("table")
def test_an_insert_adds_columns_in_the_commit_of_its_rows(lake: Lake, spark: SparkSession) -> None:
    before = len(lake.log())
    insert = "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME SELECT 2 AS id, 'x' AS note, 'tu' AS day"
    run(spark, f"EXPLAIN {insert}")
    assert columns(lake) == ["id", "day"]  # an explained statement changes nothing
    run(spark, insert)
    assert len(lake.log()) == before + 1
    assert run(spark, "SELECT * FROM lake.s.t ORDER BY id") == [(1, "mo", None), (2, "tu", "x")]
    # By position, further columns have the names that the query gives them.
    run(
        spark,
        "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t SELECT id + 2, day, note, 1.5D AS part FROM lake.s.t",
    )
    assert run(spark, "SELECT id, note, part FROM lake.s.t WHERE id > 2 ORDER BY id") == [
        (3, None, 1.5),
        (4, "x", 1.5),
    ]
    assert columns(lake) == ["id", "day", "note", "part"]


@pytest.mark.usefixtures("table")
def test_a_merge_adds_the_columns_that_its_clauses_take(lake: Lake, spark: SparkSession) -> None:
    before = len(lake.log())
    source = "(SELECT * FROM VALUES (1, 'a', 7), (2, 'b', 8) AS v(id, note, part)) s ON t.id = s.id"
    run(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO lake.s.t t USING {source} "
        "WHEN MATCHED THEN UPDATE SET note = s.note "
        "WHEN NOT MATCHED THEN INSERT (id, note) VALUES (s.id, s.note)",
    )
    assert len(lake.log()) == before + 1
    assert run(spark, "SELECT * FROM lake.s.t ORDER BY id") == [(1, "mo", "a"), (2, None, "b")]
    # A star takes what the source has; other columns stay as they are.
    more = "(SELECT * FROM VALUES (1, 7), (3, 9) AS v(id, part)) s ON lake.s.t.id = s.id"
    run(
        spark,
        f"MERGE WITH SCHEMA EVOLUTION INTO lake.s.t USING {more} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    assert run(spark, "SELECT * FROM lake.s.t ORDER BY id") == [
        (1, "mo", "a", 7),
        (2, None, "b", None),
        (3, None, None, 9),
    ]
    assert lake.table("s.t").to_arrow().num_rows == 3  # as other readers see it


@pytest.mark.verify
@pytest.mark.usefixtures("table")
def test_every_way_to_write_rows_can_add_columns(lake: Lake, spark: SparkSession) -> None:
    rows = spark.sql("SELECT 5L AS id, 'we' AS day, 1 AS a")
    rows.write.mode("append").option("mergeSchema", "true").saveAsTable("lake.s.t")
    rows.withColumn("b", rows.a).writeTo("lake.s.t").option("mergeSchema", "true").append()
    words = "INSERT WITH SCHEMA EVOLUTION"
    run(
        spark,
        "INSERT INTO lake.s.t WITH (mergeSchema = true) (id, day, c) VALUES (6, 'th', 2)",
        f"{words} INTO lake.s.t REPLACE WHERE day = 'mo' SELECT 1, 'mo', 0, 0, 0, 'r' AS d",
        f"{words} OVERWRITE lake.s.t PARTITION (day = 'th') SELECT 7, 0, 0, 0, 'o', 4 AS e",
        f"WITH w AS (SELECT 8 AS id, true AS f) {words} INTO lake.s.t BY NAME SELECT * FROM w",
    )
    assert columns(lake) == ["id", "day", "a", "b", "c", "d", "e", "f"]
    assert sorted(run(spark, "SELECT id, day, d, e, f FROM lake.s.t"), key=str) == [
        (1, "mo", "r", None, None),
        (5, "we", None, None, None),
        (5, "we", None, None, None),
        (7, "th", "o", 4, None),
        (8, None, None, None, True),
    ]
    run(spark, "USE lake.s", "CREATE BRANCH dev IN lake", "USE REFERENCE dev IN lake")
    run(spark, "INSERT WITH SCHEMA EVOLUTION INTO t BY NAME SELECT 9 AS id, 1 AS g")
    run(spark, "USE REFERENCE main IN lake", "USE spark_catalog")
    assert columns(lake, branch="dev")[-1] == "g"
    assert columns(lake)[-1] == "f"


@pytest.mark.verify
def test_a_part_of_a_struct_is_added_too(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, at STRUCT<x: INT>) TBLPROPERTIES ("
        "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true', "
        "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO lake.s.t SELECT id, named_struct('x', 1) FROM range(3)",
        "INSERT WITH SCHEMA EVOLUTION INTO lake.s.t BY NAME "
        "SELECT 4 AS id, named_struct('x', 2, 'y', 3) AS at",
        "MERGE WITH SCHEMA EVOLUTION INTO lake.s.t t "
        "USING (SELECT 1 AS id, named_struct('x', 5, 'y', 6, 'z', 7) AS at, 'n' AS name) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE",
    )
    assert run(spark, "SELECT id, at.x, at.y, at.z, name FROM lake.s.t ORDER BY id") == [
        (0, 1, None, None, None),
        (1, 5, 6, 7, "n"),
        (4, 2, 3, None, None),
    ]


@pytest.mark.usefixtures("table")
def test_what_cannot_be_a_column_is_refused_and_nothing_changes(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE TABLE lake.s.f (id BIGINT) USING parquet")
    before = lake.branch().head
    insert = "INSERT WITH SCHEMA EVOLUTION INTO"
    void = refusal(spark, f"{insert} lake.s.t BY NAME SELECT 1 AS id, NULL AS nothing")
    assert isinstance(void, InvalidRequest)
    assert "'nothing' has the type void" in str(void)
    files = refusal(spark, f"{insert} lake.s.f BY NAME SELECT 1 AS id, 2 AS more")
    assert isinstance(files, NotManaged)
    # Without the words it is as before.
    for statement in (
        "INSERT INTO lake.s.t BY NAME SELECT 1 AS id, 2 AS more",
        "MERGE INTO lake.s.t t USING (SELECT 1L AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
        f"{insert} lake.s.absent SELECT 1",
        f"{insert} lake.s.t SELECT nothing FROM lake.s.t",
    ):
        with pytest.raises(Exception, match=r"EXTRA_COLUMNS|UNRESOLVED_COLUMN|NOT_FOUND") as caught:
            run(spark, statement)
        assert "\tat " not in str(caught.value)
    assert lake.branch().head == before


@pytest.mark.usefixtures("table")
def test_a_merge_by_python_adds_columns_and_loses_against_another_change_of_them(
    lake: Lake, spark: SparkSession
) -> None:
    source = spark.sql("SELECT 1L AS id, 'tu' AS day, 2 AS part")
    merge_all(lake, source, merge_schema=True)
    assert run(spark, "SELECT * FROM lake.s.t") == [(1, "tu", 2)]
    # Nothing matches, and the column is there all the same.
    late = source.selectExpr("id + 9 AS id", "1 AS late")
    none = merge(late, "s.t", "target.id = source.id", lake=lake, merge_schema=True)
    none.when_matched_update({"late": "source.late"}).commit()
    assert columns(lake) == ["id", "day", "part", "late"]
    with pytest.raises(InvalidRequest, match="the table has no column 'x'"):
        merge_all(lake, source.selectExpr("*", "1 AS x", "2 AS late"), merge_schema=False)
    run(
        spark,
        "BEGIN TRANSACTION IN lake",
        "MERGE WITH SCHEMA EVOLUTION INTO lake.s.t t USING (SELECT 1 AS id, 1 AS one) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *",
    )
    merge_all(lake, source.selectExpr("id", "'1' AS one"), merge_schema=True)
    assert isinstance(refusal(spark, "COMMIT IN lake"), CommitConflict)
    assert run(spark, "SELECT * FROM lake.s.t") == [(1, "tu", 2, None, "1")]


def merge_all(lake: Lake, source: DataFrame, *, merge_schema: bool) -> None:
    """Give matched rows all columns of the source."""
    builder = merge(source, "s.t", "target.id = source.id", lake=lake, merge_schema=merge_schema)
    builder.when_matched_update_all().commit()
