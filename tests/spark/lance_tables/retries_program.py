"""A Spark that tries tasks again: attempts fail at forced moments, and what the table has then is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock
from penstock.formats.lance.spark import tasks
from penstock.spark import read, session, write


def main(home: Path) -> None:
    told: dict[str, Any] = {}
    with penstock.open(home / "lake") as lake:
        conf = {"spark.ui.enabled": False, "spark.sql.shuffle.partitions": 2}
        spark = session(lake, master="local[2,3]", conf=conf)
        rows = spark.range(0, 30, numPartitions=3)
        write(rows.mapInArrow(failing_once(str(home / "in rows")), rows.schema), "t.rows", format="lance")
        told["in rows"] = sorted(one.id for one in read(spark, "t.rows").collect())

        original = tasks.make_write_task
        marks = home / "after writing"

        def writing(*given: Any) -> Any:
            return losing_first(original(*given), str(marks))

        tasks.make_write_task = writing  # type: ignore[assignment]
        write(rows, "t.written", format="lance")
        told["after writing"] = sorted(one.id for one in read(spark, "t.written").collect())
        told["attempts"] = len(list(home.glob("after writing.*")))
        told["left"] = _files(lake.warehouse) - 6
        spark.stop()
    print(json.dumps(told))


def _files(warehouse: str) -> int:
    return len(list(Path(warehouse).rglob("data/*.lance")))


def failing_once(mark: str) -> Any:
    """The rows, but the first attempt at the second partition fails amid them."""

    def fail(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch.slice(0, 5)
            if context.partitionId() == 1 and context.attemptNumber() == 0:
                Path(mark).touch()
                raise ValueError("amid the rows")
            yield batch.slice(5)

    return fail


def losing_first(write_task: Any, mark: str) -> Any:
    """A task whose first attempt at the second partition is lost when all is written."""

    def run(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        messages = list(write_task(batches))
        if context.partitionId() == 1:
            Path(f"{mark}.{context.attemptNumber()}").touch()
            if context.attemptNumber() == 0:
                raise ValueError("all was written")
        yield from messages

    return run


if __name__ == "__main__":
    main(Path(sys.argv[1]))
