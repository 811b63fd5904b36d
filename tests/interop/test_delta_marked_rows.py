"""Tables with deletion vectors that Penstock's Spark changes: Delta Spark reads the same rows, ids and
changes, and both go on with what the other has marked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from penstock.formats.delta.rows import vectors
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from penstock.spark.merge_builder import merge
from penstock.spark.row_changes import delete, update
from tests.interop.delta.session import DeltaSpark
from tests.interop.test_spark_writer import delta_spark
from tests.spark.conftest import lake, spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["delta_spark", "lake", "spark"]  # fixtures

KEY = "orders"
PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true', 'delta.enableRowTracking' = 'true',"
    " 'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name'"
)
COUNT = 3000


def rows_and_ids(table: Table) -> Counter[tuple[Any, ...]]:
    there = table.to_arrow(columns=["id", "v", "_row_id", "_row_commit_version"]).to_pylist()
    return Counter(tuple(one.values()) for one in there)


def as_delta_reads(delta: DeltaSpark, name: str) -> Counter[tuple[Any, ...]]:
    asked = f"SELECT id, v, _metadata.row_id, _metadata.row_commit_version FROM {name}"
    return Counter(map(tuple, delta.sql(asked)))


@pytest.mark.parametrize("is_inline", [True, False])
def test_each_goes_on_with_what_the_other_has_marked(
    spark: SparkSession,
    lake: Lake,
    delta_spark: DeltaSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_inline: bool,
) -> None:
    monkeypatch.setattr(vectors, "INLINE_MAX_BYTES", 1024 if is_inline else 0)
    location = str(tmp_path / "lake" / "warehouse" / "orders")
    name = f"delta.`{location}`"
    delta_spark.sql(f"CREATE TABLE {name} (id BIGINT, v BIGINT) USING delta TBLPROPERTIES ({PROPERTIES})")
    delta_spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0 FROM range({COUNT})")
    delta_spark.sql(f"DELETE FROM {name} WHERE id % 100 = 7")
    lake.delta.adopt(location, KEY)
    table = lake.table(KEY)
    first = table.version + 1
    delete(spark, KEY, "id % 100 = 8")
    update(spark, KEY, {"v": "1"}, "id % 50 = 9")
    source = spark.range(2900, 3100).selectExpr("id", "2L AS v")
    pairs = merge(source, KEY, "source.id = target.id")
    pairs.when_matched_update_all().when_not_matched_insert_all().commit()
    last = table.version
    table.backfill_to_version()
    assert rows_and_ids(table) == as_delta_reads(delta_spark, name)
    told = delta_spark.sql(
        "SELECT id, v, _change_type, _commit_version FROM"
        f" table_changes_by_path('{location}', {first}, {last})"
    )
    mine = changes(spark, KEY, first, last).drop("_commit_timestamp").collect()
    assert Counter(map(tuple, told)) == Counter(map(tuple, mine))
    assert {one[2] for one in told} == {"insert", "delete", "update_preimage", "update_postimage"}
    marked = [one.deletion_vector for one in table.snapshot().files() if one.deletion_vector is not None]
    assert sum(one.cardinality for one in marked) >= COUNT // 100 * 2 + 100
    lake.delta.release(KEY)
    delta_spark.sql(f"UPDATE {name} SET v = 5 WHERE id % 100 = 10")
    delta_spark.sql(f"DELETE FROM {name} WHERE id % 100 = 11")
    after = as_delta_reads(delta_spark, name)
    lake.delta.adopt(location, KEY)
    assert rows_and_ids(lake.table(KEY)) == after
