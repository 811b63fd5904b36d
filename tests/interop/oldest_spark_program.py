"""Penstock at work on the oldest Spark that it supports, in an environment of its own.

    python oldest_spark_program.py LAKE DIRECTORY

Prints one line of JSON: what each way of reading found, by name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import penstock
import penstock.spark
from penstock.formats.files.lake.calls import ListFiles
from penstock.model.keys import Key
from penstock.spark import changes, delete, merge, read, sink, stream, update, write
from penstock.spark.jar import COMMIT_PROTOCOL_SETTING as PROTOCOL
from penstock.spark.jar import has_protocol

KEY = "sales.orders"
CHANGES = {"delta.enableChangeDataFeed": "true"}
SPARKS_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
"""With it a session writes as one without Penstock's jar does."""
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 2,
}


def main(address: str, directory: str) -> None:
    # Whatever else is printed, by the Java machine too, goes to the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with penstock.open(address) as lake:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{directory}/warehouse"}
        spark = penstock.spark.session(lake, master="local[2]", conf=settings)
        try:
            found = story(spark, lake, directory)
        finally:
            spark.stop()
    print(json.dumps(found), file=answers, flush=True)


def story(spark: Any, lake: Any, directory: str) -> dict[str, Any]:
    """Rows 0 to 9 in two partitions, changed in every way there is."""
    rows = spark.range(0, 10, 1, 2).selectExpr("id", "id * 10 AS number", "concat('k ', id % 2) AS kind")
    write(rows, KEY, partition_by=["kind"], properties=CHANGES)
    update(spark, KEY, {"number": "-1"}, "id < 3")
    delete(spark, KEY, "id = 9")
    arrived = spark.range(8, 12).selectExpr("id", "id * 100 AS number", "'k 2' AS kind")
    merging = merge(arrived, KEY, "target.id = source.id")
    merging.when_matched_update({"number": "source.number"}).when_not_matched_insert_all().commit()
    own_protocol = spark.conf.get(PROTOCOL)
    spark.conf.set(PROTOCOL, SPARKS_PROTOCOL)
    without_jar = not has_protocol(spark)
    update(spark, KEY, {"number": "-2"}, "id = 4")
    read_without_jar = read(spark, KEY).where("kind = 'k 0'").count()
    spark.conf.set(PROTOCOL, own_protocol)
    lake.branch("side").create()
    write(rows.where("id = 0"), KEY, branch="side")
    query = stream(spark, KEY, ref="side", starting_version=0, skip_change_commits=True).writeStream
    query = query.foreachBatch(sink("sales.copy")).trigger(availableNow=True)
    query.option("checkpointLocation", f"{directory}/checkpoint").start().awaitTermination()
    plain = spark.read.format("penstock").option("lake", lake.url)
    read_plain = plain.load(KEY)
    rows.where("id = 5").write.format("penstock").option("lake", lake.url).mode("append").save(KEY)
    told = changes(spark, KEY, 0).groupBy("_commit_version", "_change_type").count().collect()
    return {
        "spark": spark.version,
        "has_jar": has_protocol(spark),
        "without_jar": [without_jar, read_without_jar],
        "rows": sorted([one.id, one.number, one.kind] for one in read(spark, KEY).collect()),
        "first": read(spark, KEY, version=0).count(),
        "side": read(spark, KEY, ref="side").count(),
        "pruned": read(spark, KEY, where="kind = 'k 2'").count(),
        "changes": sorted([one[0], one[1], one[2]] for one in told),
        "streamed": read(spark, "sales.copy").count(),
        "plain": read_plain.count(),
        "by_session": files_by_session(spark, lake, directory),
        "mapped": mapped_path(lake, directory) if has_protocol(spark) else [],
    }


def files_by_session(spark: Any, lake: Any, directory: str) -> list[str]:
    """The folders of a table of files that code wrote which knows only its session; none without the jar."""
    if not has_protocol(spark):
        return []
    rows = spark.range(0, 2, 1, 1).selectExpr("id", "id AS p")
    writer = rows.write.option("penstock.table", "raw.files").partitionBy("p")
    writer.mode("append").parquet(f"{directory}/nowhere")
    rows.where("id = 1").write.option("penstock.table", "raw.files").option(
        "partitionOverwriteMode", "dynamic"
    ).partitionBy("p").mode("overwrite").parquet(f"{directory}/nowhere")
    found = lake.do(ListFiles(key=Key.parse("raw.files")))
    return [one.path.partition("/")[0] for one in found]


def mapped_path(lake: Any, directory: str) -> list[Any]:
    """What is read at a path that stands for a table, in each way that Spark has, twice."""
    place = f"{directory}/mapped"
    spark = penstock.spark.session(lake, tables={place: "raw.mapped"})
    spark.sql(f"CREATE TABLE mapped (id LONG, p STRING) USING parquet PARTITIONED BY (p) LOCATION '{place}'")
    spark.sql("INSERT INTO mapped VALUES (1, 'a'), (2, 'b')")
    spark.sql("CREATE TEMPORARY VIEW seen AS SELECT * FROM mapped")
    counts: list[Any] = [
        count
        for _ in range(2)
        for count in (
            spark.read.parquet(place).count(),
            spark.sql("SELECT * FROM seen WHERE p = 'a'").count(),
            spark.sql(f"SELECT * FROM parquet.`{place}`").count(),
        )
    ]
    spark.sql("INSERT OVERWRITE mapped SELECT id + 10, p FROM mapped")
    try:
        spark.readStream.schema("id LONG").parquet(place)
    except Exception as problem:
        counts.append(type(penstock.spark.unwrap(problem)).__name__)
    return [*counts, sorted(row.id for row in spark.table("mapped").collect())]


if __name__ == "__main__":
    main(*sys.argv[1:])
