"""Rows of tables that one engine changes, as it is asked; run by ``row_changes.py``, on a Spark of its own.

    python row_changes_engine.py ENGINE DIRECTORY [JARS]

Reads requests and answers each, as lines of JSON. A change is answered by the seconds and the CPU seconds
that it took, those of Spark's process included.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = (
    "id",
    "id * 1.5D AS amount",
    "concat('customer ', id % 100000) AS customer",
    "date_add(date'2026-01-01', CAST(id % 365 AS INT)) AS day",
)
FILES: Final = 12
SETTINGS: Final[dict[str, bool | float | int | str | None]] = {
    "spark.ui.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # As few tasks as there are cores: by default, small steps have very many.
    "spark.sql.shuffle.partitions": os.cpu_count(),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
VECTORS: Final = "delta.enableDeletionVectors"
MATCHED: Final = "target.id = source.id"


class Engine:
    """What changes rows of tables, by their names."""

    spark: SparkSession

    def make(self, table: str, rows: int, has_vectors: bool) -> None:
        raise NotImplementedError

    def delete(self, table: str, where: str) -> None:
        raise NotImplementedError

    def update(self, table: str, column: str, value: str, where: str) -> None:
        raise NotImplementedError

    def merge(self, table: str, source: DataFrame) -> None:
        """Update the rows that match, and insert the others."""
        raise NotImplementedError

    def read(self, table: str) -> DataFrame:
        raise NotImplementedError

    def stop(self) -> None:
        self.spark.stop()


class Penstock(Engine):
    def __init__(self, directory: Path) -> None:
        import penstock
        import penstock.spark

        self._lake = penstock.open(directory / "lake", create=True)
        self._calls: Any = penstock.spark
        warehouse = {"spark.sql.warehouse.dir": directory / "tables"}
        self.spark = penstock.spark.session(self._lake, master="local[*]", conf={**SETTINGS, **warehouse})

    def make(self, table: str, rows: int, has_vectors: bool) -> None:
        self._calls.write(made(self.spark, rows), table, properties={VECTORS: str(has_vectors).lower()})

    def delete(self, table: str, where: str) -> None:
        self._calls.delete(self.spark, table, where)
        self._finish()

    def update(self, table: str, column: str, value: str, where: str) -> None:
        self._calls.update(self.spark, table, {column: value}, where)
        self._finish()

    def merge(self, table: str, source: DataFrame) -> None:
        merging = self._calls.merge(source, table, MATCHED)
        merging.when_matched_update_all().when_not_matched_insert_all().commit()
        self._finish()

    def read(self, table: str) -> DataFrame:
        found: DataFrame = self._calls.read(self.spark, table)
        return found

    def stop(self) -> None:
        super().stop()
        self._lake.close()

    def _finish(self) -> None:
        """Until everybody finds it in the table's log, as with the other engine."""
        self._lake.finish_background(60)


class DeltaSpark(Engine):
    def __init__(self, directory: Path, jars: Path) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            **SETTINGS,
            "spark.jars": ",".join(str(one) for one in sorted(jars.glob("*.jar"))),
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": os.cpu_count(),
            "spark.sql.warehouse.dir": str(directory / "tables"),
        }
        self.spark = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self._directory = directory

    def make(self, table: str, rows: int, has_vectors: bool) -> None:
        writer = made(self.spark, rows).write.format("delta")
        writer.option(VECTORS, str(has_vectors).lower()).save(str(self._directory / table))

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM {self._name(table)} WHERE {where}").collect()

    def update(self, table: str, column: str, value: str, where: str) -> None:
        self.spark.sql(f"UPDATE {self._name(table)} SET {column} = {value} WHERE {where}").collect()

    def merge(self, table: str, source: DataFrame) -> None:
        source.createOrReplaceTempView("arrived")
        self.spark.sql(
            f"MERGE INTO {self._name(table)} AS target USING arrived AS source ON {MATCHED} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def read(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(str(self._directory / table))

    def _name(self, table: str) -> str:
        return f"delta.`{self._directory / table}`"


def made(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, FILES).selectExpr(*COLUMNS)


class Requests:
    """Does what is asked of an engine."""

    def __init__(self, engine: Engine, directory: Path) -> None:
        self._engine, self._spark, self._directory = engine, engine.spark, directory
        self._rows: dict[str, int] = {}

    def make(self, table: str, rows: int, has_vectors: bool) -> str:
        self._engine.make(table, rows, has_vectors)
        self._rows[table] = rows
        return str(self._spark.version)

    def delete(self, table: str, number: int) -> list[float]:
        """One row of a thousand."""
        return self._timed(lambda: self._engine.delete(table, f"id % 1000 = {number * 7 + 3}"))

    def update(self, table: str, number: int) -> list[float]:
        """One row of a hundred."""
        where = f"id % 100 = {number * 7 + 5}"
        return self._timed(lambda: self._engine.update(table, "amount", "amount + 1", where))

    def merge(self, table: str, number: int) -> list[float]:
        """As many rows as one of a hundred: nine of ten are there, the others are new."""
        count = self._rows[table] // 100
        source = self._directory / f"source_{table}_{number}"
        first_new = self._rows[table] + number * count
        found = f"CASE WHEN id % 10 = 9 THEN {first_new} + id ELSE id * 100 + {number * 7 + 6} END AS id"
        arrived = self._spark.range(0, count, 1, 2).selectExpr(found).selectExpr(*COLUMNS)
        arrived.write.mode("overwrite").parquet(str(source))
        read = self._spark.read.parquet(str(source))
        return self._timed(lambda: self._engine.merge(table, read))

    def digest(self, table: str) -> list[Any]:
        """The same for the same rows, in whatever order."""
        told = "sum(pmod(xxhash64(id, amount, customer, day), 1000000007))"
        return [*self._engine.read(table).selectExpr("count(*)", "sum(id)", told).collect()[0]]

    def _timed(self, do: Any) -> list[float]:
        start, busy = perf_counter(), cpu_s(self._spark)
        do()
        return [perf_counter() - start, cpu_s(self._spark) - busy]


def cpu_s(spark: SparkSession) -> float:
    """What this process and that of its Spark have used of the cores so far."""
    gateway: Any = spark.sparkContext._gateway
    ticks = 0
    for process in (os.getpid(), gateway.proc.pid):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main(name: str, directory: Path, *jars: str) -> None:
    # Whatever else is printed, by the Java machine too, goes to the errors.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    directory.mkdir(parents=True, exist_ok=True)
    engine: Engine = DeltaSpark(directory, Path(jars[0])) if name == "delta" else Penstock(directory)
    requests = Requests(engine, directory)
    try:
        for line in sys.stdin:
            what, *given = json.loads(line)
            print(json.dumps(getattr(requests, what)(*given)), file=answers, flush=True)
    finally:
        engine.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
