"""Spark with Delta, in an environment of its own: takes SQL and gives rows.

    python program.py JAR[,JAR…]

Each statement is a line of the input, its text as JSON, and is answered with a line of JSON, {"rows": [...]}
or {"error": "..."}. A list of two statements is a race: the second one runs, from beginning to end, when the
first has read and written all that it does and is about to commit. Its answer has the answers of both. The
program ends with its input.
"""
# ruff: noqa: N802 - methods of a Java interface

from __future__ import annotations

import json
import os
import sys
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
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


OBSERVER = "org.apache.spark.sql.delta.TransactionExecutionObserver"
"""Delta's own hook for tests: it is told of each step of the transactions of a thread."""


class Interposing:
    """Has something happen once, before the first transaction of a thread that commits anything does so."""

    def __init__(self, happen: Any) -> None:
        self._happen = happen

    def startingTransaction(self, begin: Any) -> Any:
        return begin.apply()

    def preparingCommit(self, prepare: Any) -> Any:
        happen, self._happen = self._happen, None
        if happen is not None:
            happen()
        return prepare.apply()

    def createChild(self) -> Any:
        return self

    def beginDoCommit(self) -> None: ...

    def beginBackfill(self) -> None: ...

    def beginPostCommit(self) -> None: ...

    def transactionCommitted(self) -> None: ...

    def transactionAborted(self) -> None: ...

    def advanceToNextThreadObserver(self) -> None: ...

    class Java:
        implements = (OBSERVER,)


def run(spark: SparkSession, statement: str) -> dict[str, Any]:
    try:
        return {"rows": [list(row) for row in spark.sql(statement).collect()]}
    except (PySparkException, Py4JError) as error:
        return {"error": str(error)}


def race(spark: SparkSession, first: str, second: str) -> dict[str, Any]:
    answers: dict[str, Any] = {}

    def happen() -> None:
        # In a thread of its own, as another writer: the transaction of this one is under way.
        other = Thread(target=lambda: answers.update(second=run(spark, second)))
        other.start()
        other.join()

    observers = getattr(spark.sparkContext._jvm, OBSERVER)
    before = observers.getObserver()
    observers.setObserver(Interposing(happen))
    try:
        answers["first"] = run(spark, first)
    finally:
        observers.setObserver(before)
    return answers


def main() -> None:
    # Whatever else is printed, by the Java machine too, goes to the errors; the output holds answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    builder = SparkSession.builder.master("local[1]").appName("penstock").config("spark.jars", sys.argv[1])
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    for line in sys.stdin:
        asked = json.loads(line)
        answer = run(spark, asked) if isinstance(asked, str) else race(spark, *asked)
        print(json.dumps(answer, default=str), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
