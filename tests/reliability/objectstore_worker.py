"""A process that commits to a lake in a directory of files, until it is done or kills itself.

`python objectstore_worker.py '{"lake": …, "journal": …}'`; see ``Task`` of `worker.py` for what it can be
told. ``kill_at`` names a request: ``before put rows``.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import msgspec

from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.stores.objectstore import ObjectStore
from penstock.testing.client import Client
from penstock.testing.recorder import Recorder
from tests.reliability.worker import Task, resume, work
from tests.storage.hooked import HookedBucket


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    task = msgspec.json.decode(sys.argv[1], type=Task)
    bucket = HookedBucket(Path(task.lake))
    if task.kill_at:
        for _ in range(task.kill_after):
            bucket.at(task.kill_at, lambda: None)
        bucket.at(task.kill_at, kill)
    store = ObjectStore(bucket.url, bucket=bucket, create=False)
    client = Client(
        Kernel(store, (), Settings(write_timeout_s=60, tries_max=100_000)),
        Recorder(task.client, task.journal),
    )
    print("ready", flush=True)
    sys.stdin.readline()
    if task.resume:
        resume(client, task.resume)
    work(client, random.Random(task.seed), task.count)
    client.kernel.close()


if __name__ == "__main__":
    main()
