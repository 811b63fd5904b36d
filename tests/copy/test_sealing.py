"""Writers that are on the way while a lake is being sealed land before the seal, or not at all (K12)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Barrier

import pytest

from penstock.errors import LakeMoved, ReferenceNotFound
from penstock.kernel.reference_rows import decode_reference_row
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Gate, Point
from penstock.testing.threads import at_once
from tests.copy.lakes import QUICK, Killed, move, reopened, rows, table
from tests.queue.hooks import Caller


class Scene:
    """A lake with a writer and a mover, who are two processes on one store."""

    def __init__(self) -> None:
        self.store, self.target = MemoryStore(), MemoryStore()
        lake = open_lake(self.store, author="ada", settings=QUICK)
        lake.branch().put("t", table(0))
        lake.branch("dev").create().put("d", table(1))
        lake.branch("fresh").create()
        lake.branch("gone").create().delete()
        self.writing = FaultyStore(self.store, locking=False)
        self.moving = FaultyStore(self.store, locking=False)
        self.lake = reopened(self.writing)

    def move(self) -> None:
        move(self.moving, self.target)

    def write(self, do: Callable[[Lake], object]) -> Caller[object]:
        return Caller(lambda: do(self.lake))

    def assert_sound(self) -> Lake:
        there = reopened(self.target)
        assert there.fsck().damages == ()
        assert reopened(self.store).fsck().damages == ()
        return there


@pytest.fixture
def scene() -> Scene:
    return Scene()


WRITES: dict[str, tuple[str, Callable[[Lake], object]]] = {
    "commit": ("main", lambda lake: lake.branch().put("t", table(2))),
    "first commit of a branch": ("fresh", lambda lake: lake.branch("fresh").put("t", table(2))),
    "merge": ("main", lambda lake: lake.merge("dev", "main")),
    "assign": ("dev", lambda lake: lake.branch("dev").assign("main")),
    "delete": ("dev", lambda lake: lake.branch("dev").delete()),
    "delete without a log": (
        "dev",
        lambda lake: lake.kernel.references.delete_reference("dev", leave_log=False),
    ),
    "create": ("new", lambda lake: lake.branch("new").create()),
    "create anew": ("gone", lambda lake: lake.branch("gone").create()),
    "a rule": ("@lake", lambda lake: lake.keep_history("main", max_commits=7)),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_who_comes_too_late_is_refused(scene: Scene, write: str) -> None:
    name, do = WRITES[write]
    gate = scene.writing.pause(Point.BEFORE_SWAP, name=name)
    writer = scene.write(do)
    gate.wait_until_reached()
    scene.move()
    before = rows(scene.store)
    gate.open()
    assert isinstance(writer.error, LakeMoved)
    assert rows(scene.store) == rows(scene.target) == before
    scene.assert_sound()


@pytest.mark.parametrize("write", WRITES)
def test_a_writer_who_was_in_time_is_taken_along(scene: Scene, write: str) -> None:
    name, do = WRITES[write]
    gate = scene.writing.pause(Point.AFTER_SWAP, name=name)
    writer = scene.write(do)
    gate.wait_until_reached()
    scene.move()
    gate.open()
    assert writer.error is None
    assert rows(scene.store) == rows(scene.target)
    there = scene.assert_sound()
    if write != "a rule":
        assert decoded_row(scene, name) == there.reflog(name)[0].after if name in rows(scene.target) else True
    assert [rule.pattern for rule in there.history_rules] == (["main"] if write == "a rule" else [])


def decoded_row(scene: Scene, name: str) -> str:
    return decode_reference_row(rows(scene.store)[name]).id


@pytest.mark.parametrize("write", sorted(WRITES.keys() - {"a rule"}))
def test_a_writer_between_the_description_and_the_logs_lands_and_is_taken_along_or_is_refused(
    scene: Scene, write: str
) -> None:
    """The description says that the lake is moving, but no reference is sealed yet."""
    name, do = WRITES[write]
    listing = scene.moving.pause(Point.REFERENCES)
    swapping = scene.writing.pause(Point.BEFORE_SWAP, name=name)
    writer, mover = scene.write(do), None
    swapping.wait_until_reached()
    mover = Caller(scene.move)
    listing.wait_until_reached()
    swapping.open()
    refused = writer.error
    listing.open()
    assert mover.error is None
    if write == "create":
        assert isinstance(refused, LakeMoved), "it cannot know whether it will be found"
        assert "new" not in rows(scene.store)
    else:
        assert refused is None
    assert rows(scene.store) == rows(scene.target)
    scene.assert_sound()


def test_a_name_made_anew_behind_the_movers_back_is_found(scene: Scene) -> None:
    """Branches have been listed, deleted names not yet: now one of those becomes a branch."""
    swapping = scene.writing.pause(Point.BEFORE_SWAP, name="gone")
    writer = scene.write(WRITES["create anew"][1])
    swapping.wait_until_reached()
    listing = _before_listing(scene.moving, Kind.DELETED)
    mover = Caller(scene.move)
    listing.wait_until_reached()
    swapping.open()
    assert writer.error is None
    listing.open()
    assert mover.error is None
    assert rows(scene.target)["gone"].kind == Kind.BRANCH
    there = scene.assert_sound()
    there.branch("gone").put("t", table("there"))
    with pytest.raises(LakeMoved):
        reopened(scene.store).branch("gone").put("t", table("here"))


def test_a_name_made_anew_behind_the_back_of_a_mover_who_goes_on_is_found(scene: Scene) -> None:
    """All other names were sealed by a mover who was killed, so the next one finds nothing else to do."""
    swapping = scene.writing.pause(Point.BEFORE_SWAP, name="gone")
    writer = scene.write(WRITES["create anew"][1])
    swapping.wait_until_reached()
    scene.moving.fail(Point.BEFORE_OBJECTS, Killed(), name="gone")
    with pytest.raises(Killed):
        scene.move()
    listing = _before_listing(scene.moving, Kind.DELETED)
    mover = Caller(scene.move)
    listing.wait_until_reached()
    swapping.open()
    assert writer.error is None
    listing.open()
    assert mover.error is None
    assert rows(scene.target) == rows(scene.store)
    assert rows(scene.target)["gone"].kind == Kind.BRANCH


def test_who_begins_to_make_a_name_anew_while_the_lake_is_being_sealed_is_refused(scene: Scene) -> None:
    """Else a name could change its kind again and again, and never be found."""
    listing = scene.moving.pause(Point.REFERENCES)
    mover = Caller(scene.move)
    listing.wait_until_reached()
    with pytest.raises(LakeMoved):
        scene.lake.branch("gone").create()
    listing.open()
    assert mover.error is None
    assert rows(scene.target)["gone"].kind == Kind.DELETED


def _before_listing(store: FaultyStore, kind: Kind) -> Gate:
    """Stops before the rows of a kind are listed for the first time."""
    gate, listed = Gate(), store.references
    is_first = True

    def references(which: str, prefix: str = "", after: str = "", limit: int = 1000) -> object:
        nonlocal is_first
        if which == kind and is_first:
            is_first = False
            gate()
        return listed(which, prefix, after, limit)

    store.references = references  # type: ignore[method-assign, assignment]
    return gate


def test_a_new_name_that_was_sealed_before_its_maker_looked_counts(scene: Scene) -> None:
    gate = scene.writing.pause(Point.AFTER_SWAP, name="new")
    writer = scene.write(WRITES["create"][1])
    gate.wait_until_reached()
    scene.move()
    assert "new" in rows(scene.target)
    gate.open()
    assert writer.error is None


def test_a_name_whose_maker_died_too_late_to_be_sealed_is_of_no_use(scene: Scene) -> None:
    swapping = scene.writing.pause(Point.BEFORE_SWAP, name="new")
    scene.writing.fail(Point.AFTER_SWAP, Killed(), name="new")
    writer = scene.write(WRITES["create"][1])
    swapping.wait_until_reached()
    copying = scene.moving.pause(Point.SCAN)
    mover = Caller(scene.move)
    copying.wait_until_reached()
    swapping.open()
    assert isinstance(writer.error, Killed)
    copying.open()
    assert mover.error is None
    assert "new" in rows(scene.store)
    assert "new" not in rows(scene.target)
    here, there = reopened(scene.store), reopened(scene.target)
    for late in (
        lambda: here.branch("new").put("t", table("late")),
        lambda: here.branch("new").assign("dev"),
        lambda: here.branch("new").delete(),
    ):
        with pytest.raises(LakeMoved):
            late()
    with pytest.raises(ReferenceNotFound):
        there.branch("new").put("t", table("late"))
    there.branch("new").create()


def test_a_repeated_creation_is_not_taken_back(scene: Scene) -> None:
    """It was acknowledged before the lake was sealed."""
    scene.lake.branch("new").create(idempotency_key="k")
    listing = scene.moving.pause(Point.REFERENCES)
    mover = Caller(scene.move)
    listing.wait_until_reached()
    scene.lake.branch("new").create(idempotency_key="k")
    listing.open()
    assert mover.error is None
    assert "new" in rows(scene.target)


def test_commits_do_not_pay_for_moves() -> None:
    """Only what follows a creation or a seal reads the description."""
    scene = Scene()
    scene.move()
    store = FaultyStore(scene.target)
    lake = reopened(store)
    lake.branch().put("t", table("first"))
    before = store.passed[Point.REFERENCE]
    for number in range(5):
        lake.branch().put("t", table(number))
    assert store.passed[Point.REFERENCE] == before


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_to_busy_writers_is_there_after_the_move(seed: int) -> None:
    """Real threads commit, create and delete until they are refused; nothing of it is lost or left behind."""
    scene = Scene()
    landed: list[list[tuple[str, str]]] = [[] for _ in range(4)]
    all_are_busy = Barrier(5)

    def write(number: int) -> None:
        lake = reopened(scene.store)
        for step in range(100_000):
            name = f"job/{number}/{step % 3}" if number % 2 else "main"
            if number % 2:
                if step >= 3:
                    lake.branch(name).delete()
                lake.branch(name).create(at="dev")
            commit = lake.branch(name).put(f"t{number}", table(f"{seed}/{step}"))
            landed[number].append((name, commit.id))
            if step == 5:
                all_are_busy.wait(60)

    def write_until_it_moved(number: int) -> None:
        with pytest.raises(LakeMoved):
            write(number)

    def move_meanwhile() -> None:
        all_are_busy.wait(60)
        scene.move()

    at_once(move_meanwhile, *(partial(write_until_it_moved, number) for number in range(4)))
    there = scene.assert_sound()
    assert rows(scene.store).keys() >= rows(scene.target).keys()
    on_main = {one.id for one in there.log("main", limit=None)}
    for done in landed:
        assert {commit for name, commit in done if name == "main"} <= on_main
        for name, commit in done[-3:]:
            if name != "main":
                assert commit in {line.after for line in there.reflog(name, limit=100)}
