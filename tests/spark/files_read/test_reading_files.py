"""Reading tables of files: any format, at any commit, exactly the files that are there."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.calls import CopiedFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.spark.reader import read, view
from penstock.spark.scan.origins import list_origins
from tests.spark.files_read.file_tables import keep, put
from tests.spark.reading_tables import ENGINES, in_each_engine, shown, using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY = "raw.events"


def events(spark: SparkSession) -> DataFrame:
    """Rows whose partition column is not the last one."""
    return spark.createDataFrame(
        [(1, datetime.date(2026, 11, 13), "a"), (2, datetime.date(2026, 11, 14), "b"), (3, None, None)],
        "id LONG, day DATE, name STRING",
    )


def written(rows: DataFrame, directory: Path, kind: str, *partition_by: str, **options: str) -> Path:
    """A directory as Spark itself writes it."""
    rows.coalesce(1).write.format(kind).options(**options).partitionBy(*partition_by).save(str(directory))
    return directory


def files_read(rows: Any) -> int:
    """How many files were read for rows that were collected."""
    leaf = rows._jdf.queryExecution().executedPlan().collectLeaves().head()
    return int(leaf.metrics().apply("numFiles").value())


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("parquet", "jar"),
        pytest.param("orc", "jar", marks=pytest.mark.verify),
        ("csv", "jar"),
        pytest.param("json", "jar", marks=pytest.mark.verify),
        pytest.param("csv", "fallback", marks=pytest.mark.verify),
    ],
)
def test_rows_come_back_as_they_were_written(
    spark: SparkSession, lake: Lake, tmp_path: Path, kind: str, engine: str
) -> None:
    rows, options = events(spark), {"header": "true"} if kind == "csv" else {}
    directory = written(rows, tmp_path / "d", kind, "day", **options)
    assert (directory / "_SUCCESS").is_file()
    layout = TableLayout(format=kind, schema=rows.schema.json(), partition_by=("day",), options=options)
    keep(lake, directory, layout=layout)
    found = read(using(spark, engine), KEY)
    assert (found.schema, shown(found)) == (rows.schema, shown(rows))
    assert shown(read(spark, KEY, where="day = DATE '2026-11-14'", columns=["NAME", "id"])) == [("b", 2)]


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("parquet", "jar"),
        pytest.param("orc", "jar", marks=pytest.mark.verify),
        ("csv", "jar"),
        pytest.param("json", "jar", marks=pytest.mark.verify),
        pytest.param("text", "jar", marks=pytest.mark.verify),
        pytest.param("json", "fallback", marks=pytest.mark.verify),
    ],
)
def test_without_a_known_schema_spark_looks_into_the_files_as_into_a_directory(
    spark: SparkSession, lake: Lake, tmp_path: Path, kind: str, engine: str
) -> None:
    rows = events(spark).select("name", "day") if kind == "text" else events(spark)
    directory = written(rows, tmp_path / "d", kind, "day")
    keep(lake, directory)
    expected = spark.read.format(kind).load(str(directory))
    found = read(using(spark, engine), KEY, format=kind)
    assert (found.schema, shown(found)) == (expected.schema, shown(expected))


def test_a_dataframe_stays_at_its_commit_whatever_comes_later(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    layout = TableLayout(format="text", schema=spark.createDataFrame([], "value STRING").schema.json())
    keep(lake, put(tmp_path / "1", {"x.txt": "one\n"}), layout=layout)
    first = lake.resolve("main")
    lake.tag("v1").create(at=first)
    lake.branch("dev").create()
    before = read(spark, KEY)
    keep(lake, put(tmp_path / "2", {"y.txt": "two\n"}), replaced=("",))
    keep(lake, put(tmp_path / "3", {"z.txt": "three\n"}), branch="dev")
    assert shown(before) == [("one",)]
    assert shown(read(spark, KEY)) == [("two",)]
    assert shown(read(spark, KEY, ref="dev")) == [("one",), ("three",)]
    for ref in ("v1", first, "main~1"):
        assert shown(read(spark, KEY, ref=ref)) == [("one",)]


def test_partitions_and_columns_that_are_not_asked_for_are_not_read(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    rows = spark.range(8).selectExpr("id", "id % 4 AS part", "id * 2 AS other")
    keep(lake, written(rows, tmp_path / "d", "parquet", "part"))
    found = read(spark, KEY, format="parquet")
    assert (len(found.collect()), files_read(found)) == (8, 4)
    chosen = found.where("part = 3 and id > 4").select("id")
    assert (shown(chosen), files_read(chosen)) == ([(7,)], 1)
    plan = str(chosen._jdf.queryExecution().toString())
    assert "ReadSchema: struct<id:bigint>" in plan
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,4)]" in plan


def test_a_folder_reads_a_part_and_keeps_its_partition_columns(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    keep(lake, put(tmp_path / "d", {"day=1/x": "a\n", "day=10/x": "b\n", "other/y": "c\n"}))
    for folder in ("day=1", "day=1/"):
        assert shown(read(spark, KEY, format="text", folder=folder)) == [("a", 1)]
    with pytest.raises(InvalidRequest, match="'day=1/x' and 'other/y' are in folders of different"):
        read(spark, KEY, format="text")


def test_folders_without_values_are_gone_into_and_hidden_ones_are_not(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    files = {"a/x": "a\n", "b/c/x": "b\n", "x": "c\n", "_SUCCESS": "no\n", "_tmp/x": "no\n", ".y": "no\n"}
    keep(lake, put(tmp_path / "d", {**files, "empty": ""}))
    assert shown(read(spark, KEY, format="text")) == [("a",), ("b",), ("c",)]


@in_each_engine
def test_a_session_that_hides_more_names_loses_no_rows(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    keep(lake, put(tmp_path / "d", {"n=1/x": "a\n", "n=2/y": "b\n", "_SUCCESS": "no\n"}))
    lake.create_table("delta", data=pa.table({"id": [1]}))
    spark.conf.set("spark.sql.files.ignoredPathSegmentRegex", "^(x|part|.*parquet)")
    try:
        assert shown(read(using(spark, engine), KEY, format="text")) == [("a", 1), ("b", 2)]
        assert shown(read(spark, "delta")) == [(1,)]
    finally:
        spark.conf.unset("spark.sql.files.ignoredPathSegmentRegex")


@in_each_engine
@pytest.mark.parametrize("folder", ["", "kind=all/"], ids=["plain", "partitioned"])
def test_any_characters_may_be_in_paths(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, folder: str
) -> None:
    names = ["a b", "50%", "%41", "a=b", "ü-日本", "a#b", "a?b", "a+b", "[x]{y}*", "a&b;c,d'e\"f", "~"]
    keep(lake, put(tmp_path / "d", {f"{folder}{name}.txt": f"{name}\n" for name in names}))
    found = read(using(spark, engine), KEY, format="text", schema="value STRING").select("value")
    assert sorted(row[0] for row in found.collect()) == sorted(names)


@in_each_engine
@pytest.mark.parametrize("folder", ["", "n={}/"], ids=["plain", "partitioned"])
def test_a_file_at_two_paths_is_read_twice(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str, folder: str
) -> None:
    first, second, third = (folder.format(at) + f"x{at}" for at in range(3))
    keep(lake, put(tmp_path / "d", {first: "a\n"}))
    copies = tuple(CopiedFile(path=path, source=first) for path in (second, third))
    lake.do(WriteFiles(key=Key.parse(KEY), copied=copies))
    expected = [("a", at) for at in range(3)] if folder else [("a",)] * 3
    assert shown(read(using(spark, engine), KEY, format="text")) == expected


def test_a_file_that_lies_under_a_name_that_spark_passes_over_is_refused(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    keep(lake, put(tmp_path / "d", {"x": "a\n"}), names={"x": "_x"})
    with pytest.raises(InvalidRequest, match=r"is stored as (.|\n)*write it again under its path"):
        read(spark, KEY, format="text")
    lake.table(KEY).files.write({"x": lake.table(KEY).files.read("x")})
    assert shown(read(spark, KEY, format="text")) == [("a",)]


@in_each_engine
def test_a_column_that_is_in_the_files_too_has_the_values_of_the_folders(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    rows = spark.createDataFrame([(1, 2, 3)], "a LONG, b LONG, c LONG")
    directory = tmp_path / "d"
    written(rows, directory / "B=7", "parquet")
    keep(lake, directory)
    expected = spark.read.parquet(str(directory))
    found = read(using(spark, engine), KEY, format="parquet")
    assert (found.schema, shown(found)) == (expected.schema, [(1, 7, 3)])


def test_an_empty_table_has_the_columns_of_its_last_job(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    rows = events(spark)
    layout = TableLayout(format="parquet", schema=rows.schema.json(), partition_by=("day",))
    keep(lake, written(rows, tmp_path / "d", "parquet", "day"), layout=layout)
    lake.do(WriteFiles(key=Key.parse(KEY), replaced=("",)))
    for engine in ENGINES:
        found = read(using(spark, engine), KEY)
        assert (found.schema, shown(found)) == (rows.schema, [])
    with pytest.raises(InvalidRequest, match="give them as 'schema'"):
        read(spark, KEY, format="json")


def test_what_the_last_job_said_can_be_said_otherwise(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    schema = spark.createDataFrame([], "a LONG, b LONG").schema.json()
    layout = TableLayout(format="csv", schema=schema, options={"SEP": ";", "header": "true", "path": "/no"})
    keep(lake, put(tmp_path / "d", {"x.csv": "a;b\n1;2\n"}), layout=layout)
    assert shown(read(spark, KEY)) == [(1, 2)]
    assert shown(read(spark, KEY, options={"header": False, "sep": ","}, schema="a STRING")) == [
        ("1;2",),
        ("a;b",),
    ]
    assert shown(read(spark, KEY, format="text")) == [("1;2",), ("a;b",)]
    assert shown(read(spark, KEY, options={"inferSchema": True}).selectExpr("typeof(a)")) == [("int",)]
    with pytest.raises(InvalidRequest, match="pathGlobFilter cannot be used"):
        read(spark, KEY, options={"pathGlobFilter": "*.csv"})


def test_columns_of_older_files_are_found_by_looking(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    older, newer = spark.createDataFrame([(1, 2)], "a LONG, b LONG"), spark.createDataFrame([(3,)], "a LONG")
    keep(lake, written(older, tmp_path / "1", "parquet"))
    layout = TableLayout(format="parquet", schema=newer.schema.json())
    (tmp_path / "1" / "_SUCCESS").unlink()
    directory = written(newer, tmp_path / "2", "parquet")
    (directory / "_SUCCESS").unlink()
    keep(lake, directory, layout=layout)
    assert shown(read(spark, KEY)) == [(1,), (3,)]
    assert shown(read(spark, KEY, options={"mergeSchema": True})) == [(1, 2), (3, None)]


@in_each_engine
def test_what_cannot_be_read_is_told_in_a_word(
    spark: SparkSession, lake: Lake, tmp_path: Path, engine: str
) -> None:
    keep(lake, put(tmp_path / "d", {"x": "a\n"}))
    using(spark, engine)
    with pytest.raises(InvalidRequest, match="the format of the files of"):
        read(spark, KEY)
    with pytest.raises(InvalidRequest, match="cannot be read as nonsense"):
        read(spark, KEY, format="nonsense")
    with pytest.raises(InvalidRequest, match="cannot read the schema 'a b c'"):
        read(spark, KEY, format="csv", schema="a b c")
    with pytest.raises(InvalidRequest, match="no versions of its own"):
        read(spark, KEY, format="text", version=1)
    with pytest.raises(InvalidRequest, match="no versions of its own"):
        read(spark, KEY, timestamp="2026-11-14")
    with pytest.raises(KeyNotFound):
        read(spark, "raw.nothing", format="text")
    lake.create_table("delta", data=pa.table({"id": [1]}))
    with pytest.raises(InvalidRequest, match="'delta' is a Delta table, not a table of files"):
        read(spark, "delta", format="parquet")


def test_views_show_tables_of_both_kinds_at_one_commit(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    layout = TableLayout(format="json", schema=spark.createDataFrame([], "id LONG").schema.json())
    keep(lake, put(tmp_path / "1", {"x.json": '{"id": 1}\n'}), layout=layout)
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
    commit = view(spark, KEY, "sales.orders")
    assert commit == lake.resolve("main")
    keep(lake, put(tmp_path / "2", {"y.json": '{"id": 2}\n'}))
    assert shown(spark.sql("SELECT id FROM events JOIN orders USING (id)")) == [(1,)]


def test_what_a_dataframe_reads_can_be_told(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    keep(lake, put(tmp_path / "1", {"x": "1\n"}))
    before = lake.resolve("main")
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
    after = lake.resolve("main")
    rows = read(spark, KEY, ref=before, format="text")
    view(spark, "sales.orders")
    rows.createOrReplaceTempView("events")
    assert list_origins(rows.where("value = '1'").union(rows)) == [f"{KEY}@{before}"]
    both = spark.sql("SELECT value FROM events WHERE value IN (SELECT CAST(id AS STRING) FROM orders)")
    assert sorted(list_origins(both)) == [f"{KEY}@{before}", f"sales.orders@{after}"]
    assert list_origins(spark.range(1)) == []
    assert list_origins(read(using(spark, "fallback"), KEY, format="text")) == []


def test_a_table_that_the_lake_only_points_at_is_not_read(spark: SparkSession, lake: Lake) -> None:
    lake.commit([Put(Key.parse("elsewhere"), FilesTable(location=f"{lake.warehouse}/x"))])
    with pytest.raises(NotManaged):
        read(spark, "elsewhere")
