"""Runs SQL over a lake's tables by Spark Connect, and prints what comes of it: see ``test_sql_connect``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(jar: str, url: str, python: str = "") -> None:
    settings: dict[str, Any] = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": JVM,
        "spark.sql.catalog.lake": "io.penstock.spark.PenstockRelationCatalog",
        "spark.sql.catalog.lake.lake": url,
        **({"spark.sql.catalog.lake.python": python} if python else {}),
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
    run("CREATE VIEW lake.s.v AS SELECT id FROM lake.s.t WHERE id > 3")
    print("view", run("SELECT id FROM lake.s.v ORDER BY id"))
    run("DROP VIEW lake.s.v")
    run("BEGIN TRANSACTION IN lake")
    run("INSERT INTO lake.s.t VALUES (9, 'z')")
    other = spark.newSession()
    print("outside", other.sql("SELECT count(*) FROM lake.s.t").collect()[0][0])
    run("COMMIT IN lake")
    print("after", other.sql("SELECT count(*) FROM lake.s.t").collect()[0][0])
    if python:
        change_rows(spark, run)
    else:
        print("refused", refusal(lambda: run("DELETE FROM lake.s.t")))
    print("absent", refusal(lambda: run("SELECT * FROM lake.s.`t@none`")))
    spark.stop()


def change_rows(spark: SparkSession, run: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """Two sessions change rows at the same time, each where it works: by one Python process."""
    other = spark.newSession()
    merge = "MERGE INTO lake.s.t t USING (SELECT 1L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE"
    print("updated", run("UPDATE lake.s.t SET name = 'u' WHERE id < 3"))
    print("merged_rows", run(merge))
    print("once", [row[4] for row in run("DESCRIBE HISTORY lake.s.t LIMIT 3")])
    other.sql("USE REFERENCE dev IN lake").collect()
    run("BEGIN TRANSACTION IN lake")

    def delete(session: SparkSession) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in session.sql("DELETE FROM lake.s.t WHERE id = 3").collect()]

    with ThreadPoolExecutor(2) as threads:
        print("deleted", list(threads.map(delete, (spark, other))))
    print("inside", [other.table(name).count() for name in ("lake.s.t", "lake.s.`t@main`")])
    run("COMMIT IN lake")
    print("landed", run("SELECT count(*) FROM lake.s.t"))
    print("processes", *pythons_of(os.getpid()))


def pythons_of(ancestor: int) -> list[int]:
    """The processes below one that answer a driver without Python."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, parents = int(file.parent.name), set()
            words = (file.parent / "cmdline").read_bytes().split(b"\0")
            while pid > 1 and pid not in parents:
                parents.add(pid)
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if ancestor in parents and b"penstock.spark.attached" in words:
                found.append(int(file.parent.name))
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
