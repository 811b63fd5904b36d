"""Drivers that land files themselves: merges on the condition that nobody else moved the target."""

from __future__ import annotations

from functools import partial
from threading import Barrier

import pytest

from penstock import Lake
from penstock.errors import ReferenceChanged
from penstock.testing.threads import at_once
from tests.formats.files.lakes import EVENTS, paths, write

DRIVERS = 4


def _land(lake: Lake, job: str, together: Barrier) -> int:
    """Merge a job's branch as often as it takes, and say how often that was."""
    tries = 0
    while True:
        seen = lake.branch("main").head
        if tries == 0:
            together.wait(30)  # all have looked before any merges
        tries += 1
        try:
            lake.merge(job, keys={EVENTS: {"out/": "force"}}, if_head=seen)
        except ReferenceChanged:
            continue
        return tries


@pytest.mark.parametrize("drivers", [2, DRIVERS])
def test_of_drivers_that_land_in_one_folder_one_jobs_files_remain(lake: Lake, drivers: int) -> None:
    write(lake, "out/old", "else/kept")
    jobs = [f"job-{number}" for number in range(drivers)]
    for job in jobs:
        lake.branch(job).create()
        write(lake, *(f"out/{job}-{part}" for part in range(3)), branch=job, removed=["out/old"])
        write(lake, f"else/{job}", branch=job)
    together = Barrier(drivers)
    tries = at_once(*(partial(_land, lake, job, together) for job in jobs))
    assert sum(tries) > drivers, "somebody was told that the target moved"
    found = paths(lake)
    (winner,) = {path.rpartition("-")[0] for path in found if path.startswith("out/")}
    assert [path for path in found if path.startswith("out/")] == [f"{winner}-{part}" for part in range(3)]
    assert {path for path in found if path.startswith("else/")} == {
        "else/kept",
        *(f"else/{job}" for job in jobs),
    }


def test_a_merge_that_was_refused_because_the_target_moved_has_changed_nothing(lake: Lake) -> None:
    write(lake, "a")
    lake.branch("dev").create()
    seen = lake.branch("main").head
    write(lake, "b", branch="dev")
    write(lake, "c")
    with pytest.raises(ReferenceChanged):
        lake.merge("dev", keys={EVENTS: {"": "force"}}, if_head=seen)
    assert paths(lake) == ["a", "c"]
