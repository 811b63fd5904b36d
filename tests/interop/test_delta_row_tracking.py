"""Row tracking with Delta Spark: a table that it made is changed by a lake, on two branches, and Delta Spark
reads the ids and versions of its rows back, one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.interop.delta.homes import Home
from tests.interop.delta.session import DeltaSpark

KEY = "orders"
TRACKED = "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"


@pytest.fixture
def lake(disk: Home) -> Iterator[Lake]:
    with disk.lake() as lake:
        yield lake


RowIds = dict[int, tuple[int, int]]


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{one}" for one in numbers]})


def ids_of(table: Table) -> RowIds:
    found = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
    assert len({one["_row_id"] for one in found}) == len(found)
    return {one["id"]: (one["_row_id"], one["_row_commit_version"]) for one in found}


def ids_to_spark(spark: DeltaSpark, location: str) -> RowIds:
    asked = f"SELECT id, _metadata.row_id, _metadata.row_commit_version FROM delta.`{location}`"
    found = spark.sql(asked)
    assert len({one[1] for one in found}) == len(found)
    return {one[0]: (one[1], one[2]) for one in found}


def test_a_table_that_spark_tracks_lives_in_a_lake_and_goes_back(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    location = f"{disk.tables}/tracked"
    name = f"delta.`{location}`"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta {TRACKED}")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'n1'), (2, 'n2'), (3, 'n3')")
    spark.sql(f"UPDATE {name} SET name = 'x' WHERE id = 2")
    before = ids_to_spark(spark, location)
    lake.delta.adopt(location, KEY)
    table = lake.table(KEY)
    assert ids_of(table) == before
    table.append(rows(4))
    dev = lake.branch("dev").create()
    lake.table(KEY, "dev").append(rows(5, 6))
    table.append(rows(7))
    dev.merge_into("main")
    table.overwrite(rows(8))
    table.restore(version=table.version - 1)
    lake.delta.checkpoint(KEY)
    table.backfill_to_version()
    after = ids_of(table)
    assert after.keys() == {1, 2, 3, 4, 5, 6, 7}
    assert {one: after[one] for one in before} == before
    assert ids_to_spark(spark, location) == after
    lake.delta.release(KEY)
    spark.sql(f"INSERT INTO {name} VALUES (9, 'n9')")
    spark.sql(f"UPDATE {name} SET name = 'y' WHERE id = 5")
    spark.sql(f"OPTIMIZE {name}")
    later = ids_to_spark(spark, location)
    assert {one: later[one][0] for one in after} == {one: after[one][0] for one in after}
    assert {one: later[one] for one in after if one != 5} == {one: after[one] for one in after if one != 5}
    assert later[9][0] > max(one for one, _ in after.values())
    lake.delta.adopt(location, KEY)
    assert ids_of(lake.table(KEY)) == later


def test_a_table_that_a_lake_tracks_is_read_and_written_by_spark(spark: DeltaSpark, lake: Lake) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2), properties={"delta.enableRowTracking": "true"})
    table.append(rows(3))
    table.backfill_to_version()
    assert ids_to_spark(spark, table.location) == ids_of(table) == {1: (0, 0), 2: (1, 0), 3: (2, 1)}
    location = table.location
    lake.delta.release(KEY)
    name = f"delta.`{location}`"
    spark.sql(f"DELETE FROM {name} WHERE id = 1")
    spark.sql(
        f"MERGE INTO {name} t USING (SELECT 2L id, 'm' name UNION ALL SELECT 4L, 'm') s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found = ids_to_spark(spark, location)
    assert (found[2][0], found[3]) == (1, (2, 1))
    lake.delta.adopt(location, KEY)
    assert ids_of(lake.table(KEY)) == found


def test_a_table_on_which_the_feature_is_only_supported_gets_ids_for_when_it_is_enabled(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    location = f"{disk.tables}/supported"
    name = f"delta.`{location}`"
    supported = "TBLPROPERTIES ('delta.feature.rowTracking' = 'supported')"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta {supported}")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'n1')")
    lake.delta.adopt(location, KEY)
    lake.table(KEY).append(rows(2, 3))
    lake.delta.release(KEY)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    found = ids_to_spark(spark, location)
    assert sorted(one for one, _ in found.values()) == [0, 1, 2]


def test_a_table_with_many_features_keeps_them_and_its_ids_all_its_life(
    spark: DeltaSpark, disk: Home, lake: Lake
) -> None:
    location = f"{disk.tables}/featured"
    name = f"delta.`{location}`"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, name STRING) USING delta TBLPROPERTIES ("
        "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true',"
        " 'delta.columnMapping.mode' = 'name', 'delta.enableInCommitTimestamps' = 'true',"
        " 'delta.checkpointPolicy' = 'v2', 'delta.feature.vacuumProtocolCheck' = 'supported')"
    )
    spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'n' FROM range(1, 6)")
    spark.sql(f"DELETE FROM {name} WHERE id = 2")
    before = ids_to_spark(spark, location)
    features = set(lake.delta.read(location).protocol.writer_features or ())
    lake.delta.adopt(location, KEY)
    table = lake.table(KEY)
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(6, 7))
    table.append(rows(8))
    dev.merge_into("main")
    merged = ids_of(table)
    assert {one: merged[one] for one in before} == before
    lake.revert(lake.branch("main").head)
    lake.revert(lake.branch("main").head)
    table.overwrite(rows(9))
    table.restore(version=table.version - 1)
    assert ids_of(table) == merged
    lake.delta.checkpoint(KEY)
    table.backfill_to_version()
    assert ids_to_spark(spark, location) == merged
    assert {row[1] for row in spark.sql(f"SELECT id, name FROM {name} WHERE id = 8")} == {"n8"}
    times = [one.timestamp for one in table.history() if one.timestamp is not None]
    assert sorted(times, reverse=True) == times
    lake.delta.release(KEY)
    assert set(lake.delta.read(location).protocol.writer_features or ()) == features
    spark.sql(f"DELETE FROM {name} WHERE id = 3")
    spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    spark.sql(f"VACUUM {name}")
    assert ids_to_spark(spark, location) == {one: ids for one, ids in merged.items() if one != 3}
    lake.delta.adopt(location, KEY)
    assert ids_of(lake.table(KEY)) == {one: ids for one, ids in merged.items() if one != 3}
