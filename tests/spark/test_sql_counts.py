"""How many rows a statement changed: what it answers, what history says, and what a program is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake.lake import Lake
from penstock.spark import delete
from tests.spark.sql_session import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
MERGED = ["num_affected_rows", "num_updated_rows", "num_deleted_rows", "num_inserted_rows"]
EVERY_CLAUSE = """
    MERGE INTO lake.s.t t USING (SELECT * FROM VALUES (1, 5), (2, 6), (3, 7), (8, 1), (9, 2) AS v(id, v)) s
    ON t.id = s.id
    WHEN MATCHED AND s.id = 1 THEN DELETE
    WHEN MATCHED AND s.id = 2 THEN UPDATE SET v = s.v
    WHEN NOT MATCHED THEN INSERT (id, v, day) VALUES (s.id, s.v, 'we')
    WHEN NOT MATCHED BY SOURCE AND t.id > 4 THEN UPDATE SET v = t.v + 1
"""


@pytest.fixture(params=["", pytest.param(VECTORS, marks=pytest.mark.verify)], ids=["files", "vectors"])
def table(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    """Rows 1 to 6: three files in two partitions."""
    run(
        spark,
        f"CREATE TABLE lake.s.t (id BIGINT, v BIGINT, day STRING) PARTITIONED BY (day) {request.param}",
        "INSERT INTO lake.s.t VALUES (1, 1, 'mo'), (2, 2, 'mo'), (3, 3, 'mo')",
        "INSERT INTO lake.s.t VALUES (4, 4, 'mo')",
        "INSERT INTO lake.s.t VALUES (5, 5, 'tu'), (6, 6, 'tu')",
    )


def metrics(spark: SparkSession) -> dict[str, str]:
    (row,) = spark.sql("DESCRIBE HISTORY lake.s.t LIMIT 1").collect()
    found: dict[str, str] = row.operationMetrics
    return found


@pytest.mark.usefixtures("table")
def test_a_statement_that_changes_rows_answers_how_many(spark: SparkSession) -> None:
    assert run(spark, "UPDATE lake.s.t SET v = 0 WHERE id IN (1, 2, 5)") == [(3,)]
    assert metrics(spark)["numUpdatedRows"] == "3"
    deleted = spark.sql("DELETE FROM lake.s.t WHERE id IN (2, 6)")
    assert deleted.columns == ["num_affected_rows"]
    assert deleted.schema[0].dataType.typeName() == "long"
    assert [tuple(row) for row in deleted.collect()] == [tuple(row) for row in deleted.collect()] == [(2,)]
    assert metrics(spark)["numDeletedRows"] == "2"
    assert run(spark, "DELETE FROM lake.s.t WHERE day = 'mo'") == [(3,)]
    assert run(spark, "UPDATE lake.s.t SET v = 0 WHERE id > 100") == [(0,)]
    assert run(spark, "DELETE FROM lake.s.t") == [(1,)]
    assert run(spark, "DELETE FROM lake.s.t") == [(0,)]


@pytest.mark.usefixtures("table")
def test_a_merge_answers_what_became_of_rows(spark: SparkSession) -> None:
    merged = spark.sql(EVERY_CLAUSE)
    assert merged.columns == MERGED
    assert [tuple(row) for row in merged.collect()] == [(6, 3, 1, 2)]
    assert metrics(spark) | {
        "numTargetRowsUpdated": "3",
        "numTargetRowsDeleted": "1",
        "numTargetRowsInserted": "2",
    } == metrics(spark)
    ids = [row[0] for row in run(spark, "SELECT id FROM lake.s.t ORDER BY id")]
    assert ids == [2, 3, 4, 5, 6, 8, 9]
    source = "MERGE INTO lake.s.t t USING (SELECT explode(array(2, 2, 70)) AS id) s ON t.id = s.id"
    assert run(spark, f"{source} WHEN MATCHED THEN DELETE") == [(1, 0, 1, 0)]
    insert = "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
    assert run(spark, f"{source} {insert}") == [(3, 0, 0, 3)]
    assert run(spark, f"{source} WHEN MATCHED AND false THEN DELETE") == [(0, 0, 0, 0)]


@pytest.mark.usefixtures("table")
def test_a_program_is_told_how_many_rows_changed(lake: Lake, spark: SparkSession) -> None:
    done = delete(spark, "s.t", "id < 3", lake=lake)
    assert done is not None
    assert (done.deleted, done.updated, done.inserted) == (2, 0, 0)


def test_whole_files_that_do_not_tell_their_rows_are_counted_as_unknown(
    lake: Lake, spark: SparkSession
) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT) TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0')",
        "INSERT INTO lake.s.t VALUES (1), (2)",
    )
    files = list(lake.table("s.t").snapshot().files())
    known = all("numRecords" in (file.stats or "") for file in files)
    assert run(spark, "DELETE FROM lake.s.t") == [(2 if known else None,)]
