"""A query over tables of very many files, planned by Delta Spark; run by ``spark_sql.py`` in its environment.

Makes the tables, then plans the query for each line that comes in, and prints the seconds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

from pyspark.sql import SparkSession


def make(place: Path, files: int, schema: str) -> None:
    """The log of a table. Its files are not there."""
    log = place / "_delta_log"
    log.mkdir(parents=True)
    format_ = {"provider": "parquet", "options": {}}
    metadata = {"id": place.name, "format": format_, "schemaString": schema, "partitionColumns": []}
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**metadata, "configuration": {}, "createdTime": 1_700_000_000_000}},
    ]
    for number in range(files):
        stats = {
            "numRecords": 1000,
            "minValues": {"id": number * 1000, "amount": 0.25, "note": "a"},
            "maxValues": {"id": number * 1000 + 999, "amount": 99.75, "note": "z"},
            "nullCount": {"id": 0, "amount": 0, "note": 17},
        }
        added = {
            "path": f"part-{number:08}-c000.snappy.parquet",
            "partitionValues": {},
            "size": 20_000 + number % 1000,
            "modificationTime": 1_700_000_000_000 + number,
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }
        actions.append({"add": added})
    lines = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in actions)
    (log / f"{0:020}.json").write_text(lines)


def main(place: Path, files: int, tables: int, jars: Path, schema: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for number in range(tables):
        make(place / f"wide{number}", files, schema)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(str(one) for one in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(place / "tables"),
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    names = [f"delta.`{place / f'wide{number}'}`" for number in range(tables)]
    query = " UNION ALL ".join(f"SELECT id, amount FROM {name} WHERE id = 1500" for name in names)
    for _ in sys.stdin:
        start = perf_counter()
        spark.sql(query)._jdf.queryExecution().toRdd().getNumPartitions()
        print("took", perf_counter() - start, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
