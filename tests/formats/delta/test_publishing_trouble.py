"""Publishing in trouble: processes that die, storage that does not answer, and storage that is careless."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event, Semaphore
from uuid import UUID

import pytest

from penstock.errors import Denied, OutcomeUnknown, Unavailable
from penstock.formats.delta import metrics
from penstock.formats.delta.errors import ForeignCommit
from penstock.formats.delta.protocol.names import LOG, CommitName
from penstock.formats.delta.publishing.log_writer import FRUITLESS_MAX
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.leases import Leases
from penstock.metrics.memory import Metrics
from penstock.model.nessie import DeltaTable
from penstock.storage.buckets import Bucket, Condition, EntityTag, UnansweredWrite
from penstock.storage.local import LocalBucket
from penstock.storage.places import Places
from penstock.stores.memory import MemoryStore
from tests.formats.delta.ratified import (
    ID,
    KEY,
    WAIT_S,
    Disk,
    Disks,
    Ratified,
    publishing,
    ratify,
)


class Died(BaseException):
    """The process ends here."""


def test_r18_no_version_is_written_before_the_one_ahead_of_it(tmp_path: Path) -> None:
    linked: list[str] = []

    class Spy(Disk):
        def at(self, step: str) -> None:
            what, _, key = step.partition(" ")
            if not key.startswith(LOG) or "_commits" in key:
                return
            if what == "link":
                (version,) = (number for number in range(100) if str(CommitName(number)) == key)
                assert not version or (self._root / str(CommitName(version - 1))).exists()
            else:
                linked.append(key)

    places = Disks(Spy)
    table = Ratified(str(tmp_path), places)
    content = ratify(table, 100)
    publishers = [publishing(table, places) for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda one: one.publish_line(content), publishers)) == [99] * 3
    # The order is checked as each is about to be linked: the next may be noted here before this one.
    assert sorted(linked) == [str(CommitName(version)) for version in range(100)], "each once"
    places.close()


def test_r22_whoever_dies_at_any_step_leaves_what_another_finishes(tmp_path: Path) -> None:
    steps = 0

    class Dying(Disk):
        left = -1

        def at(self, step: str) -> None:
            nonlocal steps
            steps += 1
            if Dying.left == 0:
                raise Died(step)
            Dying.left -= 1

    def run(name: str, dies_at: int) -> None:
        Dying.left = -1
        places = Disks(Dying)
        table = Ratified(str(tmp_path / name), places)
        content = ratify(table, 5)
        nonlocal steps
        Dying.left, steps = dies_at, 0
        if dies_at >= 0:
            with pytest.raises(Died):
                publishing(table, places).publish_line(content)
            Dying.left = -1
            log = table.log()
            assert log == table.ratified(0, len(log) - 1), "a part, without a gap"
        assert publishing(table, places).publish_line(content) == 4
        assert table.log() == table.ratified(0, 4)
        places.close()

    run("undisturbed", -1)
    assert steps == 15
    for number in range(steps):
        run(str(number), number)


def test_an_answer_that_was_lost_is_found_out(tmp_path: Path) -> None:
    lost = iter([True, True])

    class Losing(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            if not items[0][0].startswith(LOG) or not next(lost, False):
                return await super().put_all(items)
            await super().put_all(items[: len(items) // 2])
            raise UnansweredWrite("the connection was lost")

    places = Disks(Losing)
    table = Ratified(str(tmp_path), places)
    for _ in range(9):
        table.held()
    assert publishing(table, places).publish_line(table.content) == 8
    assert table.log() == table.ratified(0, 8)
    assert next(lost, None) is None, "all of that happened"
    places.close()


def test_storage_that_never_answers_is_said_to_be_unavailable(tmp_path: Path) -> None:
    asked = 0

    class Silent(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            nonlocal asked
            asked += len(items)
            raise UnansweredWrite("the connection was lost")

    places = Disks(Silent)
    table = Ratified(str(tmp_path), places)
    publisher = publishing(table, places)
    with pytest.raises(Unavailable, match="it is not known whether"):
        publisher.publish_line(table.held())
    assert asked == FRUITLESS_MAX
    assert publisher.published_version(ID) == -1
    places.close()


def test_storage_that_shows_nothing_where_it_says_something_is_is_unavailable(tmp_path: Path) -> None:
    class Contradicting(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            return 0

    places = Disks(Contradicting)
    table = Ratified(str(tmp_path), places)
    with pytest.raises(Unavailable, match="but cannot read it"):
        publishing(table, places).publish_line(table.held())
    places.close()


def test_a_line_that_is_told_while_its_table_is_worked_on_is_published_too(tmp_path: Path) -> None:
    stopped, go_on = Event(), Event()

    class Slow(Disk):
        def at(self, step: str) -> None:
            if step == f"link {CommitName(0)}":
                stopped.set()
                assert go_on.wait(WAIT_S)

    places = Disks(Slow)
    table = Ratified(str(tmp_path), places)
    publisher = publishing(table, places, background=True)
    publisher.table_committed(KEY, table.held(), is_default=True)
    assert stopped.wait(WAIT_S)
    publisher.table_committed(KEY, table.held(), is_default=True)
    go_on.set()
    assert publisher.wait_for_version(ID, 1, WAIT_S)
    assert table.log() == table.ratified(0, 1)
    publisher.close(WAIT_S)
    places.close()


def test_a_line_that_is_told_while_somebody_publishes_by_hand_is_published_too(tmp_path: Path) -> None:
    class Telling(Disk):
        def at(self, step: str) -> None:
            if step == f"link {CommitName(1)}":
                publisher.table_committed(KEY, newest, is_default=True)

    places = Disks(Telling)
    table = Ratified(str(tmp_path), places)
    older, newest = ratify(table, 3), ratify(table, 3)
    publisher = publishing(table, places, background=True)
    assert publisher.publish_line(older) == 2
    assert publisher.wait_for_version(ID, 5, WAIT_S)
    publisher.close(WAIT_S)
    places.close()


def test_in_one_process_a_table_is_published_by_one_thread_at_a_time(tmp_path: Path) -> None:
    busy, overlaps = Semaphore(1), []

    class Single(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            if not items[0][0].startswith(f"{LOG}0"):
                return await super().put_all(items)
            overlaps.append(not busy.acquire(blocking=False))
            try:
                await asyncio.sleep(0)
                return await super().put_all(items)
            finally:
                busy.release()

    places = Disks(Single)
    table = Ratified(str(tmp_path), places)
    contents = [table.held() for _ in range(8)]
    publisher = publishing(table, places, background=True)
    start = Barrier(8)

    def publish(content: DeltaTable) -> int:
        start.wait()
        publisher.table_committed(KEY, content, is_default=True)
        return publisher.publish_line(content)

    with ThreadPoolExecutor(8) as threads:
        assert max(threads.map(publish, contents)) == 7
    publisher.close(WAIT_S)
    assert table.log() == table.ratified(0, 7)
    assert not any(overlaps)
    places.close()


def test_of_many_tables_told_by_many_threads_none_is_forgotten(tmp_path: Path) -> None:
    places = Places()
    tables = [Ratified(str(tmp_path / str(number)), places, id=UUID(int=number)) for number in range(24)]
    objects: dict[bytes, Ratified] = {}
    publisher = Publisher(places, lambda one: objects[one].read(one))
    start = Barrier(6)

    def tell(first: int) -> None:
        start.wait()
        for _ in range(3):
            for table in tables[first::6]:
                content = table.held(f'{{"of":"{table.place.url}"}}')
                objects.update(dict.fromkeys(table.objects, table))
                publisher.table_committed(KEY, content, is_default=True)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(tell, range(6)))
    assert all(publisher.wait_for_version(UUID(int=number), 2, WAIT_S) for number in range(24))
    publisher.close(WAIT_S)
    assert [table.log() for table in tables] == [table.ratified(0, 2) for table in tables]
    places.close()


def test_storage_that_is_in_trouble_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refusals = iter([Unavailable("away"), Denied("no right"), Unavailable("away")])

    class Away(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            problem = next(refusals, None) if items[0][0].startswith(f"{LOG}0") else None
            if problem is not None:
                raise problem
            return await super().put_all(items)

    places = Disks(Away)
    table = Ratified(str(tmp_path), places)
    meter = Metrics()
    publisher = publishing(table, places, background=True, meter=meter)
    publisher.table_committed(KEY, table.held(), is_default=True)
    assert publisher.wait_for_version(ID, 0, WAIT_S)
    publisher.close(WAIT_S)
    assert publisher.list_unpublished() == ()
    assert table.log() == table.ratified(0, 0)
    assert meter.snapshot().count(metrics.PUBLISH_ERRORS, error="unavailable") == 2
    assert meter.snapshot().count(metrics.PUBLISH_ERRORS, error="denied") == 1
    assert len(caplog.records) == 3
    places.close()


def test_what_cannot_be_published_in_time_is_left_for_the_next(tmp_path: Path) -> None:
    stopped, go_on = Event(), Event()

    class Slow(Disk):
        def at(self, step: str) -> None:
            if step == f"link {CommitName(2)}":
                stopped.set()
                assert go_on.wait(WAIT_S)

    places = Disks(Slow)
    table = Ratified(str(tmp_path), places)
    publisher = publishing(table, places, background=True)
    publisher.table_committed(KEY, ratify(table, 5), is_default=True)
    assert stopped.wait(WAIT_S)
    publisher.close(0.01)
    assert not publisher.wait_for_version(ID, 4, WAIT_S)
    publisher.table_committed(KEY, ratify(table, 1), is_default=True)
    go_on.set()
    anew = publishing(table, places)
    assert anew.publish_line(table.content) == 5
    assert table.log() == table.ratified(0, 5)
    places.close()


# --- storage that does not keep conditions ---


class Careless(Disk):
    """Takes every write, as some storage does."""

    overwritten: list[str]

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        if LOG in key and await self.size(key) is not None:
            Careless.overwritten.append(key)
        self.at(f"put {key}")
        return await super().put(key, data)

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        return await Bucket.put_all(self, items)


@pytest.fixture
def careless(tmp_path: Path) -> Iterator[Places]:
    Careless.overwritten = []
    opened = Disks(Careless, tmp_path)
    yield opened
    opened.close()


def test_on_careless_storage_one_process_publishes_at_a_time(careless: Places) -> None:
    table = Ratified("s3://bucket/orders", careless)
    content = ratify(table, 12)
    store = MemoryStore()
    start = Barrier(3)

    def publish(_: int) -> None:
        publisher = Publisher(careless, table.read, leases=Leases(store))
        publisher.table_committed(KEY, content, is_default=True)
        start.wait()
        assert publisher.wait_for_version(ID, 11, WAIT_S)
        publisher.close(WAIT_S)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(publish, range(3)))
    assert table.log() == table.ratified(0, 11)
    assert Careless.overwritten == []


def test_r19_on_careless_storage_a_foreign_file_is_not_overwritten(careless: Places) -> None:
    table = Ratified("s3://bucket/orders", careless)
    content = ratify(table, 3)
    table.place.put(str(CommitName(1)), b"theirs")
    with pytest.raises(ForeignCommit):
        publishing(table, careless, leases=Leases(MemoryStore())).publish_line(content)
    assert table.log()[1] == b"theirs"
    assert Careless.overwritten == []


def test_who_lost_its_lease_stops_before_the_next_write(
    careless: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Ratified("s3://bucket/orders", careless)
    content = ratify(table, 4)
    store, now_s = MemoryStore(), [0.0]
    here = Leases(store, elapsed_s=lambda: now_s[0])
    there = Leases(store, elapsed_s=lambda: now_s[0])

    def sleep_and_lose(_: Careless, step: str) -> None:
        if step.endswith(str(CommitName(1))):
            assert there.take_lease(f"delta/{ID}") is None
            now_s[0] += there.good_s + 1
            assert there.take_lease(f"delta/{ID}") is not None

    monkeypatch.setattr(Careless, "at", sleep_and_lose)
    publisher = publishing(table, careless, leases=here)
    with pytest.raises(Unavailable, match="another process is publishing"):
        publisher.publish_line(content)
    assert table.log() == table.ratified(0, 1), "the write under way is the last"
    with pytest.raises(Unavailable, match="another process is publishing"):
        publisher.publish_line(content)
    now_s[0] += here.good_s + 1
    assert publisher.publish_line(content) == 3
    assert table.log() == table.ratified(0, 3)


class Unknowing(Disk):
    """Answers to every write with a condition that it cannot do that, as some storage does."""

    is_away = False

    async def put(self, key: str, data: bytes, condition: Condition = None) -> EntityTag:
        if condition is not None or Unknowing.is_away:
            raise UnansweredWrite("the server answered 501 NotImplemented")
        return await super().put(key, data)

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        return await Bucket.put_all(self, items)


@pytest.fixture
def unknowing(tmp_path: Path) -> Iterator[Places]:
    Unknowing.is_away = False
    opened = Disks(Unknowing, tmp_path)
    yield opened
    opened.close()


def test_storage_that_knows_no_conditions_is_used_with_a_lease(unknowing: Places) -> None:
    table = Ratified("s3://bucket/orders", unknowing)
    content = ratify(table, 6)
    assert not table.place.keeps_conditions
    store = MemoryStore()
    held = Leases(store).take_lease(f"delta/{ID}")
    assert held is not None
    with pytest.raises(Unavailable, match="another process is publishing"):
        publishing(table, unknowing, leases=Leases(store)).publish_line(content)
    held.release()
    publisher = publishing(table, unknowing, leases=Leases(store))
    assert publisher.publish_line(content, 3) == 3
    assert table.log() == table.ratified(0, 3)
    names = publisher.provide_files(content)
    assert list(table.place.read(names.values())) == [table.bytes[version] for version in range(6)]
    assert not table.place.create(str(CommitName(3)), b"another")
    assert unknowing.open_place("s3://bucket").list("orders/_penstock/probe") == []


def test_storage_that_is_away_is_not_taken_for_one_that_knows_no_conditions(unknowing: Places) -> None:
    place = unknowing.open_place("s3://bucket/orders")
    Unknowing.is_away = True
    with pytest.raises(OutcomeUnknown):
        place.create("a", b"1")
    with pytest.raises(Unavailable):
        assert place.keeps_conditions
    Unknowing.is_away = False
    assert place.create("a", b"1"), "it is found out when it is back"
    assert not place.keeps_conditions
