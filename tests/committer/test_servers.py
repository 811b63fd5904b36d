"""A server that is killed while a job commits, and is started again: the job has landed once, or has not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.formats.files.lake.answers import FilesWritten
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue, RemoteTimeouts
from penstock.model.jobs import JobState
from penstock.testing.faults import Point
from tests.jobs import lakes
from tests.servers import process

PROGRAM = Path(__file__).with_name("dying_server.py")
ROOT = str(Path(__file__).parents[2])
START_MAX_S = 60.0
STEPS = ["begins", "is committing", "lands", "is noted"]
QUICK = (2, Point.BEFORE_SWAP), (2, Point.AFTER_SWAP)


@contextmanager
def running(place: Path, port: int, *told: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server process, which is killed at the end if it lives."""
    command = [sys.executable, str(PROGRAM), str(place), str(port), *told]
    started = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": ROOT})
    try:
        while not process.accepts(port):
            assert started.poll() is None
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.mark.parametrize(
    ("step", "point"),
    [
        pytest.param(
            step,
            point,
            id=f"{point} that says that it {STEPS[step]}",
            marks=[] if (step, point) in QUICK else pytest.mark.reliability,
        )
        for step in range(len(STEPS))
        for point in (Point.BEFORE_SWAP, Point.AFTER_SWAP)
    ],
)
def test_property_57_a_server_that_is_killed_at_a_swap_of_a_job_has_made_it_or_has_not(
    tmp_path: Path, step: int, point: Point
) -> None:
    """Its client sends the same once more, to the server that is started again on what the first one left."""
    place = tmp_path / "lake"
    with penstock.init(place):
        pass
    with process.hold_port() as port:
        seen, written = _commit_over_a_kill(place, port, step, point)
    landed = step > 2 or (step, point) == (2, Point.AFTER_SWAP)
    assert seen == [[lakes.A] if landed else []]
    with penstock.open(place, create=False) as lake:
        assert written.commit is not None
        assert [one.id for one in lake.log()] == [written.commit.id]
        assert lakes.files(lake) == [lakes.A]
        assert lakes.job(lake).state is JobState.COMMITTED
        assert not lake.fsck().damages


def _commit_over_a_kill(
    place: Path, port: int, step: int, point: Point
) -> tuple[list[list[str]], FilesWritten]:
    """Run a job whose server is killed; what the server left, and what the job was answered."""
    seen: list[list[str]] = []
    is_done = threading.Event()

    def start_again(first: subprocess.Popen[bytes]) -> None:
        first.wait(START_MAX_S)
        with penstock.open(place, create=False) as left:
            seen.append(lakes.files(left))
        with running(place, port, "never", "0"):
            is_done.wait(START_MAX_S)

    with running(place, port, point.value, str(step)) as first:
        restart = threading.Thread(target=start_again, args=[first])
        restart.start()
        patience = RemoteTimeouts(total_s=START_MAX_S, wait_max_s=0.1)
        try:
            with Lake(
                RemoteCatalogue(f"http://127.0.0.1:{port}", patience=patience), author="tester"
            ) as lake:
                lakes.begin(lake)
                written = lakes.commit(lake)
        finally:
            is_done.set()
            restart.join(START_MAX_S)
    return seen, written
