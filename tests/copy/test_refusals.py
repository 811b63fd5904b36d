"""Where a lake is not copied to, and how a move is cancelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest, LakeExists, LakeMoved, LakeNotFound, Unavailable
from penstock.kernel.description import CopyPhase, read_description
from penstock.lake.copy import cancel_move, copy_lake, move_lake
from penstock.lake.opener import open_lake
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.samples import sample
from tests.copy.lakes import QUICK, Killed, move, new_store, objects, reopened, rows, table
from tests.queue.hooks import Caller


@pytest.fixture
def source() -> MemoryStore:
    return new_store(3, 10)


def put_row(store: MemoryStore, name: str, kind: str) -> None:
    with store.turn(name) as turn:
        turn.advance({}, Row(name, kind, b"something"))


OCCUPIED: dict[str, tuple[type[Exception], Callable[[MemoryStore], object]]] = {
    "a lake": (LakeExists, open_lake),
    "a lake that came from elsewhere": (LakeExists, lambda store: move(new_store(4, 5), store)),
    "a fork of another lake": (LakeExists, lambda store: move(new_store(4, 5), store, fork=True)),
    "objects": (InvalidRequest, lambda store: store.store(sample(1))),
    "a branch": (InvalidRequest, lambda store: put_row(store, "main", "branch")),
    "a deleted branch": (InvalidRequest, lambda store: put_row(store, "main", "deleted")),
    "a row of the lake's": (InvalidRequest, lambda store: put_row(store, "@other", "lake")),
}


@pytest.mark.parametrize("what", OCCUPIED)
@pytest.mark.parametrize("fork", [False, True])
def test_a_place_that_is_not_empty_is_refused_and_nothing_changes(
    source: MemoryStore, what: str, fork: bool
) -> None:
    target = MemoryStore()
    error, occupy = OCCUPIED[what]
    occupy(target)
    before = dict(target._rows), dict(target._objects)
    with pytest.raises(error):
        move(source, target, fork=fork)
    assert (target._rows, target._objects) == before
    reopened(source).branch().put("t", table("goes on"))


def test_a_lake_is_not_copied_onto_itself(source: MemoryStore, tmp_path: Path) -> None:
    open_lake(tmp_path / "lake", create=True).close()
    for fork in (False, True):
        with pytest.raises(LakeExists):
            move(source, source, fork=fork)
        with pytest.raises(LakeExists):
            (copy_lake if fork else move_lake)(tmp_path / "lake", f"sqlite://{tmp_path}/lake")
    reopened(source).branch().put("t", table("goes on"))


def test_a_place_that_it_came_from_is_not_empty(source: MemoryStore) -> None:
    target = MemoryStore()
    move(source, target)
    with pytest.raises(LakeExists):
        move(target, source)
    reopened(target).branch().put("t", table("goes on"))


def test_without_a_source_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(LakeNotFound):
        move_lake(tmp_path / "nowhere", tmp_path / "target")
    assert list(tmp_path.iterdir()) == []


def half_moved(source: MemoryStore, target: MemoryStore, phase: CopyPhase, fork: bool = False) -> None:
    """Let a copy be killed in one of its phases."""
    dying = FaultyStore(target)
    if phase is CopyPhase.BEGUN:
        dying.fail(Point.AFTER_SWAP, Killed(), name="@lake")
    if phase is CopyPhase.ROWS:
        dying.fail(Point.AFTER_SWAP, Killed(), name="main")
    if phase is CopyPhase.OBJECTS:
        dying.fail(Point.STORE, Killed())
    if phase is CopyPhase.CHECKING:
        dying.fail(Point.FETCH, Killed())
    with pytest.raises(Killed):
        move(source, dying, fork=fork)
    arrival = read_description(target).arrival
    assert arrival is not None
    assert arrival.phase is phase


def test_part_of_a_move_is_not_taken_for_part_of_a_fork(source: MemoryStore) -> None:
    for fork in (False, True):
        target = MemoryStore()
        half_moved(source, target, CopyPhase.OBJECTS, fork)
        with pytest.raises(InvalidRequest, match=r"holds part of a (copy|move) of"):
            move(source, target, fork=not fork)
        with pytest.raises(InvalidRequest, match=r"holds part of a (copy|move) of"):
            move(new_store(4, 5), target, fork=fork)
        if not fork:
            cancel_move(source)


def test_a_lake_on_its_way_to_one_place_does_not_move_to_another(source: MemoryStore) -> None:
    first, second = MemoryStore(), MemoryStore()
    half_moved(source, first, CopyPhase.OBJECTS)
    for target in (second, MemoryStore()):
        with pytest.raises(LakeMoved, match="is moving to memory:"):
            move(source, target)
        assert not target._rows
    move(source, first)
    with pytest.raises(LakeMoved, match="has moved to memory:"):
        move(source, second)


@pytest.mark.parametrize("phase", [CopyPhase.ROWS, CopyPhase.OBJECTS, CopyPhase.CHECKING])
def test_a_move_that_was_cancelled_leaves_the_lake_as_it_was(source: MemoryStore, phase: CopyPhase) -> None:
    target, other = MemoryStore(), MemoryStore()
    names = rows(source).keys()
    half_moved(source, target, phase)
    lake = reopened(source)
    assert lake.moving_to == "memory:"
    with pytest.raises(LakeMoved, match="--cancel"):
        lake.branch().put("t", table("x"))
    assert cancel_move(source).target == "memory:"
    for name in [branch.name for branch in lake.branches()]:
        lake.branch(name).put("after", table(name))
    lake.branch("gone").create()
    lake.branch("brand-new").create()
    lake.keep_history("main", max_commits=100)
    assert lake.fsck().damages == ()
    move(source, other)
    assert rows(other) == rows(source)
    assert rows(other).keys() == names | {"brand-new"}
    assert reopened(other).branch("last").table("after").content is not None


def test_a_cancelled_copy_is_not_gone_on_with_once_objects_were_copied(source: MemoryStore) -> None:
    target = MemoryStore()
    half_moved(source, target, CopyPhase.CHECKING)
    cancel_move(source)
    before = objects(target)
    with pytest.raises(
        InvalidRequest, match="holds part of a cancelled move; choose another location, or delete"
    ):
        move(source, target)
    assert objects(target) == before
    reopened(source).branch().put("t", table("goes on"))


@pytest.mark.parametrize("phase", [CopyPhase.BEGUN, CopyPhase.ROWS])
def test_a_cancelled_copy_is_begun_anew_if_no_object_was_copied(
    source: MemoryStore, phase: CopyPhase
) -> None:
    target = MemoryStore()
    half_moved(source, target, phase)
    if phase is not CopyPhase.BEGUN:
        cancel_move(source)
    lake = reopened(source)
    lake.branch().put("t", table("between"))
    lake.branch("last").delete()
    move(source, target)
    assert rows(target) == rows(source)
    assert reopened(target).fsck().damages == ()


def test_a_seal_that_was_cancelled_does_not_hold_for_the_next_move(source: MemoryStore) -> None:
    """A writer finds the seal void, is held up, and the lake is sealed again: the swap must be lost."""
    target = MemoryStore()
    half_moved(source, target, CopyPhase.ROWS)
    cancel_move(source)
    writing = FaultyStore(source, locking=False)
    gate = writing.pause(Point.BEFORE_SWAP, name="main")
    writer = Caller(lambda: reopened(writing).branch().put("t", table("late")))
    gate.wait_until_reached()
    move(source, target)
    gate.open()
    assert isinstance(writer.error, LakeMoved)
    assert rows(source) == rows(target)


def test_a_mover_who_was_cancelled_does_not_complete_the_move(source: MemoryStore) -> None:
    target = FaultyStore(MemoryStore())
    gate = target.pause(Point.STORE)
    mover = Caller(lambda: move(source, target))
    gate.wait_until_reached()
    cancel_move(source)
    reopened(source).branch().put("t", table("goes on"))
    gate.open()
    assert isinstance(mover.error, InvalidRequest)
    reopened(source).branch().put("t", table("still"))
    with pytest.raises(Unavailable, match="still being copied"):
        reopened(target)


def test_a_move_that_is_cancelled_at_the_last_moment_is_not_completed(source: MemoryStore) -> None:
    target, moving = MemoryStore(), FaultyStore(source)
    moving.at(Point.TURN, lambda: cancel_move(source), name="@lake", skip=1)
    with pytest.raises(InvalidRequest, match="was cancelled"):
        move(moving, target)
    reopened(source).branch().put("t", table("goes on"))
    with pytest.raises(Unavailable, match="still being copied"):
        reopened(target)


def test_a_move_that_is_cancelled_while_sealing_copies_nothing(source: MemoryStore) -> None:
    target, moving = MemoryStore(), FaultyStore(source)
    moving.at(Point.REFERENCES, lambda: cancel_move(source), skip=1)
    with pytest.raises(InvalidRequest, match="was cancelled"):
        move(moving, target)
    assert not rows(target)
    reopened(source).branch().put("t", table("goes on"))
    move(source, target)
    assert rows(target) == rows(source)


def test_of_two_moves_to_different_places_one_is_refused(source: MemoryStore) -> None:
    """Both have begun at their targets before either has sealed the source."""
    first, second = FaultyStore(MemoryStore()), MemoryStore()
    first.at(Point.AFTER_SWAP, lambda: move(source, second), name="@lake")
    with pytest.raises(LakeMoved, match="has moved"):
        move(source, first)
    reopened(second).branch().put("t", table("goes on"))
    with pytest.raises(Unavailable, match="still being copied"):
        reopened(first)


def test_a_rule_that_was_set_before_the_source_was_sealed_goes_along(source: MemoryStore) -> None:
    target = FaultyStore(MemoryStore())
    lake = reopened(source)
    target.at(Point.AFTER_SWAP, lambda: lake.keep_history("late", max_commits=3), name="@lake")
    move(source, target)
    assert reopened(target).history_rules == lake.history_rules
    assert "late" in {rule.pattern for rule in lake.history_rules}


def test_what_is_not_moving_cannot_be_cancelled(source: MemoryStore) -> None:
    with pytest.raises(InvalidRequest, match="nothing to cancel"):
        cancel_move(source)
    target = MemoryStore()
    move(source, target)
    with pytest.raises(LakeMoved, match="has moved"):
        cancel_move(source)
    with pytest.raises(InvalidRequest):
        cancel_move(target, settings=QUICK)


def test_a_move_that_gave_the_lake_away_can_only_be_completed(source: MemoryStore) -> None:
    target = MemoryStore()
    dying = FaultyStore(source)
    dying.fail(Point.AFTER_SWAP, Killed(), name="@lake", skip=1)
    with pytest.raises(Killed):
        move(dying, target)
    with pytest.raises(LakeMoved):
        cancel_move(source)
    move(source, target)
    reopened(target).branch().put("t", table("there"))
