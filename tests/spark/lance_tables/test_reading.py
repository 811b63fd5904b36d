"""Reading Lance tables: versions and times, what is left out, and types that only Arrow has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, VersionNotFound
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance
from penstock.formats.lance.spark import reader
from penstock.formats.lance.spark.conditions import write_lance_condition
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.server.access import CheckedCatalogue
from penstock.spark import read, write
from penstock.spark.requests import ReadRequest
from tests.server.access import caller
from tests.spark.lance_tables.cases import ITEMS, dataset, head, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def made(lake: Lake, table: Any, **more: Any) -> Any:
    """A table that Lance itself writes."""
    import lance
    from lance_namespace import CreateNamespaceRequest

    namespace = lake.lance()
    namespace.create_namespace(CreateNamespaceRequest(id=["vectors"]))
    return lance.write_dataset(table, namespace_client=namespace, table_id=[*Key.parse(ITEMS)], **more)


@pytest.mark.verify
def test_versions_and_times_are_those_of_the_table(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 10))
    assert read(spark, ITEMS, version=1).count() == 3
    later = datetime.now(UTC) + timedelta(days=1)
    assert read(spark, ITEMS, timestamp=later).count() == 6
    with pytest.raises(VersionNotFound, match=r"'vectors\.items' has no version 9"):
        read(spark, ITEMS, version=9)
    with pytest.raises(VersionNotFound, match="from 2020-01-01T00:00:00Z or earlier"):
        read(spark, ITEMS, timestamp="2020-01-01T00:00:00Z")
    with pytest.raises(InvalidRequest, match="not both"):
        read(spark, ITEMS, version=1, timestamp=later)
    with pytest.raises(InvalidRequest, match=r"'vectors\.items' is a Lance table, not a table of files"):
        read(spark, ITEMS, format="parquet")


@pytest.mark.verify
def test_a_table_that_is_only_declared_has_nothing_to_read(spark: SparkSession, lake: Lake) -> None:
    lake.do(CommitLance(operations=(DeclareLance(key=Key.parse(ITEMS)),)))
    with pytest.raises(VersionNotFound, match="has no version yet"):
        read(spark, ITEMS)


CONDITIONS = {
    "n > 1": "(`n` > 1)",
    "NOT (n = 2)": "(NOT (`n` = 2))",
    "s = 'b' OR n IS NULL": "((`s` = 'b') OR (`n` IS NULL))",
    "s IN ('a', 'c') AND n <= 3": "((`s` IN ('a', 'c')) AND (`n` <= 3))",
    "d >= DATE '2026-01-02'": "(`d` >= date '2026-01-02')",
    "f > 1": None,
    "upper(s) = 'B'": None,
    "s LIKE 'a%'": None,
}


@pytest.mark.parametrize("where", CONDITIONS)
@pytest.mark.verify
def test_a_condition_leaves_out_what_spark_would(spark: SparkSession, lake: Lake, where: str) -> None:
    values = [(1, "a", 0.5, "2026-01-01"), (2, "b", float("nan"), "2026-01-02"), (None, "c", 3.0, None)]
    given = spark.createDataFrame(
        [*values, (3, None, None, "2026-01-03")], "n int, s string, f double, d string"
    )
    given = given.selectExpr("n", "s", "f", "CAST(d AS DATE) AS d").coalesce(1)
    save(given)
    assert write_lance_condition(where, given.schema, dataset(lake).schema, "UTC") == CONDITIONS[where]
    found = read(spark, ITEMS, where=where, columns=["s"])
    assert sorted(map(str, found.collect())) == sorted(map(str, given.where(where).select("s").collect()))


@pytest.mark.verify
def test_numbers_that_a_column_cannot_have_are_compared_by_spark(spark: SparkSession, lake: Lake) -> None:
    made(lake, pa.table({"id": [1, 2], "b": pa.array([1, 2], pa.int8()), "u": pa.array([1, 2], pa.uint32())}))
    for where in ("b < 300", "u > -1", "u < 5000000000", "b IN (1, 2, 400)", "id > -9223372036854775808"):
        assert read(spark, ITEMS, where=where).count() == 2, where


def test_a_branch_that_may_be_read_is_read(spark: SparkSession, lake: Lake) -> None:
    """By the name that led to its commit: whoever may read the branch may not read commits as such."""
    save(rows(spark, 0))
    reader = Lake(CheckedCatalogue(lake.catalogue, caller("read:main:vectors.*")), author="reader")
    assert read(spark, ITEMS, lake=reader).count() == 3


@pytest.mark.verify
def test_lance_can_be_said_to_be_the_format(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 10))
    assert read(spark, ITEMS, format="lance").count() == 6
    assert read(spark, ITEMS, format="lance", version=1, where="id > 0").count() == 2
    with pytest.raises(InvalidRequest, match="'folder' cannot be used with format='lance'"):
        read(spark, ITEMS, format="lance", folder="day=1")
    with pytest.raises(InvalidRequest, match="not both"):
        read(spark, ITEMS, format="lance", version=1, timestamp=datetime.now(UTC))
    write(rows(spark, 0), "delta.items")
    with pytest.raises(InvalidRequest, match=r"'delta\.items' is a Delta table, not a Lance table"):
        read(spark, "delta.items", format="lance")


def test_a_version_whose_files_lance_removed_is_gone_for_good(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    save(rows(spark, 10))
    pinned, before = read(spark, ITEMS), head(lake)
    dataset(lake).optimize.compact_files()
    for name in dataset(lake).tags.list():  # by which it would be left
        dataset(lake).tags.delete(name)
    dataset(lake).cleanup_old_versions(older_than=timedelta(0))
    assert read(spark, ITEMS).count() == 6
    with pytest.raises(VersionNotFound, match=r"files of this version of 'vectors\.items' no longer exist"):
        read(spark, ITEMS, ref=before)
    with pytest.raises(Exception, match=r"of 'vectors\.items' no longer exist") as failed:
        pinned.collect()
    assert ".rs:" not in str(failed.value)


@pytest.mark.verify
def test_only_columns_that_are_needed_are_read(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    table = lake.at().table(ITEMS)
    assert reader.read_rows(spark, table, ReadRequest(columns=["ID"])).columns == ["id"]
    assert reader.read_rows(spark, table, ReadRequest(where="`id` > 1", columns=["v"])).columns == ["id", "v"]
    assert [one.id for one in read(spark, ITEMS, where="v[0] > 1", columns=["id"]).collect()] == [2]
    with pytest.raises(InvalidRequest, match="the table has no column 'nope'"):
        read(spark, ITEMS, columns=["nope"])


@pytest.mark.verify
def test_rows_that_were_deleted_are_not_read_and_an_index_is_no_hindrance(
    spark: SparkSession, lake: Lake
) -> None:
    save(rows(spark, 0, 10))
    dataset(lake).delete("id < 5")
    dataset(lake).create_scalar_index("id", "BTREE")
    with lake.transaction() as tx:
        dataset(lake, ref=tx.branch).delete("id = 6")
        save(rows(spark, 20), branch=tx.branch)
        found = read(spark, ITEMS, ref=tx.branch, where="id > 5 AND id < 22")
        assert sorted(one.id for one in found.collect()) == [7, 8, 9, 20, 21]
    assert read(spark, ITEMS, where="id = 6").count() == 0


@pytest.mark.verify
def test_types_that_only_arrow_has_become_the_next_larger_one_of_spark(
    spark: SparkSession, lake: Lake
) -> None:
    made(
        lake,
        pa.table(
            {
                "u": pa.array([2**64 - 1], pa.uint64()),
                "h": pa.array([[0.5, 1.5]], pa.list_(pa.float16(), 2)),
                "s": pa.array(["x"], pa.large_string()),
                "k": pa.array(["y"]).dictionary_encode(),
                "t": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")),
            }
        ),
    )
    found = read(spark, ITEMS)
    assert found.schema.simpleString() == (
        "struct<u:decimal(20,0),h:array<float>,s:string,k:string,t:timestamp>"
    )
    ((number, half, text, word, _),) = found.collect()
    assert (number, half, text, word) == (Decimal(2**64 - 1), [0.5, 1.5], "x", "y")


@pytest.mark.verify
def test_columns_that_spark_cannot_have_are_named_and_can_be_left_out(
    spark: SparkSession, lake: Lake
) -> None:
    made(lake, pa.table({"id": [1], "t": pa.array([1], pa.time64("ns"))}))
    with pytest.raises(InvalidRequest, match=r"'t' has the type time64\[ns\]"):
        read(spark, ITEMS)
    assert read(spark, ITEMS, columns=["id"]).count() == 1


@pytest.mark.verify
def test_rows_are_written_to_the_types_that_the_table_has(spark: SparkSession, lake: Lake) -> None:
    made(
        lake,
        pa.table(
            {
                "v": pa.array([[0.5, 1.5]], pa.list_(pa.float16(), 2)),
                "k": pa.array(["y"]).dictionary_encode(),
            },
        ),
    )
    save(spark.sql("SELECT array(float(2), float(3)) AS v, 'z' AS k"))
    assert sorted(map(tuple, read(spark, ITEMS).collect())) == [([0.5, 1.5], "y"), ([2.0, 3.0], "z")]


@pytest.mark.verify
def test_a_column_that_is_never_null_stays_so(spark: SparkSession, lake: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    made(lake, pa.table({"id": [1]}, schema=schema))
    with pytest.raises(InvalidRequest, match="'id' is null in a row"):
        save(spark.sql("SELECT CAST(NULL AS LONG) AS id"))
    with pytest.raises(InvalidRequest, match="'id' is missing, but is not nullable"):
        save(spark.sql("SELECT 1 AS other"))
    save(spark.range(2, 3))
    assert sorted(one.id for one in read(spark, ITEMS).collect()) == [1, 2]
