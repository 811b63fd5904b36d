"""Statements that read the table that they write to. Others write to it between the read and the landing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions

from penstock.errors import CommitConflict, MergeConflict, TableConflict
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.lake.lake import Lake
from penstock.spark import delete, optimize, update
from penstock.spark.catalog import overwrites
from penstock.spark.writer import write_request
from tests.remote.serving import serving
from tests.spark.sql_session import ids, refusal, run
from tests.spark.test_sql_served import connect
from tests.spark.test_sql_writers import refused
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORE = "SELECT id + 10 AS id, day FROM lake.s.t"
MERGE = """MERGE INTO lake.s.t t USING (SELECT max(id) AS id FROM lake.s.t) s ON t.id = s.id
    WHEN NOT MATCHED BY SOURCE THEN DELETE"""


def verified(statement: str) -> Any:
    return pytest.param(statement, marks=pytest.mark.verify)


@pytest.fixture
def table(spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, day STRING) PARTITIONED BY (day)",
        "INSERT INTO lake.s.t VALUES (1, 'mo')",
        "INSERT INTO lake.s.t VALUES (2, 'tu')",
    )


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Lets somebody else's work be done right before the next commit to a Delta table."""

    def prepare(work: Callable[[], Any]) -> None:
        commit, waiting = DeltaJob.commit_actions, [work]

        def commit_after_others(self: DeltaJob, *given: Any, **named: Any) -> Any:
            while waiting:
                waiting.pop()()
            return commit(self, *given, **named)

        monkeypatch.setattr(DeltaJob, "commit_actions", commit_after_others)

    return prepare


def append(lake: Lake, number: int, day: str = "mo") -> None:
    lake.table("s.t").append([{"id": number, "day": day}])


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT OVERWRITE lake.s.t {MORE}",
        verified(f"INSERT OVERWRITE lake.s.t {MORE} WHERE day = 'mo' UNION ALL {MORE} WHERE day = 'tu'"),
        verified(f"INSERT INTO lake.s.t REPLACE WHERE id < 10 {MORE.replace('10', '-10')}"),
        verified(f"INSERT INTO lake.s.t REPLACE WHERE day IN ('mo', 'tu') {MORE}"),
    ],
)
def test_rows_that_others_append_stay_beside_an_overwrite_of_what_was_read(
    lake: Lake, spark: SparkSession, meet: Callable[..., None], statement: str
) -> None:
    meet(lambda: append(lake, 5))
    run(spark, statement)
    moved = -10 if "-10" in statement else 10
    assert ids(spark, "lake.s.t") == sorted([1 + moved, 2 + moved, 5])
    assert run(spark, "DESCRIBE HISTORY lake.s.t LIMIT 1")[0][4] == "WRITE"


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT OVERWRITE lake.s.t {MORE}",
        verified(f"INSERT INTO lake.s.t {MORE}"),
        verified(f"CREATE OR REPLACE TABLE lake.s.t AS {MORE}"),
        "INSERT INTO lake.s.t SELECT 9, 'mo' WHERE NOT EXISTS (SELECT * FROM lake.s.t WHERE id = 9)",
        verified(MERGE),
        "DELETE FROM lake.s.t WHERE id < (SELECT max(id) FROM lake.s.t)",
        verified("UPDATE lake.s.t SET id = 7 WHERE id = (SELECT max(id) FROM lake.s.t)"),
    ],
)
def test_a_statement_is_refused_if_others_changed_what_it_read_of_its_table(
    lake: Lake, spark: SparkSession, meet: Callable[..., None], statement: str
) -> None:
    meet(lambda: update(spark, "s.t", {"id": "4"}, "id = 2", lake=lake))
    problem = refusal(spark, statement)
    assert isinstance(problem, TableConflict)
    for told in ("s.t", "version 3 (UPDATE)", "read version 2", "Run it again"):
        assert told in problem.message
    assert ids(spark, "lake.s.t") == [1, 4]
    run(spark, statement)


@pytest.mark.verify
@pytest.mark.usefixtures("table")
def test_under_serializable_an_append_meets_what_was_read(
    lake: Lake, spark: SparkSession, meet: Callable[..., None]
) -> None:
    run(spark, "ALTER TABLE lake.s.t SET TBLPROPERTIES ('delta.isolationLevel' = 'Serializable')")
    meet(lambda: append(lake, 5))
    assert isinstance(refusal(spark, f"INSERT OVERWRITE lake.s.t {MORE}"), TableConflict)
    assert ids(spark, "lake.s.t") == [1, 2, 5]


@pytest.mark.usefixtures("table")
def test_a_statement_rests_on_the_partitions_that_its_filter_selects(
    lake: Lake, spark: SparkSession, meet: Callable[..., None]
) -> None:
    part = "INSERT OVERWRITE lake.s.t PARTITION (day = 'mo') SELECT id + 10 FROM lake.s.t WHERE day = 'mo'"
    meet(lambda: delete(spark, "s.t", "day = 'tu'", lake=lake))
    run(spark, part)
    assert ids(spark, "lake.s.t") == [11]
    meet(lambda: delete(spark, "s.t", "day = 'mo'", lake=lake))
    assert isinstance(refusal(spark, part), TableConflict)


@pytest.mark.usefixtures("table")
def test_other_tables_are_read_at_the_statements_commit_and_bind_nothing(
    lake: Lake, spark: SparkSession, meet: Callable[..., None]
) -> None:
    run(spark, "CREATE TABLE lake.s.u AS SELECT 7L AS id, 'mo' AS day")
    meet(lambda: delete(spark, "s.u", lake=lake))
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.u")
    assert ids(spark, "lake.s.t") == [7]
    assert ids(spark, "lake.s.u") == []


@pytest.mark.verify
@pytest.mark.usefixtures("table")
def test_files_that_others_put_together_meanwhile_are_no_conflict(
    lake: Lake, spark: SparkSession, meet: Callable[..., None]
) -> None:
    append(lake, 3)
    meet(lambda: optimize(spark, "s.t", lake=lake))
    run(spark, f"INSERT OVERWRITE lake.s.t {MORE}")
    assert ids(spark, "lake.s.t") == [11, 12, 13]


@pytest.mark.verify
@pytest.mark.usefixtures("table")
def test_an_overwrite_by_an_old_version_takes_all_that_came_since(
    lake: Lake, spark: SparkSession, meet: Callable[..., None]
) -> None:
    meet(lambda: append(lake, 5))
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.t VERSION AS OF 1")
    assert ids(spark, "lake.s.t") == [1]
    lake.branch("dev").create()
    append(lake, 6)
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.`t@dev`")
    assert ids(spark, "lake.s.t") == [1]


@pytest.mark.usefixtures("table")
def test_a_branch_that_rewrote_its_table_takes_no_rows_that_came_meanwhile(
    lake: Lake, spark: SparkSession
) -> None:
    run(spark, "CREATE BRANCH dev IN lake")
    run(spark, "INSERT OVERWRITE lake.s.`t@dev` SELECT id + 10, day FROM lake.s.`t@dev`")
    append(lake, 5)
    run(spark, "MERGE BRANCH dev INTO main IN lake")
    assert ids(spark, "lake.s.t") == [5, 11, 12]


@pytest.mark.usefixtures("table")
def test_a_merge_of_a_dataframe_leaves_rows_alone_that_came_after_it_was_read(
    lake: Lake, spark: SparkSession
) -> None:
    source = spark.table("lake.s.t").where("id = 1").alias("s")
    append(lake, 5)
    merged = source.mergeInto("lake.s.t", functions.expr("t.id = s.id and false"))
    merged.whenNotMatchedBySource().delete().merge()
    assert ids(spark, "lake.s.t") == [5]


@pytest.fixture
def served(spark: SparkSession, lake: Lake) -> Iterator[SparkSession]:
    """The same lake as `served`, by a driver that asks a server and has no Python."""
    with serving(lake.catalogue) as server:
        connect(spark, "served", server.url)
        yield spark


@pytest.mark.usefixtures("table")
def test_a_driver_without_python_loses_no_rows_either(
    lake: Lake, served: SparkSession, meet: Callable[..., None]
) -> None:
    statement = f"INSERT OVERWRITE served.s.t {MORE.replace('lake', 'served')}"
    meet(lambda: append(lake, 5))
    run(served, statement)
    assert ids(served, "served.s.t") == [5, 11, 12]
    meet(lambda: delete(served, "s.t", "id = 5", lake=lake))
    problem = refusal(served, statement)
    assert isinstance(problem, TableConflict)
    assert "Run it again" in problem.message
    assert ids(served, "served.s.t") == [11, 12]


@pytest.mark.verify
def test_a_driver_without_python_overwrites_files_by_their_own_rows_in_a_transaction(
    lake: Lake, served: SparkSession
) -> None:
    lake.table("s.t").write(rows(1, 2), format="parquet")
    statement = "INSERT OVERWRITE served.s.t SELECT * FROM served.s.t WHERE id > 1"
    assert "BEGIN TRANSACTION" in refusal(served, statement).message
    run(served, "BEGIN TRANSACTION IN served", statement)
    lake.table("s.t").write(rows(3))
    assert isinstance(refusal(served, "COMMIT IN served"), MergeConflict)
    run(served, "BEGIN TRANSACTION IN served", statement, "COMMIT IN served")
    assert ids(served, "served.s.t") == [2, 3]


@pytest.mark.parametrize("kind", ["delta", "parquet", verified("lance")])
def test_a_dataframe_that_was_read_before_loses_no_rows_that_came_since(
    lake: Lake, spark: SparkSession, kind: str
) -> None:
    lake.table("s.t").write(rows(1, 2), format=kind)
    frame = spark.table("lake.s.t").where("id > 1")
    lake.table("s.t").write(rows(3))
    if kind == "delta":
        frame.write.mode("overwrite").insertInto("lake.s.t")
        assert ids(spark, "lake.s.t") == [2, 3]
        return
    problem = refused(lambda: frame.write.mode("overwrite").insertInto("lake.s.t"))
    assert isinstance(problem, CommitConflict)
    assert "s.t" in problem.message
    assert "Run it again" in problem.message
    assert ids(spark, "lake.s.t") == [1, 2, 3]
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.t WHERE id > 1")
    assert ids(spark, "lake.s.t") == [2, 3]
    assert not lake.transactions()


@pytest.mark.parametrize("kind", [verified("parquet"), "lance"])
def test_an_overwrite_of_what_was_read_is_refused_if_others_land_before_it(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    lake.table("s.t").write(rows(1, 2), format=kind)

    def write_after_others(*given: Any) -> Any:
        lake.table("s.t").write(rows(3))
        return write_request(*given)

    monkeypatch.setattr(f"{overwrites.__name__}.write_request", write_after_others)
    problem = refusal(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.t WHERE id > 1")
    assert isinstance(problem, CommitConflict)
    assert "'s.t'" in problem.message
    assert "Run it again" in problem.message
    assert ids(spark, "lake.s.t") == [1, 2, 3]
    assert not lake.transactions()


@pytest.mark.parametrize("kind", ["delta", verified("parquet")])
def test_a_dataframe_that_is_older_than_its_transaction_loses_no_rows_either(
    lake: Lake, spark: SparkSession, kind: str
) -> None:
    lake.table("s.t").write(rows(1, 2), format=kind)
    frame = spark.table("lake.s.t").where("id > 1")
    lake.table("s.t").write(rows(3))
    run(spark, "BEGIN TRANSACTION IN lake")
    if kind == "delta":
        frame.write.mode("overwrite").insertInto("lake.s.t")
        assert ids(spark, "lake.s.t") == [2, 3]
        run(spark, "COMMIT IN lake")
        assert ids(spark, "lake.s.t") == [2, 3]
        return
    problem = refused(lambda: frame.write.mode("overwrite").insertInto("lake.s.t"))
    assert isinstance(problem, CommitConflict)
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.t WHERE id > 1", "COMMIT IN lake")
    assert ids(spark, "lake.s.t") == [2, 3]


@pytest.mark.verify
def test_a_temporary_view_is_looked_up_in_the_transaction_and_a_dataframe_keeps_its_rows(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "CREATE TEMPORARY VIEW text AS SELECT * FROM lake.s.t")
    spark.table("lake.s.t").createOrReplaceTempView("kept")
    run(spark, "BEGIN TRANSACTION IN lake", "INSERT INTO lake.s.t VALUES (2)")
    assert ids(spark, "text") == [1, 2]
    assert ids(spark, "kept") == [1]
    run(spark, "ROLLBACK IN lake")
    assert ids(spark, "text") == [1]


@pytest.mark.verify
def test_a_script_has_transactions_by_procedures(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(
        spark,
        """BEGIN
            CALL lake.system.begin_transaction();
            INSERT OVERWRITE lake.s.t SELECT id + 10 FROM lake.s.t;
            INSERT INTO lake.s.t VALUES (2);
            CALL lake.system.commit_transaction();
        END""",
    )
    assert ids(spark, "lake.s.t") == [2, 11]
    assert not lake.transactions()
    assert len(lake.log()) == 2
