"""Spark with Delta reads what Penstock's own Spark writer wrote, row for row as deltalake and DuckDB do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock.spark
from penstock.lake.lake import Lake
from tests.interop.delta.session import DeltaSpark
from tests.servers.process import Missing
from tests.spark.conftest import lake, spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["lake", "spark"]  # fixtures

KEY = "sales.orders"
KINDS = ("plain", "a b", "ü/%=:?#&", "100%", "%20", "quo'te", 'dou"ble', "new\nline", "_x.y", "", None)
"""Values to partition by, with what gives trouble in names of files. An empty text is a null to Delta."""


@pytest.fixture(scope="module")
def delta_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    try:
        started = DeltaSpark(tmp_path_factory.mktemp("delta-spark"))
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Any]:
    """DuckDB with its Delta extension as it comes from PyPI; nothing is downloaded when tests run."""
    module = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    (found,) = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
    with module.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{found}'")
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def test_all_types_are_read_by_others_as_they_were_written(
    spark: SparkSession, lake: Lake, delta_spark: DeltaSpark, duckdb: Any
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    rows = spark.range(0, 20, 1, 2).selectExpr(
        "id",
        "IF(id % 7 = 0, NULL, CAST(id AS BYTE)) AS tiny",
        "CAST(id * 100 AS SHORT) AS small",
        "CAST(id - 10 AS INT) AS number",
        "CAST(CASE id WHEN 1 THEN 'NaN' WHEN 2 THEN '-Infinity' ELSE id / 3 END AS FLOAT) AS part",
        "IF(id = 3, CAST('NaN' AS DOUBLE), -id / 7) AS double_part",
        "CAST(id / 8 AS DECIMAL(38, 10)) AS amount",
        "CAST(-id AS DECIMAL(5, 0)) AS few",
        "repeat(concat('ü', id), 20) AS text",
        "encode(concat('b', id), 'UTF-8') AS bytes",
        "id % 2 = 0 AS is_even",
        "date_add(DATE '1969-12-25', CAST(id AS INT)) AS day",
        "timestamp_micros(id * 86399999999 - 900000000000) AS at",
        "array(id, NULL) AS list",
        "map('k', id) AS map",
        "named_struct('a', id, 'b', named_struct('c', CAST(id AS STRING))) AS nested",
    )
    penstock.spark.write(rows, KEY)
    agree(spark, lake, delta_spark, duckdb)


def test_partitions_of_any_value_are_read_by_others_as_they_were_written(
    spark: SparkSession, lake: Lake, delta_spark: DeltaSpark, duckdb: Any
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    penstock.spark.write(partitioned(spark), KEY, partition_by=["at", "kind", "day", "number"])
    agree(spark, lake, delta_spark, duckdb)


def test_columns_that_both_sides_of_a_merge_added_are_read_by_others(
    spark: SparkSession, lake: Lake, delta_spark: DeltaSpark, duckdb: Any
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    penstock.spark.write(partitioned(spark), KEY, partition_by=["kind"])
    lake.branch("side").create()
    penstock.spark.write(partitioned(spark, 100), KEY, branch="side")
    penstock.spark.delete(spark, KEY, "id % 3 = 0", branch="side")
    more = partitioned(spark, 200).selectExpr("*", "'main' AS note", "named_struct('a', id) AS nested")
    penstock.spark.write(more, KEY, merge_schema=True)
    other = partitioned(spark, 300).selectExpr("*", "id / 2 AS half", "'side' AS note")
    penstock.spark.write(other, KEY, branch="side", merge_schema=True)
    lake.merge("side")
    agree(spark, lake, delta_spark, duckdb)


@pytest.mark.reliability
def test_a_life_of_overwrites_changes_and_merges_is_the_same_to_others(
    spark: SparkSession, lake: Lake, delta_spark: DeltaSpark, duckdb: Any
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    properties = {"delta.enableChangeDataFeed": "true"}
    penstock.spark.write(partitioned(spark), KEY, partition_by=["kind"], properties=properties)
    penstock.spark.write(partitioned(spark, 100), KEY)
    some = partitioned(spark, 200).where("kind = 'a b'")
    penstock.spark.write(some, KEY, mode="overwrite", partition_overwrite="dynamic")
    penstock.spark.update(spark, KEY, {"number": "number + 1000"}, "id % 5 = 0")
    penstock.spark.delete(spark, KEY, "id % 3 = 0")
    merge = penstock.spark.merge(partitioned(spark, 110), KEY, "target.id = source.id")
    merge = merge.when_matched_delete("source.number = 0").when_matched_update({"kind": "'moved'"})
    assert merge.when_not_matched_insert_all().commit() is not None
    lake.branch("side").create()
    penstock.spark.write(partitioned(spark, 300), KEY, branch="side")
    penstock.spark.update(spark, KEY, {"number": "-1"}, "kind = '100%'", branch="side")
    penstock.spark.write(partitioned(spark, 400).where("kind = 'plain'"), KEY)
    lake.merge("side")
    agree(spark, lake, delta_spark, duckdb, step=2)
    check_feed(spark, lake, delta_spark)
    penstock.spark.write(partitioned(spark, 500), KEY, mode="overwrite")
    agree(spark, lake, delta_spark, duckdb)


def partitioned(spark: SparkSession, first: int = 0) -> DataFrame:
    rows = [(first + number, kind) for number, kind in enumerate(KINDS * 2)]
    return spark.createDataFrame(rows, "id BIGINT, kind STRING").selectExpr(
        "id",
        "kind",
        "IF(id % 4 = 0, NULL, timestamp_micros(1767225599000001 * (id % 3) + 1)) AS at",
        "IF(id % 5 = 0, NULL, DATE '2026-02-28' + CAST(id % 4 AS INT)) AS day",
        "CAST(id % 3 AS INT) AS number",
    )


def agree(spark: SparkSession, lake: Lake, delta_spark: DeltaSpark, duckdb: Any, *, step: int = 1000) -> None:
    """All four readers have the same rows, at the latest version and at some before it."""
    table = lake.table(KEY)
    table.backfill_to_version()
    location, latest = table.location, table.version
    for version in range(latest, -1, -step):
        ours = Counter(
            row[0]
            for row in penstock.spark.read(spark, KEY, version=version)
            .selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
            .collect()
        )
        assert ours
        told = delta_spark.sql(
            "SELECT to_json(struct(*), map('ignoreNullFields', 'false')) "
            f"FROM delta.`{location}` VERSION AS OF {version}"
        )
        assert Counter(row[0] for row in told) == ours
        arrow = rows_of(table.snapshot(version).to_arrow())
        assert sum(arrow.values()) == sum(ours.values())
        assert rows_of(pa.table(DeltaTable(location, version=version).scan())) == arrow
        scanned = duckdb.execute("FROM delta_scan(?, version => ?)", [location, version]).to_arrow_table()
        assert rows_of(scanned.select(table.snapshot(version).to_arrow().column_names)) == arrow


def check_feed(spark: SparkSession, lake: Lake, delta_spark: DeltaSpark) -> None:
    """The feed of changes is the same to Delta, from cdc files and from files that were added and removed."""
    columns = ("id", "kind", "number", "_change_type", "_commit_version")
    ours = Counter(
        json.dumps(list(row)) for row in penstock.spark.changes(spark, KEY, 0).select(*columns).collect()
    )
    told = delta_spark.sql(
        f"SELECT {', '.join(columns)} FROM table_changes_by_path('{lake.table(KEY).location}', 0)"
    )
    assert Counter(json.dumps(row) for row in told) == ours


def rows_of(data: Any) -> Counter[str]:
    """Rows in one spelling, whoever read them."""
    return Counter(json.dumps(row, default=_text, sort_keys=True) for row in data.to_pylist())


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value).removesuffix("+00:00")
