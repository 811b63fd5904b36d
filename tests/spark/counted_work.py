"""What Spark did for a statement, counted: jobs, tasks, rows that went from one task to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkWork:
    """The stages that ran, once the context that counts them is left."""

    def __init__(self) -> None:
        self.jobs = 0
        self.shuffled_rows = 0
        """Rows that tasks wrote for other tasks."""
        self.writing_tasks = 0
        """Tasks that wrote files."""
        self.read_rows = 0
        """Rows that were read from files, or of what is kept in memory."""
        self.written_rows = 0


@contextmanager
def counted_work(spark: SparkSession) -> Iterator[SparkWork]:
    """Count what Spark does meanwhile."""
    context: Any = spark.sparkContext._jsc.sc()
    store = context.statusStore()

    def jobs() -> dict[int, Any]:
        context.listenerBus().waitUntilEmpty()
        found = store.jobsList(None)
        return {found.apply(at).jobId(): found.apply(at) for at in range(found.size())}

    before, work = jobs(), SparkWork()
    yield work
    for number, job in jobs().items():
        if number in before:
            continue
        work.jobs += 1
        stages = job.stageIds()
        for at in range(stages.size()):
            stage = store.lastStageAttempt(stages.apply(at))
            if str(stage.status()) == "SKIPPED":
                continue
            work.shuffled_rows += stage.shuffleWriteRecords()
            work.read_rows += stage.inputRecords()
            work.written_rows += stage.outputRecords()
            work.writing_tasks += stage.numTasks() if stage.outputRecords() else 0
