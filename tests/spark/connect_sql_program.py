"""Runs SQL over a lake's tables by Spark Connect, and prints what comes of it: see ``test_sql_connect``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(jar: str, url: str) -> None:
    settings: dict[str, Any] = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.catalog.lake": "io.penstock.spark.PenstockCatalog",
        "spark.sql.catalog.lake.lake": url,
    }
    spark = SparkSession.builder.config(map=settings).remote("local[2]").getOrCreate()

    def run(statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in spark.sql(statement).collect()]

    def refusal(work: Callable[[], object]) -> str:
        try:
            work()
        except Exception as error:
            return str(error).strip().splitlines()[0]
        return "nothing"

    run("CREATE TABLE lake.s.t (id BIGINT, name STRING)")
    run("INSERT INTO lake.s.t VALUES (1, 'a'), (2, 'b')")
    run("CREATE BRANCH dev IN lake")
    run("INSERT INTO lake.s.`t@dev` VALUES (3, 'c')")
    print("main", run("SELECT count(*) FROM lake.s.t"))
    run("USE REFERENCE dev IN lake")
    print("dev", run("SELECT id FROM lake.s.t WHERE id > 1 ORDER BY id"))
    run("USE REFERENCE main IN lake")
    run("MERGE BRANCH dev INTO main IN lake")
    print("merged", spark.table("lake.s.t").where("id = 3").select("name").collect()[0][0])
    spark.range(4, 6).selectExpr("id", "'d' AS name").write.mode("append").saveAsTable("lake.s.t")
    spark.range(2).writeTo("lake.s.files").using("parquet").create()
    spark.range(2).write.format("delta").saveAsTable("lake.s.delta")
    print("tables", sorted(row[1] for row in run("SHOW TABLES IN lake.s")))
    print("listed", sorted(table.name for table in spark.catalog.listTables("lake.s")))
    spark.catalog.refreshTable("lake.s.t")
    print("log", run("SHOW LOG IN lake LIMIT 1")[0][-1])
    run("BEGIN TRANSACTION IN lake")
    run("INSERT INTO lake.s.t VALUES (9, 'z')")
    other = spark.newSession()
    print("outside", other.sql("SELECT count(*) FROM lake.s.t").collect()[0][0])
    run("COMMIT IN lake")
    print("after", other.sql("SELECT count(*) FROM lake.s.t").collect()[0][0])
    print("refused", refusal(lambda: run("DELETE FROM lake.s.t")))
    print("absent", refusal(lambda: run("SELECT * FROM lake.s.`t@none`")))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
