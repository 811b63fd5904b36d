"""A driver of Spark that writes tables of three formats in one transaction, and is killed on the way.

`python -m tests.reliability.transactions.spark_worker '{"lake": …, "journal": …}'`; see ``SparkTask``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.model.transactions import Isolation, Policy
from penstock.spark.sessions import session
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore
from tests.reliability.transactions.history import Append, Read
from tests.reliability.transactions.journal import Journal
from tests.reliability.transactions.points import At, arm, die
from tests.reliability.transactions.tables import COLUMN, format_of, key_of, kind_of
from tests.reliability.transactions.worker import SETTINGS
from tests.spark.starting import QUICK_JVM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver is to do."""

    lake: str
    journal: str
    scratch: str
    transaction: str
    name: str
    lists: tuple[str, ...]
    """What it writes to, in that order; every second one it reads first, and writes anew."""
    kill_at: At
    step: int
    """The write in whose rows it is killed; or how many swaps of its row it outlives."""


def frame(spark: SparkSession, elements: tuple[str, ...], *, deadly: bool) -> DataFrame:
    """Elements as a DataFrame; a deadly one ends its driver when a task has handed out some of them."""
    rows = spark.createDataFrame([(one,) for one in elements], f"{COLUMN} string")
    if not deadly:
        return rows
    driver = os.getpid()

    def kill(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        os.kill(driver, signal.SIGKILL)

    return rows.mapInArrow(kill, rows.schema)


def main(task: SparkTask) -> None:
    store, journal = FaultyStore(open_store(task.lake, False, now_us)), Journal(task.journal)
    lake = open_lake(store, create=False, settings=SETTINGS)
    conf = {
        "spark.ui.enabled": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": task.scratch,
        "spark.driver.extraJavaOptions": QUICK_JVM,
    }
    spark = session(lake, master="local[2]", conf=conf)
    arm(store, task.kill_at, task.transaction, task.step)
    journal.begun(task.transaction, Isolation.SERIALIZABLE, Policy.REBASE)
    tx = lake.transaction("main", id=task.transaction, isolation="serializable", message=task.name)
    for number, name in enumerate(task.lists):
        elements: tuple[str, ...] = (f"<{task.name}-{number}>",)
        mode = "append"
        if number % 2:
            found = tuple(sorted(row[0] for row in tx.read(key_of(name), spark=spark).collect()))
            journal.stepped(tx.id, Read(name, found))
            elements, mode = (*found, *elements), "overwrite"
        journal.stepped(tx.id, Append(name, elements[-1]))
        deadly = task.kill_at is At.IN_DATA and number == task.step
        written_as = None if kind_of(name) == "delta" else format_of(name)
        tx.write(frame(spark, elements, deadly=deadly), key_of(name), mode=mode, format=written_as)
    tx.land()
    die()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=SparkTask))
