"""SQL over a lake behind a server, which answers where a driver has no Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from penstock.errors import (
    Denied,
    MergeConflict,
    PenstockError,
    ReferenceNotFound,
    TableConflict,
    Unauthenticated,
    Unavailable,
)
from penstock.formats.delta.lake import scan_plan
from penstock.lake.lake import Lake
from penstock.lake.sql_catalog import steps
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.server.access import TokenGate, gate
from penstock.server.native import PREFIX
from penstock.spark.settings import CATALOG, RELATION_CATALOG, find_catalog_class
from tests.calls.gateway import Gateway, cut_off, lost
from tests.formats.delta.rows import inline_vector, vector_data
from tests.remote.serving import serving
from tests.spark.reading_tables import adopted, with_vectors, written
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import ids as lake_ids
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


VIEW_FAULTS: Final = (
    ("write_view", lost, "CREATE VIEW far.s.v AS SELECT id FROM far.s.t"),
    ("write_view", cut_off, "ALTER VIEW far.s.v AS SELECT id + 1 AS id FROM far.s.t"),
    ("rename", lost, "ALTER VIEW far.s.v RENAME TO far.s.w"),
    ("drop", cut_off, "DROP VIEW far.s.w"),
)
"""A step whose answer is spoilt, how, and the statement."""


@pytest.fixture
def served(spark: SparkSession, lake: Lake) -> Iterator[SparkSession]:
    """A session with the lake as `lake`, decided by Python, and as `served`, decided by a server."""
    with serving(lake.catalogue) as server:
        connect(spark, "served", server.url)
        yield spark


def connect(spark: SparkSession, name: str, url: str, token: str = "") -> None:
    for setting, value in {"": find_catalog_class(), ".lake": url, ".token": token}.items():
        spark.conf.set(CATALOG + name + setting, value)


def plan_of(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return re.sub(r"#\d+L?", "", text)


@pytest.mark.verify
def test_tables_are_read_at_every_revision_as_by_python(lake: Lake, served: SparkSession) -> None:
    kinds = ("delta", "parquet", "csv")
    for kind in kinds:
        lake.table(f"s.{kind}").write(rows(1), format=kind)
    lake.branch("dev").create()
    lake.tag("first").create()
    time = lake.show("first").time.isoformat(sep=" ")
    for kind in kinds:
        lake.table(f"s.{kind}", "dev").write(rows(10), format=kind)
        lake.table(f"s.{kind}").write(rows(2), format=kind)
    lake.table("s.vectors").write(rows(1), format="lance")
    assert run(served, "SHOW NAMESPACES IN served") == [("s",)]
    assert sorted(row[1] for row in run(served, "SHOW TABLES IN served.s")) == sorted([*kinds, "vectors"])
    for kind in kinds:
        assert ids(served, f"served.s.{kind}") == [1, 2]
        assert ids(served, f"served.s.`{kind}@dev`") == [1, 10]
        assert ids(served, f"served.s.{kind} VERSION AS OF 'first'") == [1]
        assert ids(served, f"served.s.{kind} TIMESTAMP AS OF '{time}'") == [1]
    version = lake.table("s.delta").version
    assert ids(served, f"served.s.delta VERSION AS OF {version - 1}") == [1]
    joined = "SELECT a.id FROM served.s.delta a JOIN served.s.`parquet@dev` b USING (id)"
    assert run(served, joined) == [(1,)]
    run(served, "USE REFERENCE dev IN served")
    assert ids(served, "served.s.delta") == [1, 10]
    assert ids(served, "lake.s.delta") == [1, 2]
    described = {row[0]: row[1] for row in run(served, "DESCRIBE EXTENDED served.s.delta")}
    assert (described["id"], described["Provider"]) == ("bigint", "delta")
    assert "PySpark" in str(refusal(served, "SELECT * FROM served.s.`vectors@main`"))
    assert isinstance(refusal(served, "SELECT * FROM served.s.`delta@none`"), ReferenceNotFound)


def test_the_plan_of_a_query_is_that_of_python(lake: Lake, served: SparkSession) -> None:
    run(
        served,
        "CREATE TABLE lake.p (id BIGINT, x DOUBLE, s STRUCT<a: INT, b: FLOAT>, day STRING) "
        "PARTITIONED BY (day) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE lake.p RENAME COLUMN id TO number",
        "INSERT INTO lake.p VALUES (1, 1.5, struct(1, 2), 'mo'), (9, double('NaN'), NULL, 'tu')",
        "CREATE TABLE lake.f USING parquet PARTITIONED BY (day) AS SELECT 1L AS id, 'mo' AS day",
    )
    for key, where in (("p", "day = 'tu' AND number > 5"), ("p", "x > 1"), ("f", "id > 0 AND day = 'mo'")):
        query = f"SELECT * FROM {{}}.{key} WHERE {where}"
        by_server, by_python = served.sql(query.format("served")), served.sql(query.format("lake"))
        assert plan_of(by_server) == plan_of(by_python)
        assert by_server.schema == by_python.schema
        assert str(by_server.collect()) == str(by_python.collect()) != "[]"


def test_rows_of_deletion_vectors_are_left_out(
    lake: Lake, served: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, root = pa.table({"id": range(1000)}), tmp_path / "t"
    gone = {0, 7, 63, 64, 999}
    begin = with_vectors(data)
    cut = replace(
        written(lake, root, begin[1], data), deletion_vector=inline_vector(vector_data(gone), len(gone))
    )
    other = written(lake, root, begin[1], pa.table({"id": range(1000, 1003)}))
    adopted(lake, root, [[*begin, cut, other]])
    with monkeypatch.context() as limits:
        limits.setattr(scan_plan, "WORDS_SENT_MAX", 2)
        assert "PySpark" in str(refusal(served, "SELECT * FROM served.t"))
    assert ids(served, "served.t") == [one for one in range(1003) if one not in gone]
    assert run(served, "SELECT id FROM served.t WHERE id IN (63, 65) ORDER BY id") == [(65,)]


def test_branches_tables_and_transactions_are_changed(lake: Lake, served: SparkSession) -> None:
    run(
        served,
        "CREATE NAMESPACE served.s",
        "CREATE TABLE served.s.t (id BIGINT COMMENT 'number') COMMENT 'rows'",
        "CREATE BRANCH dev IN served",
        "ALTER TABLE served.s.`t@dev` ADD COLUMN x INT",
    )
    lake.table("s.t", "dev").append(rows(1))
    assert run(served, "SHOW DIFF main TO dev IN served") == [("s.t", "changed", "DELTA_LAKE_TABLE")]
    assert run(served, "MERGE BRANCH dev INTO main IN served")[0][2] is True
    assert run(served, "SELECT * FROM served.s.t") == [(1, None)]
    run(served, "TRUNCATE TABLE served.s.t", "ALTER TABLE served.s.t RENAME TO served.s.u")
    assert ids(served, "served.s.u") == []
    run(served, "CALL served.system.restore('s.u', 'main~1')", "DROP TABLE served.s.u")
    assert lake.tables() == []
    assert {commit.author for commit in lake.log()} >= {served.sparkContext.sparkUser()}
    run(served, "BEGIN TRANSACTION IN served", "CREATE TABLE served.s.a (id BIGINT)")
    assert lake.tables() == []
    run(served, "COMMIT IN served")
    assert [str(table.key) for table in lake.tables()] == ["s.a"]
    run(served, "BEGIN TRANSACTION IN served", "DROP TABLE served.s.a")
    lake.table("s.a").append(rows(1))
    assert isinstance(refusal(served, "COMMIT IN served"), MergeConflict)
    assert run(served, "SHOW REFERENCE IN served")[0][:2] == ("branch", "main")
    assert lake.transactions() == []


@pytest.mark.verify
def test_rows_are_written_to_tables_of_files(lake: Lake, served: SparkSession) -> None:
    run(
        served,
        "CREATE TABLE served.s.a USING parquet AS SELECT id, 'mo' AS day FROM range(2)",
        "CREATE TABLE served.s.b (id BIGINT, day STRING) USING parquet PARTITIONED BY (day)",
        "INSERT INTO served.s.b SELECT id + 10, day FROM served.s.a",
        "INSERT INTO served.s.b VALUES (20, 'tu')",
    )
    assert lake_ids(lake, "s.b") == ids(served, "served.s.b") == [10, 11, 20]
    assert [table.path.split("/")[0] for table in lake.table("s.b").files.list()] == ["day=mo"] * 2 + [
        "day=tu"
    ]
    served.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    run(served, "INSERT OVERWRITE served.s.b SELECT 30, 'mo'")
    served.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(served, "served.s.b") == [20, 30]
    run(served, "INSERT OVERWRITE served.s.b SELECT 40, 'we'")
    assert ids(served, "served.s.b") == [40]
    with pytest.raises(Exception, match="already has files"):
        run(served, "CREATE TABLE served.s.a USING parquet AS SELECT 1 AS id")
    run(served, "CREATE TABLE IF NOT EXISTS served.s.a USING parquet AS SELECT 1 AS id")
    run(served, "BEGIN TRANSACTION IN served", "INSERT INTO served.s.a SELECT 7, 'su'", "ROLLBACK IN served")
    run(served, "BEGIN TRANSACTION IN served", "INSERT INTO served.s.a SELECT 8, 'su'", "COMMIT IN served")
    assert lake_ids(lake, "s.a") == [0, 1, 8]
    run(served, "TRUNCATE TABLE served.s.a")
    assert ids(served, "served.s.a") == []


def test_what_needs_python_is_refused_in_a_sentence(lake: Lake, served: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    for statement in (
        "DELETE FROM served.s.t WHERE id = 1",
        "UPDATE served.s.t SET id = 2",
        "MERGE INTO served.s.t t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
        "CREATE TABLE served.s.l USING lance AS SELECT 1 AS id",
        "INSERT WITH SCHEMA EVOLUTION INTO served.s.t BY NAME SELECT 2 AS id, 3 AS more",
        "SELECT * FROM table_changes('served.s.t', 0)",
    ):
        with pytest.raises(Exception, match="PySpark") as caught:
            run(served, statement)
        assert "\tat " not in str(caught.value)
    assert len(lake.log()) == 1


def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(lake: Lake, served: SparkSession) -> None:
    lake.table("sales.orders").write(rows(1))
    lake.branch("dev").create()
    lake.table("sales.late").write(rows(1))
    for statement in ("SELECT * FROM served.sales.ordres", "INSERT INTO served.sale.orders VALUES (1)"):
        assert "Did you mean 'sales.orders'?" in refusal(served, statement).message
    assert "It is there at 'main'" in refusal(served, "SELECT * FROM served.sales.`late@dev`").message
    assert "did you mean 'system.optimize'?" in refusal(served, "CALL served.system.optimise('x')").message


def test_a_token_of_the_catalog_says_who_asks(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "TOKENS_KEPT_S", 0)  # else a revoked one holds so much longer
    for key in ("s.t", "hidden.t"):
        lake.table(key).write(rows(1))
    with serving(lake.catalogue, gate=TokenGate(lake.catalogue)) as server:
        connect(spark, "nobody", server.url)
        assert isinstance(refusal(spark, "SHOW NAMESPACES IN nobody"), Unauthenticated)
        connect(spark, "reader", server.url, lake.create_token("reader", "read:*:s.*"))
        assert ids(spark, "reader.s.t") == [1]
        assert isinstance(refusal(spark, "SELECT * FROM reader.hidden.t"), PenstockError)
        assert isinstance(refusal(spark, "CREATE BRANCH dev IN reader"), Denied)
        assert isinstance(refusal(spark, "CREATE TABLE reader.s.new (id BIGINT)"), Denied)
        assert isinstance(refusal(spark, "INSERT INTO reader.s.t SELECT 2"), Denied)
        # Each statement is asked about, also after one that was allowed, and of what is cached.
        run(spark, "CACHE TABLE reader.s.t")
        (token,) = [token for token in lake.tokens() if token.name == "reader"]
        lake.revoke_token(token.id)
        assert isinstance(refusal(spark, "SELECT * FROM reader.s.t"), Unauthenticated)
        spark.catalog.clearCache()
    assert lake_ids(lake, "s.t") == [1]


def test_rows_are_written_to_delta_tables(lake: Lake, served: SparkSession) -> None:
    run(
        served,
        "CREATE TABLE served.s.t (id BIGINT NOT NULL, x DOUBLE, day STRING) PARTITIONED BY (day)",
        "INSERT INTO served.s.t VALUES (1, 1.5, 'mo'), (2, NULL, 'tu'), (3, 2, NULL)",
        "INSERT INTO served.s.t BY NAME SELECT 'we' AS day, 4 AS id, 0 AS x",
    )
    assert run(served, "SELECT * FROM lake.s.t ORDER BY id") == [
        (1, 1.5, "mo"), (2, None, "tu"), (3, 2.0, None), (4, 0.0, "we"),
    ]  # fmt: skip
    assert lake.table("s.t").snapshot().num_rows == 4
    (file,) = lake.table("s.t").snapshot().files("id = 4")
    assert '"maxValues":{"id":4' in (file.stats or "")
    run(served, "INSERT OVERWRITE served.s.t PARTITION (day = 'mo') SELECT 10, 1")
    assert ids(served, "served.s.t") == [2, 3, 4, 10]
    served.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    run(served, "INSERT OVERWRITE served.s.t SELECT 20, 1, 'tu'")
    served.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert ids(served, "served.s.t") == [3, 4, 10, 20]
    for rows_of_nothing in ("NULL, 1, 'mo'", "5, 1, '__HIVE_DEFAULT_PARTITION__'"):
        with pytest.raises(Exception, match=r"column '(id|day)'"):
            run(served, f"INSERT INTO served.s.t SELECT {rows_of_nothing}")
    run(served, "CREATE BRANCH dev IN served", "INSERT OVERWRITE served.s.`t@dev` SELECT 30, 1, 'th'")
    assert lake_ids(lake, "s.t", "dev") == [30]
    run(served, "BEGIN TRANSACTION IN served", "INSERT INTO served.s.t SELECT 40, 1, 'fr'")
    assert lake_ids(lake, "s.t") == [3, 4, 10, 20]
    run(served, "COMMIT IN served")
    assert lake_ids(lake, "s.t") == [3, 4, 10, 20, 40]
    assert lake.log(limit=1)[0].author == served.sparkContext.sparkUser()
    run(served, "CREATE TABLE served.s.c (id BIGINT) TBLPROPERTIES ('delta.constraints.c' = 'id > 0')")
    assert "constraints" in str(refusal(served, "INSERT INTO served.s.c VALUES (1)"))
    run(
        served,
        "CREATE TABLE served.s.n PARTITIONED BY (day) COMMENT 'copy' AS SELECT * FROM served.s.t",
        "CREATE TABLE IF NOT EXISTS served.s.n AS SELECT 1 AS id",
    )
    assert lake_ids(lake, "s.n") == lake_ids(lake, "s.t")
    assert lake.table("s.n").snapshot().partition_columns == ("day",)
    with pytest.raises(Exception, match="already exists"):
        run(served, "CREATE TABLE served.s.n AS SELECT 1 AS id")
    assert "PySpark" in str(refusal(served, "CREATE OR REPLACE TABLE served.s.n AS SELECT 1 AS id"))


def test_columns_that_change_while_rows_are_written_refuse_them(
    lake: Lake, served: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(served, "CREATE TABLE served.s.t (id BIGINT)")
    original = steps.WITHOUT_PYTHON["write"]

    def plan_and_alter(asked: Lake, request: CatalogRequest) -> object:
        plan = original(asked, request)
        lake.delta.set_properties("s.t", {"delta.appendOnly": "true"})
        return plan

    monkeypatch.setitem(steps.WITHOUT_PYTHON, "write", plan_and_alter)
    assert isinstance(refusal(served, "INSERT INTO served.s.t VALUES (1)"), TableConflict)
    assert lake_ids(lake, "s.t") == []
    monkeypatch.undo()
    run(served, "INSERT INTO served.s.t VALUES (1)")
    assert lake_ids(lake, "s.t") == [1]


@pytest.mark.skipif(find_catalog_class() != RELATION_CATALOG, reason="this Spark lets no catalog have views")
def test_views_are_made_and_read_with_the_rights_of_the_token(lake: Lake, spark: SparkSession) -> None:
    for key in ("s.t", "hidden.t"):
        lake.table(key).write(rows(1))
    with serving(lake.catalogue, gate=TokenGate(lake.catalogue)) as server:
        connect(spark, "writer", server.url, lake.create_token("writer", "write"))
        run(
            spark,
            "CREATE VIEW writer.s.v COMMENT 'c' AS SELECT id FROM writer.s.t",
            "CREATE VIEW writer.s.beyond AS SELECT id FROM writer.hidden.t",
            "USE writer.s",
            "CREATE VIEW short AS SELECT id FROM t",
            "USE spark_catalog.default",
            "CREATE BRANCH dev IN writer",
            "INSERT INTO writer.s.`t@dev` VALUES (2)",
        )
        assert ids(spark, "writer.s.v") == [1]
        assert ids(spark, "writer.s.`v@dev`") == ids(spark, "writer.s.v VERSION AS OF 'dev'") == [1, 2]
        # The right to read one branch is enough for a view there, whose tables are read at a commit.
        connect(spark, "reader", server.url, lake.create_token("reader", "read:dev:s.*"))
        assert ids(spark, "reader.s.`short@dev`") == [1, 2]
        assert isinstance(refusal(spark, "SELECT * FROM reader.s.short"), PenstockError)
        for statement in (
            "CREATE VIEW reader.s.`w@dev` AS SELECT 1 AS id",
            "ALTER VIEW reader.s.`short@dev` SET TBLPROPERTIES ('a' = '1')",
            "DROP VIEW reader.s.`short@dev`",
        ):
            assert isinstance(refusal(spark, statement), Denied), statement
        connect(spark, "below", server.url, lake.create_token("below", "read:*:s.*"))
        assert isinstance(refusal(spark, "SELECT * FROM below.hidden.t"), PenstockError)
        assert ids(spark, "below.s.short") == [1]
        assert run(spark, "SHOW VIEWS IN below.s") == [
            ("s", name, False) for name in ("beyond", "short", "v")
        ]


def test_a_commit_of_rows_whose_answer_is_lost_is_done_once(
    lake: Lake, served: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(served, "CREATE TABLE served.s.t (id BIGINT)")
    original, asked = steps.WITHOUT_PYTHON["commit_rows"], []

    def commit_and_fail(served_lake: Lake, request: CatalogRequest) -> object:
        answer = original(served_lake, request)
        asked.append(request)
        if len(asked) == 1:
            raise Unavailable("the answer is lost", part="storage")
        return answer

    monkeypatch.setitem(steps.WITHOUT_PYTHON, "commit_rows", commit_and_fail)
    run(served, "INSERT INTO served.s.t VALUES (1)")
    assert len(asked) == 2
    assert ids(served, "served.s.t") == [1]


def test_a_statement_whose_answer_is_lost_is_done_once(lake: Lake, spark: SparkSession) -> None:
    with serving(lake.catalogue) as server, Gateway(int(server.url.rpartition(":")[2])) as gateway:
        connect(spark, "far", f"http://127.0.0.1:{gateway.port}")
        for step, fault, statement in (
            ("create", lost, "CREATE TABLE far.s.t (id BIGINT)"),
            *(VIEW_FAULTS if find_catalog_class() == RELATION_CATALOG else ()),
            ("alter", cut_off, "ALTER TABLE far.s.t ADD COLUMN x INT"),
            ("call", lost, "CREATE BRANCH dev IN far"),
            ("drop", lost, "DROP TABLE far.s.`t@dev`"),
            ("maintain", cut_off, "CALL far.system.vacuum('s.t', dry_run => true)"),
            ("call", cut_off, "MERGE BRANCH dev INTO main IN far"),
            ("call", lost, "DROP BRANCH dev IN far"),
        ):
            with gateway.spoiling("POST", f"{PREFIX}/spark-catalog/{step}", fault):
                run(spark, statement)
            assert gateway.spoilt == 1, statement
    messages = [commit.message for commit in lake.log()]
    assert len(messages) == len({*messages}), messages
    assert [branch.name for branch in lake.branches()] == ["main"]
    assert lake.tables() == []


def test_a_jar_on_another_spark_says_so(spark: SparkSession) -> None:
    versions: Any = spark._jvm.io.penstock.spark.SparkVersion  # type: ignore[union-attr]
    for version in ("3.5.6", "4.0.1", "5.0.0", "?"):
        assert f"this is Spark {version}" in versions.problem(version)
    assert [versions.problem(version) for version in ("4.1.0", "4.3.0-SNAPSHOT", spark.version)] == [
        "",
        "",
        "",
    ]
