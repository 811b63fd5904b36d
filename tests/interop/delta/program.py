"""Spark with Delta, in an environment of its own: takes SQL and gives rows.

    python program.py JAR[,JAR…]

Each statement is a line of the input, its text as JSON, and is answered with a line of JSON, {"rows": [...]}
or {"error": "..."}. The program ends with its input.
"""

from __future__ import annotations

import json
import os
import sys

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    # A handful of rows is faster interpreted than compiled.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    # The log may grow between two statements of a test, by somebody else's hand.
    "spark.databricks.delta.stalenessLimit": "0",
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.s3a.path.style.access": "true",
}


def main() -> None:
    # Whatever else is printed, by the Java machine too, goes to the errors; the output holds answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[1]").appName("penstock").config("spark.jars", sys.argv[1])
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        try:
            rows = [list(row) for row in spark.sql(json.loads(line)).collect()]
            answer = json.dumps({"rows": rows}, default=str)
        except (PySparkException, Py4JError) as error:
            answer = json.dumps({"error": str(error)})
        print(answer, file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
