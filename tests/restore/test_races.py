"""Restores while others write: between preparation and turn, two at once, answers that are lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

import penstock
from penstock.errors import KeyNotFound, OutcomeUnknown, PenstockError, ReferenceChanged
from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.testing import FaultyStore, Point
from tests.restore.tables import FORMATS, key_of, rows_for_others, rows_of, write


class Racing:
    """A lake whose store stops at its points, and the same lake as another process has it."""

    def __init__(self, place: Path) -> None:
        with penstock.open(place, create=True, author="tester"):
            pass
        self.store = FaultyStore(open_store(str(place), False, now_us))
        self.lake, self.other = open_lake(self.store, author="tester"), penstock.open(place, author="other")

    def before_turn(self, work: Callable[[], object]) -> None:
        """Have the other process do something when a request was prepared, and its turn comes."""
        self.store.at(Point.TURN, work, name="main")


@pytest.fixture
def racing(tmp_path: Path) -> Iterator[Racing]:
    racing = Racing(tmp_path / "lake")
    yield racing
    racing.store.heal()
    racing.other.close()
    racing.lake.close()


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_what_lands_between_preparation_and_turn_is_in_history_and_not_in_the_result(
    racing: Racing, format_name: str, mode: str
) -> None:
    lake, key = racing.lake, key_of(format_name)
    then = write(lake, key, [1])
    write(lake, key, [2])
    landed: list[str] = []
    racing.before_turn(lambda: landed.append(write(racing.other, key, [3], mode=mode)))
    lake.restore(key, to=then)
    assert len(landed) == 1
    assert lake.show().parents == (landed[0],)
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1]
    assert 3 in rows_of(lake, key, landed[0])
    racing.before_turn(lambda: write(racing.other, key_of(format_name, "new"), [4]))
    lake.restore(all=True, to=then)
    assert [str(one.key) for one in lake.branch().tables()] == [key]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_table_that_is_dropped_or_created_anew_just_before_the_turn_is_restored_all_the_same(
    racing: Racing, format_name: str
) -> None:
    lake, key = racing.lake, key_of(format_name)
    then = write(lake, key, [1])
    write(lake, key, [2])
    racing.before_turn(lambda: racing.other.branch().drop(key))
    lake.restore(key, to=then)
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1]
    write(lake, key, [2])

    def create_anew() -> None:
        racing.other.branch().drop(key)
        write(racing.other, key, [9])

    racing.before_turn(create_anew)
    lake.restore(key, to=then)
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1]


@pytest.mark.parametrize("format_name", ["delta", "lance"])
def test_a_version_is_not_that_of_a_table_which_took_the_place_meanwhile(
    racing: Racing, format_name: str
) -> None:
    lake, key = racing.lake, key_of(format_name)
    write(lake, key, [1])
    write(lake, key, [2])

    def create_anew() -> None:
        racing.other.branch().drop(key)
        write(racing.other, key, [8])
        write(racing.other, key, [9])

    racing.before_turn(create_anew)
    with pytest.raises(
        KeyNotFound,
        match=f"'{key}' was dropped and created again while it was being restored.*restored$",
    ):
        lake.table(key).restore(version=1)
    assert rows_of(lake, key) == [8, 9]


def test_a_restore_that_names_the_head_is_refused_if_somebody_was_faster(racing: Racing) -> None:
    lake = racing.lake
    then = write(lake, "delta.t", [1])
    head = write(lake, "delta.t", [2])
    racing.before_turn(lambda: write(racing.other, "delta.t", [3]))
    with pytest.raises(ReferenceChanged):
        lake.restore(all=True, to=then, if_head=head)
    assert rows_of(lake, "delta.t") == [1, 2, 3]


@pytest.mark.parametrize("format_name", FORMATS)
def test_two_restores_at_once_are_done_one_after_the_other(racing: Racing, format_name: str) -> None:
    lake, key = racing.lake, key_of(format_name)
    states = {write(lake, key, [number]): list(range(number + 1)) for number in range(3)}
    first, second, _ = states
    gate = racing.store.pause(Point.TURN, name="main")
    failed: list[PenstockError] = []

    def restore(to: str) -> None:
        try:
            lake.restore(key, to=to)
        except PenstockError as problem:
            failed.append(problem)

    threads = [Thread(target=restore, args=(one,)) for one in (first, second)]
    threads[0].start()
    gate.wait_until_reached()
    threads[1].start()
    racing.other.restore(key, to=second)
    gate.open()
    for thread in threads:
        thread.join(60)
    assert failed == []
    told = [one for one in lake.log(limit=6) if one.message.startswith("restore")]
    assert len(told) in (2, 3)  # one that finds its state there has nothing to do
    newest = told[0].message.removeprefix(f"restore {key} to ")
    (rows,) = [rows for commit, rows in states.items() if commit.startswith(newest)]
    assert rows_of(lake, key) == rows_for_others(lake, key) == rows


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_restore_whose_answer_was_lost_is_done_once(racing: Racing, format_name: str) -> None:
    lake, key = racing.lake, key_of(format_name)
    then = write(lake, key, [1])
    write(lake, key, [2])
    racing.store.lose_answer(name="main")
    result = lake.restore(key, to=then, idempotency_key="once")
    assert rows_of(lake, key) == rows_for_others(lake, key) == [1]
    write(lake, key, [3])
    again = racing.other.restore(key, to=then, idempotency_key="once")
    assert again.commits == result.commits
    assert rows_of(lake, key) == [1, 3]
    assert sum(one.message.startswith("restore") for one in lake.log(limit=9)) == 1


@pytest.mark.parametrize("point", [Point.TURN, Point.BEFORE_OBJECTS, Point.AFTER_SWAP])
def test_a_process_that_dies_during_a_restore_leaves_it_done_or_not_done(
    racing: Racing, point: Point
) -> None:
    class Died(BaseException):
        pass

    lake = racing.lake
    then = write(lake, "delta.t", [1])
    for format_name in ("lance", "files"):
        write(lake, key_of(format_name), [1])
    then = lake.branch().head
    for format_name in FORMATS:
        write(lake, key_of(format_name), [2])
    racing.store.fail(point, Died(), name="main")
    with pytest.raises((Died, OutcomeUnknown, RuntimeError)):
        lake.restore(all=True, to=then, idempotency_key="once")
    racing.store.heal()
    found = {tuple(rows_of(racing.other, key_of(one))) for one in FORMATS}
    assert found == ({(1,)} if point is Point.AFTER_SWAP else {(1, 2)})
    racing.other.restore(all=True, to=then, idempotency_key="once")
    for format_name in FORMATS:
        key = key_of(format_name)
        assert rows_of(racing.other, key) == rows_for_others(racing.other, key) == [1]
    assert sum(one.message.startswith("restore") for one in racing.other.log(limit=9)) == 1
