"""Every format that Spark writes becomes files of a table, read back as they were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark import read, write
from tests.spark.files.cases import about, entries, head, ids, in_pool, jobs, paths, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = Path(__file__).parents[3] / "build" / "interop" / "avro"
FORMATS = ["parquet", "orc", "csv", "json"]


@pytest.mark.parametrize("name", FORMATS)
def test_rows_come_back_from_the_files_of_a_table(spark: SparkSession, lake: Lake, name: str) -> None:
    data = spark.createDataFrame([(1, "a"), (2, None), (3, "ü,\"'")], "id long, name string").coalesce(1)
    done = write(data, "raw.events", format=name, options={"header": "true"} if name == "csv" else None)
    assert done is not None
    (file,) = entries(lake, "raw.events")
    assert file.path.endswith(f".{name}")
    assert file.size == Path(file.address).stat().st_size
    known = about(lake, "raw.events")
    assert (known.layout.format, known.files, known.size) == (name, 1, file.size)
    assert known.layout.schema == data.schema.json()
    found = spark.read.schema(data.schema).options(**known.layout.options).format(name).load(file.address)
    assert sorted(found.collect()) == sorted(data.collect())


def test_text_has_one_column_and_partitions(spark: SparkSession, lake: Lake) -> None:
    data = spark.createDataFrame([("one", 1), ("two", 2)], "value string, p int").coalesce(1)
    write(data, "raw.lines", format="text", partition_by="p")
    found = {one.path.partition("/")[0]: Path(one.address).read_text() for one in entries(lake, "raw.lines")}
    assert found == {"p=1": "one\n", "p=2": "two\n"}


def test_avro_is_written_where_spark_has_its_jar(spark: SparkSession, lake: Lake) -> None:
    jars = [*AVRO.glob("spark-avro_*.jar")]
    if not jars:
        pytest.skip("there is no spark-avro in build/interop/avro; `make interop` brings it")
    spark.sql(f"ADD JAR '{jars[0]}'")
    data = spark.createDataFrame([(1, "a"), (2, None)], "id long, name string").coalesce(1)
    write(data, "raw.events", format="avro")
    (file,) = entries(lake, "raw.events")
    assert file.path.endswith(".avro")
    assert sorted(spark.read.format("avro").load(file.address).collect()) == sorted(data.collect())


def test_avro_needs_a_jar_and_says_so(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot write files of the format 'avro'\n.*spark-avro"):
        write(rows(spark, 0), "raw.events", format="avro")
    assert not lake.table("raw.events").exists


def test_a_format_has_one_name_however_it_is_spelled(spark: SparkSession, lake: Lake) -> None:
    write(rows(spark, 0), "raw.events", format="Parquet")
    write(rows(spark, 0), "raw.events", format="PARQUET")
    assert (about(lake, "raw.events").layout.format, about(lake, "raw.events").files) == ("parquet", 2)
    write(rows(spark, 0), "sales.orders", format="Delta")
    assert lake.table("sales.orders").version == 0
    with pytest.raises(InvalidRequest, match="'format' must be the name of a format"):
        write(rows(spark, 0), "raw.events", format=" ")


@pytest.mark.parametrize("name", ["nowhere", "noop"])
def test_what_writes_no_files_is_no_format(spark: SparkSession, lake: Lake, name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{name}'"):
        write(rows(spark, 0), "raw.events", format=name)
    assert [one.state for one in jobs(lake)] == ["aborted"]


def test_readers_are_told_of_the_options_they_need_and_of_no_others(spark: SparkSession, lake: Lake) -> None:
    options = {"sep": ";", "header": True, "nullValue": "-", "compression": "gzip", "maxRecordsPerFile": 100}
    write(rows(spark, 0), "raw.events", format="csv", options=options)
    assert about(lake, "raw.events").layout.options == {"sep": ";", "header": "true", "nullValue": "-"}
    assert paths(lake, "raw.events")[0].endswith(".csv.gz")


def test_property_18_all_files_of_nested_partitions_and_split_files_are_there_and_no_others(
    spark: SparkSession, lake: Lake
) -> None:
    data = spark.range(24).selectExpr("id", "id % 2 as a", "id % 3 as b").repartition(2)
    options = {"maxRecordsPerFile": "1"}
    done = write(data, "raw.events", format="json", partition_by=["a", "b"], options=options)
    found = entries(lake, "raw.events")
    assert len(found) == 24
    assert {one.path.rpartition("/")[0] for one in found} == {
        f"a={a}/b={b}" for a in (0, 1) for b in (0, 1, 2)
    }
    assert sorted(json.loads(Path(one.address).read_text())["id"] for one in found) == list(range(24))
    assert {one.address for one in found} == in_pool(lake)
    assert done is not None
    assert done.commit is not None
    told = done.commit.properties
    assert (told["files"], told["rows"], told["partitions"]) == (("24",), ("24",), ("6",))
    assert told["bytes"] == (str(sum(one.size for one in found)),)  # property 55


def test_property_54_partitions_have_the_names_that_spark_gives_them(spark: SparkSession, lake: Lake) -> None:
    values = ["a b", "50%", "x=y", "ü/..", "", None, "_hidden", ".dot", "tail "]
    data = spark.createDataFrame([(n, value) for n, value in enumerate(values)], "id long, _p string")
    write(data.coalesce(1), "raw.odd", format="json", partition_by="_p")
    found = {one.path.rpartition("/")[0]: Path(one.address).read_text() for one in entries(lake, "raw.odd")}
    assert {folder: [json.loads(line)["id"] for line in text.split()] for folder, text in found.items()} == {
        "_p=a b": [0],
        "_p=50%25": [1],
        "_p=x%3Dy": [2],
        "_p=ü%2F..": [3],
        "_p=__HIVE_DEFAULT_PARTITION__": [4, 5],
        "_p=_hidden": [6],
        "_p=.dot": [7],
        "_p=tail ": [8],
    }


def test_the_marker_comes_with_the_files_and_lists_exactly_these(spark: SparkSession, lake: Lake) -> None:
    """Property 4."""
    done = write(
        rows(spark, 0, parts=(1, 2)), "raw.events", format="parquet", partition_by="p", success_file=True
    )
    assert done is not None
    assert done.commit is not None
    marker, *files = entries(lake, "raw.events")
    assert marker.path == "_SUCCESS"
    told = json.loads(Path(marker.address).read_text())
    assert told["files"] == [{"path": one.path, "size": one.size} for one in files]
    assert told["job"] == done.commit.properties["penstock.job"][0]
    assert (told["mode"], told["rows"], told["application"]) == (
        "append",
        6,
        spark.sparkContext.applicationId,
    )
    assert told["began"] < told["ended"]
    write(rows(spark, 5), "raw.events", format="parquet", mode="overwrite", partition_by=())
    assert "_SUCCESS" not in paths(lake, "raw.events")


def test_the_history_tells_what_ran(spark: SparkSession, lake: Lake) -> None:
    data = rows(spark, 0, parts=(1, 2))
    write(data, "raw.events", format="parquet", partition_by="p")
    done = write(
        rows(spark, 0, parts=(2,)),
        "raw.events",
        format="parquet",
        mode="overwrite",
        partition_overwrite="dynamic",
    )
    assert done is not None
    (commit, first) = lake.log(table="raw.events")
    assert done.commit == commit
    assert commit.message == "overwrite 1 partition of raw.events with 1 file"
    assert first.message == "append 2 files to raw.events"
    assert commit.properties | {"bytes": (), "penstock.job": ()} == {
        "spark.application": (spark.sparkContext.applicationId,),
        "spark.application.name": (spark.sparkContext.appName,),
        "penstock.job": (),
        "mode": ("overwrite",),
        "partition_overwrite": ("dynamic",),
        "format": ("parquet",),
        "partitions": ("1",),
        "partition": ("p=2",),
        "files": ("1",),
        "bytes": (),
        "rows": ("3",),
    }
    said = write(
        rows(spark, 0),
        "raw.other",
        format="parquet",
        message="by hand",
        author="Ann",
        properties={"ticket": "7"},
    )
    assert said is not None
    assert said.commit is not None
    assert (said.commit.message, said.commit.authors) == ("by hand", ("Ann",))
    assert (said.commit.properties["ticket"], said.commit.properties["rows"]) == (("7",), ("3",))


def test_the_history_tells_which_tables_at_which_commits_were_read(spark: SparkSession, lake: Lake) -> None:
    write(rows(spark, 0), "sales.orders")
    write(rows(spark, 0), "raw.events", format="json")
    commit = head(lake)
    both = read(spark, "sales.orders").join(read(spark, "raw.events"), "id")
    lake.table("raw.other").files.put("later", b"1")
    done = write(both, "raw.joined", format="parquet")
    assert done is not None
    assert done.commit is not None
    assert sorted(done.commit.properties["read"]) == [f"raw.events@{commit}", f"sales.orders@{commit}"]
    assert ids(lake, "raw.joined") == [0, 1, 2]
