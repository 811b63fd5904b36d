"""Views in SQL: entries of a lake with branches and history, whose texts are read at their own commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import CommitConflict, InvalidRequest, MergeConflict
from penstock.lake.lake import Lake
from penstock.model.content import SqlView
from penstock.spark.settings import RELATION_CATALOG, TABLE_CATALOG, find_catalog_class
from tests.spark.sql_session import ids, refusal, run
from tests.spark.test_sql_programs import listed
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    find_catalog_class() != RELATION_CATALOG, reason="this Spark lets no catalog have views"
)


def condition(statement: Callable[[], Any]) -> str:
    """What Spark calls the error that a statement is refused with."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        statement()
    assert "\tat " not in str(caught.value)
    return caught.value.getCondition() or str(caught.value)


def refuse(spark: SparkSession, statement: str) -> str:
    return condition(lambda: run(spark, statement))


def test_a_view_is_created_described_listed_and_dropped(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1, 2, 3))
    run(
        spark,
        """
        CREATE VIEW lake.s.v (number COMMENT 'of the row', twice) COMMENT 'some rows'
        TBLPROPERTIES ('team' = 'sales') AS SELECT id, id * 2 AS n FROM lake.s.t WHERE id > 1
        """,
    )
    assert run(spark, "SELECT * FROM lake.s.v ORDER BY number") == [(2, 4), (3, 6)]
    lake.table("s.t").write(rows(4))
    assert ids(spark, "(SELECT number AS id FROM lake.s.v)") == [2, 3, 4]
    assert spark.table("lake.s.v").columns == ["number", "twice"]
    assert run(spark, "DESCRIBE lake.s.v") == [("number", "bigint", "of the row"), ("twice", "bigint", None)]
    described = {row[0]: row[1] for row in run(spark, "DESCRIBE EXTENDED lake.s.v")}
    assert described["Comment"] == "some rows"
    assert described["View Text"].startswith("SELECT id, id * 2 AS n")
    assert described["Properties"] == "[team=sales]"
    (shown,) = run(spark, "SHOW CREATE TABLE lake.s.v")
    assert shown[0].startswith("CREATE VIEW lake.s.v (")
    assert "location" not in str((described, shown))
    assert run(spark, "SHOW TBLPROPERTIES lake.s.v") == [("team", "sales")]
    assert run(spark, "SHOW VIEWS IN lake.s") == [("s", "v", False)]
    assert run(spark, "SHOW TABLES IN lake.s") == [("s", "t", False), ("s", "v", False)]
    assert run(spark, "SHOW COLUMNS IN lake.s.v") == [("number",), ("twice",)]
    spark.catalog.setCurrentCatalog("lake")
    assert listed(spark, "s") == ["t", "v"]
    assert spark.catalog.tableExists("lake.s.v")
    spark.catalog.setCurrentCatalog("spark_catalog")
    content = lake.at("main").get("s.v")
    assert isinstance(content, SqlView)
    assert (content.catalog, content.comment, content.properties) == (
        "spark_catalog",
        "some rows",
        {"team": "sales"},
    )
    run(spark, "CREATE VIEW IF NOT EXISTS lake.s.v AS SELECT 1 AS one")
    assert spark.table("lake.s.v").columns == ["number", "twice"]
    run(spark, "CREATE OR REPLACE VIEW lake.s.v AS SELECT 1 AS one")
    assert run(spark, "SELECT * FROM lake.s.v") == [(1,)]
    run(spark, "DROP VIEW lake.s.v", "DROP VIEW IF EXISTS lake.s.v")
    assert run(spark, "SHOW VIEWS IN lake.s") == []
    assert refuse(spark, "DROP VIEW lake.s.v") == "VIEW_NOT_FOUND"
    assert refuse(spark, "SELECT * FROM lake.s.v") == "TABLE_OR_VIEW_NOT_FOUND"
    assert [commit.message for commit in lake.log(limit=2)] == ["drop s.v", "CREATE OR REPLACE VIEW s.v"]
    assert lake.fsck().damages == ()


def test_a_view_is_altered_and_renamed(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1, 2))
    run(spark, "CREATE VIEW lake.s.v COMMENT 'c' TBLPROPERTIES ('a' = '1') AS SELECT id FROM lake.s.t")
    first = lake.at("main").get("s.v")
    assert isinstance(first, SqlView)
    run(
        spark,
        "ALTER VIEW lake.s.v SET TBLPROPERTIES ('b' = '2')",
        "ALTER VIEW lake.s.v UNSET TBLPROPERTIES ('a')",
        "ALTER VIEW lake.s.v AS SELECT id + 1 AS id FROM lake.s.t",
        "ALTER VIEW lake.s.v WITH SCHEMA EVOLUTION",
        "ALTER VIEW lake.s.v RENAME TO lake.other.w",
    )
    assert ids(spark, "lake.other.w") == [2, 3]
    content = lake.at("main").get("other.w")
    assert isinstance(content, SqlView)
    assert (content.id, content.comment, content.properties) == (first.id, "c", {"b": "2"})
    assert content.schema_mode == "EVOLUTION"
    assert refuse(spark, "ALTER VIEW lake.s.v AS SELECT 1 AS one") == "TABLE_OR_VIEW_NOT_FOUND"
    run(spark, "CREATE VIEW lake.s.x AS SELECT 1 AS one")
    assert "ALREADY_EXISTS" in refuse(spark, "ALTER VIEW lake.s.x RENAME TO lake.other.w")
    assert "ALREADY_EXISTS" in refuse(spark, "ALTER VIEW lake.s.x RENAME TO lake.s.t")


def test_a_name_is_a_table_or_a_view(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "CREATE VIEW lake.s.v AS SELECT 1 AS id")
    refused = {
        "CREATE VIEW lake.s.v AS SELECT 2 AS id": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "CREATE VIEW lake.s.t AS SELECT 2 AS id": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "CREATE OR REPLACE VIEW lake.s.t AS SELECT 2 AS id": "EXPECT_VIEW_NOT_TABLE.NO_ALTERNATIVE",
        "ALTER VIEW lake.s.t AS SELECT 2 AS id": "EXPECT_VIEW_NOT_TABLE.NO_ALTERNATIVE",
        "DROP VIEW lake.s.t": "WRONG_COMMAND_FOR_OBJECT_TYPE",
        "DROP TABLE lake.s.v": "WRONG_COMMAND_FOR_OBJECT_TYPE",
        "CREATE TABLE lake.s.v (id BIGINT)": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "ALTER TABLE lake.s.v ADD COLUMNS (x INT)": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "ALTER TABLE lake.s.t RENAME TO lake.s.v": "TABLE_OR_VIEW_ALREADY_EXISTS",
        "INSERT INTO lake.s.v VALUES (2)": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "DELETE FROM lake.s.v WHERE id = 1": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "UPDATE lake.s.v SET id = 2": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
        "TRUNCATE TABLE lake.s.v": "EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE",
    }
    assert {statement: refuse(spark, statement) for statement in refused} == refused
    for statement in (
        "CREATE TABLE lake.s.v AS SELECT 2 AS id",
        "CREATE OR REPLACE TABLE lake.s.v (id BIGINT)",
        "CREATE OR REPLACE TABLE lake.s.v AS SELECT 2 AS id",
        "REPLACE TABLE lake.s.v (id BIGINT)",
    ):
        assert refuse(spark, statement), statement
    run(
        spark,
        "CREATE TABLE IF NOT EXISTS lake.s.v (id BIGINT)",
        "CREATE VIEW IF NOT EXISTS lake.s.t AS SELECT 2",
    )
    assert ids(spark, "lake.s.v") == [1]
    assert ids(spark, "lake.s.t") == [1]


def test_a_view_is_of_the_branch_that_it_was_made_on(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(
        spark,
        "CREATE BRANCH dev IN lake",
        "USE REFERENCE dev IN lake",
        "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t",
        "INSERT INTO lake.s.t VALUES (2)",
    )
    assert ids(spark, "lake.s.v") == [1, 2]
    run(spark, "USE REFERENCE main IN lake")
    assert refuse(spark, "SELECT * FROM lake.s.v") == "TABLE_OR_VIEW_NOT_FOUND"
    assert run(spark, "SHOW VIEWS IN lake.s") == []
    assert ids(spark, "lake.s.`v@dev`") == [1, 2]
    assert run(spark, "SHOW DIFF main TO dev IN lake") == [
        ("s.t", "changed", "DELTA_LAKE_TABLE"),
        ("s.v", "added", "SQL_VIEW"),
    ]
    run(spark, "MERGE BRANCH dev IN lake")
    assert ids(spark, "lake.s.v") == [1, 2]
    run(spark, "CREATE OR REPLACE VIEW lake.s.`v@dev` AS SELECT id + 10 AS id FROM lake.s.t")
    assert ids(spark, "lake.s.v") == [1, 2]
    assert ids(spark, "lake.s.`v@dev`") == [11, 12]
    run(spark, "DROP VIEW lake.s.v")
    assert ids(spark, "lake.s.`v@dev`") == [11, 12]
    run(spark, "REVERT main IN lake")
    assert ids(spark, "lake.s.v") == [1, 2]


def test_a_view_is_transplanted_restored_and_in_conflict_as_a_table_is(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1, 2))
    run(spark, "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t", "CREATE BRANCH dev IN lake")
    run(spark, "CREATE OR REPLACE VIEW lake.s.`v@dev` AS SELECT id + 10 AS id FROM lake.s.t")
    dev, main = lake.branch("dev"), lake.branch("main")
    changed = str(dev.head)
    run(spark, "CREATE VIEW lake.s.`other@dev` AS SELECT id FROM lake.s.`v@dev`")
    lake.transplant(changed)
    assert ids(spark, "lake.s.v") == [11, 12]
    assert lake.at("main").get("s.other") is None
    # What came by a transplant is no change of this side when the branch is merged.
    run(spark, "MERGE BRANCH dev IN lake")
    assert ids(spark, "lake.s.other") == [11, 12]
    before = main.head
    run(spark, "ALTER VIEW lake.s.v AS SELECT id + 20 AS id FROM lake.s.t", "DROP VIEW lake.s.other")
    lake.restore("s.v", to=str(before))
    assert ids(spark, "lake.s.v") == [11, 12]
    assert lake.at("main").get("s.other") is None
    # Two branches that change one view differently.
    run(spark, "ALTER VIEW lake.s.v AS SELECT id + 30 AS id FROM lake.s.t")
    run(spark, "ALTER VIEW lake.s.`v@dev` AS SELECT id + 40 AS id FROM lake.s.t")
    with pytest.raises(MergeConflict, match=r"s\.v"):
        dev.merge_into("main")
    assert ids(spark, "lake.s.v") == [31, 32]


def test_what_a_view_reads_is_of_the_commit_of_the_view(lake: Lake, spark: SparkSession) -> None:
    """One name at several revisions, in one query and in every order: never the rows of another one."""
    lake.table("s.t").write(rows(1))
    run(
        spark,
        "USE lake.s",
        "CREATE VIEW below AS SELECT id FROM t WHERE EXISTS (SELECT 1 FROM s.t)",
        "CREATE VIEW v AS WITH w AS (SELECT id FROM below) SELECT w.id FROM w JOIN lake.s.t USING (id)",
        "CREATE TAG first",
    )
    time = lake.log("main", limit=1)[0].time.isoformat()
    run(spark, "CREATE BRANCH dev", "INSERT INTO `t@dev` VALUES (2)")
    run(spark, "INSERT INTO t VALUES (3)")
    names = {
        "v": [1, 3],
        "t": [1, 3],
        "`v@dev`": [1, 2],
        "`t@dev`": [1, 2],
        "v VERSION AS OF 'first'": [1],
        "v VERSION AS OF 'main~1'": [1],
        f"v TIMESTAMP AS OF '{time}'": [1],
        "`below@dev`": [1, 2],
        "below": [1, 3],
    }
    for _ in range(2):
        for name, expected in names.items():
            assert ids(spark, name) == expected, name
    for order in itertools.islice(itertools.permutations(names, 3), 0, None, 101):
        parts = " UNION ALL ".join(f"SELECT '{n}' AS n, id FROM {name}" for n, name in enumerate(order))
        found = sorted(run(spark, parts))
        assert found == [(str(n), i) for n, name in enumerate(order) for i in names[name]], order
    run(spark, "USE REFERENCE dev")
    assert ids(spark, "v") == ids(spark, "lake.s.v") == [1, 2]
    assert ids(spark, "`v@main`") == [1, 3]
    run(spark, "USE REFERENCE main")
    assert ids(spark, "v") == [1, 3]
    assert spark.read.option("versionAsOf", "first").table("v").count() == 1
    error = refusal(spark, "SELECT * FROM v VERSION AS OF 3")
    assert isinstance(error, InvalidRequest)
    assert "no versions of its own" in error.message
    assert refuse(spark, "SELECT * FROM absent VERSION AS OF 'first'") == "TABLE_OR_VIEW_NOT_FOUND"
    spark.catalog.setCurrentCatalog("spark_catalog")


def test_a_view_at_a_revision_is_refused_where_spark_drops_the_settings_of_views(
    lake: Lake, spark: SparkSession
) -> None:
    """Else it would read the tables of the session's reference."""
    from pyspark.errors import PySparkException

    lake.table("s.t").write(rows(1))
    run(spark, "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t", "CREATE TAG first IN lake")
    lake.table("s.t").write(rows(2))
    name = "spark.sql.legacy.useCurrentConfigsForView"
    spark.conf.set(name, "true")
    try:
        assert ids(spark, "lake.s.v") == [1, 2]
        for view in ("lake.s.`v@first`", "lake.s.v VERSION AS OF 'first'"):
            with pytest.raises(
                PySparkException, match=f"while the setting '{name}' is true: set it to false"
            ):
                run(spark, f"SELECT * FROM {view}")
    finally:
        spark.conf.unset(name)
    assert ids(spark, "lake.s.`v@first`") == [1]


def test_views_read_tables_of_every_format_other_views_and_other_catalogs(
    lake: Lake, spark: SparkSession
) -> None:
    run(
        spark,
        "CREATE TABLE lake.s.d AS SELECT 1L AS id",
        "CREATE TABLE lake.s.f USING parquet AS SELECT 2L AS id",
        "CREATE TABLE lake.s.l USING lance AS SELECT 3L AS id",
        "CREATE TABLE spark_catalog.default.views_other USING parquet AS SELECT 4L AS id",
    )
    try:
        names = ("lake.s.d", "lake.s.f", "lake.s.l", "spark_catalog.default.views_other")
        union = " UNION ALL ".join(f"SELECT id FROM {name}" for name in names)
        run(spark, f"CREATE VIEW lake.s.v AS {union}", "CREATE VIEW lake.s.w AS SELECT id FROM lake.s.v")
        assert ids(spark, "lake.s.w") == [1, 2, 3, 4]
        run(spark, "INSERT INTO lake.s.l VALUES (5)")
        assert ids(spark, "lake.s.w") == [1, 2, 3, 4, 5]
        assert ids(spark, "lake.s.w VERSION AS OF 'main~1'") == [1, 2, 3, 4]
        assert "RECURSIVE_VIEW" in refuse(spark, "CREATE OR REPLACE VIEW lake.s.v AS SELECT id FROM lake.s.w")
        run(spark, "CREATE TEMPORARY VIEW mine AS SELECT id FROM lake.s.w")
        assert ids(spark, "mine") == [1, 2, 3, 4, 5]
        assert "INVALID_TEMP_OBJ_REFERENCE" in refuse(spark, "CREATE VIEW lake.s.x AS SELECT id FROM mine")
        run(spark, "CREATE VIEW spark_catalog.default.views_kept AS SELECT id FROM lake.s.v")
        assert ids(spark, "spark_catalog.default.views_kept") == [1, 2, 3, 4, 5]
    finally:
        run(
            spark,
            "DROP VIEW IF EXISTS spark_catalog.default.views_kept",
            "DROP TABLE spark_catalog.default.views_other",
        )


def test_a_view_keeps_the_settings_and_the_namespace_that_it_was_made_with(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1))
    lake.table("other.t").write(rows(7))
    spark.conf.set("spark.sql.ansi.enabled", "false")
    run(spark, "USE lake.s", "CREATE VIEW v AS SELECT id, CAST('x' AS INT) AS n FROM t")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        run(spark, "USE lake.other")
        assert run(spark, "SELECT id, n FROM s.v") == [(1, None)]
        content = lake.at("main").get("s.v")
        assert isinstance(content, SqlView)
        assert (content.catalog, content.namespace) == ("", ("s",))
        assert content.settings["spark.sql.ansi.enabled"] == "false"
        spark.conf.set("spark.sql.catalog.again", find_catalog_class())
        assert run(spark, "SELECT id, n FROM again.s.v") == [(1, None)]  # whatever a session calls the lake
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.catalog.setCurrentCatalog("spark_catalog")


def test_a_transaction_holds_statements_about_views(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(
        spark,
        "BEGIN TRANSACTION IN lake",
        "INSERT INTO lake.s.t VALUES (2)",
        "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t",
    )
    assert ids(spark, "lake.s.v") == [1, 2]
    assert lake.at("main").get("s.v") is None
    run(spark, "ROLLBACK IN lake")
    assert refuse(spark, "SELECT * FROM lake.s.v") == "TABLE_OR_VIEW_NOT_FOUND"
    run(
        spark,
        "BEGIN TRANSACTION IN lake",
        "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t",
        "CREATE VIEW lake.s.w AS SELECT id FROM lake.s.v",
        "ALTER VIEW lake.s.w RENAME TO lake.s.x",
        "COMMIT IN lake",
        "BEGIN TRANSACTION IN lake",
        "DROP VIEW lake.s.x",
        "COMMIT IN lake",
    )
    assert run(spark, "SHOW VIEWS IN lake.s") == [("s", "v", False)]
    assert ids(spark, "lake.s.v") == [1]
    assert lake.transactions() == []


def test_two_sessions_that_change_a_view_are_in_conflict(lake: Lake, spark: SparkSession) -> None:
    other = spark.newSession()
    run(spark, "CREATE VIEW lake.s.v AS SELECT 1 AS id")
    run(spark, "BEGIN TRANSACTION IN lake", "CREATE OR REPLACE VIEW lake.s.v AS SELECT 2 AS id")
    run(other, "ALTER VIEW lake.s.v SET TBLPROPERTIES ('a' = '1')")
    assert isinstance(refusal(spark, "COMMIT IN lake"), CommitConflict)
    content = lake.at("main").get("s.v")
    assert isinstance(content, SqlView)
    assert content.properties == {"a": "1"}
    run(other, "CREATE BRANCH dev IN lake", "ALTER VIEW lake.s.`v@dev` AS SELECT 3 AS id")
    run(other, "ALTER VIEW lake.s.v AS SELECT 4 AS id")
    assert isinstance(refusal(spark, "MERGE BRANCH dev IN lake"), MergeConflict)
    assert ids(spark, "lake.s.v") == [4]


def test_a_statement_that_changes_a_part_of_a_view_loses_no_other_change(
    lake: Lake, spark: SparkSession
) -> None:
    """Spark reads the view when it analyses the statement, and hands over the whole view when it runs it."""
    run(spark, "CREATE VIEW lake.s.v AS SELECT 1 AS id")
    view = lake.at("main").get("s.v")
    assert isinstance(view, SqlView)
    frame = spark._jsparkSession.sessionState()
    for statement in (
        "ALTER VIEW lake.s.v SET TBLPROPERTIES ('a' = '1')",
        "ALTER VIEW lake.s.v AS SELECT 2 AS id",
    ):
        plan = frame.executePlan(frame.sqlParser().parsePlan(statement), _mode(spark, "SKIP"))
        plan.assertAnalyzed()
        changed = lake.at("main").get("s.v")
        assert isinstance(changed, SqlView)
        lake.branch("main").put("s.v", _with_comment(changed, statement))
        with pytest.raises(Exception, match=r"s\.v"):
            plan.executedPlan().executeCollect()
        after = lake.at("main").get("s.v")
        assert isinstance(after, SqlView)
        assert (after.comment, after.sql_text) == (statement, "SELECT 1 AS id")


def _mode(spark: SparkSession, name: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.execution.CommandExecutionMode.withName(name)


def _with_comment(view: SqlView, comment: str) -> SqlView:
    import msgspec

    return msgspec.structs.replace(view, comment=comment)


def test_rows_that_come_from_a_view_count_as_read(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1, 2))
    run(spark, "CREATE VIEW lake.s.v AS SELECT * FROM lake.s.t WHERE id < 10")
    frame = spark.table("lake.s.v")
    run(spark, "DELETE FROM lake.s.t WHERE id = 1")
    with pytest.raises(Exception, match=r"s\.t"):
        frame.write.mode("overwrite").insertInto("lake.s.t")
    assert ids(spark, "lake.s.t") == [2]
    run(spark, "INSERT OVERWRITE lake.s.t SELECT * FROM lake.s.v")
    assert ids(spark, "lake.s.t") == [2]


def test_a_cached_view_shows_no_other_branch(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t", "CREATE BRANCH dev IN lake")
    run(spark, "INSERT INTO lake.s.`t@dev` VALUES (2)", "CACHE TABLE lake.s.v")
    assert ids(spark, "lake.s.`v@dev`") == [1, 2]
    run(spark, "USE REFERENCE dev IN lake")
    assert ids(spark, "lake.s.v") == [1, 2]
    run(spark, "USE REFERENCE main IN lake", "INSERT INTO lake.s.t VALUES (3)")
    assert ids(spark, "lake.s.v") == [1, 3]
    run(spark, "UNCACHE TABLE lake.s.v")
    assert ids(spark, "lake.s.v") == [1, 3]


def test_a_catalog_with_tables_only_says_how_to_have_views(lake: Lake, spark: SparkSession) -> None:
    run(spark, "CREATE VIEW lake.s.v AS SELECT 1 AS id")
    spark.conf.set("spark.sql.catalog.plain", TABLE_CATALOG)
    for statement in (
        "CREATE VIEW plain.s.w AS SELECT 1 AS id",
        "ALTER VIEW plain.s.v AS SELECT 2 AS id",
        "DROP VIEW plain.s.v",
        "SELECT * FROM plain.s.v",
    ):
        assert RELATION_CATALOG in refuse(spark, statement), statement
    assert run(spark, "SHOW VIEWS IN plain.s", "SHOW TABLES IN plain.s") == []
    run(spark, "DROP VIEW IF EXISTS plain.s.v")
    assert ids(spark, "lake.s.v") == [1]


def test_what_a_lake_does_not_keep_of_views_is_refused(lake: Lake, spark: SparkSession) -> None:
    error = refusal(spark, "CREATE VIEW lake.s.v DEFAULT COLLATION UTF8_LCASE AS SELECT 'a' AS a")
    assert isinstance(error, InvalidRequest)
    assert "UTF8_LCASE" in error.message
    assert lake.log() == [] or lake.at("main").get("s.v") is None
