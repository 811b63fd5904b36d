"""What tests of Lance tables in Spark share: what a table has afterwards, and moments that jobs wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from penstock.errors import PenstockError
from penstock.formats.lance.spark import output
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark import write
from penstock.spark.requests import WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 60
ITEMS = "vectors.items"

Result = TypeVar("Result")


def dataset(lake: Lake, key: str = ITEMS, ref: str | None = None) -> Any:
    """The table, as Lance itself opens it through the lake."""
    import lance

    return lance.dataset(namespace_client=lake.lance(ref), table_id=[*Key.parse(key)])


def ids(lake: Lake, key: str = ITEMS, ref: str | None = None) -> list[int]:
    """The values of the column ``id``."""
    return sorted(dataset(lake, key, ref).to_table(columns=["id"]).column("id").to_pylist())


def data_files(lake: Lake) -> set[str]:
    """The data files of all Lance tables, whether a version has them or not."""
    return {str(one) for one in Path(lake.warehouse).rglob("data/*.lance")}


def head(lake: Lake, branch: str | None = None) -> str:
    return lake.branch(branch).head


def rows(spark: SparkSession, first: int, count: int = 3, tasks: int = 1) -> DataFrame:
    """Rows with ids from ``first``, and a vector of two numbers in each."""
    found = spark.range(first, first + count, numPartitions=tasks)
    return found.selectExpr("id", "array(float(id), float(1)) AS v")


def save(df: DataFrame, key: str = ITEMS, mode: str = "append", **more: Any) -> WriteResult | None:
    done: WriteResult | None = write(df, key, format="lance", mode=mode, **more)
    return done


def after_writing(monkeypatch: pytest.MonkeyPatch, happen: Callable[[], Any]) -> None:
    """Have something happen whenever a job has written its fragments, and before it commits them."""
    original = output.write_fragments

    def run(*given: Any) -> output.LanceOutput:
        done = original(*given)
        happen()
        return done

    monkeypatch.setattr(output, "write_fragments", run)


@contextmanager
def failing_last(df: DataFrame, go: Path) -> Iterator[DataFrame]:
    """The rows of two tasks, of which the second fails, when Spark knows that the first has ended well."""

    def fail(batches: Any) -> Any:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None or context.partitionId() == 0:
            yield from batches
            return
        while not go.exists():
            time.sleep(0.01)
        raise ValueError("no more")

    over = Event()
    tracker = df.sparkSession.sparkContext.statusTracker()

    def watch() -> None:
        while not over.wait(0.02):
            stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
            if any(one is not None and one.numCompletedTasks for one in stages):
                go.touch()

    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        try:
            yield df.mapInArrow(fail, df.schema)
        finally:
            over.set()
            go.touch()
            watching.result()


def once(happen: Callable[[], Any]) -> Callable[[], None]:
    """The same, but the first time only."""
    left = [happen]

    def do() -> None:
        if left:
            left.pop()()

    return do


def together(monkeypatch: pytest.MonkeyPatch, *work: Callable[[], Result]) -> list[Result | PenstockError]:
    """Run jobs at once: none commits before all have written for the first time. What each came to."""
    all_written, waited = Barrier(len(work)), list[None]()

    def wait() -> None:
        if len(waited) < len(work):
            waited.append(None)
            all_written.wait(WAIT_S)

    after_writing(monkeypatch, wait)

    def one(do: Callable[[], Result]) -> Result | PenstockError:
        try:
            return do()
        except PenstockError as problem:
            return problem

    with ThreadPoolExecutor(len(work)) as threads:
        return list(threads.map(one, work))
