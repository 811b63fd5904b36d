"""A move is undone as long as nobody wrote to the target, and never do both places take writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.errors import InvalidRequest, LakeMoved, LakeNotFound, Unavailable
from penstock.kernel.description import read_description
from penstock.lake.copy import cancel_move, copy_lake, move_lake, undo_move
from penstock.lake.lake import Lake
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore, Point
from tests.copy.lakes import QUICK, Killed, Life, MortalStore, like, move, new_store, objects, reopened, table
from tests.queue.hooks import Caller

SEED, STEPS = 5, 12


@pytest.fixture
def source() -> MemoryStore:
    return new_store(SEED, STEPS)


@pytest.fixture
def moved(source: MemoryStore) -> tuple[MemoryStore, MemoryStore]:
    target = MemoryStore()
    move(source, target)
    return source, target


def undo(source: Store, target: Store) -> None:
    undo_move(source, target, author="mover", settings=QUICK)


def takes_writes(store: Store) -> bool:
    try:
        reopened(store).branch().put("probe", table("probe"))
    except (LakeMoved, LakeNotFound, Unavailable):
        return False
    return True


def test_a_move_that_is_undone_leaves_everything_at_the_source(
    moved: tuple[MemoryStore, MemoryStore],
) -> None:
    source, target = moved
    before = objects(source)
    undo(source, target)
    assert (takes_writes(source), takes_writes(target)) == (True, False)
    assert before.items() <= objects(source).items()
    lake = reopened(source)
    assert lake.moving_to == ""
    lake.branch("new").create()
    lake.branch("gone").create()
    lake.keep_history("main", max_commits=100)
    assert lake.fsck().damages == ()
    with pytest.raises(LakeMoved, match="has moved to memory:"):
        reopened(target).branch().put("t", table("x"))
    undo(source, target)  # once more changes nothing
    other = MemoryStore()
    move(source, other)
    assert (takes_writes(source), takes_writes(other)) == (False, True)


WRITES: dict[str, Callable[[Lake], object]] = {
    "'main'": lambda lake: lake.branch().put("t", table("x")),
    "'new'": lambda lake: lake.branch("new").create(),
    "'last'": lambda lake: lake.branch("last").delete(),
    "'other'": lambda lake: lake.tag("other").create(at="main"),
    "an open transaction": lambda lake: lake.transaction("main").__enter__(),
    "its settings or its horizon": lambda lake: lake.keep_history("main", max_commits=3),
    "its tokens": lambda lake: lake.create_token("ada", "read"),
}


@pytest.mark.parametrize("what", WRITES)
def test_what_was_written_to_the_target_is_not_lost(
    moved: tuple[MemoryStore, MemoryStore], what: str
) -> None:
    source, target = moved
    WRITES[what](reopened(target))
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=f"these were written there since: .*{what}"):
            undo(source, target)
        assert (takes_writes(source), takes_writes(target)) == (False, True)
    assert reopened(target).fsck().damages == ()


def test_a_writer_at_the_target_lands_before_the_undo_or_is_refused(
    moved: tuple[MemoryStore, MemoryStore],
) -> None:
    """A writer is held up right before its swap: it loses the swap, and finds the seal."""
    source, target = moved
    writing = FaultyStore(target, locking=False)
    gate = writing.pause(Point.BEFORE_SWAP, name="main")
    writer = Caller(lambda: reopened(writing).branch().put("t", table("late")))
    gate.wait_until_reached()
    undo(source, target)
    gate.open()
    assert isinstance(writer.error, LakeMoved)
    assert (takes_writes(source), takes_writes(target)) == (True, False)


def test_an_undo_that_was_stopped_is_cancelled_and_the_target_goes_on(
    moved: tuple[MemoryStore, MemoryStore],
) -> None:
    source, target = moved
    lake = reopened(target)
    sealing = FaultyStore(target)
    sealing.at(Point.AFTER_SWAP, lambda: lake.branch("late").create(), name="@lake")
    with pytest.raises(LakeMoved):  # whoever makes a branch anew looks at the description
        undo(source, sealing)
    cancel_move(target)
    lake.branch().put("t", table("late"))
    with pytest.raises(InvalidRequest, match="these were written there since: 'main'"):
        undo(source, target)
    assert (takes_writes(source), takes_writes(target)) == (False, True)


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
def test_an_undo_killed_anywhere_is_completed_by_the_same_undo(source: MemoryStore, is_after: bool) -> None:
    target = MemoryStore()
    move(source, target)
    whole = Life()
    undo(MortalStore(like(source), whole), MortalStore(like(target), whole))
    seen = set()
    for last in range(whole.calls):
        here, there = like(source), like(target)
        life = Life(last, is_after)
        with pytest.raises(Killed):
            undo(MortalStore(here, life), MortalStore(there, life))
        state = read_description(here).sealed is None, read_description(there).sealed is None
        assert state != (True, True)
        seen.add(state)
        undo(here, there)
        assert (takes_writes(here), takes_writes(there)) == (True, False)
        assert reopened(here).fsck().damages == ()
    assert seen >= {(False, True), (False, False)}


def test_an_undo_that_was_cancelled_does_not_count_for_the_next_one(
    moved: tuple[MemoryStore, MemoryStore],
) -> None:
    source, target = moved
    life = Life(30)
    with pytest.raises(Killed):
        undo(MortalStore(source, life), MortalStore(target, life))
    cancel_move(target)
    writing = FaultyStore(target, locking=False)
    gate = writing.pause(Point.BEFORE_SWAP, name="main")
    writer = Caller(lambda: reopened(writing).branch().put("t", table("late")))
    gate.wait_until_reached()
    undo(source, target)
    gate.open()
    assert isinstance(writer.error, LakeMoved)
    assert (takes_writes(source), takes_writes(target)) == (True, False)


def test_only_a_move_between_these_places_is_undone(source: MemoryStore) -> None:
    target, twin, other = MemoryStore(), MemoryStore(), new_store(7, 5)
    copy_lake(source, twin)
    for place in (twin, other):
        with pytest.raises(InvalidRequest, match="was not moved there from"):
            undo(source, place)
    dying = FaultyStore(target)
    dying.fail(Point.STORE, Killed())
    with pytest.raises(Killed):
        move_lake(source, dying)
    with pytest.raises(Unavailable, match="still being copied"):
        undo(source, target)
    move(source, target)
    further = MemoryStore()
    move(target, further)
    with pytest.raises(LakeMoved, match="has moved to"):
        undo(source, target)
    undo(target, further)
    undo(source, target)
    assert takes_writes(source)
