"""The sweep removes exactly what nothing leads to, when its time has come."""

import pytest

from penstock.errors import Damaged, ReferenceNotFound
from penstock.kernel.description import read_description
from penstock.kernel.format import AppliedChange, Format, Table, blob
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.model.content import AnyContent, Unknown
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob
from penstock.model.operations import Change, Delete, Put
from penstock.stores.memory import MemoryStore
from penstock.stores.port import AdvanceResult
from tests.queue.hooks import (
    DAY_S,
    Go,
    HookedStore,
    Once,
    SetClock,
    everything,
    keep_history,
    new_kernel,
    new_lake,
    put,
    table,
)
from tests.sweep.oracle import GRACE_S, ids, large, reachable, receipts, reopened


def _busy_lake(lake: Lake) -> None:
    """Branches, merges, tags, large contents and many keys, some of it left behind."""
    main = lake.branch()
    puts = [Put(Key(f"key{number:03}"), table(str(number))) for number in range(400)]
    main.commit(puts, message="many keys")
    main.put("big", large(1))
    dev = lake.branch("dev").create()
    for number in range(5):
        dev.put(f"dev{number}", large(10 + number))
        main.put(f"main{number}", table())
    lake.merge("dev", "main")
    lake.tag("v1").create()
    gone = lake.branch("gone").create()
    for number in range(5):
        gone.put(f"gone{number}", large(20 + number))
    gone.commit([Delete(Key("big"))])
    gone.delete()
    assigned = lake.branch("assigned").create()
    assigned.put("left", large(30))
    assigned.assign("main")


def test_exactly_what_is_unreachable_is_removed(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    _busy_lake(lake)
    clock.go_on(GRACE_S + 1)
    before = ids(store)
    wanted = reachable(store) | receipts(store)
    assert len(before - wanted) >= 20
    swept = lake.sweep()
    assert ids(store) == wanted
    assert swept.removed == len(before - wanted)
    assert swept.kept == len(wanted)
    assert reopened(lake).fsck().damages == ()
    assert lake.sweep().removed == 0


def test_bytes_are_counted_as_they_are(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    _busy_lake(lake)
    clock.go_on(GRACE_S + 1)
    sizes = {one: len(data) for one, data in everything(store)[1].items()}
    swept = lake.sweep()
    left = ids(store)
    assert swept.kept_bytes == sum(sizes[one] for one in left)
    assert swept.removed_bytes == sum(size for one, size in sizes.items() if one not in left)


def test_nothing_is_removed_within_the_grace_period(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    _busy_lake(lake)
    before = ids(store)
    swept = lake.sweep()
    assert swept.removed == 0
    clock.go_on(GRACE_S - 10)
    assert lake.sweep().removed == 0
    assert ids(store) == before


def test_what_lost_its_swap_is_removed(clock: SetClock) -> None:
    shared = MemoryStore(clock)
    mine, settings = HookedStore(shared), Settings(grace_s=GRACE_S, nobody_writes=True)
    winner, loser = new_kernel(shared, clock, settings), new_kernel(mine, clock, settings)
    first = Once(3)

    def overtake(go: Go) -> AdvanceResult:
        if first():
            put(winner, "theirs")
        return go()

    mine.around_advance = overtake
    put(loser, "mine")
    strays = ids(shared) - reachable(shared) - receipts(shared)
    assert len(strays) >= 3
    clock.go_on(GRACE_S + 1)
    lake = new_lake(shared, clock, settings)
    assert lake.sweep().removed == len(strays)
    assert ids(shared) == reachable(shared) | receipts(shared)


def test_commits_left_behind_stay_for_the_grace_period_whatever_their_age(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    """An old branch is deleted: its objects are old, but what was done to it is young."""
    dev = lake.branch("dev").create()
    old = dev.put("a", large(1)).id
    assigned = lake.branch("assigned").create(at="dev")
    older = assigned.put("b", large(2)).id
    clock.go_on(GRACE_S * 5)
    dev.delete()
    assigned.assign("main")
    clock.go_on(GRACE_S - 10)
    assert lake.sweep().removed == 0
    assert ids(store) == reachable(store, [old, older]) | receipts(store)
    clock.go_on(20)
    assert lake.sweep().removed > 0
    assert ids(store) == reachable(store) | receipts(store)


def test_a_sweep_of_a_clean_lake_changes_nothing(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    lake.branch().put("a.b", large(1))
    clock.go_on(GRACE_S * 10)
    _, before = everything(store)
    assert lake.sweep().removed == 0
    assert everything(store)[1] == before


def test_an_empty_lake_can_be_swept(lake: Lake) -> None:
    assert lake.sweep().removed == 0
    assert lake.fsck().damages == ()


# --- large contents and held objects -------------------------------------------------------------------


class Holding(Format):
    """A format whose tables hold kernel objects: the change's own bytes, stored beside the table."""

    name = "holding"

    def __init__(self, kind: type[DeltaTable] | type[Unknown], size: int) -> None:
        self._kind, self._size = kind, size

    def manages(self, content: AnyContent) -> bool:
        return isinstance(content, DeltaTable) or content.type == "HOLDING"

    def apply(self, table: Table, change: Change, prepared: object) -> AppliedChange:
        one, data = blob(change.intent)
        held, filling = (one,), b"s" * self._size
        content: AnyContent
        if self._kind is DeltaTable:
            content = DeltaTable(state=filling, held=held)
        else:
            content = Unknown(type_name="HOLDING", payload=filling, held=held)
        return AppliedChange(content, {one: data})


@pytest.mark.parametrize("kind", [DeltaTable, Unknown])
@pytest.mark.parametrize("size", [1, 5000])
@pytest.mark.parametrize("is_folded", [False, True])
def test_what_a_content_holds_lives_as_long_as_the_content(
    lake: Lake,
    store: HookedStore,
    clock: SetClock,
    kind: type[DeltaTable] | type[Unknown],
    size: int,
    is_folded: bool,
) -> None:
    kernel = Kernel(store, [Holding(kind, size)], lake.kernel.settings, clock)
    lake = Lake(Embedded(kernel, read_description(store), open_lake=Lake), "tester")
    held, stray = encode(Blob(b"held")), encode(Blob(b"nobody holds this"))
    store.store({hash_object(stray): stray})
    dev = lake.branch("dev").create()
    dev.commit([Change(Key("table"), "holding", b"held")])
    if is_folded:
        dev.commit([Put(Key(f"key{number:03}"), table()) for number in range(600)])
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert hash_object(held) in ids(store)
    assert hash_object(stray) not in ids(store)
    assert reopened(lake).fsck().damages == ()
    dev.delete()
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert hash_object(held) not in ids(store)


class Chained(Holding):
    """Tables that hold one object, which holds another, which holds the bytes of the change."""

    def __init__(self) -> None:
        super().__init__(DeltaTable, 1)

    def apply(self, table: Table, change: Change, prepared: object) -> AppliedChange:
        blobs = dict(chained(change.intent))
        return AppliedChange(
            DeltaTable(location="/tables/chained", state=b"s", held=(list(blobs)[-1],)), blobs
        )


def chained(data: bytes) -> list[tuple[ObjectId, bytes]]:
    """Bytes, an object that holds them, and one that holds that."""
    first = blob(data)
    second = blob(b"second", [first[0]])
    return [first, second, blob(b"third", [second[0], first[0]])]


def test_what_an_object_holds_lives_as_long_as_what_holds_it(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    kernel = Kernel(store, [Chained()], lake.kernel.settings, clock)
    lake = Lake(Embedded(kernel, read_description(store), open_lake=Lake), "tester")
    held, stray = dict(chained(b"held")), dict(chained(b"stray"))
    store.store(stray)
    dev = lake.branch("dev").create()
    dev.commit([Change(Key("table"), "holding", b"held")])
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert held.keys() <= ids(store)
    assert not (stray.keys() - held.keys()) & ids(store)
    assert reopened(lake).fsck().damages == ()
    store.delete([stored for stored in store.scan(b"", 10_000)[0] if stored.id == next(iter(held))])
    assert [one.object for one in reopened(lake).fsck().damages] == [next(iter(held)).hex()]
    store.store(held)
    dev.delete()
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert not held.keys() & ids(store)


def test_what_a_dropped_table_held_stays_though_the_commit_that_had_it_is_gone(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    """The table may yet be brought back, by a branch that still has it, and goes on from what it was."""
    kernel = Kernel(store, [Chained()], lake.kernel.settings, clock)
    lake = Lake(Embedded(kernel, read_description(store), open_lake=Lake), "tester")
    held = dict(chained(b"held"))
    had = lake.commit([Change(Key("table"), "holding", b"held")])
    lake.commit([Delete(Key("table"))])
    lake.commit([Put(Key(f"key{number:03}"), table()) for number in range(600)])  # all is in the tree now
    keep_history(store, commits=1)
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert had.object_id not in ids(store)
    assert held.keys() <= ids(store)
    assert reopened(lake).fsck().damages == ()


def test_a_large_content_that_was_dropped_stays_in_history(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    main = lake.branch()
    main.put("big", large(1, 600_000))
    main.drop("big")
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    found = reopened(lake).at("main~1").get("big")
    assert isinstance(found, Unknown)
    assert found.payload == large(1, 600_000).payload


# --- receipts and tombstones ---------------------------------------------------------------------------


def test_receipts_outlive_the_grace_period_until_their_own_time(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    for number in range(3):
        lake.branch().put(f"t{number}", table(), idempotency_key=f"k{number}")
        clock.go_on(DAY_S)
    assert lake.sweep().receipts == 0
    assert len(receipts(store)) == 3
    clock.go_on(5 * DAY_S - 10)
    swept = lake.sweep()
    assert (swept.receipts, swept.removed) == (1, 1)
    assert lake.outcome("k0") is None
    assert lake.outcome("k1") is not None


def test_tombstones_expire_with_their_logs(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    for name in ("old", "young"):
        lake.branch(name).create()
        lake.branch(name).put(name, table())
        lake.branch(name).delete()
        clock.go_on(60 * DAY_S)
    assert lake.deleted() == ["old", "young"]
    swept = lake.sweep()
    assert swept.tombstones == 1
    assert lake.deleted() == ["young"]
    with pytest.raises(ReferenceNotFound, match="'old'"):
        lake.reflog("old")
    assert len(lake.reflog("young")) == 3
    assert ids(store) == reachable(store) | receipts(store)
    assert lake.branch("old").create().reflog()[0].position == 1


def test_a_tombstone_is_as_old_as_its_last_deletion(lake: Lake, clock: SetClock) -> None:
    lake.branch("dev").create().delete()
    clock.go_on(89 * DAY_S)
    lake.branch("dev").create().delete()
    clock.go_on(89 * DAY_S)
    assert lake.sweep().tombstones == 0
    assert lake.deleted() == ["dev"]


def test_a_tombstone_stays_for_the_grace_period_whatever_its_own_time(lake: Lake, clock: SetClock) -> None:
    """Until then its log keeps what the branch left behind, and one can return there."""
    old = lake.branch("dev").create().put("a", large(1)).id
    clock.go_on(GRACE_S * 5)
    lake.branch("dev").delete()
    hasty = reopened(lake, Settings(grace_s=GRACE_S, tombstone_days=0, nobody_writes=True))
    assert hasty.sweep().tombstones == 0
    assert reopened(lake).branch("back").create(at=old).head == old
    clock.go_on(GRACE_S + 1)
    assert hasty.sweep().tombstones == 1
    assert reopened(lake).fsck().damages == ()


# --- refusing ------------------------------------------------------------------------------------------


def test_nothing_is_removed_if_something_reachable_is_missing(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    _busy_lake(lake)
    lake.branch("old").create().delete()
    clock.go_on(100 * DAY_S)
    expired = {one for name in lake.deleted() for one, _ in lake.kernel.references.walk_log(name)}
    victims = sorted(reachable(store) - expired)[::40]
    for victim in victims:
        data = store.fetch([victim])[victim]
        _remove(store, victim)
        before = everything(store)
        with pytest.raises(Damaged, match="nothing was removed") as caught:
            reopened(lake).sweep()
        assert victim.hex() in caught.value.details["objects"]
        assert everything(store) == before
        store.store({victim: data})


def _remove(store: HookedStore, victim: bytes) -> None:
    token = b""
    while True:
        page, token = store.inner.scan(token, 1000)
        if chosen := [one for one in page if one.id == victim]:
            assert store.inner.delete(chosen) == 1
            return


def test_an_unreadable_object_that_nothing_leads_to_is_removed_when_a_receipt_would_be(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    """It may have been one. Were it removed before, its request could be done twice."""
    lake.branch().put("a", table())
    stray = hash_object(b"stray")
    store.store({stray: b"\xc1 this is nothing"})
    clock.go_on(GRACE_S + 1)
    assert lake.sweep().removed == 0
    clock.go_on(7 * DAY_S)
    lake.sweep()
    assert stray not in ids(store)


# --- dry runs ------------------------------------------------------------------------------------------


def _aged(lake: Lake, clock: SetClock) -> None:
    _busy_lake(lake)
    lake.branch("old").create()
    lake.branch("old").put("in-old", large(99), idempotency_key="old")
    lake.branch("old").delete()
    clock.go_on(100 * DAY_S)
    lake.branch("new").create()
    lake.branch("new").put("in-new", large(98), idempotency_key="new")
    lake.branch("new").delete()


@pytest.mark.parametrize("commits", [None, 3])
def test_a_dry_run_deletes_nothing_and_predicts_the_real_run(
    lake: Lake, store: HookedStore, clock: SetClock, commits: int | None
) -> None:
    _aged(lake, clock)
    keep_history(store, commits)
    lake = reopened(lake, Settings(grace_s=GRACE_S, nobody_writes=True))
    before = everything(store)
    predicted = lake.sweep(dry_run=True)
    assert everything(store) == before
    done = lake.sweep()
    assert (predicted.dry_run, done.dry_run) == (True, False)
    names = ["tombstones", "receipts", "removed", "removed_bytes", "kept", "kept_bytes", "waiting"]
    assert {name: getattr(predicted, name) for name in names} == {name: getattr(done, name) for name in names}
    assert done.tombstones > 0
    assert done.receipts > 0
    assert done.waiting > 0


def test_progress_is_told_and_only_grows(lake: Lake, clock: SetClock) -> None:
    _busy_lake(lake)
    clock.go_on(GRACE_S + 1)
    told: dict[str, list[int]] = {}
    lake.sweep(progress=lambda what, count: told.setdefault(what, []).append(count))
    assert told
    for counts in told.values():
        assert counts == sorted(counts)
        assert counts[-1] > 0
