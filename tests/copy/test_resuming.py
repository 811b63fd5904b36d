"""A copy killed anywhere is completed by the same copy, and never do two lakes with one id take writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.errors import (
    Damaged,
    InvalidRequest,
    LakeMoved,
    LakeNotFound,
    OutcomeUnknown,
    PenstockError,
    Unavailable,
)
from penstock.kernel import object_copy
from penstock.kernel.description import ROW_NAME, read_description
from penstock.lake.copy import cancel_move, move_lake
from penstock.model.encoding import ObjectId
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store
from penstock.stores.wrapped import WrappedStore
from penstock.testing.faults import FaultyStore, Point
from tests.copy.lakes import (
    QUICK,
    Killed,
    Life,
    MortalStore,
    like,
    move,
    new_store,
    objects,
    reopened,
    rows,
    table,
)

SEED, STEPS = 5, 12


@pytest.fixture(scope="module")
def original() -> MemoryStore:
    return new_store(SEED, STEPS)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_copy, "SCAN_PAGE", 7)


def calls_of_a_copy(original: MemoryStore, fork: bool) -> int:
    life = Life()
    move(MortalStore(like(original), life), MortalStore(MemoryStore(), life), fork=fork)
    return life.calls


def takes_writes(store: Store) -> bool:
    """Whether somebody who comes along can write there."""
    try:
        reopened(store).branch().put("probe", table("probe"))
    except (LakeMoved, LakeNotFound, Unavailable):
        return False
    return True


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("part", range(4))
def test_a_move_killed_anywhere_is_completed_by_the_same_move(
    original: MemoryStore, is_after: bool, part: int
) -> None:
    calls = calls_of_a_copy(original, fork=False)
    assert calls > 60
    seen = set()
    for last in range(part, calls, 4):
        source, target = like(original), MemoryStore()
        life = Life(last, is_after)
        with pytest.raises(Killed):
            move(MortalStore(source, life), MortalStore(target, life))
        written = takes_writes(source), takes_writes(target)
        assert written != (True, True)
        seen.add(written)
        assert move(source, target) == read_description(original).id
        assert_moved(source, target, original)
    assert {(True, False), (False, False)} <= seen


def assert_moved(source: Store, target: Store, original: Store) -> None:
    assert (takes_writes(source), takes_writes(target)) == (False, True)
    there = reopened(target)
    assert there.fsck().damages == ()
    assert rows(original).keys() <= rows(target).keys()
    assert objects(original).items() <= objects(target).items()
    assert read_description(target).history == read_description(original).history
    assert [one.name for one in there.branches()] == [one.name for one in reopened(source).branches()]


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
def test_a_fork_killed_anywhere_is_completed_by_the_same_fork(original: MemoryStore, is_after: bool) -> None:
    for last in range(calls_of_a_copy(original, fork=True)):
        source, target = like(original), MemoryStore()
        life = Life(last, is_after)
        with pytest.raises(Killed):
            move(MortalStore(source, life), MortalStore(target, life), fork=True)
        assert takes_writes(source), "a fork leaves the source alone"
        move(source, target, fork=True)
        there = reopened(target)
        assert there.fsck().damages == ()
        assert there.id != reopened(source).id
        assert there.forked_from == reopened(source).id
        assert rows(original).keys() <= rows(target).keys()


@pytest.mark.parametrize("last", range(0, 90, 6))
def test_a_move_may_be_killed_again_and_again(original: MemoryStore, last: int) -> None:
    source, target = like(original), MemoryStore()
    kills = 0
    while True:
        life = Life(last + kills, is_after=bool(kills % 2))
        try:
            move(MortalStore(source, life), MortalStore(target, life))
            break
        except Killed:
            kills += 1
            assert kills < 200
    assert_moved(source, target, original)


def test_objects_that_were_copied_are_not_copied_again(
    original: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_copy, "PAGES_MAX", 1)  # else later pages may be stored before an earlier one
    source, target = like(original), _Recording(MemoryStore())
    with pytest.raises(Killed):
        move(source, _DyingAfter(target, 3))
    done = len(target.stored)
    assert done >= 14
    move(source, target)
    assert len(target.stored) == len(objects(source)), "pages that were complete are not copied twice"
    assert_moved(source, target, original)


class _Recording(WrappedStore):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.stored: list[ObjectId] = []

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self.stored += objects
        super().store(objects)


class _DyingAfter(WrappedStore):
    """Ends the process before so many pages and one are stored."""

    def __init__(self, inner: Store, pages: int) -> None:
        super().__init__(inner)
        self._pages = pages

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        if self._pages == 0:
            raise Killed
        self._pages -= 1
        super().store(objects)


def test_a_store_that_is_away_for_a_moment_does_not_stop_a_copy(original: MemoryStore) -> None:
    source, target = FaultyStore(like(original)), FaultyStore(MemoryStore())
    away = Unavailable("nobody answers")
    source.fail(Point.SCAN, away, times=2, skip=1)
    source.fail(Point.FETCH, away, times=2, skip=12)
    target.fail(Point.STORE, away, times=3)
    move(source, target)
    assert_moved(source, target, original)


def test_lost_answers_while_sealing_are_found_out(original: MemoryStore) -> None:
    source, target = FaultyStore(like(original)), MemoryStore()
    source.lose_answer(name="main")
    source.lose_answer(name="gone")
    move(source, target)
    assert [line.event for line in reopened(target).reflog("main")].count("seal") == 1
    assert_moved(source, target, original)


def test_a_beginning_that_stays_unknown_is_told_and_the_next_copy_goes_on(original: MemoryStore) -> None:
    source, target = FaultyStore(like(original)), FaultyStore(MemoryStore())
    target.lose_answer(name="@lake")
    target.fail(Point.TURN, Unavailable("nobody answers"), times=None, skip=1, name="@lake")
    with pytest.raises(OutcomeUnknown):
        move(source, target)
    target.heal()
    move(source, target)
    assert_moved(source, target, original)


@pytest.mark.parametrize("skip", range(6))
def test_lost_answers_about_the_descriptions_do_not_stop_a_copy(original: MemoryStore, skip: int) -> None:
    source, target = FaultyStore(like(original)), FaultyStore(MemoryStore())
    target.lose_answer(name="@lake", skip=skip)
    source.lose_answer(name="@lake")
    move(source, target)
    assert_moved(source, target, original)


def test_a_target_that_loses_an_object_is_found_out(original: MemoryStore) -> None:
    source, target = like(original), MemoryStore()
    head = bytes.fromhex(reopened(source).branch().head)
    with pytest.raises(Damaged, match="is damaged"):
        move(source, _Losing(target, head))
    assert not takes_writes(target)
    assert not takes_writes(source)
    move(source, target)
    assert_moved(source, target, original)


def test_a_target_that_loses_a_receipt_is_found_out(original: MemoryStore) -> None:
    source, target = like(original), MemoryStore()
    loose = sorted(one for one, data in objects(source).items() if b"receipt" in data[:12])
    with pytest.raises(Damaged, match=r".* of .* copied objects are there"):
        move(source, _Losing(target, loose[0]))
    move(source, target)
    assert_moved(source, target, original)


def test_a_target_that_stores_other_bytes_is_found_out(original: MemoryStore) -> None:
    source, target = like(original), MemoryStore()
    head = bytes.fromhex(reopened(source).branch().head)
    for store in (_Corrupting(target, head), target):
        with pytest.raises(Damaged, match=f"is damaged: .*{head.hex()}"):
            move(source, store)
    assert not takes_writes(target)
    cancel_move(source)
    move(source, MemoryStore())


class _Corrupting(WrappedStore):
    """Stores an object with other bytes."""

    def __init__(self, inner: Store, spoilt: ObjectId) -> None:
        super().__init__(inner)
        self._spoilt = spoilt

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        spoilt = {one: data.replace(b"ada", b"eve") for one, data in objects.items() if one == self._spoilt}
        super().store({**objects, **spoilt})


class _Losing(WrappedStore):
    """Says that it stored an object, and did not."""

    def __init__(self, inner: Store, lost: ObjectId) -> None:
        super().__init__(inner)
        self._lost = lost

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        super().store({one: data for one, data in objects.items() if one != self._lost})


def test_a_stranger_who_writes_to_the_target_is_found_out(original: MemoryStore) -> None:
    source, target = like(original), FaultyStore(MemoryStore())

    def write() -> None:
        with target.inner.turn("stranger") as turn:
            turn.advance({}, rows(original)["main"]._replace(name="stranger"))
        with target.inner.turn("main") as turn:
            turn.advance({}, Row("main", "branch", b"strange"))

    target.at(Point.STORE, write, skip=1)
    with pytest.raises(Damaged, match="main, stranger"):
        move(source, target)
    assert not takes_writes(source)
    move(source, target)
    assert_moved(source, target, original)
    assert "stranger" not in rows(target)


def test_a_damaged_source_is_found_out_and_stays(original: MemoryStore) -> None:
    source, target = like(original), MemoryStore()
    head = bytes.fromhex(reopened(source).branch().head)
    data, time_us = source._objects[head]
    source._objects[head] = (data.replace(b"ada", b"eve", 1), time_us)
    with pytest.raises(Damaged, match=head.hex()):
        move(source, target)
    assert not takes_writes(target)
    source._objects[head] = (data, time_us)
    move(source, target)
    assert_moved(source, target, original)


def test_of_two_processes_that_copy_the_same_one_goes_on(original: MemoryStore) -> None:
    source, target = like(original), FaultyStore(MemoryStore())

    def another() -> None:
        move(source, target.inner)

    # While objects are copied: before that, it is noted twice how far the move has got.
    target.at(Point.TURN, another, skip=4, name=ROW_NAME)
    with pytest.raises(InvalidRequest, match="another process is copying"):
        move(source, target)
    assert_moved(source, target, original)


def test_a_target_that_is_not_complete_cannot_be_opened(original: MemoryStore) -> None:
    source, target = like(original), MemoryStore()
    with pytest.raises(Killed):
        move(source, _DyingAfter(target, 1))
    with pytest.raises(Unavailable, match="still being copied from memory:"):
        reopened(target)
    with pytest.raises(PenstockError, match="still being copied"):
        move_lake(target, MemoryStore(), settings=QUICK)
