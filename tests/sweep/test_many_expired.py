"""Lakes whose horizon cuts off more commits than their row holds: the row stays small, nothing is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import penstock
from penstock import errors
from penstock.kernel import expired
from penstock.kernel.description import (
    EXPIRED_VERSION,
    FIRST_VERSION,
    GRACES_VERSION,
    ROW_MAX_BYTES,
    ROW_NAME,
    read_description,
)
from penstock.kernel.expired import list_blobs_of_lake, read_expired_commits, record_expired_commits
from penstock.kernel.objects import Objects
from penstock.kernel.settings import Settings
from penstock.lake.calls import PutSetting
from penstock.lake.copy import copy_lake, move_lake
from penstock.lake.lake import Lake
from penstock.model.encoding import encode, hash_object
from penstock.stores.checks import check_sizes
from penstock.stores.dynamodb_items import ITEM_MAX_BYTES
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Row, Store
from tests.queue.hooks import SetClock, table
from tests.sweep.oracle import GRACE_S

BRANCHES = 12
SETTINGS = Settings(grace_s=GRACE_S, nobody_writes=True)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired, "ROW_MAX", 4)


def opened(store: Store, clock: SetClock) -> Lake:
    return penstock.open(store, settings=SETTINGS, clock=clock)


def cut(store: Store, clock: SetClock, branches: int = BRANCHES) -> list[str]:
    """A lake of which each branch has lost its first commit; returns these."""
    lake = opened(store, clock)
    gone = []
    for number in range(branches):
        branch = lake.branch(f"b{number}").create()
        gone.append(branch.put("t", table(f"{number} first")).id)
        branch.put("t", table(f"{number} second"))
    lake.keep_history("*", max_commits=1)
    clock.go_on(2 * GRACE_S)
    assert lake.sweep().removed > 0
    return gone


def row_bytes(store: Store) -> int:
    row = store.reference(ROW_NAME)
    assert row is not None
    return len(row.data)


def test_the_lakes_row_does_not_grow_with_its_branches(clock: SetClock) -> None:
    sizes = []
    for branches in (5, 40):
        store = MemoryStore(clock)
        cut(store, clock, branches)
        sizes.append(row_bytes(store))
    assert sizes[1] <= sizes[0] + 2  # the number of bytes in the blob takes more digits


def test_histories_that_were_cut_off_end_where_they_were_cut(clock: SetClock) -> None:
    store = MemoryStore(clock)
    gone = cut(store, clock)
    lake = opened(store, clock)
    assert lake.fsck().damages == ()
    for number, commit in enumerate(gone):
        assert len(lake.log(f"b{number}")) == 1
        with pytest.raises(errors.HistoryExpired):
            lake.resolve(commit)
        with pytest.raises(errors.HistoryExpired):
            lake.branch("new").create(at=commit)
    with pytest.raises(errors.CommitNotFound):
        lake.resolve("ab" * 32)


def test_the_list_of_what_expired_is_swept_when_another_takes_its_place(clock: SetClock) -> None:
    store = MemoryStore(clock)
    cut(store, clock)
    first = list_blobs_of_lake(read_description(store))
    lake = opened(store, clock)
    lake.branch("b0").put("t", table("third"))
    clock.go_on(2 * GRACE_S)
    lake.sweep()
    second = list_blobs_of_lake(read_description(store))
    assert first != second
    assert {*store.fetch([*first, *second])} == {*first, *second}, "somebody may have read the row before"
    clock.go_on(2 * GRACE_S)
    lake.sweep()
    assert {*store.fetch([*first, *second])} == {*second}
    assert lake.fsck().damages == ()


def test_what_expired_is_in_the_row_again_when_it_is_little(clock: SetClock) -> None:
    store = MemoryStore(clock)
    cut(store, clock)
    lake = opened(store, clock)
    for number in range(BRANCHES - 2):
        lake.branch(f"b{number}").delete()
    clock.go_on(100 * 24 * 3600)
    lake.sweep()
    found = read_description(store)
    assert (len(found.expired), found.more_expired) == (2, None)
    assert lake.fsck().damages == ()


def test_a_missing_list_of_what_expired_is_damage_and_nothing_is_swept(clock: SetClock) -> None:
    store = MemoryStore(clock)
    cut(store, clock)
    (one,) = list_blobs_of_lake(read_description(store))
    scanned, _ = store.scan(b"", 10_000)
    store.delete([stored for stored in scanned if stored.id == one])
    lake = opened(store, clock)
    assert {damage.object for damage in lake.fsck().damages} >= {ROW_NAME, one.hex()}
    before = {stored.id for stored in store.scan(b"", 10_000)[0]}
    with pytest.raises(errors.Damaged, match=one.hex()):
        lake.sweep()
    assert {stored.id for stored in store.scan(b"", 10_000)[0]} == before


def test_a_lake_of_an_older_release_has_more_in_its_row_until_it_is_swept(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock)
    monkeypatch.setattr(expired, "ROW_MAX", 1000)
    gone = cut(store, clock)
    before = read_description(store)
    assert (len(before.expired), before.format_version) == (BRANCHES, FIRST_VERSION)
    with store.turn(ROW_NAME) as turn:  # as it was written then: without what was added since
        assert turn.row is not None
        fields = [*msgspec.msgpack.decode(turn.row.data)][:-1]
        assert turn.advance({}, Row(ROW_NAME, turn.row.kind, encode(fields))).swapped
    monkeypatch.setattr(expired, "ROW_MAX", 4)
    lake = opened(store, clock)
    assert lake.fsck().damages == ()
    with pytest.raises(errors.HistoryExpired):
        lake.resolve(gone[0])
    lake.sweep()
    after = read_description(store)
    assert (after.expired, after.format_version) == ((), EXPIRED_VERSION)
    assert {*read_expired_commits(after, Objects(store))} == {*before.expired}
    assert lake.fsck().damages == ()


def test_a_penstock_that_does_not_know_of_such_lists_refuses_the_lake(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(clock)
    cut(store, clock)
    monkeypatch.setattr("penstock.kernel.description.FORMAT_VERSION", GRACES_VERSION)
    with pytest.raises(errors.UnsupportedFormat, match="has format version 3"):
        penstock.open(store)


@pytest.mark.parametrize("fork", [False, True])
def test_a_copy_has_the_list_of_what_expired(clock: SetClock, fork: bool) -> None:
    store, target = MemoryStore(clock), MemoryStore(clock)
    gone = cut(store, clock)
    (copy_lake if fork else move_lake)(store, target, settings=SETTINGS, clock=clock)
    found = [{*read_expired_commits(read_description(one), Objects(one))} for one in (store, target)]
    assert found[0] == found[1] == {bytes.fromhex(one) for one in gone}
    lake = opened(target, clock)
    assert lake.fsck().damages == ()
    clock.go_on(2 * GRACE_S)
    lake.sweep()
    assert lake.fsck().damages == ()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 6, 20_000])
def test_what_is_noted_is_found_again(count: int) -> None:
    ids = [hash_object(str(number).encode()) for number in range(count)]
    store = MemoryStore()
    with penstock.open(store):
        lake, blobs = record_expired_commits(read_description(store), [*ids, *ids[:3]])
    store.store(blobs)
    found = read_expired_commits(lake, Objects(store))
    assert (len(found), [*found]) == (count, sorted(ids))
    assert all(one in found for one in ids[:100])
    assert not any(one in found for one in (b"", b"\0" * 32, b"\xff" * 32, hash_object(b"other"), "text"))
    assert found == read_expired_commits(lake, Objects(store))
    assert len(encode(lake)) < 600
    assert all(len(data) <= ROW_MAX_BYTES for data in blobs.values())


# -- what programs put into the row -------------------------------------------------------------------------


def put_settings(lake: Lake, count: int) -> None:
    for number in range(count):
        lake.do(PutSetting(name=f"s{number}", value="x" * 16_384))


def put_rules(lake: Lake, count: int) -> None:
    for number in range(count):
        lake.keep_history(f"{number}" + "a" * 100, max_commits=5)


def test_settings_roots_and_rules_are_refused_before_a_store_would_refuse_the_row() -> None:
    store = MemoryStore()
    with penstock.open(store) as lake:
        with pytest.raises(errors.InvalidRequest, match=r"would have \d+ bytes.*16 settings"):
            put_settings(lake, 100)
        put_settings(lake, 15)
        with pytest.raises(errors.InvalidRequest, match="16 settings"):
            lake.do(PutSetting(name="another", value="x" * 16_384))
        with pytest.raises(errors.InvalidRequest, match=r"history rules of \d+ bytes, and 0 backups"):
            put_rules(lake, 200)
        with pytest.raises(errors.InvalidRequest, match=r"roots of \d+ bytes"):
            lake.add_root(*(f"s3://bucket/{number}/{'a' * 200}" for number in range(200)))
        lake.do(PutSetting(name="s0", value=None))
        lake.do(PutSetting(name="another", value="x" * 10_000))
        row = store.reference(ROW_NAME)
        check_sizes({}, row, ITEM_MAX_BYTES, "DynamoDB")


def test_a_lake_whose_row_is_too_large_already_can_be_used_and_made_smaller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()

    def anything(_: Any, after: Any) -> Any:
        return after

    with monkeypatch.context() as older:
        older.setattr("penstock.lake.handlers.description.check_description_size", anything)
        with penstock.open(store) as lake:
            put_settings(lake, 100)
    assert row_bytes(store) > 1_600_000
    with penstock.open(store) as lake:
        lake.branch("dev").create().put("t", table("1"))
        lake.sweep()
        lake.do(PutSetting(name="s0", value="short"))
        lake.do(PutSetting(name="s1", value=None))
        with pytest.raises(errors.InvalidRequest):
            lake.do(PutSetting(name="s0", value="x" * 100))
