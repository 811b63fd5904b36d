"""K9: the sweep against commits, branches and other sweeps that go on meanwhile."""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake
from penstock.model.commits import Commit
from penstock.model.content import Unknown
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult, Row, StoredObject
from tests.queue.hooks import DAY_S, Caller, Go, HookedStore, Once, SetClock, keep_history, new_lake, table
from tests.sweep.oracle import GRACE_S, ids, large, reachable, receipts, reopened


def _drop_a(lake: Lake, branch: str) -> Commit:
    return lake.branch(branch).commit([Delete(Key("a"))], message="drop a")


def _garbage_to_be_stored_again(lake: Lake, clock: SetClock) -> set[bytes]:
    """Objects that nothing leads to, and that dropping ``a`` on ``main`` would store again."""
    lake.branch().put("a", table())
    lake.branch().put("b", table())
    lake.branch("dev").create()
    _drop_a(lake, "dev")
    lake.branch("dev").delete()
    clock.go_on(GRACE_S + 1)
    store = lake.kernel.store
    return ids(store) - reachable(store) - receipts(store)


def test_an_object_stored_again_between_scan_and_delete_is_kept(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    garbage = _garbage_to_be_stored_again(lake, clock)
    doomed: list[bytes] = []
    first = Once()

    def commit_again(objects: Sequence[StoredObject]) -> None:
        if first():
            doomed.extend(one.id for one in objects)
            _drop_a(lake, "main")

    store.before_delete = commit_again
    sizes = {one: len(data) for one, data in store.fetch(garbage).items()}
    swept = lake.sweep()
    assert garbage == set(doomed)
    again = garbage & reachable(store)
    assert again, "the commit was to store something of the garbage again"
    assert again <= ids(store)
    assert swept.removed == len(garbage) - len(again)
    assert swept.removed_bytes == sum(sizes[one] for one in garbage - again)
    assert reopened(lake).fsck().damages == ()


def test_an_object_stored_again_between_mark_and_scan_is_kept(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    garbage = _garbage_to_be_stored_again(lake, clock)
    first = Once()

    def commit_again() -> None:
        if first():
            _drop_a(lake, "main")

    store.before_scan = commit_again
    lake.sweep()
    assert garbage & reachable(store)
    assert reopened(lake).fsck().damages == ()


def test_a_commit_in_flight_during_a_whole_sweep_lands_whole(clock: SetClock) -> None:
    """It has read the branch and made its objects, then the sweep comes and goes, then it stores them."""
    shared = MemoryStore(clock)
    mine, settings = HookedStore(shared), Settings(grace_s=GRACE_S, nobody_writes=True)
    lake, sweeper = new_lake(mine, clock, settings), new_lake(shared, clock, settings)
    keep_history(shared, 2)
    lake.branch().commit([Put(Key(f"key{number:03}"), large(number)) for number in range(600)])
    for number in range(20):
        lake.branch().put(f"key{number:03}", large(1000 + number))
    clock.go_on(GRACE_S + 1)
    removed = []
    first = Once()

    def sweep_meanwhile(go: Go) -> AdvanceResult:
        if first():
            removed.append(sweeper.sweep().removed)
        return go()

    mine.around_advance = sweep_meanwhile
    lake.branch().put("key100", large(5000))
    assert removed[0] > 20
    fresh = reopened(sweeper)
    assert fresh.fsck().damages == ()
    assert sum(isinstance(content, Unknown) for _, content in fresh.at("main").entries()) == 600


def test_a_branch_created_at_a_commit_left_behind_is_refused_or_whole(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    """The commit is being swept: its last trace in a log is older than the grace period."""
    lake.branch("dev").create()
    commit = lake.branch("dev").put("a", large(1)).id
    lake.branch("dev").delete()
    clock.go_on(GRACE_S + 1)
    _race_with_sweep(lake, store, lambda: lake.branch("back").create(at=commit))
    assert not lake.branch("back").exists


def test_a_branch_whose_creation_is_under_way_when_the_sweep_comes_is_whole(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    """The check passed when half of the grace period was not over; the swap comes almost half of it later."""
    lake.branch("dev").create()
    commit = lake.branch("dev").put("a", large(1)).id
    clock.go_on(GRACE_S * 3)
    lake.branch("dev").delete()
    clock.go_on(GRACE_S * 0.49)
    sweeper = reopened(lake)

    def sweep_before_swap(name: str) -> None:
        if name == "back":
            store.before_turn = lambda _: None
            clock.go_on(GRACE_S * 0.49)
            sweeper.sweep()

    store.before_turn = sweep_before_swap
    lake.branch("back").create(at=commit)
    clock.go_on(GRACE_S * 10)
    sweeper.sweep()
    assert reopened(lake).fsck().damages == ()
    assert reopened(lake).at("back").get("a") is not None


def _race_with_sweep(lake: Lake, store: HookedStore, do: Callable[[], object]) -> bool:
    """Do something after the sweep has marked and before it looks for what to delete; say if it was done."""
    first = Once()
    done: list[bool] = []

    def meanwhile() -> None:
        if first():
            try:
                do()
            except PenstockError:
                done.append(False)
            else:
                done.append(True)

    store.before_scan = meanwhile
    sweeper = reopened(lake)
    sweeper.sweep()
    store.before_scan = lambda: None
    assert reopened(lake).fsck().damages == ()
    assert sweeper.sweep().removed >= 0
    return done[0]


def _history_to_expire(lake: Lake, clock: SetClock) -> Lake:
    """A branch whose older commits will be behind the horizon; they brought and dropped a large content."""
    main = lake.branch()
    lake.branch("apart").create().put("apart", table())
    main.put("big", large(1))
    main.drop("big", message="drop big")
    main.commit([Put(Key(f"key{number:03}"), table()) for number in range(600)], message="fold")
    for number in range(5):
        main.put(f"t{number}", table())
    lake.branch("dev").create(at="main")
    clock.go_on(DAY_S)
    keep_history(lake.kernel.store, 2, pattern="[adm]*")
    return reopened(lake, Settings(grace_s=GRACE_S, nobody_writes=True))


def _keep_it_by_another_branch(lake: Lake) -> None:
    """Another name, which keeps all history, leads to it now; but the sweep does not know that yet."""
    lake.branch("keeper").create(at="main")
    lake.branch("back").create(at="main~7")


def _take_the_horizon_away(lake: Lake) -> None:
    lake.keep_history("[adm]*")
    lake.branch("back").create(at="main~7")


OLD: dict[str, Callable[[Lake], object]] = {
    "a branch at it": lambda lake: lake.branch("back").create(at="main~7"),
    "a branch at its id": lambda lake: lake.branch("back").create(at=lake.resolve("main~7")),
    "a tag at it": lambda lake: lake.tag("back").create(at="main~7"),
    "a branch assigned to it": lambda lake: lake.branch("dev").assign("main~7"),
    "a revert of it": lambda lake: lake.revert("main~6", "main"),
    "a transplant of it": lambda lake: lake.transplant("main~7", "main"),
    "a merge of it": lambda lake: lake.merge("main~7", "apart"),
    "a rebase onto it": lambda lake: lake.rebase("dev", "main~7"),
    "a branch at it, kept by another new one": _keep_it_by_another_branch,
    "a branch at it, its horizon taken away": _take_the_horizon_away,
}


@pytest.mark.parametrize("do", OLD.values(), ids=OLD.keys())
def test_what_is_made_of_history_that_is_being_swept_is_refused_or_whole(
    lake: Lake, store: HookedStore, clock: SetClock, do: Callable[[Lake], object]
) -> None:
    """Behind the horizon but not yet removed: it can still be read, and somebody builds on it just then."""
    lake = _history_to_expire(lake, clock)
    user = reopened(lake)
    _race_with_sweep(lake, store, lambda: do(user))
    for branch in lake.branches():
        for _, content in reopened(lake).at(branch.name).entries():
            assert content.type


def test_a_tombstone_made_anew_while_the_old_one_is_forgotten_stays(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    lake.branch("dev").create().delete()
    clock.go_on(100 * DAY_S)
    user = new_lake(store.inner, clock)
    heads = []

    def recreate(name: str) -> None:
        if name == "dev":
            store.before_turn = lambda _: None
            user.branch("dev").create()
            heads.append(user.branch("dev").put("fresh", large(1)).id)
            user.branch("dev").delete()

    store.before_turn = recreate
    lake.sweep()
    assert heads
    assert lake.deleted() == ["dev"]
    assert len(lake.reflog("dev")) == 5
    assert reopened(lake).fsck().damages == ()
    assert lake.branch("back").create(at=heads[0]).head == heads[0]


@pytest.mark.parametrize("kind", [Kind.DELETED, Kind.BRANCH, Kind.TAG])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_name_that_is_deleted_or_created_while_names_are_listed_keeps_its_log(
    lake: Lake,
    store: HookedStore,
    clock: SetClock,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    is_deleted: bool,
) -> None:
    """The sweep lists one kind after the other; the name changes its kind in between."""
    dev = lake.branch("dev").create()
    if not is_deleted:
        dev.delete()
    clock.go_on(2 * GRACE_S)
    listed, first = store.references, Once()

    def change_after(of: str, *how: Any, **more: Any) -> list[Row]:
        rows = listed(of, *how, **more)
        if of == kind and first():
            user = new_lake(store.inner, clock).branch("dev")
            user.delete() if is_deleted else user.create()
        return rows

    monkeypatch.setattr(store, "references", change_after)
    lake.sweep()
    assert not first()
    assert reopened(lake).fsck().damages == ()
    assert len(reopened(lake).reflog("dev")) == (2 if is_deleted else 3)


def test_a_branch_created_while_its_tombstone_is_forgotten_stays(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    lake.branch("dev").create().delete()
    clock.go_on(100 * DAY_S)
    user = new_lake(store.inner, clock)

    def recreate(name: str) -> None:
        if name == "dev":
            store.before_turn = lambda _: None
            user.branch("dev").create()
            user.branch("dev").put("fresh", large(1))

    store.before_turn = recreate
    lake.sweep()
    assert lake.branch("dev").table("fresh").exists
    assert reopened(lake).fsck().damages == ()


def _write(lake: Lake, start: Barrier, number: int) -> list[str]:
    start.wait()
    made = []
    for turn in range(12):
        branch = lake.branch(f"work{number}")
        branch.create()
        branch.put(f"t{number}-{turn}", large(turn))
        lake.merge(branch.name, "main")
        made.append(lake.resolve("main"))
        branch.delete()
    return made


def _sweep(lake: Lake, start: Barrier, clock: SetClock) -> int:
    start.wait()
    removed = 0
    for _ in range(6):
        clock.go_on(1)
        removed += lake.sweep().removed
    return removed


def test_sweeps_and_commits_go_on_side_by_side(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    for number in range(5):
        lake.branch("old").create()
        lake.branch("old").put(f"old{number}", large(number))
        lake.branch("old").delete()
    clock.go_on(GRACE_S + 1)
    start = Barrier(5)
    writers = [Caller(partial(_write, lake, start, number)) for number in range(3)]
    sweepers = [Caller(partial(_sweep, reopened(lake), start, clock)) for _ in range(2)]
    assert sum(sweeper.result() for sweeper in sweepers) >= 5
    made = [commit for writer in writers for commit in writer.result()]
    fresh = reopened(lake)
    assert fresh.fsck().damages == ()
    history = {commit.id for commit in fresh.log(limit=None, all_parents=True)}
    assert set(made) <= history
    assert sum(1 for _ in fresh.at("main").entries()) == 36
