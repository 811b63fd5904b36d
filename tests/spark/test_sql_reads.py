"""SQL over a lake: names, revisions, and what a statement shows of them."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from py4j.clientserver import JavaClient
from py4j.protocol import MEMORY_COMMAND_NAME

import penstock
from penstock import spark as penstock_spark
from penstock.errors import InvalidRequest, KeyNotFound, NotManaged, ReferenceNotFound, VersionNotFound
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.nessie import IcebergTable
from penstock.model.operations import Put
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import FORMATS, rows
from tests.transactions.pipelines import ids as lake_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KINDS: Final = [kind if kind == "delta" else pytest.param(kind, marks=pytest.mark.verify) for kind in FORMATS]


@pytest.fixture
def history(lake: Lake) -> Lake:
    """A table of each format with other rows at main~1, main and dev."""
    for kind in FORMATS:
        lake.table(f"s.{kind}").write(rows(1), format=kind)
    lake.branch("dev").create()
    for kind in FORMATS:
        lake.table(f"s.{kind}", "dev").write(rows(10), format=kind)
        lake.table(f"s.{kind}").write(rows(2), format=kind)
    lake.tag("first").create(f"main~{len(FORMATS)}")
    return lake


def test_a_table_is_planned_in_as_few_steps_as_plain_files(spark: SparkSession, lake: Lake) -> None:
    lake.table("s.t").write(rows(1))
    query = spark.sql("SELECT id FROM lake.s.t")
    # What the statement names, and the table's columns under the names that the statement knows them by.
    assert planned(query, "analyzed").count("Project") == 2
    assert planned(query, "optimizedPlan").startswith("Relation")
    assert planned(penstock_spark.read(spark, "s.t"), "analyzed").startswith("Relation")
    assert ids(spark, "lake.s.t") == [1]


def planned(frame: Any, step: str) -> str:
    return str(getattr(frame._jdf.queryExecution(), step)().toString())


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_shows_the_rows_of_its_revision_in_any_order_of_statements(
    history: Lake, spark: SparkSession, kind: str
) -> None:
    expected = {
        f"lake.s.{kind}": [1, 2],
        f"lake.s.`{kind}@dev`": [1, 10],
        f"lake.s.{kind} VERSION AS OF 'first'": [1],
    }
    other = spark.newSession()
    for sessions in ((spark, spark), (spark, other)):
        # Every order of two statements, the first of which may leave something behind.
        for order in permutations(expected, 2):
            for session, name in zip(sessions, order, strict=True):
                assert ids(session, name) == expected[name], (order, name)
    assert history.transactions() == []


@pytest.mark.verify
def test_a_query_reads_tables_of_several_revisions(history: Lake, spark: SparkSession) -> None:
    joined = "SELECT a.id FROM lake.s.delta a JOIN lake.s.`delta@dev` b USING (id)"
    assert run(spark, joined) == [(1,)]
    assert run(spark, "SELECT count(*) FROM lake.s.delta a JOIN lake.s.delta b USING (id)") == [(2,)]
    within = "SELECT id FROM lake.s.lance WHERE id IN (SELECT id FROM lake.s.`parquet@dev`)"
    assert run(spark, within) == [(1,)]


@pytest.mark.verify
def test_a_session_reads_the_reference_that_it_uses(history: Lake, spark: SparkSession) -> None:
    other = spark.newSession()
    run(spark, "USE REFERENCE dev IN lake")
    assert ids(spark, "lake.s.delta") == [1, 10]
    assert ids(other, "lake.s.delta") == [1, 2]
    assert run(spark, "SHOW REFERENCE IN lake")[0][:2] == ("branch", "dev")
    run(spark, "USE REFERENCE `main` IN lake")
    assert ids(spark, "lake.s.delta") == [1, 2]
    other.conf.set("spark.penstock.ref", "dev")
    assert ids(other, "lake.s.delta") == [1, 10]
    other.sql("INSERT INTO lake.s.delta VALUES (11)")
    assert history.table("s.delta", "dev").to_arrow().num_rows == 3
    assert ids(spark, "lake.s.delta") == [1, 2]


def test_a_table_is_read_at_its_version_or_at_a_time(history: Lake, spark: SparkSession) -> None:
    version = history.table("s.delta").version
    assert ids(spark, f"lake.s.delta VERSION AS OF {version}") == [1, 2]
    assert ids(spark, f"lake.s.delta VERSION AS OF {version - 1}") == [1]
    time = history.show("first").time.isoformat(sep=" ")
    for kind in FORMATS:
        assert ids(spark, f"lake.s.{kind} TIMESTAMP AS OF '{time}'") == [1]
    assert isinstance(refusal(spark, "SELECT * FROM lake.s.delta VERSION AS OF 99"), VersionNotFound)
    assert isinstance(refusal(spark, "SELECT * FROM lake.s.`delta@none`"), ReferenceNotFound)
    assert isinstance(refusal(spark, "SELECT * FROM lake.s.`@dev`"), InvalidRequest)


def test_all_that_a_query_reads_of_a_branch_is_of_one_commit(
    history: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.spark.catalog import answers, tables

    asked: list[str] = []

    def describe_and_commit(session: tables.SessionOf, lake: Lake, request: CatalogRequest) -> object:
        facts = tables.describe_table(session, lake, request)
        if not asked:
            history.table("s.lance").write(rows(3), format="lance")
        asked.append(facts.pin.commit if facts.pin is not None else "")
        return facts

    monkeypatch.setitem(answers.BY_SPARK, "table", describe_and_commit)
    assert run(spark, "SELECT count(*) FROM lake.s.delta, lake.s.lance") == [(4,)]
    assert len(asked) == 2
    assert len(set(asked)) == 1
    assert run(spark, "SELECT count(*) FROM lake.s.delta, lake.s.lance") == [(6,)]


@pytest.mark.verify
def test_spark_shows_what_there_is(history: Lake, spark: SparkSession) -> None:
    assert run(spark, "SHOW NAMESPACES IN lake") == [("s",)]
    assert sorted(row[1] for row in run(spark, "SHOW TABLES IN lake.s")) == sorted(FORMATS)
    assert spark.catalog.tableExists("lake.s.delta")
    assert not spark.catalog.tableExists("lake.s.none")
    described = {row[0]: row[1] for row in run(spark, "DESCRIBE EXTENDED lake.s.delta")}
    assert described["id"] == "bigint"
    assert described["Provider"] == "delta"
    assert described["Location"] == history.table("s.delta").location
    assert spark.table("lake.s.parquet").count() == 2
    spark.catalog.setCurrentCatalog("lake")
    try:
        spark.catalog.setCurrentDatabase("s")
        assert run(spark, "SELECT count(*) FROM delta") == [(2,)]
        assert run(spark, "SHOW REFERENCES") == run(spark, "LIST REFERENCES IN lake")
    finally:
        spark.catalog.setCurrentCatalog("spark_catalog")


def test_a_read_by_name_is_the_read_of_penstock_spark(history: Lake, spark: SparkSession) -> None:
    def plan(frame: object) -> str:
        text: str = frame._jdf.queryExecution().executedPlan().toString()  # type: ignore[attr-defined]
        return re.sub(r"#\d+L?", "", text)

    spark.sql("CREATE TABLE lake.p (id BIGINT, day STRING) PARTITIONED BY (day)")
    spark.sql("INSERT INTO lake.p VALUES (1, 'mo'), (2, 'tu')")
    for key, where in (("p", "day = 'mo' AND id > 0"), ("s.parquet", "id > 1")):
        by_name = spark.table(f"lake.{key}").where(where).select("id")
        by_function = penstock_spark.read(spark, key).where(where).select("id")
        assert plan(by_name) == plan(by_function)
        assert "PushedFilters: [IsNotNull(id)" in plan(by_name)


def two_files(spark: SparkSession) -> None:
    """A table of two files, whose rows differ in every column but one."""
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, name STRING, day DATE, at TIMESTAMP)",
        "INSERT INTO lake.s.t VALUES (10, 'a', DATE '2026-01-01', TIMESTAMP '2026-01-01 00:00:00')",
        "INSERT INTO lake.s.t VALUES (20, 'b', DATE '2026-01-09', TIMESTAMP '2026-01-01 00:00:00')",
    )


def test_files_are_left_out_by_the_statistics_of_the_log(lake: Lake, spark: SparkSession) -> None:
    two_files(spark)
    for where in (
        "id > 15",
        "20 <= a.id",
        "id = 20 AND length(name) > 0",
        "name = 'b'",
        "day > '2026-01-02' AND rand() >= 0",
    ):
        by_name = spark.sql(f"SELECT id FROM lake.s.t AS a WHERE {where}")
        assert [row.id for row in by_name.collect()] == [20], where
        assert len(by_name.inputFiles()) == 1, where


def test_a_join_is_planned_by_the_size_of_the_files_that_are_read(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.large").write({"id": list(range(20_000)), "x": [n * 0.5 for n in range(20_000)]})
    lake.table("s.small").write(rows(1, 2))
    size = sum(file.size for file in lake.table("s.large").snapshot().files())

    def size_in_plan(query: str) -> int:
        plan = spark.sql(query)._jdf.queryExecution().optimizedPlan()
        return int(plan.stats().sizeInBytes())

    assert size_in_plan("SELECT * FROM lake.s.large") == size
    assert size_in_plan("SELECT * FROM lake.s.small") < size
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", size - 1)
    joined = spark.sql("SELECT * FROM lake.s.large JOIN lake.s.small USING (id)")
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan
    assert "BuildRight" in plan  # the small one, also when it is named first
    turned = spark.sql("SELECT * FROM lake.s.small JOIN lake.s.large USING (id)")
    assert "BuildLeft" in turned._jdf.queryExecution().executedPlan().toString()


def test_a_table_of_another_catalog_is_named_as_what_it_is(lake: Lake, spark: SparkSession) -> None:
    lake.commit(
        [Put(Key("s"), Namespace()), Put(Key("s", "ice"), IcebergTable(metadata_location="file:///x"))]
    )
    for statement in ("SELECT * FROM lake.s.ice", "INSERT INTO lake.s.ice VALUES (1)", "DESCRIBE lake.s.ice"):
        error = refusal(spark, statement)
        assert isinstance(error, NotManaged)
        assert "Iceberg" in error.message
    assert run(spark, "SHOW TABLES IN lake.s") == [("s", "ice", False)]


@pytest.mark.verify
def test_a_filter_that_is_not_understood_leaves_out_nothing(lake: Lake, spark: SparkSession) -> None:
    two_files(spark)
    for where in (
        "id = 10 OR name = 'b'",
        "id + 1 > 5",
        "at >= TIMESTAMP '2026-01-01 00:00:00'",
        "name = 'it''s' OR id > 0",
        "day <= current_date()",
        "NOT id = 99",
    ):
        filtered = spark.sql(f"SELECT id FROM lake.s.t WHERE {where}")
        assert sorted(row.id for row in filtered.collect()) == [10, 20], where
        assert len(filtered.inputFiles()) == 2, where


@pytest.mark.verify
def test_a_cached_table_is_the_one_that_was_cached(history: Lake, spark: SparkSession) -> None:
    run(spark, "CACHE TABLE lake.s.delta")
    try:
        assert ids(spark, "lake.s.`delta@dev`") == [1, 10]
        history.table("s.delta").write(rows(3))
        assert ids(spark, "lake.s.delta") == [1, 2, 3]
        run(spark, "USE REFERENCE dev IN lake")
        assert ids(spark, "lake.s.delta") == [1, 10]
    finally:
        spark.catalog.clearCache()


@pytest.mark.verify
def test_tables_with_deletion_vectors_and_mapped_columns_are_read(lake: Lake, spark: SparkSession) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.t (id BIGINT, `a b` STRING) TBLPROPERTIES "
        "('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')",
        "INSERT INTO lake.s.t SELECT id, cast(id AS STRING) FROM range(0, 10, 1, 1)",
        "DELETE FROM lake.s.t WHERE id = 3",
    )
    assert ids(spark, "lake.s.t") == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert run(spark, "SELECT `a b` FROM lake.s.t WHERE id = 4") == [("4",)]
    assert ids(spark, "lake.s.t VERSION AS OF 1") == list(range(10))


def test_two_sessions_in_turn_have_each_its_own_lake(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "other", create=True) as other_lake:
        other = penstock_spark.session(other_lake)
        for number, session in enumerate((spark, other, spark, other)):
            # Spark looks tables up for these before it knows which session the statement is of.
            session.range(number, number + 1).write.mode("append").saveAsTable("lake.s.t")
            session.range(1).writeTo(f"lake.s.t{number}").create()
        assert lake_ids(lake, "s.t") == [0, 2]
        assert lake_ids(other_lake, "s.t") == [1, 3]
        for session, names in ((spark, ["t", "t0", "t2"]), (other, ["t", "t1", "t3"])):
            session.catalog.setCurrentCatalog("lake")
            session.catalog.setCurrentDatabase("s")
            assert [row[1] for row in run(session, "SHOW TABLES")] == names
            session.catalog.setCurrentCatalog("spark_catalog")


def test_the_versions_of_a_table_are_described(history: Lake, spark: SparkSession) -> None:
    run(spark, "DELETE FROM lake.s.`delta@dev` WHERE id = 1")
    described = spark.sql("DESCRIBE HISTORY lake.s.`delta@dev`")
    assert described.columns[:6] == [
        *("version", "timestamp", "userId", "userName", "operation", "operationParameters")
    ]
    newest, *others = described.collect()
    past = history.table("s.delta", "dev").history()
    assert [row.version for row in (newest, *others)] == [version.version for version in past]
    assert (newest.operation, newest.operationMetrics) == ("DELETE", past[0].metrics)
    assert newest.operationParameters == past[0].parameters
    assert newest.engineInfo == past[0].engine
    assert past[0].timestamp is not None
    assert newest.timestamp.timestamp() == past[0].timestamp.timestamp()
    assert [row[4] for row in run(spark, "DESC HISTORY lake.s.delta LIMIT 1")] == ["WRITE"]
    versions = [row[0] for row in run(spark, "DESCRIBE HISTORY lake.s.lance")]
    assert versions == sorted(versions, reverse=True) != []
    assert isinstance(refusal(spark, "DESCRIBE HISTORY lake.s.parquet"), NotManaged)
    assert isinstance(refusal(spark, "DESCRIBE HISTORY lake.s.`none`"), KeyNotFound)
    spark.catalog.setCurrentCatalog("lake")
    try:
        spark.catalog.setCurrentDatabase("s")
        assert run(spark, "DESCRIBE HISTORY delta LIMIT 1") == run(
            spark, "CALL lake.system.history('s.delta', 1)"
        )
    finally:
        spark.catalog.setCurrentCatalog("spark_catalog")
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):  # that of another catalog is Spark's
        run(spark, "DESCRIBE HISTORY spark_catalog.s.delta")


def test_a_query_by_name_asks_the_jvm_no_more_than_one_of_a_view(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.table("s.t").write(rows(1))
    spark.range(3).createOrReplaceTempView("seen")
    commands: list[str] = []
    send = JavaClient.send_command

    def note_and_send(client: JavaClient, command: str, *more: Any) -> Any:
        if not command.startswith(MEMORY_COMMAND_NAME):  # objects of the JVM that are let go, at any time
            commands.append(command)
        return send(client, command, *more)

    monkeypatch.setattr(JavaClient, "send_command", note_and_send)
    sent = {}
    for name in ("seen", "lake.s.t"):
        commands.clear()
        spark.sql(f"SELECT id FROM {name} WHERE id = 1")
        sent[name] = len(commands)
    assert sent["lake.s.t"] == sent["seen"]
