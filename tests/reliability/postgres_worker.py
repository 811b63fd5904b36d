"""As ``worker.py``, on a lake in PostgreSQL: ``Task.lake`` is its URL."""

from __future__ import annotations

import os
import signal
from typing import Any

from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.postgres import PostgresStore
from penstock.stores.postgres_sql import COMMIT
from penstock.stores.postgres_wire import PostgresSession
from penstock.testing.client import Client
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.recorder import Recorder
from tests.reliability import worker
from tests.reliability.worker import IN_COMMIT, Task


def open_client(task: Task, recorder: Recorder) -> Client:
    store = FaultyStore(PostgresStore(task.lake, create=False), locking=task.locking)
    if task.kill_at == IN_COMMIT:
        kill_in_commit(task.kill_after)
    elif task.kill_at:
        store.at(Point(task.kill_at), kill, skip=task.kill_after)
    return Client(Kernel(store, (), Settings(write_timeout_s=60, tries_max=100_000)), recorder)


def kill_in_commit(skip: int) -> None:
    """End the process at the n-th commit that was sent, before it is answered."""
    send, sent = PostgresSession._send_statements, [0]

    def send_and_die(session: PostgresSession, steps: Any) -> Any:
        asked = send(session, steps)
        if steps[-1] == COMMIT():
            sent[0] += 1
            if sent[0] > skip:
                kill()
        return asked

    setattr(PostgresSession, "_send_statements", send_and_die)  # noqa: B010 - a method is replaced


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    worker.open_client = open_client
    worker.main()
