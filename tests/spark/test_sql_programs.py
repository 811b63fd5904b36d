"""What programs do with a lake's tables by name: formats of writers, functions of ``spark.catalog``, and
sessions whose default catalog is the lake's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from tests.spark.sql_session import ids, refusal, run
from tests.transactions.pipelines import ids as lake_ids
from tests.transactions.pipelines import rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

DELTA, FILES = "DELTA_LAKE_TABLE", "FILES_TABLE"


def words_of_refusal(work: Callable[[], object]) -> str:
    """What a call is refused with, which has no trace of Java's."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it says, the caller asks
        work()
    text = str(caught.value)
    assert "\tat " not in text
    return text


def listed(spark: SparkSession, *namespace: str) -> list[str]:
    """What ``spark.catalog.listTables`` tells. The Spark of the tests does not compile, and so cannot make
    its values."""
    from pyspark.sql import DataFrame

    tables = spark._jsparkSession.catalog().listTables(*namespace).toDF()
    return sorted(row.name for row in DataFrame(tables, spark).collect() if not row.isTemporary)


def test_a_table_that_is_written_to_has_the_format_that_the_program_names(
    lake: Lake, spark: SparkSession
) -> None:
    some = spark.range(2)
    some.writeTo("lake.s.named").using("parquet").create()
    some.writeTo("lake.s.unnamed").create()
    some.write.saveAsTable("lake.s.saved")
    some.writeTo("lake.s.named").using("parquet").createOrReplace()
    some.writeTo("lake.s.named").append()
    types = [lake.table(f"s.{name}").type for name in ("named", "unnamed", "saved")]
    assert types == [FILES, DELTA, DELTA]
    assert ids(spark, "lake.s.named") == [0, 0, 1, 1]


def test_delta_is_a_format_that_writers_may_name_without_its_jar(lake: Lake, spark: SparkSession) -> None:
    some = spark.range(2)
    some.selectExpr("id", "id % 2 AS part").write.format("delta").partitionBy("part").saveAsTable("lake.s.t")
    some.write.format("delta").mode("append").saveAsTable("lake.s.t")
    assert ids(spark, "lake.s.t") == [0, 0, 1, 1]
    assert lake.table("s.t").type == DELTA
    assert lake.table("s.t").snapshot().partition_columns == ("part",)
    some.write.format("delta").mode("overwrite").saveAsTable("lake.s.t")
    some.write.format("delta").insertInto("lake.s.t")
    assert ids(spark, "lake.s.t") == [0, 0, 1, 1]


def test_delta_without_a_table_of_a_lake_is_refused_in_a_sentence(spark: SparkSession) -> None:
    some = spark.range(2)
    for work in (
        lambda: some.write.format("delta").save("/nowhere"),
        lambda: spark.read.format("delta").load("/nowhere"),
        lambda: spark.readStream.format("delta").load("/nowhere"),
        lambda: some.write.format("delta").saveAsTable("elsewhere"),
    ):
        assert "delta" in words_of_refusal(work).lower()


@pytest.mark.parametrize(
    "using", ["", "USING parquet", pytest.param("USING lance", marks=pytest.mark.verify)]
)
def test_texts_with_lengths_are_refused_with_a_way_out(lake: Lake, spark: SparkSession, using: str) -> None:
    for columns in ("id BIGINT, c CHAR(3)", "c VARCHAR(3)", "a STRUCT<c: ARRAY<VARCHAR(3)>>"):
        error = refusal(spark, f"CREATE TABLE lake.s.t ({columns}) {using}")
        assert isinstance(error, InvalidRequest)
        assert "STRING" in error.message
    lake.table("s.t").write(rows(1))
    assert isinstance(refusal(spark, "ALTER TABLE lake.s.t ADD COLUMNS (c VARCHAR(3))"), InvalidRequest)
    length = "'delta.constraints.c_length' = 'length(c) <= 3'"
    run(spark, f"CREATE TABLE lake.s.checked (c STRING) TBLPROPERTIES ({length})")
    run(spark, "INSERT INTO lake.s.checked VALUES ('abc')")
    assert "c_length" in refusal(spark, "INSERT INTO lake.s.checked VALUES ('abcd')").message


def test_there_is_nothing_to_refresh(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    lake.table("s.files").write(rows(1), format="parquet")
    run(spark, "CACHE TABLE lake.s.t")
    lake.table("s.t").write(rows(2))
    for name in ("lake.s.t", "lake.s.files"):
        spark.catalog.refreshTable(name)
    assert ids(spark, "lake.s.t") == [1, 2]
    assert "TABLE_OR_VIEW_NOT_FOUND" in words_of_refusal(lambda: spark.catalog.refreshTable("lake.s.none"))
    run(spark, "UNCACHE TABLE lake.s.t")


def test_the_default_catalog_may_be_set_in_a_running_session(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "SELECT 1")
    spark.conf.set("spark.sql.defaultCatalog", "lake")
    run(
        spark,
        "CREATE TABLE s.made (id BIGINT)",
        "INSERT INTO s.made VALUES (1)",
        "CREATE TABLE root (id BIGINT)",
    )
    spark.range(2, 3).write.mode("append").saveAsTable("s.made")
    spark.range(1).write.saveAsTable("s.saved")
    spark.range(3, 4).write.mode("append").saveAsTable("root")
    spark.range(1).writeTo("s.written").create()
    assert ids(spark, "s.made") == [1, 2]
    assert spark.table("s.t").count() == 1
    assert lake.table("s.made").to_arrow().num_rows == 2
    names = ["made", "saved", "t", "written"]
    assert listed(spark, "s") == names
    assert spark.catalog.tableExists("s.made")
    spark.range(3).createOrReplaceTempView("v")
    assert run(spark, "SELECT count(*) FROM v JOIN s.made USING (id)") == [(2,)]
    run(spark, "USE s")
    run(spark, "CREATE BRANCH dev", "INSERT INTO `made@dev` VALUES (3)", "MERGE BRANCH dev")
    spark.range(4, 5).write.mode("append").saveAsTable("made")
    spark.range(1).write.saveAsTable("lake.s.whole")
    assert ids(spark, "made") == [1, 2, 3, 4]
    assert lake_ids(lake, "root") == [3]
    assert lake.table("s.whole").type == DELTA


def test_views_of_a_session_and_of_other_catalogs_read_a_lake(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    run(spark, "CREATE TEMPORARY VIEW mine AS SELECT * FROM lake.s.t")
    spark.table("lake.s.t").createOrReplaceTempView("then")
    run(spark, "CREATE VIEW spark_catalog.default.kept AS SELECT * FROM lake.s.t", "USE lake.s")
    try:
        assert run(spark, "SHOW VIEWS") == []
        lake.table("s.t").write(rows(2))
        assert ids(spark, "mine") == [1, 2]
        assert ids(spark, "then") == [1]
        assert ids(spark, "spark_catalog.default.kept") == [1, 2]
        run(spark, "DROP VIEW mine", "DROP VIEW IF EXISTS none")
    finally:
        run(spark, "USE spark_catalog.default", "DROP VIEW kept")
    assert len(lake.log()) == 2


def test_functions_that_are_not_there_are_missed_and_others_found(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    spark.catalog.setCurrentCatalog("lake")
    assert "UNRESOLVED_ROUTINE" in words_of_refusal(lambda: run(spark, "SELECT absent(1)"))
    assert run(spark, "SELECT upper('a')", "SHOW FUNCTIONS IN lake.s LIKE 'upper'") == [("upper",)]
    assert not spark.catalog.functionExists("s.absent")


def test_a_statement_with_several_inserts_is_refused_before_it_writes(
    lake: Lake, spark: SparkSession
) -> None:
    lake.table("s.t").write(rows(1))
    several = "FROM lake.s.t INSERT INTO lake.s.t SELECT * INSERT INTO lake.s.t SELECT *"
    assert "BEGIN TRANSACTION" in words_of_refusal(lambda: run(spark, several))
    assert lake_ids(lake, "s.t") == [1]


def test_a_statement_is_explained_by_its_table(lake: Lake, spark: SparkSession) -> None:
    lake.table("s.t").write(rows(1))
    for statement in (
        "INSERT INTO lake.s.t SELECT 2",
        "DELETE FROM lake.s.t",
        "CREATE TABLE lake.s.t AS SELECT 1",
    ):
        ((text,),) = run(spark, f"EXPLAIN {statement}")
        assert "lake.s.t, " in text
        assert "$" not in text
    merge = "MERGE INTO lake.s.t t USING lake.s.u s ON t.id = s.id WHEN MATCHED THEN DELETE"
    lake.table("s.u").write(rows(1))
    for statement, shown in (
        (
            "INSERT INTO lake.s.t SELECT id FROM lake.s.u WHERE id > 1",
            "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]",
        ),
        ("DELETE FROM lake.s.t WHERE id > 1", "condition=(id > "),
        (merge, "on=(target.id = source.id), source=\n"),
    ):
        ((text,),) = run(spark, f"EXPLAIN {statement}")
        assert shown in text
    assert lake_ids(lake, "s.t") == [1]


def test_tables_in_no_namespace_are_listed(lake: Lake, spark: SparkSession) -> None:
    lake.table("t").write(rows(1))
    lake.table("s.u").write(rows(1))
    spark.catalog.setCurrentCatalog("lake")
    assert listed(spark) == ["t"]
    spark.catalog.setCurrentDatabase("s")
    assert listed(spark) == ["u"]
