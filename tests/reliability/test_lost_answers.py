"""Answers that are lost: a request that is made again under its key lands once, whoever makes it again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import IcebergTable, Lake, Settings
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.kernel.description import read_description
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.sweep import sweep_objects
from penstock.lake.embedded import Embedded
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from penstock.testing import FaultyStore, HistoryChecker, Point, Recorder
from penstock.testing.chain import read_chain
from penstock.testing.client import Client
from penstock.testing.drill import TickingClock, new_lake
from penstock.testing.recorder import Answer, RecordedCall, attempts, load
from tests.reliability.processes import check_lake, run_all
from tests.reliability.worker import TABLES, Task

HASTY = Settings(tries_max=1)
"""Gives up at once, so that a lost answer reaches the caller."""
DOUBTFUL = [Point.BEFORE_OBJECTS, Point.BEFORE_SWAP, Point.AFTER_SWAP]


class Doubts:
    """Clients whose answers are lost, on one lake."""

    def __init__(self, open_data: Callable[[], Store], seed: int) -> None:
        self._open_data, self._chance = open_data, random.Random(seed)
        self.recorder = Recorder("client")
        self._open()
        new_lake(self._store.inner)

    def _open(self) -> None:
        self._store = FaultyStore(self._open_data())
        self._other_store = FaultyStore(self._open_data())
        self._client = Client(Kernel(self._store, (), HASTY), self.recorder)
        self._other = Client(Kernel(self._other_store, (), HASTY), self.recorder)

    def request(self, number: int) -> RecordedCall:
        """A request whose answer is lost, at some point."""
        self._store.fail(self._chance.choice(DOUBTFUL), OutcomeUnknown("no answer"))
        tables = self._chance.sample(TABLES, 2)
        base, seen = self._client.look(tables)
        known: dict[str, Any] = {"base": base, "reads": seen} if self._chance.random() < 0.5 else {}
        with pytest.raises(OutcomeUnknown) as unknown:
            self._client.write(dict.fromkeys(tables, f"request {number}"), key=f"key {number}", **known)
        assert unknown.value.details["key"] == f"key {number}"
        self._store.heal()
        return next(one.call for one in attempts(self.recorder.events) if one.call.key == f"key {number}")

    def settle(self, call: RecordedCall) -> None:
        """Make it again, in other places and with more answers lost, until it is known what became of it."""
        if self._chance.random() < 0.3:
            with suppress(PenstockError):
                self._other.write({self._chance.choice(TABLES): f"between {call.key}"})
        for _ in range(self._chance.randrange(3)):
            self._other_store.fail(self._chance.choice(DOUBTFUL), OutcomeUnknown("no answer"))
            with suppress(PenstockError):
                self._other.repeat(call)
            self._other_store.heal()
        where = self._chance.randrange(3)
        if where == 0:
            self._store.close()
            self._other_store.close()
            self._open()
        with suppress(PenstockError):
            (self._other if where == 1 else self._client).repeat(call)
        with suppress(PenstockError):
            self._client.repeat(call)

    def check(self, count: int) -> None:
        checker = HistoryChecker(self.recorder.events)
        kernel = Kernel(self._store.inner)
        chain = read_chain(kernel)
        violations = checker.check(chain)
        assert not violations, "\n".join(map(str, violations[:20]))
        assert fsck(kernel).damages == ()
        landed = Counter(link.key for link in chain.links)
        answers: dict[str, set[Answer]] = {}
        for attempt in checker.attempts:
            answers.setdefault(attempt.call.key, set()).add(attempt.answer)
        for number in range(count):
            key = f"key {number}"
            assert landed[key] == (1 if Answer.OK in answers[key] else 0)
            assert answers[key] & {Answer.OK, Answer.REFUSED}, f"{key} was never settled"


def stores_of(kind: str, place: Path) -> Callable[[], Store]:
    if kind == "memory":
        data = MemoryStore()
        return lambda: data
    return lambda: SqliteStore(place / "penstock.db")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_request_whose_answer_was_lost_lands_once(kind: str, tmp_path: Path, seed: int) -> None:
    doubts = Doubts(stores_of(kind, tmp_path), seed)
    for number in range(40):
        doubts.settle(doubts.request(number))
    doubts.check(40)


@pytest.mark.reliability
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_six_hundred_requests_whose_answer_was_lost_land_once(kind: str, tmp_path: Path, seed: int) -> None:
    doubts = Doubts(stores_of(kind, tmp_path), seed)
    for number in range(600):
        doubts.settle(doubts.request(number))
    doubts.check(600)


def settle_elsewhere(lake: Path, count: int, seed: int) -> None:
    """Requests whose answers are lost here, made again by another process after this one has closed."""
    lake.mkdir()
    here, there = lake / "here.journal", lake / "there.journal"
    doubts = Doubts(lambda: SqliteStore(lake / "penstock.db"), seed)
    doubts.recorder = doubts._client.recorder = doubts._other.recorder = Recorder("here", here)
    for number in range(count):
        doubts.request(number)
    doubts._store.close()
    doubts._other_store.close()
    task = Task(lake=str(lake), journal=str(there), client="there", resume=str(here))
    assert run_all([task]) == [0]
    check_lake(lake, [here, there])
    again = attempts(load([there]))
    assert len(again) == count
    assert {one.answer for one in again} <= {Answer.OK, Answer.REFUSED}
    assert sum(one.answer is Answer.OK for one in again) > count // 2


def test_another_process_settles_what_this_one_left_in_doubt(tmp_path: Path, seed: int) -> None:
    settle_elsewhere(tmp_path / "lake", 20, seed)


@pytest.mark.reliability
def test_another_process_settles_hundreds_that_this_one_left_in_doubt(tmp_path: Path, seed: int) -> None:
    settle_elsewhere(tmp_path / "lake", 500, seed)


# -- for how long a key is remembered --------------------------------------------------------------------


def test_a_key_is_remembered_through_sweeps_for_as_long_as_promised() -> None:
    clock = TickingClock()
    data = MemoryStore(clock)
    new_lake(data)
    kernel = Kernel(data, (), Settings(grace_s=60, idempotency_days=7, nobody_writes=True), clock)
    client = Client(kernel, Recorder("c"))
    first = client.write({"a": "1"}, key="k")
    for _ in range(6):
        clock.pass_hours(24)
        sweep_objects(kernel)
        client.write({"b": str(clock())})
        assert Client(Kernel(data, (), None, clock), Recorder("other")).write({"a": "1"}, key="k") == first
    assert fsck(kernel).damages == ()


def test_receipts_that_came_to_nothing_do_not_stand_in_the_way() -> None:
    """A store without transactions leaves the receipt of a lost swap behind, many times over."""
    data = MemoryStore()
    new_lake(data)
    store = FaultyStore(data)
    recorder = Recorder("c")
    for _ in range(5):
        store.fail(Point.BEFORE_SWAP, OutcomeUnknown("no answer"))
        with pytest.raises(OutcomeUnknown):
            Client(Kernel(store, (), HASTY), recorder).write({"a": "1"}, key="k")
    commit = Client(Kernel(store), recorder).write({"a": "1"}, key="k")
    assert Client(Kernel(data), recorder).write({"a": "1"}, key="k") == commit
    assert HistoryChecker(recorder.events).check(read_chain(Kernel(data))) == []


# -- every kind of write ---------------------------------------------------------------------------------


def make_merge(lake: Lake, key: str) -> str:
    return lake.merge("dev", "main", idempotency_key=key).head


def make_transplant(lake: Lake, key: str) -> str:
    return lake.transplant("dev~2..dev", "main", idempotency_key=key).head


def make_revert(lake: Lake, key: str) -> str:
    """The commit is named by its id: `main~1` would be another one once this has landed."""
    (commit,) = lake.log(text="put main0")
    return lake.revert(commit.id, "main", message="undo", idempotency_key=key).head


def make_rebase(lake: Lake, key: str) -> str:
    return lake.rebase("dev", "main", idempotency_key=key).head


def make_branch(lake: Lake, key: str) -> str:
    return str(lake.branch("new").create(at="main", idempotency_key=key).head)


def make_tag(lake: Lake, key: str) -> str:
    return str(lake.tag("v1").create(at="main", idempotency_key=key).head)


def make_assignment(lake: Lake, key: str) -> str:
    return str(lake.branch("dev").assign("main", idempotency_key=key).head)


def make_deletion(lake: Lake, key: str) -> str:
    lake.branch("dev").delete(idempotency_key=key)
    return str(lake.branch("dev").exists)


WRITES: list[Callable[[Lake, str], str]] = [
    make_merge,
    make_transplant,
    make_revert,
    make_rebase,
    make_branch,
    make_tag,
    make_assignment,
    make_deletion,
]


def lake_on(store: Store, settings: Settings | None = None) -> Lake:
    return Lake(Embedded(Kernel(store, (), settings), read_description(store), open_lake=Lake), "tester")


def forked(data: Store) -> None:
    """A lake with two commits on main, and two others on dev."""
    new_lake(data)
    lake = lake_on(data)
    lake.branch().put("a", IcebergTable(metadata_location="1"))
    lake.branch("dev").create()
    for number in range(2):
        lake.branch("dev").put(f"dev{number}", IcebergTable(metadata_location="1"))
        lake.branch().put(f"main{number}", IcebergTable(metadata_location="1"))


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "penstock.db")


def everything(lake: Lake) -> Any:
    """What anybody can see of a lake: every reference with its log, and what it holds."""
    names = ["main", "dev", "new", "v1"]
    rows = {name: lake.kernel.store.reference(name) for name in names}
    logs = {name: [line.event for line in lake.reflog(name)] for name in names if rows[name] is not None}
    return rows, logs


@pytest.mark.parametrize("make", WRITES)
def test_a_lost_answer_is_found_out_by_the_kernel_itself(
    make: Callable[[Lake, str], str], data: Store
) -> None:
    forked(data)
    store = FaultyStore(data)
    store.lose_answer()
    logs = everything(lake_on(data))[1]
    answer = make(lake_on(store), "k")
    after = everything(lake_on(data))
    assert sum(map(len, after[1].values())) == sum(map(len, logs.values())) + 1, "it was done once"
    assert lake_on(data).fsck().damages == ()
    assert make(lake_on(data), "k") == answer
    assert everything(lake_on(data)) == after, "and its repetition changed nothing"


@pytest.mark.parametrize("point", DOUBTFUL)
@pytest.mark.parametrize("make", WRITES)
def test_a_write_in_doubt_is_settled_by_making_it_again(
    make: Callable[[Lake, str], str], point: Point, data: Store
) -> None:
    forked(data)
    logs = everything(lake_on(data))[1]
    store = FaultyStore(data)
    store.fail(point, OutcomeUnknown("no answer"))
    with pytest.raises(OutcomeUnknown) as unknown:
        make(lake_on(store, HASTY), "k")
    assert unknown.value.details["key"] == "k"
    answer = make(lake_on(data), "k")
    after = everything(lake_on(data))
    assert sum(map(len, after[1].values())) == sum(map(len, logs.values())) + 1, "it was done once"
    assert make(lake_on(data), "k") == answer
    assert everything(lake_on(data)) == after, "and its repetition changed nothing"
    assert lake_on(data).fsck().damages == ()
