"""Many jobs to which anything may happen: tasks, executors, drivers and answers are lost at random."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.spark.cluster.cluster import Cluster
from tests.spark.cluster.drivers import Driver, Ended
from tests.spark.cluster.jobs import Job
from tests.spark.cluster.scene import Scene
from tests.spark.cluster.test_attempts import POINTS

ROUNDS = 20
KILL_MAX_S = 15.0
LIVES_MAX = 5
"""How many drivers try the same job before it is left alone."""


@pytest.mark.reliability
def test_whatever_happens_to_jobs_each_row_is_there_once_and_none_is_there_in_part(
    cluster: Cluster, scene: Scene, seed: int
) -> None:
    chance = random.Random(seed)
    crew = Crew(cluster, scene)
    expected: list[int] = []
    try:
        for number in range(ROUNDS):
            job = some_job(chance, number)
            after = list(job.ids) if job.mode == "overwrite" else [*expected, *job.ids]
            with scene.watched(expected, after):
                crew.finish(job, chance)
            expected = after
            assert scene.ids() == expected, f"after round {number}"
    finally:
        crew.close()
    scene.sweep()
    assert scene.ids() == expected


def some_job(chance: random.Random, number: int) -> Job:
    """A job with faults that it can live with, since no task fails often."""
    tasks = chance.randint(1, 8)
    hit = chance.sample(range(tasks), min(tasks, chance.randint(0, 3)))
    deeds = ["fail", "fail", "die"]
    return Job(
        first=number * 10_000,
        tasks=tasks,
        mode=chance.choice(["append", "append", "overwrite"]),
        idempotency_key=f"round-{number}",
        faults=tuple(f"{chance.choice(POINTS)} {chance.choice(deeds)} {task} 1" for task in hit),
    )


class Crew:
    """Drivers, one after the other."""

    def __init__(self, cluster: Cluster, scene: Scene) -> None:
        self._cluster, self._scene = cluster, scene
        self._driver: Driver | None = None

    def finish(self, job: Job, chance: random.Random) -> None:
        """Have a job done, by as many drivers as it takes, over a network that loses answers."""
        for life in range(LIVES_MAX):
            with self._danger(chance) if life < LIVES_MAX - 1 else _calm():
                try:
                    answer = self._living().do(job)
                except Ended:
                    self.close()
                    continue
            if not answer.error:
                return
            assert answer.error in ("OutcomeUnknown", "Unavailable"), answer
        raise AssertionError("a job came to nothing without anything happening to it")

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _living(self) -> Driver:
        if self._driver is None:
            self._driver = Driver(self._cluster, self._scene.address, self._scene.directory)
            self._driver.wait_until_ready()
        return self._driver

    @contextmanager
    def _danger(self, chance: random.Random) -> Iterator[None]:
        what = chance.choice(["nothing", "nothing", "cut", "kill"])
        timer = threading.Timer(chance.uniform(0, KILL_MAX_S), self._living().kill)
        if what == "cut":
            self._scene.door.after = self._cut_once
        elif what == "kill":
            timer.start()
        yield
        timer.cancel()
        if what == "kill":
            timer.join()
        self._scene.door.open(self._scene.lake)

    def _cut_once(self) -> None:
        self._scene.door.open(self._scene.lake)
        self._scene.network.cut_after("to_client", 0)


@contextmanager
def _calm() -> Iterator[None]:
    yield
