"""Publishing: what is ratified comes into the log, in order and unchanged, and nothing else does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import UUID

import pytest

from penstock.formats.delta import metrics
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase
from penstock.formats.delta.errors import ForeignCommit, InvalidLog
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_writer import BATCH_MAX
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.metrics.memory import Metrics
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places
from tests.formats.delta.ratified import (
    BRANCH,
    ID,
    KEY,
    TIME_MS,
    WAIT_S,
    Ratified,
    publishing,
    ratify,
)
from tests.servers.s3 import S3Place


@pytest.fixture
def places() -> Iterator[Places]:
    opened = Places()
    yield opened
    opened.close()


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.verify)])
def table(
    request: pytest.FixtureRequest, places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ratified:
    if request.param == "disk":
        return Ratified(str(tmp_path / "orders"), places)
    s3: S3Place = request.getfixturevalue("s3_place")
    if s3.endpoint is not None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", s3.region)
    return Ratified(f"s3://{s3.bucket}/{s3.prefix}/orders", places)


@pytest.fixture
def on_disk(places: Places, tmp_path: Path) -> Ratified:
    return Ratified(str(tmp_path / "orders"), places)


def test_r19_what_was_ratified_is_published_byte_for_byte(table: Ratified, places: Places) -> None:
    publisher = publishing(table, places)
    content = ratify(table, 7)
    assert publisher.published_version(ID) == -1
    assert publisher.publish_line(content, 2) == 2
    assert table.log() == table.ratified(0, 2)
    assert publisher.publish_line(content, 1) == 2
    assert publisher.publish_line(content) == 6
    assert publisher.published_version(ID) == 6
    assert table.log() == table.ratified(0, 6)
    assert publisher.publish_line(content) == 6
    assert publisher.publish_line(content, 100) == 6


def test_who_is_told_publishes_in_the_background(table: Ratified, places: Places) -> None:
    publisher = publishing(table, places, background=True)
    for _ in range(3):
        publisher.table_committed(KEY, ratify(table, 2), is_default=True)
    assert publisher.wait_for_version(ID, 5, WAIT_S)
    assert table.log() == table.ratified(0, 5)
    assert not publisher.wait_for_version(ID, 6, 0.0)
    publisher.close(WAIT_S)
    assert publisher.list_unpublished() == ()


def test_how_far_a_log_is_published_is_found_by_looking(table: Ratified, places: Places) -> None:
    publishing(table, places).publish_line(ratify(table, 5), 3)
    anew = publishing(table, places)
    assert anew.inspect_log(table.content) == 3
    assert anew.published_version(ID) == 3
    assert anew.publish_line(table.content) == 4
    table.place.create(str(CommitName(5)), b"what another lake may know")
    assert publishing(table, places).inspect_log(table.content) == 4, (
        "what the line does not have says nothing"
    )


def test_what_is_published_may_be_forgotten(table: Ratified, places: Places) -> None:
    publisher = publishing(table, places)
    publisher.publish_line(ratify(table, 3))
    table.forget(publisher.published_version(ID))
    content = ratify(table, 2)
    assert publisher.publish_line(content) == 4
    table.forget(4)
    assert publishing(table, places).publish_line(table.content) == 4
    assert table.log() == table.ratified(0, 4)


def test_a_long_backlog_is_published_in_order(on_disk: Ratified, places: Places) -> None:
    content = ratify(on_disk, 200)
    assert publishing(on_disk, places).publish_line(content) == 199 > BATCH_MAX
    assert on_disk.log() == on_disk.ratified(0, 199)


@pytest.mark.parametrize("publishers", [2, 4])
def test_r22_several_at_once_publish_each_version_once(
    table: Ratified, places: Places, publishers: int
) -> None:
    content, meter = ratify(table, 30), Metrics()
    start = Barrier(publishers)

    def publish(_: int) -> int:
        publisher = publishing(table, places, meter=meter)
        start.wait()
        return publisher.publish_line(content)

    with ThreadPoolExecutor(publishers) as threads:
        assert list(threads.map(publish, range(publishers))) == [29] * publishers
    assert table.log() == table.ratified(0, 29)
    assert meter.snapshot().count(metrics.PUBLISHED) == 30


@pytest.mark.parametrize("version", [0, 2, 5])
@pytest.mark.parametrize("same_size", [True, False], ids=["same size", "another size"])
def test_r19_a_foreign_file_stops_its_table_and_stays(
    table: Ratified, places: Places, version: int, same_size: bool, caplog: pytest.LogCaptureFixture
) -> None:
    content, meter = ratify(table, 6), Metrics()
    theirs = table.bytes[version].swapcase() if same_size else b'{"commitInfo":{}}\n'
    publisher = publishing(table, places, meter=meter)
    if version:
        assert publisher.publish_line(content, version - 1) == version - 1
    table.place.create(str(CommitName(version)), theirs)
    publisher.table_committed(KEY, content, is_default=True)
    for who in (publisher, publisher, publishing(table, places, meter=meter)):
        with pytest.raises(ForeignCommit, match=f"version {version} of the table") as alarm:
            who.publish_line(content)
        assert alarm.value.details["version"] == version
        assert alarm.value.details["name"] == str(CommitName(version))
    assert table.log() == table.ratified(0, version - 1) | {version: theirs}
    assert not publisher.wait_for_version(ID, version, WAIT_S), "nobody waits for an administrator"
    (behind,) = publisher.list_unpublished()
    assert isinstance(behind.problem, ForeignCommit)
    assert (behind.key, behind.published, behind.latest) == (KEY, version - 1, 5)
    assert behind.since_us == (TIME_MS + version) * 1000
    assert meter.snapshot().count(metrics.FOREIGN) == 2, "once for each process"
    assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == 2

    if version:
        assert publisher.publish_line(content, version - 1) == version - 1
        assert [one.problem is None for one in publisher.list_unpublished()] == [False], (
            "that changes nothing"
        )
    table.place.delete([str(CommitName(version))])
    assert publisher.publish_line(content, version) == version
    assert [one.problem for one in publisher.list_unpublished()] == [None] * (version < 5)
    assert publisher.publish_line(content) == 5
    assert publisher.list_unpublished() == ()
    assert table.log() == table.ratified(0, 5)


def test_an_alarm_ends_for_later_versions_when_another_process_has_published(
    on_disk: Ratified, places: Places
) -> None:
    content = ratify(on_disk, 3)
    publisher = publishing(on_disk, places, background=True)
    on_disk.place.create(str(CommitName(1)), b'{"commitInfo":{}}\n')
    publisher.table_committed(KEY, content, is_default=True)
    assert not publisher.wait_for_version(ID, 2, WAIT_S)
    assert isinstance(publisher.get_problem(ID), ForeignCommit)
    on_disk.place.delete([str(CommitName(1))])
    assert publishing(on_disk, places).publish_line(content) == 2
    assert publisher.inspect_log(content) == 2
    assert publisher.get_problem(ID) is None
    publisher.table_committed(KEY, on_disk.held(), is_default=True)
    assert publisher.wait_for_version(ID, 3, WAIT_S)
    assert on_disk.log() == on_disk.ratified(0, 3)
    publisher.close(WAIT_S)


def test_a_foreign_file_keeps_no_other_table_waiting(tmp_path: Path, places: Places) -> None:
    other = UUID(int=7)
    bad, good = Ratified(str(tmp_path / "bad"), places), Ratified(str(tmp_path / "good"), places, id=other)
    bad.place.create(str(CommitName(0)), b"theirs")
    objects, meter = bad.objects, Metrics()
    publisher = Publisher(places, lambda one: (bad if one in objects else good).read(one), meter=meter)
    publisher.table_committed(KEY, ratify(bad, 2), is_default=True)
    assert not publisher.wait_for_version(ID, 1, WAIT_S)
    publisher.table_committed(Key.parse("sales.good"), ratify(good, 2), is_default=True)
    assert publisher.wait_for_version(other, 1, WAIT_S)
    publisher.table_committed(KEY, last := ratify(bad, 1), is_default=True)
    publisher.table_committed(Key.parse("sales.good"), ratify(good, 1), is_default=True)
    assert publisher.wait_for_version(other, 2, WAIT_S)
    assert meter.snapshot().count(metrics.PUBLISH_ERRORS) == 1, "nothing is tried in vain"
    assert [one.key for one in publisher.list_unpublished()] == [KEY]
    assert bad.log() == {0: b"theirs"}

    bad.place.delete([str(CommitName(0))])
    publisher.publish_line(last)
    assert publisher.wait_for_version(ID, 2, WAIT_S)
    assert publisher.list_unpublished() == ()
    publisher.close(WAIT_S)


def test_a_staged_file_that_is_gone_stops_its_table_and_is_named(table: Ratified, places: Places) -> None:
    table.held()
    content = table.staged(write=False)
    publisher = publishing(table, places)
    with pytest.raises(InvalidLog, match="is gone") as problem:
        publisher.publish_line(content)
    assert problem.value.details["name"] == table.name(1)
    assert table.log() == table.ratified(0, 0)
    table.place.create(table.name(1), table.bytes[1])
    assert publisher.publish_line(content) == 1


def test_a_staged_file_that_is_gone_is_not_taken_for_a_foreign_one(table: Ratified, places: Places) -> None:
    content = table.staged(write=False)
    table.place.create(str(CommitName(0)), b"something else")
    with pytest.raises(InvalidLog, match="is gone"):
        publishing(table, places).publish_line(content)


def test_a_staged_file_that_changed_is_not_published(table: Ratified, places: Places) -> None:
    content = table.staged(write=False)
    table.place.create(table.name(0), b"something else")
    with pytest.raises(InvalidLog, match=r"14 bytes instead of"):
        publishing(table, places).publish_line(content)
    assert table.log() == {}


def test_a_staged_file_may_go_once_it_is_published(table: Ratified, places: Places) -> None:
    for _ in range(3):
        table.staged()
    publishing(table, places).publish_line(table.content)
    table.place.delete([table.name(version) for version in range(3)])
    anew = publishing(table, places)
    assert anew.inspect_log(table.content) == 2
    assert anew.provide_files(table.content) == {number: str(CommitName(number)) for number in range(3)}


def test_versions_that_were_cleaned_up_are_not_published_again(table: Ratified, places: Places) -> None:
    publishing(table, places).publish_line(ratify(table, 6))
    table.place.delete([str(CommitName(version)) for version in range(3)])
    assert publishing(table, places).publish_line(table.held()) == 6
    assert table.log() == table.ratified(3, 6)


def test_a_version_that_is_missing_in_the_middle_is_published_again(table: Ratified, places: Places) -> None:
    publishing(table, places).publish_line(ratify(table, 6))
    table.place.delete([str(CommitName(3))])
    assert publishing(table, places).publish_line(table.content) == 5
    assert table.log() == table.ratified(0, 5)


def test_a_branch_is_not_published_and_its_files_are_written(table: Ratified, places: Places) -> None:
    publisher = publishing(table, places, background=True)
    publisher.publish_line(ratify(table, 2))
    table.held(line=BRANCH)
    table.staged(line=BRANCH)
    content = table.held("{}", "{}", body=True, line=BRANCH)
    publisher.table_committed(KEY, content, is_default=False)
    publisher.close(WAIT_S)
    names = [table.name(version) for version in (2, 3, 4)]
    assert list(table.place.read(names)) == [table.bytes[version] for version in (2, 3, 4)]
    assert table.log() == table.ratified(0, 1)
    assert publisher.publish_line(content) == 1
    assert table.log() == table.ratified(0, 1)
    found = publisher.provide_files(content)
    assert found == {0: str(CommitName(0)), 1: str(CommitName(1))} | dict(enumerate(names, 2))
    assert publisher.provide_files(content, 3) == {4: names[2]}


def test_the_background_leaves_the_default_branch_to_itself(on_disk: Ratified, places: Places) -> None:
    publisher = publishing(on_disk, places, background=True)
    for _ in range(3):
        publisher.table_committed(KEY, on_disk.held(), is_default=False)
    names = [on_disk.name(version) for version in range(3)]
    publisher.table_committed(KEY, on_disk.held(line=BRANCH), is_default=False)
    publisher.close(WAIT_S)
    assert list(on_disk.place.read([*names, on_disk.name(3)])) == [None] * 3 + [on_disk.bytes[3]]
    assert on_disk.log() == {}


def test_versions_that_are_not_published_yet_have_files_when_they_are_asked_for(
    table: Ratified, places: Places
) -> None:
    publisher = publishing(table, places)
    content = ratify(table, 5)
    publisher.publish_line(content, 1)
    names = publisher.provide_files(content)
    assert [names[version] for version in (0, 1)] == [str(CommitName(0)), str(CommitName(1))]
    assert [names[version] for version in (2, 3, 4)] == [table.name(version) for version in (2, 3, 4)]
    assert list(table.place.read(names.values())) == [table.bytes[version] for version in range(5)]
    assert publisher.provide_files(content) == names
    assert table.log() == table.ratified(0, 1)


def test_a_file_to_be_read_that_is_not_what_was_ratified_is_not_named(
    table: Ratified, places: Places
) -> None:
    content = table.held()
    table.place.create(table.name(0), b"something else")
    with pytest.raises(InvalidLog, match="14 bytes long instead of"):
        publishing(table, places).provide_files(content)


def test_a_table_that_is_being_adopted_is_published_by_its_adopter_alone(
    on_disk: Ratified, places: Places
) -> None:
    on_disk.held()
    content = on_disk.become(OwnershipPhase.ADOPTING)
    publisher = publishing(on_disk, places, background=True)
    publisher.table_committed(KEY, content, is_default=True)
    publisher.close(WAIT_S)
    assert on_disk.log() == {}
    on_disk.place.create(str(CommitName(0)), b"somebody was faster")
    with pytest.raises(ForeignCommit):
        publisher.publish_line(content)
    assert publisher.list_unpublished() == ()


def test_a_table_that_is_released_is_published_to_its_end(on_disk: Ratified, places: Places) -> None:
    ratify(on_disk, 3)
    publisher = publishing(on_disk, places, background=True)
    publisher.table_committed(KEY, released := on_disk.become(OwnershipPhase.RELEASED), is_default=True)
    assert publisher.wait_for_version(ID, 2, WAIT_S)
    on_disk.place.create(str(CommitName(3)), b"of its next owner")
    publisher.publish_line(released)
    publisher.close(WAIT_S)
    assert on_disk.log() == on_disk.ratified(0, 2) | {3: b"of its next owner"}


def test_of_lines_told_in_any_order_the_newest_is_published(on_disk: Ratified, places: Places) -> None:
    older = ratify(on_disk, 2)
    newer = ratify(on_disk, 2)
    publisher = publishing(on_disk, places)
    publisher.table_committed(KEY, newer, is_default=True)
    publisher.table_committed(KEY, older, is_default=True)
    assert publisher.wait_for_version(ID, 3, WAIT_S)


def test_what_follows_is_told_outside_of_all_locks_and_cannot_fail(
    on_disk: Ratified, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[Key, int, int]] = []

    def follow(key: Key, content: DeltaTable, published: int) -> None:
        assert content.id is not None
        told.append((key, published, publisher.publish_line(content, 0)))
        raise ValueError("nobody minds")

    publisher = publishing(on_disk, places, background=True, after_publish=follow)
    publisher.table_committed(KEY, ratify(on_disk, 3), is_default=True)
    publisher.close(WAIT_S)
    assert told == [(KEY, 2, 2)]
    assert "nobody minds" in caplog.text


def test_figures_tell_how_much_is_not_published_and_for_how_long(on_disk: Ratified, places: Places) -> None:
    meter = Metrics()
    publisher = publishing(on_disk, places, meter=meter, clock=lambda: (TIME_MS + 12_000) * 1000)
    publisher.table_committed(KEY, ratify(on_disk, 40), is_default=True)
    publisher.report_metrics()
    assert meter.snapshot().gauge(metrics.UNPUBLISHED) == 40
    assert meter.snapshot().gauge(metrics.UNPUBLISHED_SECONDS) == 12.0
    publisher.publish_line(on_disk.content, 9)
    publisher.report_metrics()
    assert meter.snapshot().gauge(metrics.UNPUBLISHED) == 30
    assert meter.snapshot().gauge(metrics.UNPUBLISHED_SECONDS) == 11.99
    assert publisher.wait_for_version(ID, 39, WAIT_S)
    publisher.report_metrics()
    assert meter.snapshot().gauge(metrics.UNPUBLISHED) == 0
    assert meter.snapshot().gauge(metrics.UNPUBLISHED_SECONDS) == 0.0
    assert meter.snapshot().count(metrics.PUBLISHED) == 40
