"""Moving a lake takes everything along, and the source only takes reads then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from penstock.errors import IdempotencyKeyReused, LakeMoved
from penstock.kernel import object_copy
from penstock.kernel.description import LakeDescription, read_description
from penstock.lake.answers import LogLine
from penstock.lake.copy import move_lake
from penstock.lake.lake import Lake
from penstock.lake.opener import open_lake
from penstock.model.encoding import ObjectId, make_decoder
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store, StoredObject
from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import WrappedStore
from tests.copy.lakes import QUICK, fill, move, new_store, objects, reopened, rows, table


@pytest.fixture(params=["memory to sqlite", "sqlite to memory", "memory to memory", "sqlite to sqlite"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    made: list[Store] = []
    for number, family in enumerate(request.param.split(" to ")):
        path = tmp_path / str(number) / "penstock.db"
        made.append(MemoryStore() if family == "memory" else SqliteStore(path, synchronous="OFF"))
    yield made[0], made[1]
    for store in made:
        store.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_move_takes_everything_along(places: tuple[Store, Store], seed: int) -> None:
    source, target = places
    with_everything = open_lake(source, author="ada", settings=QUICK)
    fill(with_everything, seed)
    lake, logs = read_description(source), _logs(with_everything)
    moved = move_lake(source, target, author="mover", settings=QUICK)
    assert rows(target) == rows(source)
    assert objects(target) == objects(source)
    assert (moved.references, moved.objects) == (len(rows(source)), len(objects(source)))
    assert moved.size_bytes == sum(map(len, objects(source).values()))
    there = reopened(target)
    assert (there.id, moved.id, moved.repeated) == (lake.id, lake.id, False)
    assert msgspec.structs.replace(read_description(target), arrival=None) == lake
    for name, events in _logs(there).items():
        assert events[1:] == logs[name]
        assert (events[0].event, events[0].who, events[0].after) == ("seal", "mover", logs[name][0].after)
    checked = there.fsck()
    assert checked.damages == ()
    assert checked.commits == moved.commits
    there.branch().put("later", table("later"))
    there.branch("gone").create()
    assert there.fsck().damages == ()


def _logs(lake: Lake) -> dict[str, list[LogLine]]:
    names = [*(one.name for one in [*lake.branches(), *lake.tags()]), *lake.deleted()]
    return {name: lake.reflog(name, limit=10_000) for name in names}


def test_a_lake_can_move_on_and_on() -> None:
    stores = [new_store(9), MemoryStore(), MemoryStore(), MemoryStore()]
    identity = read_description(stores[0]).id
    for source, target in pairwise(stores):
        assert move(source, target) == identity
        reopened(target).branch().put("t", table(id(target)))
        with pytest.raises(LakeMoved):
            reopened(source).branch().put("t", table(0))
    assert len(reopened(stores[-1]).log(limit=3)) == 3


WRITES: dict[str, Callable[[Lake], object]] = {
    "commit": lambda lake: lake.branch().put("t", table("x")),
    "commit on a new branch": lambda lake: lake.branch("last").put("t", table("x")),
    "merge": lambda lake: lake.merge("ahead", "main"),
    "transplant": lambda lake: lake.transplant("ahead", "main"),
    "revert": lambda lake: lake.revert("main"),
    "rebase": lambda lake: lake.rebase("ahead", "main"),
    "create": lambda lake: lake.branch("other").create(),
    "create at nothing": lambda lake: lake.branch("other").create(at=None),
    "create a tag": lambda lake: lake.tag("other").create(at="main"),
    "create anew": lambda lake: lake.branch("gone").create(),
    "assign": lambda lake: lake.branch("ahead").assign("main"),
    "assign a tag": lambda lake: lake.tag("mark").assign("ahead"),
    "delete": lambda lake: lake.branch("ahead").delete(),
    "delete a tag": lambda lake: lake.tag("mark").delete(),
    "delete without a log": lambda lake: lake.kernel.references.delete_reference("ahead", leave_log=False),
    "keep history": lambda lake: lake.keep_history("main", max_commits=3),
    "sweep": lambda lake: lake.sweep(),
}


@pytest.fixture
def moved() -> tuple[MemoryStore, MemoryStore]:
    """A lake's old and new place."""
    source, target = MemoryStore(), MemoryStore()
    lake = open_lake(source, author="ada", settings=QUICK)
    lake.branch().put("t", table(1))
    ahead = lake.branch("ahead").create()
    ahead.put("ahead", table(2))
    lake.branch().put("u", table(3), idempotency_key="once")
    lake.tag("mark").create(at="main")
    lake.branch("last").create()
    lake.branch("gone").create().delete()
    move(source, target)
    return source, target


@pytest.mark.parametrize("write", WRITES)
def test_a_lake_that_has_moved_refuses_every_write(
    moved: tuple[MemoryStore, MemoryStore], write: str
) -> None:
    source, target = moved
    before = rows(source), read_description(source)
    with pytest.raises(LakeMoved, match="has moved to memory:") as refused:
        WRITES[write](reopened(source))
    assert refused.value.details["target"] == "memory:"
    assert (rows(source), read_description(source)) == before
    WRITES[write](reopened(target))
    assert reopened(target).fsck().damages == ()


def test_a_lake_that_has_moved_can_be_read(moved: tuple[MemoryStore, MemoryStore]) -> None:
    source, target = moved
    here, there = reopened(source), reopened(target)
    assert (here.moving_to, there.moving_to) == ("memory:", "")
    assert [one.id for one in here.log()] == [one.id for one in there.log()]
    assert here.at("mark").table("t").content == there.at("mark").table("t").content
    assert here.fsck().damages == ()


PREVIEWS: dict[str, Callable[[Lake], object]] = {
    "merge": lambda lake: lake.merge("ahead", "main", dry_run=True),
    "rebase": lambda lake: lake.rebase("ahead", dry_run=True),
    "revert": lambda lake: lake.revert(lake.branch().head, dry_run=True),
    "restore": lambda lake: lake.restore(to="mark", all=True, dry_run=True),
    "transplant": lambda lake: lake.transplant([lake.branch().head], "ahead", dry_run=True),
    "sweep": lambda lake: lake.sweep(dry_run=True),
    "sweep of tables": lambda lake: lake.sweep_tables(dry_run=True),
    "resync": lambda lake: lake.resync(dry_run=True),
}


@pytest.mark.parametrize("preview", PREVIEWS)
def test_what_a_lake_that_has_moved_refuses_is_not_previewed(
    moved: tuple[MemoryStore, MemoryStore], preview: str
) -> None:
    source, target = moved
    with pytest.raises(LakeMoved, match="has moved to memory:"):
        PREVIEWS[preview](reopened(source))
    PREVIEWS[preview](reopened(target))


def test_idempotency_keys_go_along(moved: tuple[MemoryStore, MemoryStore]) -> None:
    source, target = moved
    for store in (target, source):  # also at the old place it can be found out what happened
        lake = reopened(store)
        first = lake.outcome("once")
        again = lake.branch().put("u", table(3), idempotency_key="once")
        assert first is not None
        assert again.id == first.id
        with pytest.raises(IdempotencyKeyReused):
            lake.branch().put("u", table(4), idempotency_key="once")


def test_moving_again_says_that_it_is_complete(moved: tuple[MemoryStore, MemoryStore]) -> None:
    source, target = moved
    reopened(target).branch().put("t", table("later"))
    before = rows(target), objects(target)
    again = move_lake(source, target)
    assert (again.repeated, again.id) == (True, read_description(source).id)
    assert again.objects == len(objects(source))
    assert (rows(target), objects(target)) == before


def test_objects_go_page_by_page_and_memory_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_copy, "SCAN_PAGE", 50)
    source, target = MemoryStore(), _Measuring(MemoryStore())
    lake = open_lake(source, settings=QUICK)
    lake.branch().commit([Put(Key(f"t{number}"), table(number, 250_000)) for number in range(40)])
    lake.branch().commit([Put(Key(f"u{number}"), table(number)) for number in range(1500)])
    move(source, target)
    assert objects(target) == objects(source)
    assert target.largest_bytes <= object_copy.CHUNK_MAX_BYTES
    assert target.most_objects <= object_copy.SCAN_PAGE
    assert target.scans > 3


class _Measuring(WrappedStore):
    largest_bytes = most_objects = scans = 0

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self.largest_bytes = max(self.largest_bytes, sum(map(len, objects.values())))
        self.most_objects = max(self.most_objects, len(objects))
        super().store(objects)

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        self.scans += 1
        return super().scan(after, limit)


def test_a_swept_lake_moves_with_its_horizon() -> None:
    source, target = MemoryStore(), MemoryStore()
    settings = msgspec.structs.replace(QUICK, grace_s=0, nobody_writes=True)
    lake = open_lake(source, settings=settings)
    for number in range(9):
        lake.branch().put("t", table(number))
    lake.keep_history("main", max_commits=3)
    lake.sweep()
    assert read_description(source).expired
    move(source, target)
    there = reopened(target)
    assert len(there.log()) == 3
    assert read_description(target).expired == read_description(source).expired
    assert there.fsck().damages == ()


def test_seals_do_not_keep_what_a_deleted_branch_had() -> None:
    source, target = MemoryStore(), MemoryStore()
    settings = msgspec.structs.replace(QUICK, grace_s=0, idempotency_days=0, nobody_writes=True)
    lake = open_lake(source, settings=settings)
    lake.branch("job").create().put("t", table("job"))
    job = lake.branch("job").head
    lake.branch("job").delete()
    move(source, target)
    there = open_lake(target, settings=settings)
    assert there.sweep().removed > 0
    assert bytes.fromhex(job) not in objects(target)
    assert [line.event for line in there.reflog("job")] == ["seal", "delete", "commit", "create"]


def test_descriptions_written_before_there_was_copying_can_be_read() -> None:
    found = make_decoder(LakeDescription).decode(bytes.fromhex("9801a1690ca46d61696ea0909090"))
    assert (found.id, found.sealed, found.arrival, found.forked_from) == ("i", None, None, "")
