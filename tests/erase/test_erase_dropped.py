"""Nothing is left of a table that was dropped, once it is erased; what was not dropped stays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import EraseRefused, HistoryExpired, KeyNotFound, MergeConflict, Unavailable
from penstock.formats.delta.lake.dropped_erase import DroppedDeltaErasure
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.files.lake.dropped_erase import DroppedFilesErasure
from penstock.formats.lance.lake.dropped_erase import DroppedLanceErasure
from penstock.kernel.revert import RevertRequest
from penstock.lake.dropped_erase import DroppedErasure
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.storage.places import Place
from penstock.stores.sqlite import SqliteStore
from tests.erase.tables import MARKER, alone, people, where_is
from tests.plugins import plugin_of
from tests.queue.hooks import wait_until
from tests.sweep.tables import LateClock


def delta(lake: Lake) -> None:
    lake.create_table("t", data=people())


def of_lance(lake: Lake) -> None:
    lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"], mode="create")


def of_files(lake: Lake) -> None:
    lake.table("t").files.put(f"name={MARKER}/a.csv", MARKER.encode(), message="load")


MAKE: dict[str, Callable[[Lake], None]] = {"delta": delta, "lance": of_lance, "files": of_files}


@pytest.fixture(params=[*MAKE])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def dropped(lake: Lake, kind: str) -> str:
    """The commit with the table, which is dropped since; another table of its kind is there."""
    MAKE[kind](lake)
    before = lake.branch().head
    lake.branch().drop("t")
    lake.create_table("other", data=pa.table({"id": [7]}))
    lake.finish_background()
    lake.close()
    return before


def read(lake: Lake, commit: str, kind: str) -> object:
    table = lake.at(commit).table("t")
    return table.files.list() if kind == "files" else table.to_arrow()


@pytest.mark.parametrize("batch", [1, 1000])
def test_a_dropped_lance_table_of_more_files_than_are_held_in_memory_goes_as_a_whole(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    of_lance(lake)
    for _ in range(5):
        lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"], mode="append")
    lake.branch().drop("t")
    lake.close()
    monkeypatch.setattr("penstock.formats.lance.lake.sweep.FILES_MAX", 3)
    monkeypatch.setattr("penstock.lake.sweep_engine.REMOVED_AT_ONCE", batch)
    with penstock.open(path) as other:
        waiting = other.erase("t", dropped=True)
        assert (waiting.finished, waiting.data_files) == (False, 0), "one young file keeps all of them"
    with alone(path) as other:
        assert other.erase("t", dropped=True).finished
        assert where_is(path) == []
        assert [one for one in (path / "warehouse").iterdir() if one.name.endswith("_t")] == []
        assert other.fsck().damages == ()


def test_a_large_dropped_lance_table_whose_erase_is_killed_is_taken_up_by_the_next_run(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_lance(lake)
    for _ in range(5):
        lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"], mode="append")
    lake.branch().drop("t")
    lake.close()
    monkeypatch.setattr("penstock.formats.lance.lake.sweep.FILES_MAX", 3)
    monkeypatch.setattr("penstock.lake.sweep_engine.REMOVED_AT_ONCE", 4)
    delete, deleted = Place.delete, list[int]()

    def killed(place: Place, keys: Any) -> None:
        delete(place, keys)
        deleted.append(len(keys))
        if len(deleted) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Place, "delete", killed)
    with alone(path) as other, pytest.raises(KeyboardInterrupt):
        other.erase("t", dropped=True)
    monkeypatch.setattr(Place, "delete", delete)
    assert any(path.glob("warehouse/*_t/**/*.lance")), "not all of it went"
    with alone(path) as other:
        assert other.erase("t", dropped=True).finished
        assert where_is(path) == []


def test_it_is_in_no_byte_and_cannot_be_read_or_brought_back(path: Path, dropped: str, kind: str) -> None:
    assert where_is(path), "it is there before"
    with alone(path) as lake:
        planned = lake.erase("t", dropped=True, dry_run=True)
        assert planned.data_files > 0
        erased = lake.erase("t", dropped=True)
        assert (erased.finished, erased.left, erased.first_version) == (True, (), -1)
        assert where_is(path) == []
        assert [one for one in (path / "warehouse").iterdir() if one.name.endswith("_t")] == []
        with pytest.raises(HistoryExpired, match="by privacy"):
            read(lake, dropped, kind)
        with pytest.raises(MergeConflict, match="erased"):
            lake.restore("t", to=dropped)
        assert lake.table("other").to_arrow()["id"].to_pylist() == [7]
        assert lake.fsck().damages == ()
        assert lake.erase("t", dropped=True).finished, "a second time"
    with penstock.open(path) as lake:
        MAKE[kind](lake)
    with alone(path) as lake:
        assert where_is(path), "another table may have the key"
        assert lake.erase("t", dropped=True).finished
        assert where_is(path), "which is not the one that was dropped"
        assert lake.fsck().damages == ()


def test_a_table_that_is_there_is_not_erased_as_dropped_nor_the_other_way_round(
    path: Path, dropped: str, kind: str
) -> None:
    with alone(path) as lake:
        with pytest.raises(KeyNotFound, match="--dropped"):
            lake.erase("t")
        with pytest.raises(KeyNotFound, match="no table was dropped"):
            lake.erase("other", dropped=True)
        assert where_is(path)


def test_who_still_has_the_table_holds_it(lake: Lake, path: Path, kind: str) -> None:
    MAKE[kind](lake)
    lake.branch("dev").create()
    lake.tag("v1").create()
    lake.branch().drop("t")
    lake.finish_background()
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t", dropped=True, all_references=True)
    assert "branch 'dev'" in refused.value.message
    assert "tag 'v1'" not in refused.value.message
    lake.branch("dev").drop("t")
    lake.close()
    with alone(path) as lake:
        assert lake.erase("t", dropped=True, all_references=True).finished
        assert where_is(path) == []
        with pytest.raises(HistoryExpired):
            read(lake, "v1", kind)
        assert lake.fsck().damages == ()


def test_it_waits_for_the_grace_period_and_ends_after_it(tmp_path: Path, kind: str) -> None:
    clock, path = LateClock(), tmp_path / "lake"
    with penstock.open(path, create=True, clock=clock) as lake:
        MAKE[kind](lake)
        lake.branch().drop("t")
        lake.finish_background()
        waiting = lake.erase("t", dropped=True)
        assert not waiting.finished
        assert waiting.until is not None
        clock.days = 8.1
        assert lake.erase("t", dropped=True).finished
        assert where_is(path) == []
        assert lake.fsck().damages == ()


SWEPT_BY = {"delta": DroppedDeltaErasure, "lance": DroppedLanceErasure, "files": DroppedFilesErasure}
STEPS: dict[str, tuple[Any, str]] = {
    "it is noted": (EraseRun, "_note_begun"),
    "it is committed that it is dropped": (DroppedErasure, "commit_first_version"),
    "the horizon is set": (EraseRun, "_set_horizon"),
    "files are swept": (None, "sweep_unneeded_files"),
    "the database is scrubbed": (SqliteStore, "scrub"),
}


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_after_any_step_is_taken_up_by_the_next_run(
    path: Path, dropped: str, kind: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    owner, name = STEPS[step]
    owner = owner or SWEPT_BY[kind]
    real: Callable[..., Any] = getattr(owner, name)

    def crashing(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        real(*given, **named)
        raise Crash

    with alone(path) as lake:
        monkeypatch.setattr(owner, name, crashing)
        with pytest.raises(Crash):
            lake.erase("t", dropped=True)
    with alone(path) as lake:
        assert lake.erase("t", dropped=True).finished
        assert where_is(path) == []
        assert lake.fsck().damages == ()


def test_a_table_that_comes_back_before_its_turn_stays_and_one_that_comes_later_is_refused(
    lake: Lake, path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKE[kind](lake)
    before = lake.branch().head
    lake.branch().drop("t")
    drop = lake.branch().head
    lake.finish_background()
    begin = EraseRun._note_begun

    def racing(erase: EraseRun, known: Any) -> Any:
        monkeypatch.undo()
        lake.revert(drop, "main")  # before it is noted that the table is being erased
        return begin(erase, known)

    with alone(path) as other:
        monkeypatch.setattr(EraseRun, "_note_begun", racing)
        with pytest.raises(
            EraseRefused, match="'t' was changed by another writer: the table may have been restored"
        ):
            other.erase("t", dropped=True)
    assert read(lake, "main", kind)
    lake.branch().drop("t")
    again = lake.branch().head
    prepare = RevertRequest.prepare

    def late(request: RevertRequest, reference: Any) -> None:
        prepare(request, reference)
        monkeypatch.undo()
        with alone(path) as other:
            assert other.erase("t", dropped=True).finished

    monkeypatch.setattr(RevertRequest, "prepare", late)
    with pytest.raises(MergeConflict, match="erased"):
        lake.revert(again, "main")
    with pytest.raises(HistoryExpired):
        read(lake, before, kind)
    assert where_is(path) == []
    assert lake.fsck().damages == ()


def test_the_command_line_says_that_nothing_is_left(lake: Lake, path: Path) -> None:
    delta(lake)
    lake.branch().drop("t")
    lake.close()
    found = CliRunner().invoke(root, ["--lake", str(path), "erase", "t", "--dropped", "--nobody-writes"])
    assert found.exit_code == 0, found.output
    assert "t is erased: nothing is left of its history\n" in found.output
    assert where_is(path) == []


@pytest.mark.parametrize("is_new", [False, True], ids=["appended", "created"])
@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "in memory"])
def test_what_a_process_could_not_publish_does_not_come_back_after_an_erase(
    lake: Lake,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_new: bool,
    is_read: bool,
) -> None:
    """It tries again once storage answers, and may still have the bytes of the commit."""
    lake.create_table("other", data=pa.table({"id": [7]}))
    if not is_new:
        delta(lake)
    lake.finish_background()
    publisher = plugin_of(lake.catalogue, DeltaPlugin).parts.publisher

    def away(*_: Any) -> int:
        raise Unavailable("storage is away")

    def refuse_commits(place: Place, files: list[tuple[str, bytes]]) -> int:
        return away() if files[0][0].endswith(".json") else create_all(place, files)

    create_all = Place.create_all
    with monkeypatch.context() as storage:
        if is_read:
            storage.setattr(Place, "create_all", refuse_commits)
        else:
            storage.setattr(Publisher, "_publish_in_turn", away)
        if is_new:
            delta(lake)
        lake.table("t").append(people())
        lake.branch().drop("t")
        wait_until(lambda: "storage is away" in caplog.text)
        assert [str(left.key) for left in publisher.list_unpublished()] == ["t"]
        with alone(path) as other:
            assert other.erase("t", dropped=True).finished
        assert where_is(path) == []
        caplog.clear()
    lake.finish_background()
    assert publisher.list_unpublished() == ()
    assert where_is(path) == []
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_deleted_rows_do_not_come_back_in_the_log_of_a_table_that_goes_on(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The same for an erase of what another process had to publish of a table that is still there."""
    rest = pa.table({"id": [7], "name": ["eve"]})
    lake.create_table("t", data=rest)
    lake.finish_background()
    publisher, create_all = plugin_of(lake.catalogue, DeltaPlugin).parts.publisher, Place.create_all

    def away(*_: Any) -> int:
        raise Unavailable("storage is away")

    def refuse_commits(place: Place, files: list[tuple[str, bytes]]) -> int:
        return away() if files[0][0].endswith(".json") else create_all(place, files)

    with monkeypatch.context() as storage:
        storage.setattr(Place, "create_all", refuse_commits)
        lake.table("t").append(people())
        wait_until(lambda: "storage is away" in caplog.text)
        monkeypatch.setattr(publisher, "publish_task", away)
    with penstock.open(path) as other:
        other.table("t").delete("id < 4")
    with alone(path) as other:
        assert other.erase("t").finished
    assert where_is(path) == []
    monkeypatch.undo()
    lake.finish_background()
    assert publisher.list_unpublished() == ()
    assert where_is(path) == []
    assert lake.table("t").to_arrow() == rest


def test_who_opens_the_lake_does_not_want_to_publish_an_erased_table(
    lake: Lake, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delta(lake)
    lake.table("t").append(people())
    lake.branch().drop("t")
    lake.close()
    with alone(path) as other:
        assert other.erase("t", dropped=True).finished
    caplog.clear()
    with penstock.open(path) as lake:
        lake.create_table("other", data=people())
        lake.finish_background()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
