"""Delta Spark reads clones that a lake made, on a disk and in a bucket."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

from tests.interop.delta.homes import Home
from tests.interop.delta.session import DeltaSpark

FEATURES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
}


def test_delta_spark_reads_a_clone(home: Home, spark: DeltaSpark) -> None:
    with home.lake() as lake:
        data = pa.table({"id": pa.array(range(1, 9), pa.int64()), "day": ["a b", "c"] * 4})
        source = lake.delta.create("source", data=data, partition_by="day", properties=FEATURES)
        source.delete("id = 1")
        lake.delta.clone("source", "clone")
        source.update({"id": "id + 100"}, "id < 5")
        clone = lake.table("clone")
        clone.append(pa.table({"id": pa.array([20], pa.int64()), "day": ["c"]}))
        clone.delete("id = 3")
        work = lake.branch("work").create()
        there = lake.table("clone", "work")
        there.update({"day": "'w'"}, "id in (2, 6)")
        there.delete("id = 8")
        clone.append(pa.table({"id": pa.array([21], pa.int64()), "day": ["c"]}))
        work.merge_into("main")
        clone.optimize()
        lake.delta.publish("clone")
        where = clone.location.replace("s3://", "s3a://")
        if home.bucket is not None:  # the clone's log names files as the lake does
            spark.sql("SET `fs.s3.impl`=`org.apache.hadoop.fs.s3a.S3AFileSystem`")
        read = spark.sql(
            f"SELECT id, day, _metadata.row_id, _metadata.row_commit_version FROM delta.`{where}`"
        )
        assert sorted(row[0] for row in read) == [2, 4, 5, 6, 7, 20, 21]
        assert len({row[2] for row in read}) == len(read)
        own = clone.to_arrow(columns=["id", "day", "_row_id", "_row_commit_version"]).to_pylist()
        assert sorted(read) == sorted([*row.values()] for row in own)
        versions = {row["id"]: row["_row_commit_version"] for row in own}
        assert {versions[number] for number in (4, 5, 7)} == {0}
        assert min(versions[number] for number in (2, 6, 20, 21)) > 0
