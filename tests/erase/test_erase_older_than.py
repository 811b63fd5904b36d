"""An erase up to a moment: what was deleted before it is gone from every byte, all later history stays."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import current_thread, main_thread
from time import sleep
from typing import Any

import deltalake
import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    EraseRefused,
    HistoryExpired,
    InvalidName,
    InvalidRequest,
    MergeConflict,
)
from penstock.formats.delta.lake.erase import DeltaErasure
from penstock.formats.delta.protocol.names import LOG, ClassicName, PartName
from penstock.kernel.revert import RevertRequest
from penstock.kernel.settings import Settings
from penstock.kernel.table_horizons import read_all_horizons
from penstock.lake.backup import backup_lake, forget_backups
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.clock import now_us, to_utc_datetime
from penstock.model.names import parse_moment
from penstock.storage.places import Place
from penstock.stores.sqlite import SqliteStore
from penstock.testing.format_contract import Crash
from tests.erase.tables import MARKER, alone, people, where_is
from tests.erase.test_erase_delta import (
    KINDS,
    LEFT,
    delete_by_vector,
    rows_of,
    without_marker,
)

YOUNGER = "YOUNGER-0815"
"""A value that is deleted after the moment, and stays."""
WITH_YOUNGER = [*LEFT, {"id": 7, "name": YOUNGER}]


def now() -> datetime:
    """A moment between two commits."""
    sleep(0.003)
    found = datetime.now(UTC)
    sleep(0.003)
    return found


def live_on(table: Table) -> dict[str, str]:
    """Let a row come and go after the moment; the two commits. A branch that is made of a table has, as its
    own, the versions that were not published by its last commit."""
    table.lake.finish_background()
    table.append(pa.table({"id": [7], "name": [YOUNGER]}))
    appended = table.lake.branch().head
    found = table.to_arrow()
    table.lake.finish_background()
    table.overwrite(found.filter(pc.not_equal(found["name"], YOUNGER)), message="younger deletion")
    table.lake.finish_background()
    return {"appended": appended, "deleted": table.lake.branch().head}


def rows_of_version(lake: Lake, version: int) -> list[dict[str, Any]]:
    found = lake.table("t").snapshot(version).to_arrow().select(["id", "name"])
    rows: list[dict[str, Any]] = found.sort_by("id").to_pylist()
    return rows


@pytest.fixture
def deleted(lake: Lake) -> tuple[Table, datetime]:
    """A table whose last change before the moment was the deletion of the marker."""
    table = lake.create_table("t", data=people())
    lake.finish_background()
    without_marker(table)
    lake.finish_background()
    return table, now()


Made = tuple[datetime, str, dict[str, str]]


CLEAN = ["overwritten", "partitioned", "after checkpoints", "second checkpoints", "change feed"]
"""Kinds of tables in which a deletion leaves no file with the row that later versions need."""


@pytest.fixture(params=CLEAN)
def made(request: pytest.FixtureRequest, lake: Lake) -> Made:
    """A lake whose marker was deleted before a moment, and that lived on: the moment, the commit that the
    table was at by then, and later ones."""
    table = KINDS[request.param](lake)
    at, when = lake.branch().head, now()
    later = live_on(table)
    lake.finish_background()
    lake.delta.checkpoint("t")
    lake.close()
    return when, at, later


def test_what_was_deleted_before_the_moment_is_in_no_byte_and_later_history_is_read_by_everybody(
    made: Made, path: Path, duckdb: Any
) -> None:
    when, at, later = made
    assert where_is(path)
    with alone(path) as lake:
        erased = lake.erase("t", older_than=when)
        assert (erased.finished, erased.left, erased.older_than) == (True, (), when)
        assert where_is(path) == []
        assert where_is(path, YOUNGER)
        assert rows_of(lake.table("t")) == LEFT
        assert rows_of(lake.at(later["appended"]).table("t")) == WITH_YOUNGER
        assert rows_of(lake.at(at).table("t")) == LEFT
        first = erased.first_version
        assert rows_of_version(lake, first) == LEFT
        assert rows_of_version(lake, first + 1) == WITH_YOUNGER
        with pytest.raises(HistoryExpired, match=f"before {when:%Y-%m-%d %H:%M} UTC was erased by privacy"):
            lake.table("t").snapshot(first - 1)
        with pytest.raises(HistoryExpired):
            lake.at(f"{at}~1").table("t").to_arrow()
        assert lake.fsck().damages == ()
        assert all(one.problem == "" for one in lake.sweep_tables(dry_run=True))
        protocol, location = lake.table("t").get_commits().protocol, lake.table("t").get_commits().location
        lake.revert(later["deleted"])
        assert rows_of(lake.table("t")) == WITH_YOUNGER
        lake.restore("t", to=at)
        assert rows_of(lake.table("t")) == LEFT
        lake.finish_background()
        assert lake.fsck().damages == ()
    if "v2Checkpoint" not in protocol:
        theirs = deltalake.DeltaTable(location, version=first + 1).to_pyarrow_table()
        assert theirs.select(["id", "name"]).sort_by("id").to_pylist() == WITH_YOUNGER
    found = duckdb.sql(f"SELECT id, name FROM delta_scan('{location}') ORDER BY id").to_arrow_table()
    assert found.to_pylist() == LEFT
    assert where_is(path) == []


def test_a_table_whose_last_change_was_the_deletion_is_no_exception(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    lake.create_table("other", data=people().slice(2, 1))
    lake.tag("later").create()
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted[1]).finished
        assert where_is(path) == []
        assert rows_of(other.table("t")) == rows_of(other.at("later").table("t")) == LEFT
        assert rows_of(other.at("main~3").table("t")) == LEFT
        assert other.fsck().damages == ()


def test_rolling_erases_each_go_further(lake: Lake, path: Path, deleted: tuple[Table, datetime]) -> None:
    table, when = deleted
    later = live_on(table)
    afterwards = now()
    table.append(pa.table({"id": [8], "name": ["new"]}))
    lake.close()
    for _ in range(2):  # a second one finds that all is done
        with alone(path) as other:
            assert other.erase("t", older_than=when).finished
            assert (where_is(path), bool(where_is(path, YOUNGER))) == ([], True)
    with alone(path) as other:
        assert other.erase("t", older_than=afterwards).finished
        assert where_is(path, YOUNGER) == []
        assert rows_of(other.at(later["deleted"]).table("t")) == LEFT
        with pytest.raises(HistoryExpired):
            other.at(later["appended"]).table("t").to_arrow()
        assert other.fsck().damages == ()


def test_an_erase_until_now_after_one_up_to_a_moment_takes_the_rest(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    table, when = deleted
    live_on(table)
    assert not lake.erase("t", older_than=when).finished, "files are younger than the grace period"
    lake.close()
    with alone(path) as other:
        assert other.erase("t").finished
        assert (where_is(path), where_is(path, YOUNGER)) == ([], [])
        assert rows_of(other.table("t")) == LEFT


def test_the_moment_of_an_erase_that_waits_stays_until_that_has_ended(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    table, when = deleted
    live_on(table)
    waiting = lake.erase("t")
    assert not waiting.finished
    lake.close()
    with alone(path) as other:
        ended = other.erase("t", older_than=when)
        assert (ended.finished, ended.first_version) == (True, waiting.first_version)


# -- nothing older -----------------------------------------------------------------------------------------


def test_where_nothing_is_older_nothing_is_done_and_the_answer_says_so(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    _, when = deleted
    before = lake.branch().head
    for early in (when - timedelta(days=1), timedelta(days=300), "2020-01-01"):
        for dry_run in (False, True):
            erased = lake.erase("t", older_than=early, dry_run=dry_run)
            assert (erased.finished, erased.data_files, erased.dry_run) == (True, 0, dry_run)
            assert "nothing of 't' is older than" in erased.left[0]
    assert lake.branch().head == before, "nothing was committed"
    with alone(path) as other:
        other.erase("t")
        began = other.branch().head
        (line,) = other.erase("t", older_than=when).left
        assert "its history begins at" in line
        assert other.branch().head == began


def test_a_moment_that_means_nothing_is_refused(lake: Lake, deleted: tuple[Table, datetime]) -> None:
    with pytest.raises(InvalidRequest, match="future"):
        lake.erase("t", older_than=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(InvalidRequest, match="dropped"):
        lake.erase("t", older_than="2020-01-01", dropped=True)
    with pytest.raises(InvalidName):
        lake.erase("t", older_than="lately")
    assert (
        parse_moment("36h", 10**15)
        == parse_moment("1.5d", 10**15)
        == parse_moment(timedelta(hours=36), 10**15)
    )


def test_a_dry_run_tells_what_would_go_and_changes_nothing(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    live_on(deleted[0])
    lake.finish_background()
    before = lake.branch().head
    told = lake.erase("t", older_than=deleted[1], dry_run=True)
    assert (told.data_files, told.log_files, told.first_version) == (1, 1, 1)
    assert lake.branch().head == before
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted[1]).data_files == 1


# -- deletion vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["inline", "file"])
def test_a_file_with_a_vector_from_before_that_later_history_needs_is_told_until_that_is_old(
    lake: Lake, path: Path, storage: str
) -> None:
    table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
    delete_by_vector(table, storage)
    when = now()
    table.append(pa.table({"id": [7], "name": [YOUNGER]}))
    later = lake.branch().head
    lake.close()
    line, heads = "", list[str]()
    for _ in range(2):
        with alone(path) as other:
            erased = other.erase("t", older_than=when)
            heads.append(other.branch().head)
            assert (erased.finished, erased.rewritten_files, erased.until) == (False, 1, None)
            (line,) = erased.left
            assert "1 data file with rows or columns that were removed" in line
            assert rows_of(other.at(later).table("t")) == WITH_YOUNGER
            assert other.fsck().damages == ()
    assert heads[0] == heads[1], "the second run has nothing to rewrite"
    advised = line.partition("older than ")[2].partition(" ")[0]
    sleep(1.1)  # moments are told in whole seconds
    with alone(path) as other:
        assert other.erase("t", older_than=advised).finished
        assert where_is(path) == []
        assert rows_of(other.table("t")) == WITH_YOUNGER


def test_the_second_that_is_advised_is_that_of_a_commit_and_not_of_its_version(path: Path) -> None:
    """A version has the time at which it was prepared, and lands later: an erase goes by when it landed."""
    ticks = count(now_us() + 86_400_000_000, 700_000)
    half_a_day = Settings(grace_s=0, data_grace_days=0.5, nobody_writes=True)
    with penstock.open(path, create=True, settings=half_a_day, clock=lambda: next(ticks)) as lake:
        table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
        delete_by_vector(table, "inline")
        when = to_utc_datetime(next(ticks))
        table.append(pa.table({"id": [7], "name": [YOUNGER]}))
        (line,) = lake.erase("t", older_than=when).left
        advised = line.partition("older than ")[2].partition(" ")[0]
        assert lake.erase("t", older_than=advised).finished
        assert where_is(path) == []


def test_a_vector_from_after_the_moment_stays(lake: Lake, path: Path) -> None:
    table = lake.create_table("t", data=people(), properties={"delta.enableDeletionVectors": "true"})
    table.overwrite(people())
    with_row, when = lake.branch().head, now()
    delete_by_vector(table, "file")
    lake.close()
    with alone(path) as other:
        erased = other.erase("t", older_than=when)
        assert (erased.finished, erased.rewritten_files, erased.left) == (True, 0, ())
        assert other.at(with_row).table("t").to_arrow()["name"].to_pylist() == ["ada", MARKER, "zoe"]
        assert rows_of(other.table("t")) == LEFT


# -- who holds rows ----------------------------------------------------------------------------------------


def test_references_hold_it_if_they_are_older_and_younger_ones_stay_readable(lake: Lake, path: Path) -> None:
    table = lake.create_table("t", data=people())
    lake.tag("old").create()
    lake.branch("own").create().table("t").append(pa.table({"id": [5], "name": ["own"]}))
    lake.finish_background()
    without_marker(table)
    lake.branch("left").create()  # where history is to begin
    when = now()
    lake.tag("young").create()
    live_on(table)
    lake.branch("work").create().table("t").append(pa.table({"id": [6], "name": ["work"]}))
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t", older_than=when)
    assert refused.value.details["holders"] == ["branch 'left'", "branch 'own'", "tag 'old'"]
    assert "penstock rebase left" in refused.value.message
    assert sorted(one.partition(":")[0] for one in lake.erase("t", older_than=when, dry_run=True).left) == [
        "branch 'left'",
        "branch 'own'",
        "tag 'old'",
    ]
    lake.tag("old").delete()
    lake.branch("own").delete()
    lake.rebase("left")
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path) == []
        assert rows_of(other.at("young").table("t")) == LEFT
        work = [LEFT[0], LEFT[1], {"id": 6, "name": "work"}]
        assert rows_of(other.branch("work").table("t")) == work
    with penstock.open(path) as other:
        other.branch("left").table("t").append(pa.table({"id": [9], "name": ["left"]}))
        other.merge("work", "main")
        other.merge("left", "main")
        assert rows_of(other.table("t")) == [*work, {"id": 9, "name": "left"}]
        assert other.fsck().damages == ()


def test_a_branch_that_is_created_where_history_begins_is_written_to_for_long(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    """Entries of its line become parts of larger objects, and none may be one that went."""
    at = lake.branch().head
    live_on(deleted[0])
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted[1]).finished
    with penstock.open(path) as other:
        branch = other.branch("again").create(at=at)
        for number in range(40):
            branch.table("t").append(pa.table({"id": [100 + number], "name": ["again"]}))
        other.merge("again", "main")
    with alone(path) as other:
        other.sweep()
        assert [one.problem for one in other.sweep_tables(remove_data=True)] == [""]
        assert other.fsck().damages == ()
        assert len(other.branch("again").table("t").to_arrow()) == len(other.table("t").to_arrow()) == 42


def test_a_branch_that_changed_the_table_itself_before_the_moment_holds_it(
    lake: Lake, deleted: tuple[Table, datetime]
) -> None:
    deleted[0].append(pa.table({"id": [8], "name": ["new"]}))
    lake.finish_background()
    deleted[0].append(pa.table({"id": [9], "name": ["new"]}))
    lake.finish_background()
    work = lake.branch("work").create().table("t")
    work.append(pa.table({"id": [6], "name": [MARKER]}))
    without_marker(work)
    when = now()
    work.append(pa.table({"id": [7], "name": ["work"]}))
    with pytest.raises(EraseRefused, match="branch 'work': it has changes of its own from before that"):
        lake.erase("t", older_than=when)


def test_an_open_transaction_holds_what_it_began_with_and_a_younger_one_lands(
    lake: Lake, path: Path, deleted: tuple[Table, datetime]
) -> None:
    table, when = deleted
    early = lake.transaction("main")
    early.__enter__()
    with pytest.raises(EraseRefused, match=f"transaction {early.id}: wait for it"):
        lake.erase("t", older_than=when)
    early.abort("not needed")
    live_on(table)
    with lake.transaction("main") as later:
        with alone(path) as other:
            assert other.erase("t", older_than=when).finished
        later.table("t").append(pa.table({"id": [9], "name": ["landed"]}))
    assert rows_of(lake.table("t")) == [*LEFT, {"id": 9, "name": "landed"}]
    assert where_is(path) == []


def test_a_backup_from_after_the_moment_has_earlier_history_and_a_later_one_has_none(
    lake: Lake, path: Path, tmp_path: Path, deleted: tuple[Table, datetime]
) -> None:
    table, when = deleted
    live_on(table)
    first = backup_lake(str(path), str(tmp_path / "backup"))
    with alone(path) as other, pytest.raises(EraseRefused, match=f"backup {first.point.id}"):
        other.erase("t", older_than=when)
    forget_backups(str(path), first.point.id)
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        backup_lake(str(path), str(tmp_path / "later"))
        assert other.erase("t", older_than=when).finished
    assert where_is(path) == []
    assert where_is(tmp_path / "later") == []


# -- crashes and races -------------------------------------------------------------------------------------


STEPS: dict[str, tuple[Any, str]] = {
    "files are rewritten": (DeltaErasure, "rewrite_files"),
    "it is noted": (EraseRun, "_note_begun"),
    "the first version is committed": (DeltaErasure, "commit_first_version"),
    "the horizon is set": (EraseRun, "_set_horizon"),
    "the log is cut": (DeltaErasure, "cut_history"),
    "data files are swept": (DeltaErasure, "sweep_unneeded_files"),
    "the database is scrubbed": (SqliteStore, "scrub"),
    "a deletion of files": (Place, "delete"),
    "a version is committed": (DeltaErasure, "_commit_nothing"),
}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_is_taken_up_by_the_next_run(
    lake: Lake,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deleted: tuple[Table, datetime],
    step: str,
    is_done: bool,
) -> None:
    table, when = deleted
    later = live_on(table)
    lake.finish_background()
    lake.close()
    owner, name = STEPS[step]
    real = getattr(owner, name)
    crashed: list[str] = []

    def crashing(*given: Any, **named: Any) -> Any:
        if crashed or current_thread() is not main_thread():  # what is published meanwhile is no step
            return real(*given, **named)
        crashed.append(name)
        if is_done:
            real(*given, **named)
        raise Crash

    with alone(path) as other:
        monkeypatch.setattr(owner, name, crashing)
        with pytest.raises(Crash):
            other.erase("t", older_than=when)
        assert rows_of(other.at(later["appended"]).table("t")) == WITH_YOUNGER
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path) == []
        assert rows_of(other.table("t")) == LEFT
        assert rows_of(other.at(later["appended"]).table("t")) == WITH_YOUNGER
        assert other.fsck().damages == ()


@pytest.mark.parametrize("branch", ["main", "work"])
def test_a_revert_that_was_prepared_before_the_erase_is_refused_at_its_turn_on_every_branch(
    lake: Lake,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deleted: tuple[Table, datetime],
    branch: str,
) -> None:
    table, when = deleted
    deletion = lake.branch().head
    live_on(table)
    lake.branch("work").create()
    prepare, raced = RevertRequest.prepare, list[bool]()

    def racing(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if not raced:
            with alone(path) as other:
                raced.append(other.erase("t", older_than=when).finished)

    monkeypatch.setattr(RevertRequest, "prepare", racing)
    with pytest.raises((MergeConflict, HistoryExpired), match="erased"):
        lake.revert(deletion, branch)
    assert raced == [True]
    assert where_is(path) == []
    assert lake.fsck().damages == ()


def bring_back(lake: Lake, what: str) -> Callable[[], object]:
    ways: dict[str, Callable[[], object]] = {
        "revert": lambda: lake.revert(what),
        "restore": lambda: lake.restore("t", to=f"{what}~1"),
        "restore all": lambda: lake.restore(all=True, to=f"{what}~1"),
        "transplant": lambda: lake.transplant([f"{what}~1"], "main"),
    }
    return ways[lake.author]


@pytest.mark.parametrize("way", ["revert", "restore", "restore all", "transplant"])
def test_nothing_from_before_the_moment_is_brought_back(
    lake: Lake, path: Path, deleted: tuple[Table, datetime], way: str
) -> None:
    table, when = deleted
    deletion = lake.branch().head
    live_on(table)
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
    with penstock.open(path, author=way) as other:
        with pytest.raises((MergeConflict, HistoryExpired), match="was erased"):
            bring_back(other, deletion)()
        assert rows_of(other.table("t")) == LEFT


# -- tables of files ---------------------------------------------------------------------------------------


def fill_files(lake: Lake) -> tuple[datetime, dict[str, str]]:
    """A table of files with the marker in a name and in bytes, deleted before a moment, that lived on."""
    files = lake.table("t").files
    files.put("kept", b"kept", message="load")
    files.put(f"{MARKER}/gone", MARKER.encode(), message="load")
    files.delete(f"{MARKER}/gone", message="forget")
    commits, when = {"start": lake.branch().head}, now()
    lake.tag("young").create()
    files.put("younger", YOUNGER.encode(), message="load")
    commits["with younger"] = lake.branch().head
    files.delete("younger", message="a mistake")
    commits["deleted"] = lake.branch().head
    lake.close()
    return when, commits


def paths_at(lake: Lake, ref: str = "main") -> list[str]:
    return [one.path for one in lake.at(ref).table("t").files.walk()]


def test_of_a_table_of_files_what_was_deleted_later_stays_readable_and_comes_back(
    lake: Lake, path: Path
) -> None:
    when, commits = fill_files(lake)
    assert where_is(path)
    with alone(path) as other:
        assert other.erase("t", older_than=when, dry_run=True).data_files == 1
        assert other.erase("t", older_than=when).finished
        assert (where_is(path), bool(where_is(path, YOUNGER))) == ([], True)
        (line,) = other.erase("t", older_than=when).left
        assert "nothing of 't' is older than" in line
    with penstock.open(path) as other:
        assert paths_at(other) == paths_at(other, "young") == paths_at(other, commits["start"]) == ["kept"]
        assert paths_at(other, commits["with younger"]) == ["kept", "younger"]
        with pytest.raises(HistoryExpired):
            paths_at(other, f"{commits['start']}~1")
        other.revert(commits["deleted"])
        assert other.table("t").files.read("younger") == YOUNGER.encode()
        other.restore("t", to=commits["start"])
        other.table("t").files.put("new", b"new")
        other.restore("t", to=commits["with younger"])
        other.table("t").files.put("newer", b"newer")
    with alone(path) as other:
        other.sweep_files(remove_data=True)
        other.sweep()
        assert paths_at(other) == ["kept", "newer", "younger"], "what goes on from a spared state is retained"
        assert [*map(other.table("t").files.read, paths_at(other))] == [b"kept", b"newer", YOUNGER.encode()]
        assert other.fsck().damages == ()
        other.tag("young").delete()
        assert other.erase("t").finished
        with pytest.raises(HistoryExpired):
            paths_at(other, commits["with younger"])


def test_a_branch_holds_a_table_of_files_and_one_from_before_is_not_written_to(
    lake: Lake, path: Path
) -> None:
    when, commits = fill_files(lake)
    with alone(path) as other:
        other.branch("dev").create()
        with pytest.raises(EraseRefused, match="branch 'dev'"):
            other.erase("t", older_than=when)
        other.branch("dev").delete()
        assert other.erase("t", older_than=when).finished
    with penstock.open(path) as other:
        for at in (commits["start"], f"{commits['start']}~1"):
            branch = other.branch("old").create(at=at)
            with pytest.raises(HistoryExpired, match="erased"):
                branch.table("t").files.put("mine", b"mine")
            other.rebase("old")
            branch.table("t").files.put("mine", b"mine")
            branch.delete()


def test_more_states_than_can_be_spared_are_refused(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    when, _ = fill_files(lake)
    monkeypatch.setattr("penstock.formats.files.lake.erase.SPARED_MAX", 2)
    with alone(path) as other, pytest.raises(InvalidRequest, match="had 3 states since the given time"):
        other.erase("t", older_than=when)


# -- an erase that has begun -------------------------------------------------------------------------------


def begin_only(path: Path, monkeypatch: pytest.MonkeyPatch, when: datetime) -> None:
    """An erase whose process dies before it has said which version is the first."""

    def crashing(*_given: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patch, alone(path) as other:
        patch.setattr(EraseRun, "_set_horizon", crashing)
        with pytest.raises(Crash):
            other.erase("t", older_than=when)


def fill(lake: Lake, kind: str) -> tuple[datetime, datetime, str]:
    """A table that lived on: a moment before it existed, one of its life, and a commit from after that."""
    early = now()
    if kind == "files":
        when, commits = fill_files(lake)
        return early, when, commits["with younger"]
    if kind == "lance":
        lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"])
    table = lake.table("t") if kind == "lance" else lake.create_table("t", data=people())
    lake.finish_background()
    without_marker(table)
    when = now()
    later = live_on(table)
    lake.finish_background()
    lake.close()
    return early, when, later["appended"]


def is_readable(lake: Lake, kind: str, at: str) -> bool:
    if kind == "files":
        return paths_at(lake, at) == ["kept", "younger"]
    return rows_of(lake.at(at).table("t")) == WITH_YOUNGER


@pytest.mark.parametrize("kind", ["delta", "files", "lance"])
def test_an_erase_that_has_begun_is_given_up_by_one_before_whose_moment_there_is_nothing(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    early, when, later = fill(lake, kind)
    begin_only(path, monkeypatch, when)
    with alone(path) as other:
        assert other.erase("t", older_than=early, dry_run=True).data_files == 0
        erased = other.erase("t", older_than=early)
        assert (erased.finished, erased.data_files, erased.first_version) == (True, 0, -1)
        assert erased.left[1:] == ("an erase that had begun was cancelled: it had removed nothing",)
        assert is_readable(other, kind, later)
        assert where_is(path), "nothing is older, so that nothing went"
        assert len(other.erase("t", older_than=early).left) == 1, "there is none to give up any more"
        other.restore("t", to=later)  # which waits for an erase that has begun
        assert other.fsck().damages == ()
        assert other.erase("t", older_than=when).finished
        assert (where_is(path), is_readable(other, kind, later)) == ([], True)


@pytest.mark.parametrize("kind", ["delta", "files", "lance"])
def test_a_run_whose_erase_another_has_given_up_removes_nothing(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    early, when, later = fill(lake, kind)
    real = EraseRun._set_horizon

    def racing(erase: EraseRun, horizon: Any, settled: Any) -> Any:
        with alone(path) as third:
            assert len(third.erase("t", older_than=early).left) == 2
        return real(erase, horizon, settled)

    with monkeypatch.context() as patch, alone(path) as other:
        patch.setattr(EraseRun, "_set_horizon", racing)
        with pytest.raises(EraseRefused, match="another run has cancelled or replaced this erase of 't'"):
            other.erase("t", older_than=when)
    with alone(path) as other:
        assert (bool(where_is(path)), is_readable(other, kind, later)) == (True, True)
        assert other.erase("t", older_than=when).finished
        assert (where_is(path), is_readable(other, kind, later)) == ([], True)


@pytest.mark.parametrize("kind", ["delta", "files", "lance"])
def test_a_horizon_that_another_erase_has_moved_meanwhile_does_not_go_back(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _, when, later = fill(lake, kind)
    begin, further = EraseRun._note_begun, list[int]()

    def racing(erase: EraseRun, known: Any) -> Any:
        if not further:
            further.append(-1)
            with alone(path) as third:
                ended = third.erase("t", all_references=True)
                assert ended.finished
                further.append(ended.first_version)
        return begin(erase, known)

    monkeypatch.setattr(EraseRun, "_note_begun", racing)
    with alone(path) as other:
        with pytest.raises(EraseRefused, match="another erase of 't' was applied first; erase again"):
            other.erase("t", older_than=when)
        assert [one.first for one in read_all_horizons(other.kernel.store)] == further[1:]
        with pytest.raises(HistoryExpired):
            is_readable(other, kind, later)
        assert "nothing of 't' is older than" in other.erase("t", older_than=when).left[0]
        assert other.fsck().damages == ()
        other.sweep()
        assert other.fsck().damages == ()


# -- refusals ----------------------------------------------------------------------------------------------


def require_unfrozen(lake: Lake, kind: str, later: str) -> None:
    """Nothing is under way: what is refused while an erase has begun is possible."""
    assert [one.is_under_way for one in read_all_horizons(lake.kernel.store)] in ([], [False])
    lake.restore("t", to=later)
    assert is_readable(lake, kind, "main")


@pytest.mark.parametrize(
    ("kind", "branch"),
    [("delta", "main"), ("delta", "release"), ("files", "main"), ("lance", "main"), ("lance", "release")],
)
def test_a_check_that_vetoes_on_any_branch_refuses_the_erase_and_leaves_the_table_usable(
    lake: Lake, path: Path, kind: str, branch: str
) -> None:
    _, when, later = fill(lake, kind)
    with alone(path) as other:
        if branch != "main":  # one that has a table of files would hold it
            other.branch(branch).create()
        other.add_check("frozen", lambda _: "not now", branch=branch)
        for _ in range(2):
            with pytest.raises(
                EraseRefused, match=f"check 'frozen' rejected the change .* '{branch}': not now"
            ):
                other.erase("t", older_than=when)
    with alone(path) as other:
        require_unfrozen(other, kind, later)
        assert where_is(path)
    with alone(path) as other:  # without the check
        assert other.erase("t", older_than=when).finished
        assert (where_is(path), is_readable(other, kind, later)) == ([], True)
        assert other.fsck().damages == ()


@pytest.mark.parametrize("is_crashed", [False, True], ids=["meanwhile", "after a crash"])
@pytest.mark.parametrize("kind", ["delta", "files", "lance"])
def test_somebody_who_comes_after_an_erase_has_begun_refuses_it_and_the_table_stays_usable(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_crashed: bool
) -> None:
    _, when, later = fill(lake, kind)
    begin = EraseRun._note_begun

    def racing(erase: EraseRun, known: Any) -> Any:
        begun = begin(erase, known)
        with alone(path) as third:
            third.tag("old").create(at=f"{later}~2")
        return begun

    with alone(path) as other:
        if is_crashed:
            begin_only(path, monkeypatch, when)
            other.tag("old").create(at=f"{later}~2")
        else:
            monkeypatch.setattr(EraseRun, "_note_begun", racing)
        with pytest.raises(EraseRefused, match="tag 'old': delete the tag"):
            other.erase("t", older_than=when)
        monkeypatch.setattr(EraseRun, "_note_begun", begin)
        require_unfrozen(other, kind, later)
        other.tag("old").delete()
        assert other.erase("t", older_than=when).finished
        assert (where_is(path), is_readable(other, kind, later)) == ([], True)


# -- checkpoints of the version with which history begins --------------------------------------------------


def in_parts(log: Path) -> None:
    """Replace a checkpoint by one in two files, as other writers make them."""
    (classic,) = log.glob("*.checkpoint.parquet")
    found = pq.read_table(classic)
    half = found.num_rows // 2
    for part, rows in ((1, found.slice(0, half)), (2, found.slice(half))):
        pq.write_table(rows, log / str(PartName(parse_version(classic), part, 2)).removeprefix(LOG))
    classic.unlink()
    (log / "_last_checkpoint").unlink()


def under_the_plain_name(log: Path) -> None:
    """Give a checkpoint of the second version the name that one of the first has."""
    (own,) = log.glob("*.checkpoint.*.parquet")
    own.rename(log / str(ClassicName(parse_version(own))).removeprefix(LOG))
    (log / "_last_checkpoint").unlink()


def parse_version(file: Path) -> int:
    return int(file.name.partition(".")[0])


@pytest.mark.parametrize("made_so", [in_parts, under_the_plain_name])
def test_no_checkpoint_of_the_first_version_is_left_that_tells_of_removed_files(
    lake: Lake, path: Path, made_so: Callable[[Path], None]
) -> None:
    second = {"delta.checkpointPolicy": "v2", "delta.feature.v2Checkpoint": "supported"}
    properties = second if made_so is under_the_plain_name else {}
    table = lake.create_table("t", data=people(), partition_by=["name"], properties=properties)
    without_marker(table)
    when = now()
    lake.finish_background()
    lake.delta.checkpoint("t")
    location = table.get_commits().location
    made_so(Path(location.removeprefix("file://")) / "_delta_log")
    later = live_on(table)
    lake.finish_background()
    lake.close()
    assert any("_delta_log" in one and one.endswith(".parquet") for one in where_is(path)), "tombstones"
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path) == []
        assert rows_of(other.table("t")) == LEFT
        assert rows_of(other.at(later["appended"]).table("t")) == WITH_YOUNGER
        assert rows_of_version(other, 1) == LEFT
        assert other.fsck().damages == ()
