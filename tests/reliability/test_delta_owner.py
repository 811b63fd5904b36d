"""Delta tables and their owner, for long: random lives, writers in processes and behind servers, kills."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

import penstock
from penstock.server.native import NATIVE
from tests.owner.machine import Chance, World
from tests.owner.machine_processes import Lakeside
from tests.owner.machine_worker import KEY, SETTINGS, Kept
from tests.owner.machine_writers import check
from tests.owner.test_many_writers import COMMITS, WRITERS, run
from tests.server.running import local

LIVES, DEEDS = 30, 60
KILLS, STEPS_MAX = 10, 400


@pytest.mark.reliability
def test_random_lives_with_random_deaths_leave_whole_tables(tmp_path: Path, seed: int) -> None:
    """30 lakes with 60 deeds each; every second one may be the last of its process."""
    deaths = refusals = 0
    for life in range(LIVES):
        print(f"life {seed + life}")
        world, chance = World(tmp_path / f"lake-{life}"), Chance(seed + life)
        for _ in range(DEEDS):
            world.act(chance.deed(world), chance.steps())
        world.check_whole()
        world.close()
        deaths, refusals = deaths + world.deaths, refusals + world.refusals
    print(f"{LIVES * DEEDS} deeds, {deaths} deaths, {refusals} refusals")
    assert deaths > LIVES
    assert refusals > LIVES


@pytest.mark.reliability
def test_eleven_processes_want_the_same_versions(tmp_path: Path, seed: int) -> None:
    lakeside = Lakeside(tmp_path / "lake", seed)
    lakeside.run([lakeside.task(f"writer-{number}", COMMITS, contends=True) for number in range(WRITERS)])
    with penstock.open(lakeside.home, settings=SETTINGS) as lake:
        check(lake.table(KEY), Kept.of(lakeside.journals).versions, WRITERS * COMMITS)


@pytest.mark.reliability
def test_eleven_writers_behind_two_servers_want_the_same_versions(tmp_path: Path) -> None:
    with ExitStack() as stack:
        lakes = []
        for _ in range(2):
            lake = stack.enter_context(penstock.open(tmp_path / "lake", settings=SETTINGS))
            server = stack.enter_context(local(lake.catalogue, [NATIVE]))
            lakes.append(stack.enter_context(penstock.open(server.url)))
        done = run(lakes, COMMITS)
        for each in lakes:
            check(each.table("t"), done, WRITERS * COMMITS)


@pytest.mark.reliability
def test_killed_processes_leave_whole_tables(tmp_path: Path, seed: int) -> None:
    """10 kills after a number of writes, 10 at any moment, of one lake."""
    lakeside = Lakeside(tmp_path / "lake", seed)
    for _ in range(KILLS):
        lakeside.kill(lakeside.chance.randrange(1, STEPS_MAX), count=20)
        lakeside.kill(None, count=20)
