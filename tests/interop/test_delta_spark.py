"""Spark with Delta and a lake: each reads the tables of the other, and only one of them writes to a table."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import TableConflict, UnsupportedFeature
from penstock.formats.delta.ownership.handover import Handover
from penstock.lake.table import Table
from penstock.stores.memory import MemoryStore
from tests.formats.delta.lakes import doing_before_the_put, opened
from tests.formats.delta.older import as_the_first_release
from tests.interop.delta.homes import Home
from tests.interop.delta.session import DeltaSpark, SparkError
from tests.interop.delta.stories import SCHEMA, Story, rows_of

KEY = "orders"
SPARK_STEPS = 4
"""Spark takes its time to put a version together, so not all are read."""


def test_the_versions_of_a_lakes_table_are_the_same_to_spark(spark: DeltaSpark, home: Home) -> None:
    with home.lake() as lake:
        story = Story(lake, seed=1).tell()
        name = f"delta.`{story.table.snapshot().location}`"
        columns = ", ".join(SCHEMA.names)
        newest = len(story.versions) - 1
        for version in (*range(0, newest, SPARK_STEPS), newest):
            found = spark.sql(f"SELECT {columns} FROM {name} VERSION AS OF {version}")
            found_rows = rows_of(dict(zip(SCHEMA.names, row, strict=True)) for row in found)
            assert found_rows == story.versions[version]


TABLES = {
    "plain": (
        "",
        "INSERT INTO {table} SELECT id, concat('n', id) FROM range(20)",
        "UPDATE {table} SET name = 'ü' WHERE id = 3",
    ),
    "partitioned": (
        "PARTITIONED BY (name)",
        "INSERT INTO {table} VALUES (1, 'a b'), (2, 'ü/%=:?#&'), (3, NULL), (4, '100%')",
        "DELETE FROM {table} WHERE name = 'a b'",
    ),
    "deletion vectors": (
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "INSERT INTO {table} SELECT id, concat('n', id) FROM range(50)",
        "DELETE FROM {table} WHERE id % 3 = 0",
        "DELETE FROM {table} WHERE id % 7 = 1",
    ),
    "checkpoints of version 2": (
        "TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')",
        "INSERT INTO {table} VALUES (1, 'a')",
        "INSERT INTO {table} VALUES (2, 'b')",
        "DELETE FROM {table} WHERE id = 1",
    ),
    "a feed of changes": (
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
        "INSERT INTO {table} VALUES (1, 'a'), (2, 'b')",
        "UPDATE {table} SET name = 'c' WHERE id = 2",
    ),
}
"""What Spark makes of a table with two columns: how it is declared, and what happens to it."""


def of_kinds() -> list[Any]:
    """A few of the kinds always, and all of them in long runs."""
    long = pytest.mark.reliability
    return [
        kind if kind in ("deletion vectors", "a feed of changes") else pytest.param(kind, marks=long)
        for kind in TABLES
    ]


@pytest.mark.parametrize("kind", of_kinds())
def test_a_table_of_spark_comes_into_the_lake_with_all_its_rows(
    spark: DeltaSpark, disk: Home, kind: str
) -> None:
    check_adoption(spark, disk, kind)


def test_a_table_of_spark_in_a_bucket_comes_into_the_lake_with_all_its_rows(
    spark: DeltaSpark, bucket: Home
) -> None:
    check_adoption(spark, bucket, "deletion vectors")


def check_adoption(spark: DeltaSpark, home: Home, kind: str) -> None:
    """Spark makes a table, the lake takes it over and writes to it, and Spark only reads it from then on."""
    location = f"{home.tables}/{KEY}"
    name = f"delta.`{location}`"
    clause, *statements = TABLES[kind]
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta {clause}")
    for statement in statements:
        spark.sql(statement.format(table=name))
    before = spark_rows(spark, name)
    assert before
    with home.lake() as lake:
        adopted = lake.delta.adopt(location)
        table = lake.table(KEY)
        assert lake_rows(table) == before
        more = pa.table({"id": pa.array([1000], pa.int64()), "name": ["one more"]})
        assert table.append(more).version == adopted.version + 1
        lake.delta.checkpoint(KEY)
        after = before + Counter(['[1000, "one more"]'])
        assert lake_rows(table) == after
        past = spark_rows(spark, f"{name} VERSION AS OF {adopted.version - 2}")
        assert lake_rows(table, adopted.version - 2) == past
        for statement in (
            f"INSERT INTO {name} VALUES (-1, 'x')",
            f"ALTER TABLE {name} UNSET TBLPROPERTIES ('delta.managedCommitOwnerName')",
        ):
            with pytest.raises(SparkError, match=r"UNSUPPORTED_FEATURES_FOR_WRITE.*managedCommits"):
                spark.sql(statement)
        assert table.get_commits().latest_version == adopted.version + 1
        assert lake_rows(table) == spark_rows(spark, name) == after


def spark_rows(spark: DeltaSpark, name: str) -> Counter[str]:
    return Counter(json.dumps(row) for row in spark.sql(f"SELECT id, name FROM {name}"))


def lake_rows(table: Table, version: int | None = None) -> Counter[str]:
    rows = table.snapshot(version).to_arrow(["id", "name"]).to_pylist()
    return Counter(json.dumps([row["id"], row["name"]]) for row in rows)


def test_spark_goes_on_with_a_table_that_is_handed_back_and_it_can_come_again(
    spark: DeltaSpark, home: Home
) -> None:
    with home.lake() as lake:
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
        table = lake.create_table(KEY, data=rows)
        location = table.snapshot().location
        name = f"delta.`{location}`"
        with pytest.raises(SparkError, match="managedCommits"):
            spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
        lake.delta.release(KEY)
        spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
        spark.sql(f"DELETE FROM {name} WHERE id = 1")
        lake.delta.adopt(location, KEY)
        assert lake_rows(table) == spark_rows(spark, name) == Counter(['[2, "b"]', '[3, "c"]'])


STRICT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
PART = pa.struct([pa.field("a", pa.int64(), nullable=False)])
MADE: dict[str, tuple[pa.Schema, dict[str, str]]] = {
    "plain": (pa.schema([("id", pa.int64())]), {}),
    "not null": (STRICT, {}),
    "a part is not null": (pa.schema([("id", pa.int64()), ("s", PART)]), {}),
    "a part of an element is not null": (pa.schema([("id", pa.int64()), ("l", pa.list_(PART))]), {}),
    "times without a zone": (pa.schema([("id", pa.int64()), ("t", pa.timestamp("us"))]), {}),
    "append-only": (STRICT, {"delta.appendOnly": "true"}),
    "a change feed": (STRICT, {"delta.enableChangeDataFeed": "true"}),
    "deletion vectors": (STRICT, {"delta.enableDeletionVectors": "true"}),
    "wider types": (STRICT, {"delta.enableTypeWidening": "true"}),
    "checkpoints of version 2": (STRICT, {"delta.checkpointPolicy": "v2"}),
    "domains": (STRICT, {"delta.feature.domainMetadata": "supported"}),
}
"""Tables of a lake that enable features by their columns or properties."""
ONLY_READ = {"a part of an element is not null"}
"""What Spark writes to no table (DELTA_NESTED_NOT_NULL_CONSTRAINT)."""


def test_spark_opens_every_table_that_a_lake_makes_and_writes_it_once_it_is_released(
    spark: DeltaSpark, disk: Home
) -> None:
    with disk.lake() as lake:
        for number, (kind, (schema, properties)) in enumerate(MADE.items()):
            key = f"made.t{number}"
            table = lake.delta.create(key, data=schema.empty_table(), properties=properties)
            # To Spark, a struct with a part that is not null is not null itself.
            table.append(pa.Table.from_pylist([{"id": 1, "s": {"a": 1}}], schema=schema))
            table.backfill_to_version()
            name = f"delta.`{table.location}`"
            assert spark.sql(f"SELECT id FROM {name}") == [[1]], kind
            lake.delta.release(key)
            assert spark.sql(f"SELECT id FROM {name}") == [[1]], kind
            if kind in ONLY_READ:
                continue
            spark.sql(f"INSERT INTO {name} SELECT * FROM {name}")
            spark.sql(f"ALTER TABLE {name} ADD COLUMN more STRING")
            assert spark.sql(f"SELECT count(*) FROM {name}") == [[2]], kind


def test_spark_opens_a_table_of_the_first_release_once_it_is_repaired(spark: DeltaSpark, disk: Home) -> None:
    with disk.lake() as lake:
        with as_the_first_release():
            table = lake.delta.create(KEY, data=pa.Table.from_pylist([{"id": 1}], schema=STRICT))
        name = f"delta.`{table.location}`"
        table.backfill_to_version()
        with pytest.raises(SparkError, match="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH"):
            spark.sql(f"SELECT id FROM {name}")
        lake.delta.repair(KEY)
        table.backfill_to_version()
        assert spark.sql(f"SELECT id FROM {name}") == [[1]]


def test_what_a_refusal_advises_makes_the_table_one_that_can_be_adopted(
    spark: DeltaSpark, disk: Home
) -> None:
    location = f"{disk.tables}/advised"
    name = f"delta.`{location}`"
    spark.sql(f"CREATE TABLE {name} (id INT, name STRING) USING delta")
    spark.sql(f"INSERT INTO {name} (id, name) VALUES (1, 'a'), (2, 'b')")
    log = Path(location) / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    (changed,) = [line for line in lines if "metaData" in line]
    changed["metaData"]["configuration"]["delta.enableRowTracking"] = "true"
    (log / f"{2:020}.json").write_text(json.dumps(changed) + "\n")
    with disk.lake() as lake:
        with pytest.raises(UnsupportedFeature, match="UNSET TBLPROPERTIES") as caught:
            lake.delta.adopt(location, KEY)
        assert caught.value.details["feature"] == "rowTracking"
        assert sorted(lake.delta.read(location).to_arrow()["id"].to_pylist()) == [1, 2]
        spark.sql(f"ALTER TABLE {name} UNSET TBLPROPERTIES ('delta.enableRowTracking')")
        lake.delta.adopt(location, KEY)
        table = lake.table(KEY)
        table.append(table.to_arrow().slice(0, 1))
        lake.delta.checkpoint(KEY)
        assert lake_rows(table) == spark_rows(spark, name)


def test_the_rows_of_a_table_that_cannot_be_adopted_are_copied_as_the_refusal_advises(
    spark: DeltaSpark, disk: Home
) -> None:
    location, feature = f"{disk.tables}/refused", "icebergWriterCompatV1"
    clause = "TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true', 'delta.columnMapping.mode' = 'id')"
    spark.sql(f"CREATE TABLE refused (id BIGINT, name STRING) USING delta {clause} LOCATION '{location}'")
    spark.sql("INSERT INTO refused (id, name) VALUES (1, '1'), (2, '2')")
    log = Path(location) / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    state = [line for line in lines if line.keys() & {"protocol", "metaData"}]
    for line in state:  # no engine here makes such a table
        line.get("protocol", {}).get("writerFeatures", []).append(feature)
        line.get("metaData", {}).get("configuration", {})["delta.enableIcebergWriterCompatV1"] = "true"
    (log / f"{2:020}.json").write_text("\n".join(map(json.dumps, state)) + "\n")
    with disk.lake() as lake:
        with pytest.raises(UnsupportedFeature, match="or copy its rows into a table of the lake") as caught:
            lake.delta.adopt(location, KEY)
        assert caught.value.details["features"] == (feature,)
        copy = lake.delta.create(KEY, data=lake.delta.read(location))
        copy.backfill_to_version()
        assert (
            lake_rows(copy) == spark_rows(spark, f"delta.`{copy.location}`") == spark_rows(spark, "refused")
        )
    spark.sql("DROP TABLE refused")


def test_types_that_spark_widened_are_read_as_spark_reads_them(spark: DeltaSpark, disk: Home) -> None:
    location = f"{disk.tables}/widened"
    name = f"delta.`{location}`"
    spark.sql(
        f"CREATE TABLE {name} (i INT, s SMALLINT, f FLOAT, n STRUCT<x: INT>, d DATE, m DECIMAL(4,1)) "
        "USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    values = "(1, 2, 0.1, named_struct('x', 3), DATE'2026-11-01', 4.5)"
    spark.sql(f"INSERT INTO {name} VALUES {values}")
    wider = {"i": "BIGINT", "s": "INT", "f": "DOUBLE", "n.x": "BIGINT", "m": "DECIMAL(10,3)"}
    for column, kind in wider.items():
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN {column} TYPE {kind}")
    spark.sql(f"INSERT INTO {name} VALUES {values}")
    with disk.lake() as lake:
        read = lake.delta.read(location)
        found = [list(one) for one in zip(*(read.to_arrow()[c].to_pylist() for c in "isf"), strict=True)]
        assert sorted(found) == sorted(row[:3] for row in spark.sql(f"SELECT * FROM {name}"))
        assert [one["x"] for one in read.to_arrow()["n"].to_pylist()] == [3, 3]
        # Of the older file 0.1 is noted, and it holds a little more.
        assert read.to_arrow(where="f > 0.1").num_rows == 1


def test_a_write_of_spark_that_was_under_way_when_a_lake_took_the_table_over_is_refused(
    spark: DeltaSpark, disk: Home
) -> None:
    location = f"{disk.tables}/{KEY}"
    name = f"delta.`{location}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")
    gate = disk.directory / "gate"
    os.mkfifo(gate)
    slow = f"SELECT TRANSFORM(id) USING 'cat {gate}' AS (id STRING) FROM range(1)"
    with disk.lake() as lake, ThreadPoolExecutor(1) as threads:
        writing = threads.submit(
            spark.sql, f"INSERT INTO {name} SELECT CAST(id AS BIGINT), 'late' FROM ({slow})"
        )
        with open_when_read(gate, writing) as rows:
            lake.delta.adopt(location)
            rows.write("2\n")
        with pytest.raises(SparkError, match=r"managedCommits|PROTOCOL_CHANGED"):
            writing.result()
        table = lake.table(KEY)
        table.append(pa.table({"id": pa.array([3], pa.int64()), "name": ["c"]}))
        assert lake_rows(table) == spark_rows(spark, name) == Counter(['[1, "a"]', '[3, "c"]'])


def open_when_read(gate: Path, reader: Future[Any]) -> TextIO:
    """A pipe, as soon as Spark reads from its other side, which it does in the middle of a transaction."""
    while not reader.done():
        try:
            return os.fdopen(os.open(gate, os.O_WRONLY | os.O_NONBLOCK), "w")
        except OSError as problem:
            if problem.errno != errno.ENXIO:  # that nobody reads yet
                raise
            time.sleep(0.02)
    raise AssertionError(f"Spark did not get to the pipe: {reader.exception()}")


def test_a_write_of_spark_that_lands_while_a_lake_takes_the_table_over_is_kept(
    spark: DeltaSpark, disk: Home
) -> None:
    location = f"{disk.tables}/{KEY}"
    name = f"delta.`{location}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta")

    def write() -> None:
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a')")

    with opened(MemoryStore(), handover=doing_before_the_put(write)) as lake:
        with pytest.raises(TableConflict, match="not this lake's"):
            lake.owner.adopt_table(location)
        assert not lake.has(KEY)
        spark.sql(f"INSERT INTO {name} VALUES (2, 'b')")
        lake.use(Handover)
        assert lake.owner.adopt_table(location).version == 3
        with pytest.raises(SparkError, match="managedCommits"):
            spark.sql(f"INSERT INTO {name} VALUES (3, 'c')")
    assert spark_rows(spark, name) == Counter(['[1, "a"]', '[2, "b"]'])
