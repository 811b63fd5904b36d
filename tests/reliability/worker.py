"""A process that commits to a lake and writes down what it does, until it is done or killed.

`python worker.py '{"lake": …, "journal": …}'`; see ``Task`` for what it can be told.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.errors import PenstockError
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.sqlite import SqliteStore
from penstock.testing.client import Client
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.recorder import Answer, Recorder, attempts, load

TABLES = [f"table{number}" for number in range(16)]
IN_COMMIT = "in commit"
"""Not a point of the store's port: SQLite was told to commit, and has not begun."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    lake: str
    journal: str
    client: str
    count: int = 0
    """How many requests to make."""
    seed: int = 0
    locking: bool = True
    """Whether a turn holds a lock, or objects are stored first and the swap can be lost."""
    kill_at: str = ""
    """The point at which to kill itself, with signal 9 …"""
    kill_after: int = 0
    """… once it was passed so many times."""
    resume: str = ""
    """A journal whose requests without an answer are to be made again first, under the same keys."""


def open_client(task: Task, recorder: Recorder) -> Client:
    data = SqliteStore(Path(task.lake) / "penstock.db", create=False)
    store = FaultyStore(data, locking=task.locking)
    if task.kill_at == IN_COMMIT:
        data._writer.set_trace_callback(_Killer(task.kill_after))
    elif task.kill_at:
        store.at(Point(task.kill_at), _kill, skip=task.kill_after)
    return Client(Kernel(store, (), Settings(write_timeout_s=60, tries_max=100_000)), recorder)


class _Killer:
    """Ends the process at the n-th COMMIT that SQLite is asked for."""

    def __init__(self, skip: int) -> None:
        self._skip = skip

    def __call__(self, statement: str) -> None:
        if statement == "COMMIT":
            self._skip -= 1
            if self._skip < 0:
                _kill()


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def resume(client: Client, journal: str) -> None:
    """Make every request again that has had no answer, or none that said what became of it."""
    made = attempts(load([journal]))
    settled = {one.call.key for one in made if one.answer in (Answer.OK, Answer.REFUSED)}
    for attempt in made:
        if attempt.call.key not in settled:
            settled.add(attempt.call.key)
            with suppress(PenstockError):
                client.repeat(attempt.call)


def work(client: Client, chance: random.Random, count: int) -> None:
    """Writes, updates of what was read, reads, and requests that are made again."""
    done: list[tuple[str, dict[str, str | None]]] = []
    for number in range(count):
        label, tables = f"{client.recorder.client}-{number}", chance.sample(TABLES, chance.randint(1, 4))
        what = chance.random()
        with suppress(PenstockError):
            if what < 0.45:
                values: dict[str, str | None] = dict.fromkeys(tables, label)
                client.write(values, key=label)
                done.append((label, values))
            elif what < 0.75:
                client.update(tables, label, key=label)
            elif what < 0.9 or not done:
                client.read(tables)
            else:
                key, values = chance.choice(done)
                client.write(values, key=key)


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    recorder = Recorder(task.client, task.journal)
    client = open_client(task, recorder)
    print("ready", flush=True)
    sys.stdin.readline()
    if task.resume:
        resume(client, task.resume)
    work(client, random.Random(task.seed), task.count)
    client.kernel.close()


if __name__ == "__main__":
    main()
