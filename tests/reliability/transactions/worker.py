"""A process that runs transactions over lists in three formats, until they are done or it is killed.

`python -m tests.reliability.transactions.worker` takes a ``Task`` a line, and says when it is done with it.
"""

from __future__ import annotations

import random
import sys
from functools import partial
from uuid import UUID

import msgspec

from penstock.kernel.settings import Settings
from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.model.transactions import Isolation, Policy
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore
from tests.reliability.transactions.journal import Journal
from tests.reliability.transactions.pipeline import Pipeline
from tests.reliability.transactions.points import At, arm, die

SETTINGS = Settings(write_timeout_s=60, tries_max=100_000, publish_wait_s=0.3, promote_wait_s=0.3)
"""Whoever meets what a process left that was killed while it published does not wait for it for long."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do."""

    lake: str
    journal: str
    name: str
    seed: int
    count: int
    """How many transactions to run."""
    isolation: Isolation
    policy: Policy
    kill_at: At | None = None
    """Where to kill itself …"""
    kill_in: int = 0
    """… in the transaction of which number."""


def work(task: Task) -> None:
    chance, journal = random.Random(task.seed), Journal(task.journal)
    store = FaultyStore(open_store(task.lake, False, now_us))
    with open_lake(store, create=False, settings=SETTINGS) as lake:
        for number in range(task.count):
            pipeline = Pipeline(lake, journal, chance, task.isolation, task.policy, f"{task.name}-{number}")
            if task.kill_at is not None and number == task.kill_in:
                _run_and_die(pipeline, store, journal, task.kill_at, chance)
            elif chance.random() < 0.3:
                pipeline.run_until_it_lands()
            else:
                pipeline.run(UUID(int=chance.getrandbits(128)).hex)
    journal.close()


def _run_and_die(
    pipeline: Pipeline, store: FaultyStore, journal: Journal, at: At, chance: random.Random
) -> None:
    """Run a transaction, and die at a point of it or at the latest before anybody is told how it ended."""

    def dying(where: str) -> None:
        journal.died(where)
        die()

    id, step = UUID(int=chance.getrandbits(128)).hex, chance.randrange(5)  # noqa: A001
    there = partial(dying, str(at))
    arm(store, at, id, step, there)
    if at is At.IN_DATA:
        pipeline.interrupts = {step % 2: there}
    pipeline.run(id, before_telling=there if at is At.BEFORE_ANSWER else partial(dying, "later"))


def main() -> None:
    import lance  # noqa: F401 - what takes a second to load

    print("ready", flush=True)
    for line in sys.stdin:
        work(msgspec.json.decode(line, type=Task))
        print("done", flush=True)


if __name__ == "__main__":
    main()
