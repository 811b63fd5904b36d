"""Row tracking under Spark: rows that are updated keep their ids, and those that stay also their versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.merge_builder import merge
from penstock.spark.reader import read
from penstock.spark.row_changes import delete, update
from penstock.spark.writer import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.stock"
TRACKED = {"delta.enableRowTracking": "true"}


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "v": pa.array([0] * len(numbers), pa.int64())})


def row_ids(table: Table) -> dict[int, tuple[int, int]]:
    """The id and the version of each row, by its number; no id is there twice."""
    found = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
    assert len({one["_row_id"] for one in found}) == len(found)
    return {one["id"]: (one["_row_id"], one["_row_commit_version"]) for one in found}


@pytest.mark.parametrize("feed", ["false", pytest.param("true", marks=pytest.mark.verify)])
def test_rows_keep_their_ids_through_updates_deletes_and_merges(
    spark: SparkSession, lake: Lake, feed: str
) -> None:
    properties = {**TRACKED, "delta.enableChangeDataFeed": feed, "delta.columnMapping.mode": "name"}
    table = lake.delta.create(KEY, data=rows(1, 2, 3), properties=properties)
    table.append(rows(4, 5))
    update(spark, KEY, {"v": 1}, where="id = 2")
    assert row_ids(table) == {1: (0, 0), 2: (1, 2), 3: (2, 0), 4: (3, 1), 5: (4, 1)}
    delete(spark, KEY, where="id = 1 or id = 4")
    assert row_ids(table) == {2: (1, 2), 3: (2, 0), 5: (4, 1)}
    source = spark.createDataFrame([(3, 7), (9, 7), (10, 7)], "id long, v long")
    pairs = merge(source, KEY, "source.id = target.id")
    pairs.when_matched_update_all().when_not_matched_insert_all().commit()
    found = row_ids(table)
    assert {k: found[k] for k in (2, 3, 5)} == {2: (1, 2), 3: (2, table.version), 5: (4, 1)}
    new = {found[9], found[10]}
    assert {version for _, version in new} == {table.version}
    assert min(one for one, _ in new) > 4
    write(spark.createDataFrame([(9, 8)], "id long, v long"), KEY, mode="overwrite", replace_where="id = 9")
    assert {k: v for k, v in row_ids(table).items() if k != 9} == {k: v for k, v in found.items() if k != 9}
    shown = read(spark, KEY, columns=["id", "_row_id", "_row_commit_version"]).collect()
    assert {one[0]: (one[1], one[2]) for one in shown} == row_ids(table)
    assert "_row_id" not in read(spark, KEY).columns


def test_a_branch_gives_ids_of_its_own_and_rows_that_land_get_those_of_the_target(
    spark: SparkSession, lake: Lake
) -> None:
    table = lake.delta.create(KEY, data=rows(1, 2), properties=TRACKED)
    dev = lake.branch("dev").create()
    there = lake.table(KEY, "dev")
    there.append(rows(3, 4))
    update(spark, KEY, {"v": 1}, where="id = 1 or id = 3", branch="dev")
    table.append(rows(5))
    dev.merge_into("main")
    landed = row_ids(table)
    assert {k: landed[k] for k in (1, 2, 5)} == {1: (0, 2), 2: (1, 0), 5: (2, 1)}
    assert {version for k, (_, version) in landed.items() if k in (3, 4)} == {2}
    # What has landed keeps the ids that it has got there, although the branch knows it by others.
    update(spark, KEY, {"v": 2}, where="id = 3", branch="dev")
    delete(spark, KEY, where="id = 1", branch="dev")
    dev.merge_into("main")
    after = row_ids(table)
    assert after.keys() == {2, 3, 4, 5}
    assert {k: after[k][0] for k in after} == {k: landed[k][0] for k in after}
    assert {k: after[k][1] for k in (2, 4, 5)} == {k: landed[k][1] for k in (2, 4, 5)}
    assert after[3][1] == table.version


def test_ids_of_rows_are_refused_where_there_are_none(spark: SparkSession, lake: Lake) -> None:
    lake.delta.create(KEY, data=rows(1))
    with pytest.raises(InvalidRequest, match="does not track rows"):
        read(spark, KEY, columns=["id", "_row_id"])
