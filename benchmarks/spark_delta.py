"""Plain Parquet and a Delta table, written in turns by Delta Spark; run by ``spark.py`` in its environment.

Prints one line: the seconds of each round, as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from time import perf_counter

from pyspark.sql import SparkSession

COLUMNS = (
    "id",
    "id * 1.5 AS amount",
    "concat('customer ', id % 100000) AS customer",
    "date_add(date'2026-01-01', CAST(id % 365 AS INT)) AS day",
)


def main(place: Path, count: int, rounds: int, jars: Path) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, bool | float | int | str | None] = {
        "spark.jars": ",".join(str(one) for one in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(place / "tables"),
    }
    spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    plain: list[float] = []
    delta: list[float] = []
    spark.range(1000).write.format("delta").save(str(place / "warm"))
    df = spark.range(0, count, 1, 4).selectExpr(*COLUMNS)
    for number in range(rounds):
        for took, form in ((plain, "parquet"), (delta, "delta")):
            directory = place / f"{form}{number}"
            start = perf_counter()
            df.write.format(form).save(str(directory))
            took.append(perf_counter() - start)
            shutil.rmtree(directory)
    spark.stop()
    print(json.dumps([plain, delta]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
