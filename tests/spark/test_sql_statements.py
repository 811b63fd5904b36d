"""SQL over a lake: statements that change rows, tables, branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.errors import (
    InvalidRequest,
    MergeConflict,
    NotManaged,
    PenstockError,
    ReferenceExists,
    TransactionOver,
)
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.sql_catalog.steps import BY_NAME
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import FORMATS, rows
from tests.transactions.pipelines import ids as lake_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KINDS: Final = [kind if kind == "delta" else pytest.param(kind, marks=pytest.mark.verify) for kind in FORMATS]


@pytest.mark.verify
def test_rows_are_inserted_overwritten_and_replaced(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, day STRING) PARTITIONED BY (day) COMMENT 'days'",
        "INSERT INTO lake.s.t VALUES (1, 'mo'), (2, 'tu')",
        "INSERT INTO lake.s.t BY NAME SELECT 'we' AS day, 3 AS id",
    )
    assert run(spark, "SELECT * FROM lake.s.t ORDER BY id") == [(1, "mo"), (2, "tu"), (3, "we")]
    run(spark, "INSERT OVERWRITE lake.s.t PARTITION (day = 'mo') SELECT 10")
    assert ids(spark, "lake.s.t") == [2, 3, 10]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    run(spark, "INSERT OVERWRITE lake.s.t SELECT 20, 'tu'")
    spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(spark, "lake.s.t") == [3, 10, 20]
    run(spark, "INSERT INTO lake.s.t REPLACE WHERE day = 'we' SELECT 30, 'we'")
    assert ids(spark, "lake.s.t") == [10, 20, 30]
    run(spark, "INSERT OVERWRITE lake.s.t SELECT 40, 'th'")
    assert ids(spark, "lake.s.t") == [40]
    run(spark, "TRUNCATE TABLE lake.s.t")
    assert ids(spark, "lake.s.t") == []
    assert [commit.message for commit in lake.log(limit=2)] == ["TRUNCATE TABLE s.t", "INSERT OVERWRITE s.t"]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_format_are_created_filled_and_dropped(
    lake: Lake, spark: SparkSession, kind: str
) -> None:
    run(
        spark,
        f"CREATE TABLE lake.s.a USING {kind} AS SELECT id FROM range(2)",
        f"CREATE TABLE lake.s.b (id BIGINT) USING {kind}",
        "INSERT INTO lake.s.b SELECT id + 10 FROM lake.s.a",
        "INSERT OVERWRITE lake.s.a SELECT id FROM lake.s.b",
        "ALTER TABLE lake.s.b RENAME TO lake.s.c",
    )
    assert ids(spark, "lake.s.a") == ids(spark, "lake.s.c") == [10, 11]
    assert isinstance(refusal(spark, f"CREATE TABLE lake.s.a USING {kind} AS SELECT 1 AS id"), PenstockError)
    run(
        spark,
        f"CREATE TABLE IF NOT EXISTS lake.s.a USING {kind} AS SELECT 1 AS id",
        "TRUNCATE TABLE lake.s.a",
    )
    assert lake_ids(lake, "s.a") == []
    run(spark, "DROP TABLE lake.s.a", "DROP TABLE IF EXISTS lake.s.a")
    assert [str(table.key) for table in lake.tables()] == ["s.c"]


@pytest.mark.verify
def test_a_table_like_another_has_its_columns_partitions_and_format(lake: Lake, spark: SparkSession) -> None:
    import pyspark

    if pyspark.__version__ < "4.2":
        pytest.skip("this Spark asks no catalog for it")
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, day STRING) PARTITIONED BY (day)",
        "CREATE TABLE lake.s.f USING parquet AS SELECT 1 AS id",
        "CREATE TABLE lake.s.like_t LIKE lake.s.t",
        "CREATE TABLE lake.s.like_f LIKE lake.s.f",
        "CREATE TABLE lake.s.named LIKE lake.s.f USING delta",
        "INSERT INTO lake.s.like_f VALUES (2)",
    )
    assert lake.table("s.like_t").snapshot().partition_columns == ("day",)
    assert lake.table("s.like_f").type == lake.table("s.f").type
    assert lake.table("s.named").type == lake.table("s.t").type
    assert ids(spark, "lake.s.like_f") == [2]


@pytest.mark.verify
def test_data_frames_are_written_by_name(lake: Lake, spark: SparkSession) -> None:
    spark.range(3).writeTo("lake.s.t").create()
    spark.range(3, 4).writeTo("lake.s.t").append()
    spark.range(4, 5).write.insertInto("lake.s.t")
    spark.range(5, 6).write.mode("append").saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [0, 1, 2, 3, 4, 5]
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    spark.range(100, 101).writeTo("lake.s.t").overwrite(F.col("id") > 2)
    assert ids(spark, "lake.s.t") == [0, 1, 2, 100]
    spark.range(7, 8).write.mode("overwrite").saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [7]
    assert lake.table("s.t").type == "DELTA_LAKE_TABLE"
    spark.range(1).write.saveAsTable("lake.s.new")
    assert lake.table("s.new").type == "DELTA_LAKE_TABLE"
    spark.sql("SELECT 'x' AS name").writeTo("lake.s.t").createOrReplace()
    assert run(spark, "SELECT * FROM lake.s.t") == [("x",)]


def test_rows_are_deleted_updated_and_merged(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t AS SELECT id, id * 1.0D AS x, named_struct('a', id) AS s FROM range(5)",
        "DELETE FROM lake.s.t WHERE id IN (SELECT id FROM lake.s.t VERSION AS OF 0 WHERE id > 3)",
        "UPDATE lake.s.t SET x = x + 0.5, s.a = 9 WHERE id = 1",
    )
    assert run(spark, "SELECT id, x, s.a FROM lake.s.t ORDER BY id") == [
        (0, 0.0, 0),
        (1, 1.5, 9),
        (2, 2.0, 2),
        (3, 3.0, 3),
    ]
    run(
        spark,
        """
        MERGE INTO lake.s.t AS old
        USING (SELECT * FROM VALUES (1, 7.0), (2, NULL), (8, 8.0) AS v(id, x)) AS new
        ON old.id = new.id
        WHEN MATCHED AND new.x IS NULL THEN DELETE
        WHEN MATCHED THEN UPDATE SET old.x = new.x
        WHEN NOT MATCHED THEN INSERT (id, x) VALUES (new.id, new.x)
        WHEN NOT MATCHED BY SOURCE AND old.id = 3 THEN UPDATE SET x = -1
        """,
    )
    assert run(spark, "SELECT id, x FROM lake.s.t ORDER BY id") == [(0, 0.0), (1, 7.0), (3, -1.0), (8, 8.0)]
    run(spark, "DELETE FROM lake.s.t")
    assert ids(spark, "lake.s.t") == []


@pytest.mark.verify
def test_what_cannot_be_done_is_said_without_a_trace(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE TABLE lake.s.f USING parquet AS SELECT 1L AS id", "CREATE TAG old IN lake")
    assert isinstance(refusal(spark, "DELETE FROM lake.s.f WHERE id = 1"), NotManaged)
    assert isinstance(refusal(spark, "INSERT INTO lake.s.`f@old` SELECT 2"), PenstockError)
    for statement in (
        "CREATE TABLE lake.s.t (at TIMESTAMP) PARTITIONED BY (days(at))",
        "CREATE TABLE lake.s.t (id BIGINT) LOCATION '/elsewhere'",
        "ALTER TABLE lake.s.f ADD COLUMN x INT",
        "CALL lake.system.nothing()",
        "CALL lake.other.show_log()",
    ):
        assert str(refusal(spark, statement))
    assert [str(table.key) for table in lake.tables()] == ["s.f"]
    assert len(lake.log()) == 1


@pytest.mark.verify
def test_tables_are_altered(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "INSERT INTO lake.s.t VALUES (1)",
        "ALTER TABLE lake.s.t ADD COLUMNS (x INT COMMENT 'new', y STRING)",
        "ALTER TABLE lake.s.t RENAME COLUMN x TO z",
        "ALTER TABLE lake.s.t DROP COLUMN y",
        "ALTER TABLE lake.s.t SET TBLPROPERTIES ('team' = 'a')",
        "COMMENT ON TABLE lake.s.t IS 'all'",
    )
    assert run(spark, "SELECT * FROM lake.s.t") == [(1, None)]
    assert run(spark, "DESCRIBE lake.s.t")[:2] == [("id", "bigint", None), ("z", "int", "new")]
    assert lake.table("s.t").properties["team"] == "a"
    run(spark, "ALTER TABLE lake.s.t UNSET TBLPROPERTIES ('team')")
    assert "team" not in lake.table("s.t").properties
    assert isinstance(refusal(spark, "ALTER TABLE lake.s.t ADD COLUMN q INT FIRST"), InvalidRequest)


@pytest.mark.verify
def test_namespaces_are_created_altered_and_dropped(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE NAMESPACE lake.a COMMENT 'first'",
        "ALTER NAMESPACE lake.a SET PROPERTIES ('k' = 'v')",
        "CREATE NAMESPACE lake.a.b",
        "CREATE TABLE lake.a.b.t AS SELECT 1L AS id",
    )
    assert run(spark, "SHOW NAMESPACES IN lake.a") == [("a.b",)]
    assert ("Comment", "first") in run(spark, "DESCRIBE NAMESPACE EXTENDED lake.a")
    with pytest.raises(Exception, match="SCHEMA_NOT_EMPTY"):
        run(spark, "DROP NAMESPACE lake.a")
    run(spark, "DROP NAMESPACE lake.a CASCADE")
    assert run(spark, "SHOW NAMESPACES IN lake") == []


def test_branches_and_tags_have_statements(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t AS SELECT 1L AS id",
        "CREATE BRANCH dev IN lake FROM main",
        "CREATE BRANCH IF NOT EXISTS dev IN lake",
        "CREATE TAG `v1.0` FROM main IN lake",
        "INSERT INTO lake.s.`t@dev` SELECT 2",
    )
    assert isinstance(refusal(spark, "CREATE BRANCH dev IN lake"), ReferenceExists)
    assert [row[:2] for row in run(spark, "SHOW REFERENCES IN lake")] == [
        ("branch", "dev"),
        ("branch", "main"),
        ("tag", "v1.0"),
    ]
    assert run(spark, "SHOW DIFF main TO dev IN lake") == [("s.t", "changed", "DELTA_LAKE_TABLE")]
    assert run(spark, "SHOW CONFLICTS dev INTO main IN lake") == []
    log = run(spark, "SHOW LOG dev IN lake LIMIT 1")
    assert (log[0][0], log[0][3]) == (lake.branch("dev").head, "INSERT INTO s.t")
    assert run(spark, "MERGE BRANCH dev INTO main IN lake")[0][2] is True
    assert ids(spark, "lake.s.t") == [1, 2]
    run(spark, "REVERT main ON main IN lake;")
    assert ids(spark, "lake.s.t") == [1]
    run(spark, "ASSIGN BRANCH dev TO `v1.0` IN lake", "-- a remark\nINSERT INTO lake.s.`t@dev` SELECT 3")
    run(
        spark, "PUBLISH dev INTO main IN lake", "DROP BRANCH dev IN lake", "DROP BRANCH IF EXISTS dev IN lake"
    )
    assert ids(spark, "lake.s.t") == [1, 3]
    run(spark, "CALL lake.system.restore(table => 's.t', to_ref => 'v1.0')", "DROP TAG `v1.0` IN lake")
    assert ids(spark, "lake.s.t") == [1]


@pytest.mark.verify
def test_a_conflict_is_shown_before_and_told_by_the_merge(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t AS SELECT 1L AS id",
        "CREATE BRANCH dev IN lake",
        "UPDATE lake.s.t SET id = 2",
        "UPDATE lake.s.`t@dev` SET id = 3",
    )
    shown = run(spark, "SHOW CONFLICTS dev INTO main IN lake")
    assert [row[0] for row in shown] == ["s.t"]
    assert isinstance(refusal(spark, "MERGE BRANCH dev INTO main IN lake"), MergeConflict)
    assert ids(spark, "lake.s.t") == [2]


def test_statements_of_a_transaction_land_together(lake: Lake, spark: SparkSession) -> None:
    for kind in FORMATS:
        run(spark, f"CREATE TABLE lake.s.{kind} USING {kind} AS SELECT 1L AS id")
    other = spark.newSession()
    before = len(lake.log())
    run(spark, "BEGIN TRANSACTION IN lake")
    for kind in FORMATS:
        run(spark, f"INSERT INTO lake.s.{kind} SELECT max(id) + 1 FROM lake.s.delta")
    with pytest.raises(Exception, match="CANNOT_SAFELY_CAST"):
        run(spark, "INSERT INTO lake.s.delta SELECT 'x'")
    assert ids(spark, "lake.s.delta") == [1, 2]
    assert ids(other, "lake.s.delta") == [1]
    assert isinstance(refusal(spark, "BEGIN TRANSACTION IN lake"), InvalidRequest)
    assert isinstance(refusal(spark, "CREATE BRANCH x IN lake"), InvalidRequest)
    run(spark, "COMMIT IN lake")
    assert [ids(other, f"lake.s.{kind}") for kind in FORMATS] == [[1, 2], [1, 3], [1, 3]]
    assert len(lake.log()) == before + 1
    assert lake.transactions() == []
    run(spark, "BEGIN TRANSACTION IN lake", "DELETE FROM lake.s.delta", "ROLLBACK IN lake")
    assert ids(spark, "lake.s.delta") == [1, 2]
    assert isinstance(refusal(spark, "COMMIT IN lake"), InvalidRequest)
    assert lake.transactions() == []


def test_two_sessions_in_conflict_are_told_and_neither_is_left_open(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE TABLE lake.s.t AS SELECT 1L AS id")
    other = spark.newSession()
    for session in (spark, other):
        run(session, "BEGIN TRANSACTION IN lake", "UPDATE lake.s.t SET id = id + 1")
    run(other, "COMMIT IN lake")
    assert isinstance(refusal(spark, "COMMIT IN lake"), MergeConflict)
    # The session goes on with its branch: there is nothing left to be rolled back.
    assert ids(spark, "lake.s.t") == [2]
    assert lake.transactions() == []


@pytest.mark.verify
def test_what_a_transaction_has_read_is_checked_when_it_lands(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.a AS SELECT 1L AS id",
        "CREATE TABLE lake.s.b AS SELECT 1L AS id",
        "CALL lake.system.begin_transaction(isolation => 'serializable')",
        "INSERT INTO lake.s.b SELECT max(id) FROM lake.s.a",
    )
    lake.table("s.a").write(rows(5))
    assert isinstance(refusal(spark, "COMMIT IN lake"), MergeConflict)
    assert ids(spark, "lake.s.b") == [1]


@pytest.mark.verify
def test_a_transaction_that_was_ended_elsewhere_is_over(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE TABLE lake.s.t AS SELECT 1L AS id", "BEGIN TRANSACTION IN lake")
    (info,) = lake.transactions()
    lake.find_transaction(info.id).abort("by an operator")
    assert isinstance(refusal(spark, "INSERT INTO lake.s.t SELECT 2"), TransactionOver | PenstockError)
    run(spark, "INSERT INTO lake.s.t SELECT 3")
    assert lake_ids(lake, "s.t") == [1, 3]


def test_a_namespace_is_looked_up_once_for_a_statement_and_anew_for_the_next(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    get_namespace = BY_NAME["namespace"]

    def note_and_get(lake: Lake, request: CatalogRequest) -> Any:
        asked.append(request.names)
        return get_namespace(lake, request)

    monkeypatch.setitem(BY_NAME, "namespace", note_and_get)
    for number in range(2):
        run(spark, f"CREATE TABLE lake.s.t{number} AS SELECT 1L AS id")
        assert asked == [("s",)] * (number + 1)
    run(spark, "CREATE NAMESPACE lake.n", "DROP NAMESPACE lake.n")
    with pytest.raises(Exception, match="SCHEMA_NOT_FOUND"):
        run(spark, "DESCRIBE NAMESPACE lake.n")
