"""Lakes that were moved or forked, and the files that they share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import penstock
from penstock.errors import JobOver, LakeExists, LakeMoved
from penstock.formats.files.lake.calls import ListJobs
from penstock.kernel import copy
from penstock.kernel.settings import Settings
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.fork_notes import FORKS, ForkNotes
from penstock.lake.lake import Lake
from tests.sweep.pool import Pool, names, swept
from tests.sweep.tables import LateClock


@pytest.fixture
def source(tmp_path: Path, later: LateClock) -> Path:
    """A lake with files, some of which only older commits name."""
    with opened(tmp_path / "lake", later) as lake:
        pool = Pool(lake)
        pool.write("t", *(f"p={number}/part" for number in range(40)))
        pool.write("t", "new", replaced=("",))
    return tmp_path / "lake"


def opened(place: Path, later: LateClock) -> Lake:
    return penstock.open(
        place, create=True, author="tester", settings=Settings(grace_s=0, nobody_writes=True), clock=later
    )


def forget_history(lake: Lake) -> None:
    lake.keep_history(max_commits=1)
    lake.sweep()


def test_files_of_a_moved_lake_are_read_and_swept_where_they_were(
    source: Path, tmp_path: Path, later: LateClock
) -> None:
    move_lake(source, tmp_path / "there", clock=later)
    with opened(tmp_path / "there", later) as lake, opened(source, later) as before:
        pool = Pool(lake)
        assert pool.url == Pool(before).url
        assert names(lake, "t") == {"new"}
        assert len(names(lake, "t", "main~1")) == 40
        assert lake.fsck().damages == ()
        pool.write("t", "later")
        left = pool.put(pool.folder(), "x")
        later.days = 8
        assert set(swept(lake).names) == left
        for is_dry in (False, True):  # it names less than the lake does by now
            with pytest.raises(LakeMoved):
                before.sweep_files(remove_data=True, dry_run=is_dry)
        assert names(lake, "t") == {"new", "later"}


def test_jobs_are_left_behind_by_a_move_and_their_branches_go(
    source: Path, tmp_path: Path, later: LateClock
) -> None:
    with opened(source, later) as lake:
        begun = Pool(lake).begin("t", own_branch=True)
        left = Pool(lake).put(Pool(lake).below(begun), "a")
    move_lake(source, tmp_path / "there", clock=later)
    with opened(source, later) as lake, pytest.raises(LakeMoved):
        Pool(lake).commit(begun, "a")
    with opened(tmp_path / "there", later) as lake:
        pool = Pool(lake)
        assert lake.do(ListJobs(all=True)) == ()
        with pytest.raises(JobOver):
            pool.commit(begun, "a")
        assert begun.job.own_branch in [one.name for one in lake.branches()]
        later.days = 8
        told = swept(lake)
        assert (told.branches, set(told.names)) == (1, left)
        assert [one.name for one in lake.branches()] == ["main"]


def test_files_that_a_fork_may_need_stay_until_its_note_is_removed(
    source: Path, tmp_path: Path, later: LateClock
) -> None:
    forked = copy_lake(source, tmp_path / "fork", clock=later)
    with opened(source, later) as lake, opened(tmp_path / "fork", later) as fork:
        pool = Pool(lake)
        after = pool.put(pool.folder(), "after-the-fork")
        forget_history(lake)
        later.days = 8
        told = swept(lake)
        assert (set(told.names), told.forked) == (after, 40)
        assert len(names(fork, "t", "main~1")) == 40
        (note,) = (pool.root / FORKS).iterdir()
        assert all(one in note.read_text() for one in (forked.id, str(tmp_path / "fork")))
        note.unlink()
        assert swept(lake).data_files == 40
        assert names(fork, "t") == {"new"}


def test_a_fork_sweeps_what_it_has_written_and_nothing_of_its_source(
    source: Path, tmp_path: Path, later: LateClock
) -> None:
    copy_lake(source, tmp_path / "fork", clock=later)
    with opened(source, later) as lake, opened(tmp_path / "fork", later) as fork:
        theirs, ours = Pool(lake), Pool(fork)
        left = ours.put(ours.folder(), "x")
        ours.write("t", "forks-own")
        theirs.put(theirs.folder(), "x")
        forget_history(fork)
        later.days = 8
        assert set(swept(fork).names) == left
        assert len(names(lake, "t", "main~1")) == 40
        assert swept(lake).data_files == 1
        assert names(fork, "t") == {"new", "forks-own"}


def test_while_a_fork_is_under_way_everything_stays(
    source: Path, tmp_path: Path, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(copy, "fsck", killed)
        with pytest.raises(Killed):
            copy_lake(source, tmp_path / "fork", clock=later)
    with opened(source, later) as lake:
        pool = Pool(lake)
        after = pool.put(pool.folder(), "x")
        forget_history(lake)
        later.days = 8
        assert (swept(lake).data_files, swept(lake).forked) == (0, 41)
        later.days = 0
        copy_lake(source, tmp_path / "fork", clock=later)
        with opened(tmp_path / "fork", later) as fork:
            assert len(names(fork, "t", "main~1")) == 40
        later.days = 8
        assert pool.files() >= after
        assert swept(lake).forked == 41, "it is as old as the fork, which is complete now"
        copy_lake(source, tmp_path / "fork", clock=later)
        late = pool.put(pool.folder(), "y")
        later.days = 16
        assert set(swept(lake).names) == late, "a fork that is complete is not noted anew"


def test_a_second_fork_to_a_place_is_noted_before_it_begins_as_the_first_was(
    source: Path, tmp_path: Path, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note of the first one, which is gone, tells a time that is too early for the second."""

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    place = tmp_path / "fork"
    copy_lake(source, place, clock=later)
    shutil.rmtree(place)
    with opened(source, later) as lake:
        pool = Pool(lake)
        lake.branch("dev").create()
        pool.write("t", "x", branch="dev")
        with monkeypatch.context() as patch:
            patch.setattr(ForkNotes, "note_complete_fork", killed)
            with pytest.raises(Killed):
                copy_lake(source, place, clock=later)
        lake.branch("dev").delete()
        later.days = 8
        told = swept(lake)
        assert (told.data_files, told.forked) == (0, 1)
        with opened(place, later) as fork:
            assert names(fork, "t", "dev") == {"new", "x"}
        copy_lake(source, place, clock=later)
        late = pool.put(pool.folder(), "y", days=-9)
        later.days = 18
        assert set(swept(lake).names) == late, "it is noted that the second fork is complete"


def test_a_fork_that_is_refused_leaves_no_note(source: Path, tmp_path: Path, later: LateClock) -> None:
    """Nobody would ever complete it, and everything would stay for ever."""
    opened(tmp_path / "other", later).close()
    with pytest.raises(LakeExists):
        copy_lake(source, tmp_path / "other", clock=later)
    with opened(source, later) as lake:
        left = Pool(lake).put(Pool(lake).folder(), "x")
        later.days = 8
        assert set(swept(lake).names) == left


def test_a_note_that_nobody_can_read_keeps_everything(source: Path, later: LateClock) -> None:
    with opened(source, later) as lake:
        pool = Pool(lake)
        pool.put(pool.folder(), "x")
        lake.places.open_place(pool.url).put(f"{FORKS}somebody's", b"?")
        later.days = 8
        assert (swept(lake).data_files, swept(lake).forked) == (0, 1)


def test_a_lake_without_files_is_forked_without_a_note(tmp_path: Path, later: LateClock) -> None:
    with opened(tmp_path / "lake", later) as lake:
        warehouse = Path(lake.warehouse)
    copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
    assert not warehouse.exists()
