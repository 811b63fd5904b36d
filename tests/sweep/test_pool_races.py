"""Commits that land while the pool is swept lose nothing, and a sweep that dies is taken up by the next."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

import penstock
from penstock.errors import Unavailable
from penstock.formats.files.lake import sweep as files_sweep
from penstock.formats.files.lake.referenced_files import ReferencedFiles
from penstock.lake.lake import Lake
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place
from tests.sweep.pool import Pool, names, swept

Step = Callable[[], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        yield lake


@pytest.fixture
def pool(lake: Lake) -> Pool:
    pool = Pool(lake)
    pool.write("t", "first")
    return pool


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have something done right before the first look at what is named, the second one, and so on."""

    def stepping(*steps: Step) -> None:
        waiting = iter(steps)

        class Stepping(ReferencedFiles):
            def read_new_commits(self) -> None:
                next(waiting, lambda: None)()
                super().read_new_commits()

        monkeypatch.setattr(files_sweep, "ReferencedFiles", Stepping)

    return stepping


def old(pool: Pool, *found: str) -> str:
    """A folder with files that were written long ago."""
    folder = pool.folder(days=30)
    pool.put(folder, *found, days=30)
    return folder


@pytest.mark.parametrize("number", [0, 1], ids=["before-the-listing", "before-the-removal"])
def test_an_old_file_that_is_committed_meanwhile_stays(
    lake: Lake, pool: Pool, stepping: Callable[..., None], number: int
) -> None:
    late, left = old(pool, "late"), old(pool, "left")
    steps: list[Step] = [lambda: None, lambda: None]
    steps[number] = lambda: pool.land_late("t", late, "late")
    stepping(*steps)
    assert swept(lake).names == (f"{left}left",)
    assert names(lake, "t") == {"first", "late"}


def test_a_job_that_commits_its_old_files_between_listing_and_removal_keeps_them(
    lake: Lake, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are listed, and none is removed, when the commit lands in another thread."""
    folder = old(pool, "late", "never")
    listed, landed = Event(), Event()
    listing = Place.entries

    def entries(place: Place, within: str = "") -> Iterator[BucketEntry]:
        yield from listing(place, within)
        if within == folder.partition("/")[0]:
            listed.set()
            assert landed.wait(20)

    def commit() -> None:
        assert listed.wait(20)
        pool.land_late("t", folder, "late", branch="main")
        landed.set()

    monkeypatch.setattr(Place, "entries", entries)
    thread = Thread(target=commit)
    thread.start()
    told = swept(lake)
    thread.join(20)
    assert (told.names, told.kept) == ((f"{folder}never",), 1)
    assert names(lake, "t") == {"first", "late"}


def test_a_file_that_is_committed_to_a_branch_made_meanwhile_stays(
    lake: Lake, pool: Pool, stepping: Callable[..., None]
) -> None:
    late = old(pool, "late")

    def step() -> None:
        lake.branch("dev").create()
        pool.land_late("other", late, "late", branch="dev")

    stepping(lambda: None, step)
    assert swept(lake).data_files == 0
    assert names(lake, "other", "dev") == {"late"}


def test_a_file_whose_branch_is_merged_and_deleted_meanwhile_stays(
    lake: Lake, pool: Pool, stepping: Callable[..., None]
) -> None:
    late, left = old(pool, "late"), old(pool, "left")
    lake.branch("dev").create()
    pool.land_late("other", late, "late", branch="dev")

    def step() -> None:
        lake.merge("dev", "main")
        lake.branch("dev").delete()

    stepping(step, lambda: None)
    assert swept(lake).names == (f"{left}left",)
    assert names(lake, "other") == {"late"}


def test_if_the_second_look_fails_nothing_goes(lake: Lake, pool: Pool, stepping: Callable[..., None]) -> None:
    left = old(pool, "left")

    def step() -> None:
        raise Unavailable("the store does not answer")

    stepping(lambda: None, step)
    told = lake.sweep_files(remove_data=True)
    assert (told.problem, told.data_files) == ("the store does not answer", 0)
    assert f"{left}left" in pool.files()


def test_a_storage_that_cannot_be_listed_is_told(
    lake: Lake, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old(pool, "left")

    def entries(place: Place, folder: str = "") -> Iterator[BucketEntry]:
        raise Unavailable(f"{place.url} does not answer {folder}")

    monkeypatch.setattr(Place, "entries", entries)
    told = lake.sweep_files(remove_data=True)
    assert "does not answer" in told.problem
    assert told.data_files == 0


def test_two_sweeps_at_once_remove_the_same_and_nothing_else(
    lake: Lake, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {old(pool, "x") + "x" for _ in range(20)}
    both = Barrier(2, timeout=20)
    delete = Place.delete

    def together(place: Place, doomed: list[str]) -> None:
        both.wait()
        delete(place, doomed)

    monkeypatch.setattr(Place, "delete", together)
    found: list[int] = []
    threads = [Thread(target=lambda: found.append(swept(lake).data_files)) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert found == [20, 20]
    assert not left & pool.files()
    assert names(lake, "t") == {"first"}


KILLED = """
import os
import penstock
from penstock.lake import sweep_engine
from penstock.storage.places import Place

sweep_engine.REMOVED_AT_ONCE = 2
delete, calls = Place.delete, []

def killed(place, names):
    delete(place, names)
    calls.append(names)
    if len(calls) == 2:
        os._exit(9)

Place.delete = killed
with penstock.open({url!r}) as lake:
    lake.sweep_files(remove_data=True)
"""


def test_a_sweep_that_is_killed_is_taken_up_by_the_next(lake: Lake, pool: Pool) -> None:
    left = {old(pool, "x") + "x" for _ in range(7)}
    program = textwrap.dedent(KILLED).format(url=lake.url)
    ran = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ran.returncode == 9
    assert len(left & pool.files()) == 3
    assert swept(lake).data_files == 3
    assert names(lake, "t") == {"first"}
    assert lake.fsck().damages == ()
