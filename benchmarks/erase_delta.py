"""A partition deleted and vacuumed by Delta Spark; run by ``erase.py`` in its environment.

Prints one line: the seconds of the deletion and of the vacuum, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

from pyspark.sql import SparkSession


def main(place: Path, count: int, gone: str, jars: Path, columns: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(str(one) for one in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        # As few tasks as there are cores: by default a VACUUM lists folders by thousands of them.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(os.cpu_count()),
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(place / "tables"),
    }
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    rows = spark.range(0, count, 1, 4).selectExpr(*columns)
    rows.write.format("delta").partitionBy("region").save(str(place / "rows"))
    start = perf_counter()
    spark.sql(f"DELETE FROM delta.`{place / 'rows'}` WHERE {gone}").collect()
    deleted = perf_counter()
    spark.sql(f"VACUUM delta.`{place / 'rows'}` RETAIN 0 HOURS").collect()
    ended = perf_counter()
    spark.stop()
    print(json.dumps([deleted - start, ended - deleted]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5:])
