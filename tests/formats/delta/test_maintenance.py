"""Checkpoints in the background: when they are made, and when not."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Event
from uuid import UUID

import pytest

from penstock.errors import LogGap, VersionNotFound
from penstock.formats.delta.branch_log.branch_log import (
    BranchLog,
    OwnershipPhase,
    TableDefinition,
    encode_object,
    replace_branch_log,
)
from penstock.formats.delta.log.checkpoint_writer import WrittenCheckpoint
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import write_action
from penstock.formats.delta.protocol.names import LAST_CHECKPOINT, LOG, ChecksumName, ClassicName, CommitName
from penstock.formats.delta.publishing import maintenance
from penstock.formats.delta.publishing.maintenance import (
    CheckpointMaintenance,
    checkpoint_interval,
    make_checkpoint,
)
from penstock.model.clock import now_us
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import decode_object
from penstock.storage.local import UNFINISHED
from penstock.storage.places import SCRATCH, Place, Places
from tests.formats.delta.logs import Table, add, metadata, protocol

KEY = Key.parse("sales.orders")
START_S = 1000.0
Objects = dict[ObjectId, bytes]
IDS = [UUID(int=number) for number in range(1, 4)]


def content_of(
    table: Table, objects: Objects, number: int = 0, properties: dict[str, str] | None = None
) -> DeltaTable:
    """A managed table as its line says it, with these properties."""
    one, data = encode_object(
        TableDefinition(write_action(protocol()), write_action(metadata(**(properties or {}))))
    )
    objects[one] = decode_object(data).data
    line = BranchLog(phase=OwnershipPhase.OWNED, published=0, latest=0, timestamp_ms=0, declared=one)
    return replace_branch_log(DeltaTable(id=IDS[number], location=str(table.root)), line)


class Time:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


class Watch:
    """Counts the checkpoints that are made, and holds them up where a test wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, time: Time) -> None:
        self.versions: list[int] = []
        self.takes_s = 0.0
        self.may_go_on = Event()
        self.may_go_on.set()
        self._changed = Condition()
        real = maintenance.make_checkpoint

        def watched(place: Place, version: int, now_ms: int) -> WrittenCheckpoint | None:
            self._began(version)
            assert self.may_go_on.wait(60)
            time.now_s += self.takes_s
            return real(place, version, now_ms)

        monkeypatch.setattr(maintenance, "make_checkpoint", watched)

    def _began(self, version: int) -> None:
        with self._changed:
            self.versions.append(version)
            self._changed.notify_all()

    def wait_for(self, *versions: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.versions == list(versions), 10), self.versions


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, time: Time) -> Watch:
    return Watch(monkeypatch, time)


@contextmanager
def running(places: Places, objects: Objects, time: Time) -> Iterator[CheckpointMaintenance]:
    running = CheckpointMaintenance(places, objects.__getitem__, elapsed=time)
    try:
        yield running
    finally:
        running.close(30)


def commits(table: Table, last: int, **properties: str) -> None:
    table.commit(0, protocol(), metadata(**properties))
    for version in range(1, last + 1):
        table.commit(version, add(f"{version}"))


def checkpoints(table: Table) -> list[int]:
    return sorted(int(one.name[:20]) for one in (table.root / LOG).glob("*.checkpoint.parquet"))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [("4", [3, 7]), (None, [9]), ("0", [9]), ("x", [9])],
    ids=["four", "default", "none", "no number"],
)
def test_a_table_gets_a_checkpoint_after_as_many_versions_as_it_says(
    table: Table, places: Places, time: Time, interval: str | None, expected: list[int]
) -> None:
    properties = {} if interval is None else {"delta_checkpointInterval": interval}
    commits(table, 10, **properties)
    objects: Objects = {}
    content = content_of(table, objects, 0, properties)
    for published in range(11):
        # A new one each time: what is there is found out from the log.
        with running(places, objects, time) as looking:
            looking.schedule_maintenance(KEY, content, published)
        time.now_s += 1000
    assert checkpoints(table) == expected
    last = json.loads((table.root / str(ChecksumName(expected[-1]))).read_bytes())
    assert last["numFiles"] == expected[-1]


def test_with_a_checkpoint_goes_what_interrupted_writes_left(
    table: Table, places: Places, time: Time
) -> None:
    commits(table, 10)
    folder = table.root / SCRATCH / UNFINISHED
    folder.mkdir(parents=True, exist_ok=True)
    for name, age_s in (("old", 2 * 86_400), ("new", 3_600)):
        (folder / name).write_bytes(b"half of")
        written_s = now_us() / 1e6 - age_s
        os.utime(folder / name, (written_s, written_s))
    objects: Objects = {}
    with running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content_of(table, objects, 0, {}), 10)
    assert checkpoints(table) == [10]
    assert [one.name for one in folder.iterdir()] == ["new"]


def test_what_is_published_while_a_checkpoint_is_made_is_in_the_next(
    table: Table, places: Places, time: Time, watch: Watch
) -> None:
    commits(table, 40)
    objects: Objects = {}
    content = content_of(table, objects)
    watch.may_go_on.clear()
    with running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content, 10)
        watch.wait_for(10)
        for published in range(11, 41):
            looking.schedule_maintenance(KEY, content, published)
        watch.may_go_on.set()
        watch.wait_for(10, 40)
    assert checkpoints(table) == [10, 40]


def test_a_checkpoint_that_took_long_is_not_repeated_before_ten_times_as_long(
    table: Table, places: Places, time: Time, watch: Watch
) -> None:
    commits(table, 40)
    others = [Table(table.root / name, places) for name in ("other", "third")]
    for one in others:
        commits(one, 14)
    objects: Objects = {}
    content = content_of(table, objects)
    other, third = (content_of(one, objects, number) for number, one in enumerate(others, 1))
    watch.takes_s = 7.0
    with running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content, 10)
        looking.schedule_maintenance(Key.parse("other"), other, 12)
        watch.wait_for(10, 12)
        # One thread does it all: when another table has its turn, the first one is through.
        time.now_s = START_S + 76.9
        looking.schedule_maintenance(KEY, content, 30)
        looking.schedule_maintenance(Key.parse("third"), third, 14)
        watch.wait_for(10, 12, 14)
        time.now_s = START_S + 77.1
        looking.schedule_maintenance(KEY, content, 40)
        watch.wait_for(10, 12, 14, 40)
    assert checkpoints(table) == [10, 40]
    assert checkpoints(others[1]) == [14]


def test_a_failure_is_logged_and_other_tables_go_on(
    table: Table, places: Places, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    commits(table, 10)
    table.delete(CommitName(4))
    other = Table(table.root / "other", places)
    commits(other, 12)
    objects: Objects = {}
    with caplog.at_level(logging.WARNING, "penstock"), running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content_of(table, objects), 10)
        looking.schedule_maintenance(Key.parse("other"), content_of(other, objects, 1), 12)
    (record,) = caplog.records
    assert "no checkpoint of 'sales.orders'" in record.getMessage()
    assert "00000004.json is missing" in record.getMessage()
    assert record.exc_info is None
    assert checkpoints(table) == []
    assert checkpoints(other) == [12]


def test_a_bug_does_not_end_the_thread(
    table: Table, places: Places, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    commits(table, 12)
    objects: Objects = {}
    lost: Objects = {}
    with running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content_of(table, lost, 1, {"delta_checkpointInterval": "3"}), 12)
        looking.schedule_maintenance(KEY, content_of(table, objects), 12)
    assert checkpoints(table) == [12]
    (record,) = caplog.records
    assert record.exc_info is not None


def test_a_checkpoint_of_another_writer_counts(
    table: Table, places: Places, time: Time, watch: Watch
) -> None:
    commits(table, 12)
    make_checkpoint(table.place, 5, 0)
    watch.versions.clear()
    table.write(LAST_CHECKPOINT, b'{"version":700}')
    objects: Objects = {}
    with running(places, objects, time) as looking:
        looking.schedule_maintenance(KEY, content_of(table, objects), 12)
    assert watch.versions == []


def test_nothing_is_taken_on_after_closing(table: Table, places: Places, time: Time) -> None:
    commits(table, 12)
    objects: Objects = {}
    with running(places, objects, time) as looking:
        looking.close(30)
        looking.schedule_maintenance(KEY, content_of(table, objects), 12)
    assert checkpoints(table) == []


def test_a_checkpoint_of_a_version_that_is_not_there_is_refused(table: Table) -> None:
    commits(table, 3)
    with pytest.raises(VersionNotFound):
        make_checkpoint(table.place, 4, 0)
    table.delete(CommitName(2))
    with pytest.raises(LogGap):
        make_checkpoint(table.place, 3, 0)


def test_a_checkpoint_is_made_once(table: Table) -> None:
    commits(table, 3)
    made = make_checkpoint(table.place, 3, 0)
    assert made is not None
    assert made.name == str(ClassicName(3))
    assert make_checkpoint(table.place, 3, 0) is None
    assert load_snapshot(table.files).segment.names == ()


def test_the_interval_is_a_number_of_versions() -> None:
    assert checkpoint_interval({"delta.checkpointInterval": "25"}) == 25
