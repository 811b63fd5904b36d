"""Arguments of another kind than they should be: what is told, and that nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidKey, InvalidRequest, NotManaged
from penstock.lake.lake import Lake
from penstock.spark import changes, delete, merge, read, sink, update, view, write
from penstock.spark.arguments import check_session
from tests.spark.writing_cases import seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_arguments_in_the_wrong_order_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match=r"must be a Spark DataFrame, got 'demo\.rows'"):
        write("demo.rows", spark.range(1))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"must be a Spark session, .* got 'demo\.rows'"):
        read("demo.rows", spark)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"a Spark session, as penstock\.spark\.session\(lake\)"):
        view("demo.rows")  # type: ignore[arg-type]


def test_a_lake_is_given_as_a_lake_and_an_address_is_not_shown(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match=r"'lake' .* penstock\.open\('\./lake'\)") as refused:
        read(spark, "demo.rows", lake="postgresql://ada:secret@db/lake")  # type: ignore[arg-type]
    assert "secret" not in refused.value.message


class _Context:
    _jsc = None


def test_a_session_that_was_stopped_is_told_apart(spark: SparkSession) -> None:
    from pyspark.sql import SparkSession

    stopped = SparkSession.__new__(SparkSession)
    stopped._sc = _Context()  # type: ignore[assignment] # as stop() leaves it
    with pytest.raises(InvalidRequest, match=r"was stopped; create a new one by penstock\.spark\.session"):
        read(stopped, "demo.rows")
    check_session(spark)


def test_reads_and_changes_check_what_they_are_given(spark: SparkSession, lake: Lake) -> None:
    lake.delta.create("demo.rows", data=pa.table({"id": [1]}))
    wrong: Mapping[str, Callable[[], object]] = {
        "'version'": lambda: read(spark, "demo.rows", version="0"),  # type: ignore[arg-type]
        "'from_version'": lambda: changes(spark, "demo.rows", from_version="x"),  # type: ignore[arg-type]
        "'to_version'": lambda: changes(spark, "demo.rows", 0, to_version="x"),  # type: ignore[arg-type]
        "'set' .* such as {'amount'": lambda: update(spark, "demo.rows", ["id"]),  # type: ignore[arg-type]
    }
    for told, call in wrong.items():
        with pytest.raises(InvalidRequest, match=told):
            call()
    assert seen(lake, "demo.rows") == [{"id": 1}]


def test_arguments_that_there_are_not_are_refused_by_name(spark: SparkSession, lake: Lake) -> None:
    lake.delta.create("demo.rows", data=pa.table({"id": [1]}))
    wrong: Mapping[str, Callable[[], object]] = {
        "a write has no argument 'partitionby'; the arguments are .*partition_by": lambda: write(
            spark.range(1),
            "demo.rows",
            partitionby="id",  # type: ignore[call-arg]
        ),
        "a read has no argument 'fold'; the arguments are folder": lambda: read(
            spark,
            "demo.rows",
            fold="x",  # type: ignore[call-arg]
        ),
        "a stream into a table has no argument 'job_id'": lambda: sink(
            "demo.rows",
            job_id="x",  # type: ignore[call-arg]
        ),
    }
    for told, call in wrong.items():
        with pytest.raises(InvalidRequest, match=told):
            call()
    assert seen(lake, "demo.rows") == [{"id": 1}]


def test_what_spark_cannot_do_with_a_table_is_refused_by_the_name_of_its_format(
    spark: SparkSession, lake: Lake
) -> None:
    write(spark.range(1), "demo.files", format="parquet")
    source = spark.range(1)
    wrong: Mapping[str, Callable[[], object]] = {
        "cannot delete rows of": lambda: delete(spark, "demo.files", "id = 0"),
        "cannot update rows of": lambda: update(spark, "demo.files", {"id": 1}),
        "cannot merge rows into": lambda: (
            merge(source, "demo.files", "target.id = source.id").when_matched_delete().commit()
        ),
        "cannot read the changes of": lambda: changes(spark, "demo.files", 0),
    }
    for told, call in wrong.items():
        with pytest.raises(NotManaged, match=rf"'demo\.files' is a table of files, so Spark {told} it"):
            call()
    assert read(spark, "demo.files").count() == 1


@pytest.mark.parametrize("key", ["s3://bucket/x", "/data/x/y", "data\\x", "`sales`.`orders`"])
def test_no_table_is_created_by_a_path_or_a_quoted_name(spark: SparkSession, lake: Lake, key: str) -> None:
    with pytest.raises(InvalidKey, match=r"cannot be the name of a table: a name is like 'sales\.orders'"):
        write(spark.range(1), key)
    assert list(lake.at().entries()) == []


def test_a_table_that_has_such_a_key_is_written(spark: SparkSession, lake: Lake) -> None:
    lake.delta.create("old/rows", data=pa.table({"id": [1]}))
    write(spark.range(2, 3), "old/rows")
    assert seen(lake, "old/rows") == [{"id": 1}, {"id": 2}]


def test_a_lake_in_memory_creates_no_tables_and_it_is_said_which_would(spark: SparkSession) -> None:
    with (
        penstock.open("memory:") as lake,
        pytest.raises(InvalidRequest, match=r"no warehouse.*\n.*penstock\.open\('\./lake'\)"),
    ):
        write(spark.range(1), "demo.rows", lake=lake)


def partitioned(spark: SparkSession, value: str) -> DataFrame:
    return spark.createDataFrame([(1, value)], "id LONG, part STRING").coalesce(1)


def test_partitions_have_no_nul_in_their_names(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"the value 'a\\0b' of the column 'part' contains .* NUL"):
        write(partitioned(spark, "a\0b"), "demo.rows", partition_by="part")
    assert list(lake.at().entries()) == []


LONGEST = 255 - len("part=")


@pytest.mark.verify
@pytest.mark.parametrize(
    ("fits", "character"),
    [(LONGEST, "x"), (LONGEST // 3, "/"), (LONGEST // 2, "ü")],
    ids=["plain", "escaped", "of-two-bytes"],
)
def test_partitions_have_names_as_long_as_file_systems_take(
    spark: SparkSession, lake: Lake, fits: int, character: str
) -> None:
    write(partitioned(spark, character * fits), "demo.rows", partition_by="part")
    assert seen(lake, "demo.rows") == [{"id": 1, "part": character * fits}]
    with pytest.raises(InvalidRequest, match=f"the value '{character * 40}…' of the column 'part' is too"):
        write(partitioned(spark, character * (fits + 1)), "demo.rows")
    assert len(seen(lake, "demo.rows")) == 1


def test_a_value_is_told_as_it_is_whatever_is_in_it(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(InvalidRequest) as refused:
        write(partitioned(spark, '"ä\\{}' + "x" * 300), "demo.rows", partition_by="part")
    assert refused.value.message.startswith("the value '\"ä\\{}xxx")


def test_where_files_have_random_prefixes_a_value_may_be_long(spark: SparkSession, lake: Lake) -> None:
    properties = {"delta.randomizeFilePrefixes": "true"}
    if not spark.conf.get("spark.sql.sources.commitProtocolClass").startswith("io.penstock."):  # type: ignore[union-attr]
        pytest.skip("without the jar Spark makes directories all the same")
    write(partitioned(spark, "x" * 300), "demo.rows", partition_by="part", properties=properties)
    assert seen(lake, "demo.rows") == [{"id": 1, "part": "x" * 300}]
