"""A backup is the lake at one moment, costs what changed, and is proved by a restore."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.errors import Damaged, InvalidRequest, LakeExists, LakeMoved, LakeNotFound, Unavailable
from penstock.kernel import backup as backing_up
from penstock.kernel.backup import BackupMaker, find_reachable_objects
from penstock.kernel.backup_points import PointStore, make_room, read_points
from penstock.kernel.description import BACKUPS_VERSION, LakeDescription, make_description, read_description
from penstock.kernel.leases import Leases
from penstock.lake.backup import (
    backup_lake,
    expire_backups,
    forget_backups,
    list_backups,
    registered_backups,
    restore_backup,
    verify_backup,
)
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.model.encoding import ObjectId
from penstock.model.objects import Receipt, decode_object
from penstock.model.references import Kind
from penstock.stores import open_store
from penstock.stores.memory import MemoryStore
from penstock.stores.objectstore import ObjectStore
from penstock.stores.port import Row, Store
from penstock.stores.wrapped import WrappedStore
from penstock.testing.faults import FaultyStore, Point
from tests.copy.lakes import (
    QUICK,
    Killed,
    Life,
    MortalStore,
    fill,
    like,
    move,
    new_store,
    objects,
    reopened,
    rows,
    table,
)


def back_up(source: Store, target: Store, **chosen: object) -> backing_up.BackupResult:
    return backup_lake(source, target, author="ada", settings=QUICK, **chosen)  # type: ignore[arg-type]


def pass_time(target: MemoryStore) -> None:
    """Let the lease of a process that was killed run out."""
    target._rows.pop("@lease/backup", None)


def token_rows(store: Store) -> dict[str, Row]:
    return {row.name: row for row in store.references(Kind.TOKEN.value, limit=1000)}


def restored(target: Store, at: str | None = None) -> MemoryStore:
    place = MemoryStore()
    restore_backup(target, place, at=at, source_is_gone=True, settings=QUICK)
    return place


@pytest.mark.parametrize("seed", range(4))
def test_a_backup_has_everything_and_the_source_is_not_touched(seed: int) -> None:
    source, target = new_store(seed), MemoryStore()
    reopened(source).create_token("ada", "write")
    before = like(source)
    made = back_up(source, target, register=False)
    assert (source._rows, source._objects) == (before._rows, before._objects)
    assert made.is_verified
    there = restored(target)
    assert rows(there) == rows(source)
    assert token_rows(there) == token_rows(source)
    assert objects(source).items() <= objects(there).items()
    here, lake = read_description(source), read_description(there)
    assert msgspec.structs.replace(lake, arrival=None, backups=(), format_version=here.format_version) == here
    assert [one.id for one in reopened(there).log(limit=None)] == [
        one.id for one in reopened(source).log(limit=None)
    ]
    assert reopened(there).fsck().damages == ()
    reopened(there).branch().put("t", table("goes on"))


@pytest.mark.parametrize("seed", range(6))
def test_each_of_many_backups_of_a_lake_in_use_is_the_lake_at_its_moment(seed: int) -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = open_lake(source, author="ada", settings=QUICK)
    moments: dict[str, dict[str, Row]] = {}
    for step in range(6):
        fill(lake, 100 * seed + step, 12, f"{step}-")
        made = back_up(source, target)
        moments[made.point.id] = rows(source)
        assert (made.point.is_whole, made.is_verified) == (step == 0, step == 0)
    for number, was in moments.items():
        assert verify_backup(target, number).damages == ()
        assert rows(restored(target, number)) == was
    assert [one.id for one in list_backups(target)] == [*moments]
    assert [one.id for one in registered_backups(source)] == [*moments]


class _Counting(WrappedStore):
    """Counts the objects that are fetched and stored."""

    fetched = stored = scans = 0

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        self.fetched += len(ids)
        return super().fetch(ids)

    def store(self, objects: object) -> None:
        self.stored += len(objects)  # type: ignore[arg-type]
        super().store(objects)  # type: ignore[arg-type]

    def scan(self, after: bytes, limit: int) -> object:  # type: ignore[override]
        self.scans += 1
        return super().scan(after, limit)


@pytest.mark.parametrize("commits", [50, 800])
def test_a_later_backup_costs_what_changed(commits: int) -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = open_lake(source, settings=QUICK)
    for number in range(commits):
        lake.branch().put(f"n{number % 300}.t" if number % 7 else "t", table(number))
    back_up(source, target)
    for number in range(5):
        lake.branch().put("t", table(f"later {number}"), idempotency_key=f"key {number}")
    reading, writing = _Counting(source), _Counting(target)
    made = back_up(reading, writing)
    assert reading.scans == 0
    assert writing.stored <= 40
    assert reading.fetched <= 120
    assert made.point.objects <= 40
    assert verify_backup(target).damages == ()
    there = reopened(restored(target))
    assert there.outcome("key 3") is not None


class RacedStore(WrappedStore):
    """A target in which another backup of the same lake begins while somebody sees that it is empty."""

    def __init__(self, inner: Store, lake: LakeDescription) -> None:
        super().__init__(inner)
        self._lake: LakeDescription | None = lake

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        if (lake := self._lake) is not None:
            self._lake = None
            make_room(self.inner, lake)
        return self.inner.references(kind, prefix, after, limit)


def test_of_two_that_begin_in_one_empty_place_none_is_refused() -> None:
    lake = make_description(now_us(), "main", "", ())
    target = MemoryStore()
    make_room(RacedStore(target, lake), lake)
    assert read_description(target).id == lake.id
    stranger = make_description(now_us(), "main", "", ())
    with pytest.raises(InvalidRequest, match="backups of another lake"):
        make_room(RacedStore(MemoryStore(), lake), stranger)


def test_nothing_new_costs_next_to_nothing() -> None:
    source, target = new_store(3), MemoryStore()
    back_up(source, target)
    made = back_up(source, target)
    assert made.point.objects == 0
    assert rows(restored(target)) == rows(source)


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_backup_killed_anywhere_is_completed_by_the_next_one(is_after: bool, is_first: bool) -> None:
    source, target = new_store(5, 8), MemoryStore()
    if not is_first:
        back_up(source, target)
        fill(reopened(source), 6, 8, "second-")
    whole = Life()
    back_up(MortalStore(like(source), whole), MortalStore(like(target), whole))
    for last in range(0, whole.calls, 1 if is_first else 2):
        here, there = like(source), like(target)
        life = Life(last, is_after)
        with pytest.raises(Killed):
            back_up(MortalStore(here, life), MortalStore(there, life))
        pass_time(there)
        reopened(here).branch().put("t", table("between"))
        made = back_up(here, there)
        assert made.point.is_complete
        assert rows(restored(there)) == rows(here)
        for point in list_backups(there):
            assert point.is_complete
            assert verify_backup(there, point.id).damages == ()
        known = [one.id for one in registered_backups(here)]
        assert known == [one.id for one in list_backups(there)], "the lake keeps nothing for what is nowhere"


def left_without_rows() -> tuple[MemoryStore, MemoryStore]:
    """A lake that knows of a backup, and its target, where the point has no rows: the process was killed."""
    source, target = new_store(5, 8), MemoryStore()
    whole = Life()
    back_up(MortalStore(like(source), whole), MortalStore(like(target), whole))
    for last in range(whole.calls):
        here, there = like(source), like(target)
        with pytest.raises(Killed):
            back_up(MortalStore(here, Life()), MortalStore(there, Life(last)))
        if registered_backups(here) and not read_points(there)[0].is_cut:
            pass_time(there)
            return here, there
    raise AssertionError("no call is between the two")


@pytest.mark.parametrize("is_after", [False, True], ids=["before a call", "after a call"])
def test_a_run_that_drops_a_left_backup_and_is_killed_leaves_no_lake_that_keeps_files_for_it(
    is_after: bool,
) -> None:
    source, target = left_without_rows()
    (left,) = registered_backups(source)
    whole = Life()
    back_up(MortalStore(like(source), whole), MortalStore(like(target), whole))
    for last in range(whole.calls):
        here, there = like(source), like(target)
        life = Life(last, is_after)
        with pytest.raises(Killed):
            back_up(MortalStore(here, life), MortalStore(there, life))
        known = {one.id for one in registered_backups(here)}
        assert known <= {one.id for one in read_points(there)}
        pass_time(there)
        back_up(here, there)
        known_now = [one.id for one in registered_backups(here)]
        assert left.id not in known_now
        assert known_now == [one.id for one in list_backups(there)]


def test_a_run_that_writes_nothing_to_the_lake_keeps_a_left_backup_that_the_lake_knows_of() -> None:
    source, target = left_without_rows()
    (left,) = registered_backups(source)
    made = back_up(source, target, register=False)
    assert [one.id for one in registered_backups(source)] == [left.id]
    assert {one.id for one in read_points(target)} == {left.id, made.point.id}
    again = back_up(source, target)
    assert [one.id for one in registered_backups(source)] == [again.point.id]
    assert [one.id for one in list_backups(target)] == [made.point.id, again.point.id]


@pytest.mark.parametrize("data", [False, True], ids=["without data", "with data"])
def test_a_rule_removes_no_backup_that_the_lake_knows_of_if_nothing_is_written_to_the_lake(
    tmp_path: Path, data: bool
) -> None:
    source, target = tmp_path / "lake", tmp_path / "target"
    with open_lake(source, create=True) as lake:
        lake.branch().put("t", table(1))
    known = [backup_lake(source, target, data=data).point.id for _ in range(2)]
    unknown = backup_lake(source, target, data=data, register=False).point.id
    made = backup_lake(source, target, data=data, register=False, keep_last=1)
    assert made.expired == (unknown,)
    assert [one.id for one in registered_backups(source)] == known
    assert [one.id for one in list_backups(target)] == [*known, made.point.id]
    again = backup_lake(source, target, data=data, keep_last=1)
    assert {*again.expired} == {*known, made.point.id}
    assert [one.id for one in registered_backups(source)] == [again.point.id]
    assert [one.id for one in list_backups(target)] == [again.point.id]


def test_a_backup_waits_for_one_that_was_killed_no_longer_than_its_lease_is_good() -> None:
    source, target = new_store(2, 5), MemoryStore()
    dying = FaultyStore(target)
    dying.fail(Point.STORE, Killed())
    kernel = reopened(source).kernel
    with pytest.raises(Killed):
        BackupMaker(dying, QUICK).make_backup(kernel, source_place="here")
    assert [one.is_cut for one in read_points(target)] == [False]
    with Leases(target).store.turn("@lease/backup") as turn:
        assert turn.row is None, "who ends in order lets go at once"
    left = Leases(target, good_s=0.5, margin_s=0.1).take_lease("backup")
    assert left is not None
    made = BackupMaker(target, QUICK).make_backup(kernel, source_place="here")
    assert made.point.is_complete
    assert not left.renew_if_due()


def test_two_backups_to_one_place_at_once_take_turns(tmp_path: Path) -> None:
    source, target = new_store(2), FaultyStore(MemoryStore())
    back_up(source, target)
    refused: list[Exception] = []

    def other() -> None:
        maker = BackupMaker(target, QUICK, wait_s=0.0)
        try:
            maker.make_backup(reopened(source).kernel, source_place="memory:")
        except Unavailable as problem:
            refused.append(problem)

    reopened(source).branch().put("t", table("new"))
    target.at(Point.STORE, other)
    back_up(source, target)
    assert "another process is writing to the backup" in str(refused[0])
    assert all(point.is_complete for point in list_backups(target))


@pytest.mark.parametrize("skip", range(0, 40, 3))
def test_a_backup_of_a_lake_that_is_written_to_is_one_moment(skip: int) -> None:
    """A job lands and its branch goes meanwhile: the backup has all of that, or nothing."""
    store, target = MemoryStore(), MemoryStore()
    lake = open_lake(store, settings=QUICK)
    lake.branch().put("t", table(0))
    if skip % 2:
        back_up(store, target)
    lake.branch("job").create().put("u", table(1))
    source = FaultyStore(store)

    def land() -> None:
        lake.merge("job", "main")
        lake.branch("job").delete()

    source.at(Point.REFERENCES, land, skip=skip % 12)
    back_up(source, target)
    there = reopened(restored(target))
    has_landed = "u" in {str(one.key) for one in there.tables()}
    assert [branch.name for branch in there.branches()] == (["main"] if has_landed else ["job", "main"])
    assert there.fsck().damages == ()


def test_a_source_that_can_only_be_read_is_backed_up_without_being_registered(tmp_path: Path) -> None:
    source, target = new_store(1), MemoryStore()
    back_up(source, target)
    view = PointStore(target, read_points(target)[0])
    other = MemoryStore()
    with pytest.raises(penstock.errors.Denied, match="With --no-register"):
        back_up(view, other)
    assert not other._rows
    made = back_up(view, other, register=False)
    assert not made.is_registered
    assert rows(restored(other)) == rows(source)


def test_places_that_are_no_backup_of_the_lake_are_refused() -> None:
    source, other = new_store(1, 5), new_store(2, 5)
    with pytest.raises(LakeExists, match="choose a location for backups only"):
        back_up(source, other)
    with pytest.raises(LakeExists):
        back_up(source, source)
    target = MemoryStore()
    back_up(other, target)
    with pytest.raises(InvalidRequest, match="holds backups of another lake"):
        back_up(source, target)
    with pytest.raises(InvalidRequest, match="is not a lake"):
        open_lake(target)
    with pytest.raises(InvalidRequest, match="is not a lake"):
        back_up(target, MemoryStore())
    with pytest.raises(InvalidRequest, match="not a location of backups"):
        list_backups(source)
    with pytest.raises(LakeNotFound, match="no backup"):
        list_backups(MemoryStore())


def test_a_damaged_object_is_found_by_verify_and_by_the_backup_of_it() -> None:
    source, target = new_store(1), MemoryStore()
    back_up(source, target)
    head = bytes.fromhex(reopened(source).branch().head)
    del target._objects[head]
    assert verify_backup(target).damages
    del source._objects[head]
    with pytest.raises(Damaged):
        back_up(source, MemoryStore())


class _Careless(WrappedStore):
    """Loses one object that it is given, or stores another byte in it."""

    def __init__(self, inner: Store, chosen: ObjectId, is_lost: bool) -> None:
        super().__init__(inner)
        self._chosen, self._is_lost = chosen, is_lost

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        changed = dict(objects)
        data = changed.pop(self._chosen, b"")
        if data and not self._is_lost:
            changed[self._chosen] = data[:-1] + bytes([data[-1] ^ 1])
        super().store(changed)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "another byte"])
def test_what_a_target_has_not_stored_as_it_was_is_found_by_reading_it_back(is_lost: bool) -> None:
    source, whole = new_store(1, 30), MemoryStore()
    back_up(source, whole, register=False)
    needed = sorted(find_reachable_objects(whole, read_points(whole)) & objects(source).keys())
    assert len(needed) > 40
    for chosen in needed[::4]:
        if isinstance(decode_object(objects(source)[chosen]), Receipt):
            continue  # nothing leads to it
        with pytest.raises(Damaged, match=chosen.hex()):
            back_up(source, _Careless(MemoryStore(), chosen, is_lost), register=False)


@pytest.mark.parametrize("verify", [False, True], ids=["read back", "verified"])
@pytest.mark.parametrize(
    "where",
    ["directory", "memory", *(pytest.param(where, marks=pytest.mark.verify) for where in ("files", "s3"))],
)
def test_after_a_target_stored_another_byte_the_same_command_heals_the_backup(
    request: pytest.FixtureRequest, tmp_path: Path, where: str, verify: bool
) -> None:
    source, is_bucket = new_store(1, 30), where in ("files", "s3")
    place = {"memory": "memory:", "files": f"file://{tmp_path}/target"}.get(where, str(tmp_path / "target"))
    if where == "s3":
        place = request.getfixturevalue("s3_place").url
    if is_bucket:
        ObjectStore(place, announce_wait_s=1.0).close()  # what is removed is announced so long before
    target = open_store(place, True, now_us)
    needed = _needed(source)
    for chosen in needed[:: len(needed) // (2 if is_bucket else 4)]:
        with pytest.raises(Damaged, match=chosen.hex()):
            back_up(source, _Careless(target, chosen, False), verify=verify)
        assert not target.fetch([chosen]), "what is wrong does not stay"
        made = back_up(source, target, verify=verify)
        assert made.completed
        assert [verify_backup(target, one.id).damages for one in list_backups(target)] == [(), ()]
        assert rows(restored(target)) == rows(source)
        ids = [one.id for one in list_backups(target)]
        expire_backups(source, place if is_bucket else target, *ids, settings=QUICK)
    target.close()


def test_a_later_backup_that_is_verified_removes_another_byte_that_came_since() -> None:
    source, target = new_store(1, 30), MemoryStore()
    back_up(source, target)
    chosen = _needed(source)[3]
    target._objects[chosen] = (b"rotten", target._objects[chosen][1])
    with pytest.raises(Damaged, match=chosen.hex()):
        back_up(source, target, verify=True)
    back_up(source, target, verify=True)
    assert all(verify_backup(target, one.id).damages == () for one in list_backups(target))


def _needed(source: MemoryStore) -> list[ObjectId]:
    """The objects that a backup has and that are compared with their ids."""
    whole = MemoryStore()
    back_up(source, whole, register=False)
    found = sorted(find_reachable_objects(whole, read_points(whole)) & objects(source).keys())
    return [one for one in found if not isinstance(decode_object(objects(source)[one]), Receipt)]


# -- what the lake keeps for its backups -------------------------------------------------------------------

SWEEPING = msgspec.structs.replace(QUICK, grace_s=0, idempotency_days=0, nobody_writes=True)


def lake_with_history(source: MemoryStore) -> Lake:
    lake = open_lake(source, settings=SWEEPING)
    for number in range(9):
        lake.branch().put("t", table(number))
    return lake


def test_what_a_backup_counts_on_stays_until_it_is_forgotten() -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = lake_with_history(source)
    lake.branch("job").create().put("u", table("job"))
    job = bytes.fromhex(lake.branch("job").head)
    first = bytes.fromhex(lake.log(limit=None)[-1].id)
    made = back_up(source, target)
    lake.branch("job").delete()
    lake.keep_history("main", max_commits=3)
    lake.sweep()
    assert {job, first} <= objects(source).keys()
    assert lake.fsck().damages == ()
    assert forget_backups(source, made.point.id[:18]) == [made.point.id]
    lake.sweep()
    assert not {job, first} & objects(source).keys()
    assert len(reopened(source).log()) == 3
    assert lake.fsck().damages == ()
    assert len(reopened(restored(target)).log(limit=None)) == 9


def test_a_sweep_that_began_before_a_backup_removes_nothing_that_it_counts_on() -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = lake_with_history(source)
    lake.keep_history("main", max_commits=3)
    sweeping = FaultyStore(source)
    other = open_lake(sweeping, settings=SWEEPING)
    sweeping.at(Point.TURN, lambda: back_up(source, target), name="@lake")
    other.sweep()
    assert len(reopened(restored(target)).log(limit=None)) == len(lake.log(limit=None)) == 9


def test_an_older_penstock_does_not_open_a_lake_that_keeps_files_for_a_backup() -> None:
    source = new_store(1, 5)
    back_up(source, MemoryStore())
    assert read_description(source).format_version == BACKUPS_VERSION


def test_a_lake_that_moves_keeps_what_its_backups_count_on_and_a_copy_has_none() -> None:
    source, target, moved, twin = new_store(1, 5), MemoryStore(), MemoryStore(), MemoryStore()
    made = back_up(source, target)
    move(source, twin, fork=True)
    assert read_description(twin).backups == ()
    move(source, moved)
    assert [one.id for one in registered_backups(moved)] == [made.point.id]
    assert reopened(moved).sweep().removed == 0
    with pytest.raises(LakeMoved):
        back_up(source, target)
    back_up(moved, target)
    assert len(list_backups(target)) == 2


# -- retention ---------------------------------------------------------------------------------------------


class _Time:
    def __init__(self) -> None:
        self.now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1000
        return self.now_us

    def sleep_days(self, days: float) -> None:
        self.now_us += int(days * 86_400_000_000)


@pytest.mark.parametrize("seed", range(6))
def test_a_retention_rule_keeps_what_it_says_and_what_is_kept_is_whole(seed: int) -> None:
    chosen = random.Random(seed)
    clock = _Time()
    source, target = MemoryStore(clock), MemoryStore(clock)
    lake = open_lake(source, author="ada", settings=QUICK, clock=clock)
    last, days = chosen.choice([1, 2, 4]), chosen.choice([0.0, 2.5])
    made: list[tuple[str, int]] = []
    moments: dict[str, dict[str, Row]] = {}
    for step in range(8):
        fill(lake, 50 * seed + step, 6, f"{step}-")
        clock.sleep_days(chosen.choice([0.5, 1, 2]))
        point = back_up(source, target, keep_last=last, keep_days=days, clock=clock).point
        made.append((point.id, point.created_us))
        moments[point.id] = rows(source)
        oldest_us = clock.now_us - int(days * 86_400_000_000)
        wanted = [
            one for number, (one, us) in enumerate(made) if number >= len(made) - last or us >= oldest_us
        ]
        found = [one.id for one in list_backups(target)]
        assert found == wanted
        assert [one.id for one in registered_backups(source)] == wanted
        for one in found:
            assert verify_backup(target, one).damages == ()
    kept = [one.id for one in list_backups(target)]
    assert all(rows(restored(target, one)) == moments[one] for one in kept)


def test_objects_of_a_backup_that_is_removed_go_and_those_of_others_stay() -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = open_lake(source, settings=QUICK)
    lake.branch("job").create().put("t", table("job"))
    job = bytes.fromhex(lake.branch("job").head)
    first = back_up(source, target).point.id
    lake.branch("job").delete()
    lake.branch().put("t", table("main"))
    second = back_up(source, target).point.id
    assert job in objects(target)
    with pytest.raises(InvalidRequest, match="there are several backups"):
        expire_backups(source, target, first[:4])
    with pytest.raises(InvalidRequest, match="give the backups to remove"):
        expire_backups(source, target)
    assert expire_backups(source, target, first, settings=QUICK) == [first]
    assert job not in objects(target)
    assert [one.id for one in list_backups(target)] == [second]
    assert [one.id for one in registered_backups(source)] == [second]
    assert verify_backup(target).damages == ()
    expire_backups(None, target, second, settings=QUICK)
    assert list_backups(target) == []
    assert objects(target) == {}
    assert back_up(source, target).point.is_whole


@pytest.mark.parametrize("is_after", [False, True])
def test_a_removal_killed_anywhere_leaves_every_other_backup_whole(is_after: bool) -> None:
    source, target = MemoryStore(), MemoryStore()
    lake = open_lake(source, settings=QUICK)
    fill(lake, 1, 8)
    lake.branch("job").create().put("t", table("job"))
    back_up(source, target)
    lake.branch("job").delete()
    back_up(source, target)
    whole = Life()
    expire_backups(None, MortalStore(like(target), whole), keep_last=1, settings=QUICK)
    for last in range(whole.calls):
        here, there = like(source), like(target)
        with pytest.raises(Killed):
            expire_backups(None, MortalStore(there, Life(last, is_after)), keep_last=1, settings=QUICK)
        pass_time(there)
        again = reopened(here)
        again.branch("job").create(at=again.reflog("job")[0].before)  # what the removed backup had
        back_up(here, there, keep_last=2)
        for point in list_backups(there):
            assert verify_backup(there, point.id).damages == ()
        assert rows(restored(there)) == rows(here)


@pytest.mark.parametrize("is_after", [False, True])
def test_after_a_removal_killed_anywhere_the_lake_keeps_nothing_for_what_is_gone(is_after: bool) -> None:
    source, target = MemoryStore(), MemoryStore()
    fill(open_lake(source, settings=QUICK), 1, 8)
    back_up(source, target)
    back_up(source, target)
    whole = Life()
    expire_backups(
        MortalStore(like(source), whole), MortalStore(like(target), whole), keep_last=1, settings=QUICK
    )
    for last in range(whole.calls):
        here, there = like(source), like(target)
        life = Life(last, is_after)
        with pytest.raises(Killed):
            expire_backups(MortalStore(here, life), MortalStore(there, life), keep_last=1, settings=QUICK)
        left = {one.id for one in list_backups(there)}
        assert {one.id for one in registered_backups(here)} <= left
        pass_time(there)
        expire_backups(here, there, keep_last=1, settings=QUICK)
        assert [one.id for one in registered_backups(here)] == [one.id for one in list_backups(there)]


def test_what_backups_share_is_read_once_when_another_one_is_removed() -> None:
    source = MemoryStore()
    lake = open_lake(source, settings=QUICK)
    for number in range(60):
        lake.branch().put(f"t{number}", table(number))
    read = []
    for count in (2, 12):
        target = _Counting(MemoryStore())
        for _ in range(count):
            back_up(source, target)
        target.fetched = 0
        expire_backups(None, target, list_backups(target)[0].id, settings=QUICK)
        read.append(target.fetched)
    assert read[1] <= read[0] + 12 * 4, "a few objects more for each further backup"


def test_a_rule_that_keeps_nothing_is_refused() -> None:
    source = new_store(1, 5)
    for rule in ({"keep_last": 0}, {"keep_days": -1.0}, {"keep_days": float("nan")}):
        with pytest.raises(InvalidRequest, match="keep_"):
            back_up(source, MemoryStore(), **rule)


# -- places ------------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with penstock.open(tmp_path / "lake", create=True, author="ada") as lake:
        fill(lake, 1, 10)
    return tmp_path / "lake"


@pytest.mark.parametrize("name", ["some/nightly.backup", "directory", "file:///{}/bucket"])
def test_a_backup_goes_to_a_file_a_directory_or_any_store(place: Path, tmp_path: Path, name: str) -> None:
    target = name.format(tmp_path) if "{}" in name else str(tmp_path / name)
    backup_lake(place, target)
    with penstock.open(place) as lake:
        lake.branch().put("later", table("later"))
    backup_lake(place, target)
    if target.endswith(".backup"):
        assert [one.name for one in (tmp_path / "some").iterdir()] == ["nightly.backup"]
    assert len(list_backups(target)) == 2
    assert verify_backup(target).damages == ()
    restore_backup(target, tmp_path / "again", own=True)
    with penstock.open(place) as lake, penstock.open(tmp_path / "again") as again:
        assert again.id == lake.id
        assert [one.id for one in again.log(limit=None)] == [one.id for one in lake.log(limit=None)]


def test_a_server_and_a_directory_with_other_files_are_no_place_for_a_backup(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match="other files in it"):
        backup_lake(place, tmp_path / "other")
    with pytest.raises(InvalidRequest, match="is a server"):
        backup_lake(place, "http://localhost:1")
    with pytest.raises(InvalidRequest, match="is a server"):
        backup_lake("http://localhost:1", tmp_path / "new")
    with pytest.raises(LakeNotFound):
        backup_lake(tmp_path / "nowhere", tmp_path / "new")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lake", "other"]


def test_a_backup_is_restored_beside_the_databases_and_not_through_a_server(
    place: Path, tmp_path: Path
) -> None:
    server, backup, new = "http://localhost:1", tmp_path / "nightly.backup", tmp_path / "new"
    backup_lake(place, backup)
    with pytest.raises(InvalidRequest, match="cannot create a lake"):
        restore_backup(backup, server)
    with pytest.raises(InvalidRequest, match="give the directory"):
        restore_backup(server, new)
    with pytest.raises(InvalidRequest, match="run this where the database can be reached"):
        restore_backup(backup, new, own=True, source=server)
    assert not new.exists()


@pytest.mark.parametrize("how", ["expired", "forgotten", "expired by a rule"])
def test_the_only_backup_that_is_left_shows_what_it_holds(how: str) -> None:
    source, target = new_store(3), MemoryStore()
    points = [back_up(source, target).point]
    for number in range(2):
        reopened(source).branch().put("t", table(number))
        points.append(back_up(source, target).point)
    *older, newest = [point.id for point in points]
    assert newest in [one.id for one in registered_backups(source)]
    if how == "expired":
        for backup in older:
            expire_backups(source, target, backup)
    elif how == "forgotten":
        forget_backups(source, *older)
    else:
        expire_backups(source, target, keep_last=1)
    held = sum(map(len, objects(target).values()))
    (known,) = registered_backups(source)
    if how == "forgotten":  # it is all there still, beside what each of them says of itself
        assert known.size_bytes == sum(point.size_bytes for point in points)
    else:
        assert (known.id, known.size_bytes) == (newest, held)
        (left,) = list_backups(target)
        assert (left.size_bytes, left.objects) == (held, len(objects(target)))
    assert verify_backup(target).damages == ()


def test_a_backup_between_others_leaves_its_size_to_the_next() -> None:
    source, target = new_store(3), MemoryStore()
    for number in range(4):
        reopened(source).branch().put("t", table(number))
        back_up(source, target)
    before = list_backups(target)
    expire_backups(source, target, before[1].id)
    after = list_backups(target)
    assert [point.size_bytes for point in after][::2] == [before[0].size_bytes, before[3].size_bytes]
    assert before[2].size_bytes < after[1].size_bytes
    assert [one.size_bytes for one in registered_backups(source)] == [point.size_bytes for point in after]
