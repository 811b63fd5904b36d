"""What a commit and a merge of a table of files cost: what is changed, and not what is there (rule K4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from threading import Event, Thread
from typing import Any, Protocol

import pytest

import penstock
from penstock import Lake
from penstock.errors import MergeConflict
from penstock.formats.files import format as files_format
from penstock.formats.files import merge_rules
from penstock.stores.port import Store
from penstock.testing import CountingStore
from penstock.testing.counting_store import Counts
from penstock.testing.threads import at_once
from tests.formats.files.lakes import new_store, overwrite, paths, write

SIZES = (1_000, 30_000)
CHANGED = 100


def _names(size: int) -> list[str]:
    return [f"day={number % 100:02}/part-{number:06}" for number in range(size)]


def _some(size: int, writer: str) -> list[str]:
    """New paths among those that are there."""
    return [f"{one}-{writer}" for one in Random(size).sample(_names(size), CHANGED)]


class Work(Protocol):
    """Something that is done to a lake whose table has so many files."""

    def __call__(self, lake: Lake, size: int) -> object: ...


def _cost(store: Store, work: Callable[[Lake], object]) -> Counts:
    """What a process that knows nothing yet asks of the store."""
    counting = CountingStore(store)
    with penstock.open(counting) as lake:
        before = counting.counts
        work(lake)
        return counting.counts - before


def _costs(work: Work, prepare: Work = lambda _lake, _size: None) -> list[Counts]:
    found = []
    for size in SIZES:
        store = new_store()
        with penstock.open(store) as lake:
            write(lake, *_names(size))
            lake.branch("dev").create()
            prepare(lake, size)
        found.append(_cost(store, partial(work, size=size)))
    return found


def _check_flat(costs: list[Counts]) -> None:
    """Thirty times the table is at most two levels more of its tree, and a request for each on the way."""
    small, large = costs
    for one in costs:
        assert one.objects_written <= CHANGED * 10
        assert one.objects_read <= CHANGED * 20
    assert large.objects_written <= 3 * small.objects_written
    assert large.requests <= small.requests + 20


def _write(lake: Lake, size: int) -> None:
    write(lake, *_some(size, "main"))


def _write_on_dev(lake: Lake, size: int) -> None:
    write(lake, *_some(size, "dev"), branch="dev")


def _write_on_both(lake: Lake, size: int) -> None:
    _write(lake, size)
    _write_on_dev(lake, size)


def _overwrite(lake: Lake, size: int) -> None:
    overwrite(lake, f"instead-of-{size}")


def _merge(lake: Lake, size: int) -> None:
    lake.merge("dev", message=f"into {size}")


def test_a_commit_costs_what_it_changes() -> None:
    _check_flat(_costs(_write))


def test_a_merge_costs_what_both_sides_changed() -> None:
    _check_flat(_costs(_merge, prepare=_write_on_both))


def test_an_overwrite_of_a_whole_table_does_not_read_it() -> None:
    assert all(one.objects_read < 30 for one in _costs(_overwrite))


def test_a_table_that_only_the_source_changed_is_not_read() -> None:
    assert all(one.objects_read < 30 for one in _costs(_merge, prepare=_write_on_dev))


def test_sixty_four_jobs_on_one_table_all_land(lake: Lake) -> None:
    write(lake, "first")
    jobs = [[f"day={number}/{job}" for number in range(5)] for job in range(64)]
    at_once(*(partial(write, lake, *files) for files in jobs))
    assert len(paths(lake)) == 1 + 64 * 5
    assert len(lake.log("main", limit=None)) == 65


@pytest.fixture
def elsewhere(lake: Lake) -> Iterator[Lake]:
    """The lake as another process has it, whose requests wait for none of this one's."""
    with penstock.open(lake.kernel.store, create=False) as opened_again:
        yield opened_again


def test_a_large_write_is_prepared_again_rather_than_hold_up_the_others(
    lake: Lake, elsewhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not for ever: others that write all the time do not keep it from landing."""
    monkeypatch.setattr(files_format, "AT_TURN_MAX_PATHS", 5)
    prepared, others = [], iter(range(100))
    plain = files_format.FilesFormat.prepare

    def and_another_lands(self: files_format.FilesFormat, *asked: Any) -> Any:
        found = plain(self, *asked)
        if found.write.path_count > 1:
            prepared.append(found)
            write(elsewhere, f"other-{next(others)}")
        return found

    monkeypatch.setattr(files_format.FilesFormat, "prepare", and_another_lands)
    write(lake, *(f"large-{number}" for number in range(6)))
    assert len(prepared) == 1 + files_format.ROUNDS_MAX
    assert len(paths(lake)) == 6 + 1 + files_format.ROUNDS_MAX
    write(lake, *(f"small-{number}" for number in range(5)))
    assert len(prepared) == 2 + files_format.ROUNDS_MAX


def test_a_write_that_replaces_much_is_prepared_again_however_little_it_brings(
    lake: Lake, elsewhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_format, "AT_TURN_MAX_PATHS", 5)
    write(lake, *(f"day=1/{number}" for number in range(9)), "day=2/0")
    prepared, others = [], iter(range(100))
    plain = files_format.FilesFormat.prepare

    def and_another_lands(self: files_format.FilesFormat, *asked: Any) -> Any:
        found = plain(self, *asked)
        if found.write.replaced:
            prepared.append(found)
            write(elsewhere, f"other-{next(others)}")
        return found

    monkeypatch.setattr(files_format.FilesFormat, "prepare", and_another_lands)
    write(lake, "day=1/new", replaced=["day=1/"])
    assert len(prepared) == 1 + files_format.ROUNDS_MAX
    write(lake, "day=2/new", replaced=["day=2/"])
    overwrite(lake, "new")
    assert len(prepared) == 3 + files_format.ROUNDS_MAX, "these take no look at many files"


@pytest.fixture
def busy(lake: Lake, elsewhere: Lake, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A lake on whose branch another write lands whenever a merge is prepared, and whether the merge was at
    its turn each time that it was worked out."""
    turns: list[bool] = []
    others = iter(range(100))
    plain = merge_rules.merge_files

    def and_another_lands(*asked: Any) -> Any:
        is_turn = not asked[0].may_read
        turns.append(is_turn)
        try:
            return plain(*asked)
        finally:
            if not is_turn:
                write(elsewhere, f"other-{next(others)}")

    monkeypatch.setattr(files_format, "AT_TURN_MAX_PATHS", 5)
    monkeypatch.setattr(merge_rules, "merge_files", and_another_lands)
    write(lake, "first")
    lake.branch("dev").create()
    write(lake, "here")
    return turns


def test_a_large_merge_is_prepared_again_rather_than_hold_up_the_others(lake: Lake, busy: list[bool]) -> None:
    write(lake, *(f"large-{number}" for number in range(6)), branch="dev")
    lake.merge("dev")
    assert busy == [False] * (1 + files_format.ROUNDS_MAX) + [True]
    assert len(paths(lake)) == 2 + 6 + 1 + files_format.ROUNDS_MAX


def test_a_small_merge_is_worked_out_at_its_turn(lake: Lake, busy: list[bool]) -> None:
    write(lake, "small", branch="dev")
    lake.merge("dev")
    assert busy == [False, True]


def test_a_merge_that_is_refused_is_prepared_again_rather_than_hold_up_the_others(
    lake: Lake, busy: list[bool]
) -> None:
    write(lake, "here", branch="dev")
    with pytest.raises(MergeConflict):
        lake.merge("dev")
    assert busy == [False] * (1 + files_format.ROUNDS_MAX) + [True]


def test_a_large_commit_that_is_repeated_is_prepared_again_too(lake: Lake, busy: list[bool]) -> None:
    write(lake, *(f"large-{number}" for number in range(6)), branch="dev")
    write(lake, "small", branch="dev")
    lake.transplant("dev~2..dev")
    assert busy == [False, False] * (1 + files_format.ROUNDS_MAX) + [True, True]
    assert len(paths(lake)) == 2 + 7 + 2 * (1 + files_format.ROUNDS_MAX)


def test_a_merge_that_finds_the_table_as_it_was_prepared_does_no_work_at_its_turn(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, "a")
    lake.branch("dev").create()
    write(lake, "b", branch="dev")
    write(lake, "c")
    asked = []
    plain = merge_rules.merge_files

    def counted(*args: Any) -> Any:
        asked.append(args)
        return plain(*args)

    monkeypatch.setattr(merge_rules, "merge_files", counted)
    lake.merge("dev")
    assert len(asked) == 1
    assert paths(lake) == ["a", "b", "c"]


def test_a_merge_whose_target_moved_since_it_was_prepared_looks_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, "a")
    lake.branch("dev").create()
    write(lake, "b", branch="dev")
    write(lake, "c")
    arrived, go = Event(), Event()
    plain = merge_rules.merge_files

    def held(*asked: Any) -> Any:
        done = plain(*asked)
        if not arrived.is_set():
            arrived.set()
            assert go.wait(30)
        return done

    monkeypatch.setattr(merge_rules, "merge_files", held)
    bringing = Thread(target=lake.merge, args=("dev",))
    bringing.start()
    assert arrived.wait(30)
    write(lake, "d")
    go.set()
    bringing.join(30)
    assert paths(lake) == ["a", "b", "c", "d"]
