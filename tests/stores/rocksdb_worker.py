"""A process that commits to a lake in RocksDB from several threads, and writes down what it does.

`python -m tests.stores.rocksdb_worker '{"lake": …}'`; see ``RocksdbTask`` for what it can be told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from functools import partial
from pathlib import Path
from threading import Lock

import msgspec

from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.rocksdb import RocksdbStore
from penstock.testing.client import Client
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.recorder import Recorder
from penstock.testing.threads import at_once
from tests.reliability.worker import resume, work

BEFORE_SYNC = "before sync"
"""Not a point of the store's port: a batch is written, and not yet durable."""


class RocksdbTask(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to do."""

    lake: str
    journals: list[str]
    """One a thread."""
    count: int
    """How many requests a thread makes."""
    seed: int
    kill_at: str = ""
    """The point at which to kill itself, with signal 9 …"""
    kill_after: int = 0
    """… once it was passed so many times."""
    resume: list[str] = []
    """Journals whose requests without an answer are to be made again first, under the same keys."""


class _DiesBeforeSync(RocksdbStore):
    def __init__(self, path: str, skip: int) -> None:
        self._left, self._left_lock = skip, Lock()
        super().__init__(path, create=False)

    def _sync_batch(self, number: int) -> None:
        with self._left_lock:
            self._left -= 1
            if self._left < 0:
                _kill()
        super()._sync_batch(number)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def open_store(task: RocksdbTask) -> FaultyStore:
    if task.kill_at == BEFORE_SYNC:
        return FaultyStore(_DiesBeforeSync(task.lake, task.kill_after))
    store = FaultyStore(RocksdbStore(task.lake, create=False))
    if task.kill_at:
        store.at(Point(task.kill_at), _kill, skip=task.kill_after)
    return store


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=RocksdbTask)
    kernel = Kernel(open_store(task), (), Settings(write_timeout_s=60, tries_max=100_000))
    recorders = [Recorder(Path(journal).stem, journal) for journal in task.journals]
    for journal in task.resume:
        resume(Client(kernel, recorders[0]), journal)

    def run(number: int) -> None:
        work(Client(kernel, recorders[number]), random.Random(task.seed + number), task.count)

    at_once(*(partial(run, number) for number in range(len(recorders))))
    kernel.close()


if __name__ == "__main__":
    main()
