"""What a publisher remembers, for how long, and what it does not take on trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from uuid import UUID

import pytest

from penstock.errors import Unavailable
from penstock.formats import publisher as engine
from penstock.formats.delta.branch_log.branch_log import decode_branch_log
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.names import LOG, ClassicName, CommitName
from penstock.formats.delta.publishing import publisher
from penstock.formats.delta.publishing.line_files import LISTED_FROM
from penstock.formats.delta.publishing.log_writer import BATCH_MAX
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable
from penstock.storage.local import LocalBucket
from penstock.storage.places import Place, Places
from tests.formats.delta.ratified import BRANCH, ID, KEY, WAIT_S, Disk, Disks, Ratified, publishing, ratify


@pytest.fixture
def places() -> Iterator[Places]:
    opened = Places()
    yield opened
    opened.close()


@pytest.fixture
def table(tmp_path: Path, places: Places) -> Ratified:
    return Ratified(str(tmp_path), places)


def cleaned_up(table: Ratified, first: int) -> None:
    """As the log is after a clean-up that leaves a checkpoint and all from there on."""
    table.place.create(str(ClassicName(first)), b"all that was before")
    table.place.delete([str(CommitName(version)) for version in range(first)])


# --- jobs ---


def test_a_job_that_is_done_is_forgotten_but_for_how_far_it_came(table: Ratified, places: Places) -> None:
    working = publishing(table, places, background=True)
    working.table_committed(KEY, ratify(table, 3), is_default=True)
    table.held(line=BRANCH)
    working.table_committed(KEY, table.held(line=BRANCH), is_default=False)
    working.close(WAIT_S)
    assert working.jobs == {}
    assert working.published_version(ID) == 2
    assert table.place.size(table.name(4)) is not None


def test_a_line_that_is_published_already_makes_no_work(table: Ratified, places: Places) -> None:
    idle = publishing(table, places)
    content = ratify(table, 3)
    idle.publish_line(content)
    idle.table_committed(KEY, content, is_default=True)
    assert idle.jobs == {}


def test_of_jobs_that_are_done_only_so_many_are_remembered(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "KNOWN_MAX", 1)
    first, second = (Ratified(str(tmp_path / name), places, id=UUID(name * 32)) for name in "12")
    objects: dict[ObjectId, Ratified] = {}
    for one in (first, second):
        one.held()
        objects |= dict.fromkeys(one.objects, one)
    working = publisher.Publisher(places, lambda one: objects[one].read(one), background=False)
    for one in (first, second):
        assert working.publish_line(one.content) == 0
    assert first.content.id is not None
    assert second.content.id is not None
    assert working.published_version(first.content.id) == -1, "it is looked up when it is needed again"
    assert working.published_version(second.content.id) == 0


def test_who_waits_for_a_version_sees_it_though_an_earlier_job_was_forgotten(
    table: Ratified, places: Places
) -> None:
    working = publishing(table, places, background=True)
    begun = Event()

    def wait() -> bool:
        begun.set()
        return working.wait_for_version(ID, 5, WAIT_S)

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        assert begun.wait(WAIT_S)
        working.table_committed(KEY, ratify(table, 3), is_default=True)
        assert working.wait_for_version(ID, 2, WAIT_S)
        working.table_committed(KEY, ratify(table, 3), is_default=True)
        assert waiting.result(WAIT_S)
    working.close(WAIT_S)


@pytest.mark.parametrize("failures", [20, 1100])
def test_storage_that_is_away_for_long_is_tried_until_it_is_back(
    tmp_path: Path, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAUSE_MAX_S", 0.0)
    left = iter(range(failures))

    class Away(LocalBucket):
        async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
            if items[0][0].startswith(f"{LOG}0") and next(left, None) is not None:
                raise Unavailable("away")
            return await super().put_all(items)

    places = Disks(Away)
    table = Ratified(str(tmp_path), places)
    working = publishing(table, places, background=True)
    working.table_committed(KEY, table.held(), is_default=True)
    assert working.wait_for_version(ID, 0, WAIT_S), "though nothing more was told"
    working.close(WAIT_S)
    assert next(left, None) is None
    places.close()


# --- logs that were cleaned up ---


@pytest.mark.parametrize("knows", [True, False], ids=["who knew it once", "who knows nothing"])
def test_versions_before_the_first_that_is_kept_are_not_written_again(
    table: Ratified, places: Places, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = ratify(table, 6)
    slow = publishing(table, places)
    if knows:
        slow.publish_line(stale, 2)
    publishing(table, places).publish_line(ratify(table, 6))
    cleaned_up(table, 9)
    monkeypatch.setattr(publisher, "SEEN_MAX_S", -1.0)
    assert slow.publish_line(stale) == 5
    assert sorted(table.log()) == [9, 10, 11]


def test_a_line_that_ends_where_the_log_begins_is_published_to_its_end(
    table: Ratified, places: Places
) -> None:
    publishing(table, places).publish_line(ratify(table, 10))
    cleaned_up(table, 8)
    assert publishing(table, places).publish_line(ratify(table, 2)) == 11
    assert table.log() == table.ratified(8, 11)


def test_a_checkpoint_of_others_keeps_no_version_from_being_published(
    table: Ratified, places: Places
) -> None:
    publishing(table, places).publish_line(ratify(table, 3))
    table.forget(2)
    content = table.held()
    table.place.create(str(ClassicName(7)), b"of nobody knows what")
    table.place.create(str(CommitName(7)), b"a version that nobody ratified")
    assert publishing(table, places).publish_line(content) == 3
    assert table.log() == table.ratified(0, 3)


# --- bytes that are not what was ratified ---


def test_a_body_that_changed_is_not_published(table: Ratified, places: Places) -> None:
    table.held()
    content = table.held('{"add":{"path":"a"}}', body=True)
    (body,) = (entry.body for _, entry in table.line.read_entries_after(0, table.read))
    (good,) = table.place.read([body])
    assert good is not None
    table.place.put(body, good.replace(b'"a"', b'"b"'))
    careful = publishing(table, places)
    careful.table_committed(KEY, content, is_default=True)
    with pytest.raises(InvalidLog, match="differs from the bytes that were ratified") as problem:
        careful.publish_line(content)
    assert (problem.value.details["version"], problem.value.details["name"]) == (1, body)
    assert table.log() == table.ratified(0, 0)
    with pytest.raises(InvalidLog):
        careful.provide_files(content)
    assert [one.problem is None for one in careful.list_unpublished()] == [False]
    table.place.put(body, good)
    assert careful.publish_line(content) == 1
    assert table.log() == table.ratified(0, 1)


# --- files for readers ---


class Counting(Place):
    calls = 0

    def __getattribute__(self, name: str) -> object:
        if name in ("create_each", "sizes", "size", "read"):
            Counting.calls += 1
        return super().__getattribute__(name)


def counted(place: Place, work: Callable[[], object]) -> int:
    """How often storage is asked for files one by one."""
    before, place.__class__ = Counting.calls, Counting
    try:
        work()
    finally:
        place.__class__ = Place
    return Counting.calls - before


def test_only_the_files_that_are_asked_for_are_written(table: Ratified, places: Places) -> None:
    content = ratify(table, 40)
    serving = publishing(table, places)
    assert serving.provide_files(content, 29, 30) == {30: table.name(30)}
    there = [version for version in range(40) if table.place.size(table.name(version)) is not None]
    assert [version for version in there if version % 3 != 1] == [30], "all others, their writers wrote"


def test_files_that_were_seen_are_not_looked_for_again(table: Ratified, places: Places) -> None:
    content = ratify(table, 6)
    serving = publishing(table, places)
    first = serving.provide_files(content)
    assert counted(table.place, lambda: serving.provide_files(content)) == 0
    assert serving.provide_files(content) == first
    publishing(table, places).publish_line(content)
    table.place.delete(list(first.values()))
    assert serving.provide_files(content) == {version: str(CommitName(version)) for version in range(6)}


def branched(table: Ratified, count: int, line: bytes = BRANCH) -> DeltaTable:
    """Versions of a branch whose bytes the kernel holds."""
    for _ in range(count):
        table.held(line=line)
    return table.content


def test_of_a_long_line_only_the_files_that_are_missing_are_written(table: Ratified, places: Places) -> None:
    ratify(table, 3)
    content = branched(table, LISTED_FROM)
    names = publishing(table, places).provide_files(content)
    table.place.delete([names[7]])
    asked: list[ObjectId] = []

    def read(one: ObjectId) -> bytes:
        asked.append(one)
        return table.read(one)

    later = publisher.Publisher(places, read, background=False)
    assert later.provide_files(content) == names
    held = {
        entry.held: version
        for version, entry in decode_branch_log(content).read_entries_after(-1, table.read)
    }
    assert {held[one] for one in asked if one in held} == {7}
    assert list(table.place.read(names.values())) == [table.bytes[version] for version in names]


def test_of_a_long_line_a_file_of_another_size_is_not_named(table: Ratified, places: Places) -> None:
    content = branched(table, LISTED_FROM)
    names = publishing(table, places).provide_files(content)
    table.place.put(names[7], b"cut o")
    with pytest.raises(InvalidLog, match=r"7\..*is 5 bytes long instead of"):
        publishing(table, places).provide_files(content)


@pytest.mark.parametrize("line", [b"", BRANCH], ids=["default", "branch"])
def test_what_the_kernel_holds_of_a_backlog_is_fetched_together(
    table: Ratified, places: Places, line: bytes
) -> None:
    content = branched(table, 3 * BATCH_MAX, line)
    held = {entry.held for _, entry in decode_branch_log(content).read_entries_after(-1, table.read)}
    fetched: list[set[ObjectId]] = []

    def read(one: ObjectId) -> bytes:
        assert one not in held or one in set().union(*fetched), "nobody has to ask for it alone"
        return table.read(one)

    working = publisher.Publisher(places, read, background=False, fetch=lambda ids: fetched.append(set(ids)))
    if line:
        working.provide_files(content)
    else:
        working.publish_line(content)
        assert table.log() == table.ratified(0, 3 * BATCH_MAX - 1)
    assert set().union(*fetched) == held
    assert max(map(len, fetched)) == BATCH_MAX


def test_who_asks_for_files_does_not_wait_for_what_is_being_published(tmp_path: Path) -> None:
    stopped, go_on = Event(), Event()

    class Slow(Disk):
        def at(self, step: str) -> None:
            if step == f"link {CommitName(1)}":
                stopped.set()
                assert go_on.wait(WAIT_S)

    places = Disks(Slow)
    table = Ratified(str(tmp_path), places)
    working = publishing(table, places, background=True)
    content = ratify(table, 4)
    working.table_committed(KEY, content, is_default=True)
    assert stopped.wait(WAIT_S)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(working.provide_files, content, 1, 3)
        assert asked.result(WAIT_S) == {2: table.name(2), 3: table.name(3)}
        assert working.inspect_log(content) == 0
    go_on.set()
    assert working.wait_for_version(ID, 3, WAIT_S)
    working.close(WAIT_S)
    places.close()
