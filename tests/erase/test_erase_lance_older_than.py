"""An erase of a Lance table up to a moment: what was deleted before it is gone from every byte, or told until
it goes; every later version can be read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import sleep
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import EraseRefused, HistoryExpired, MergeConflict, PenstockError, VersionNotFound
from penstock.formats.lance import format as lance_format
from penstock.formats.lance.lake.erase import LanceErasure
from penstock.formats.lance.lake.table_rewrite import TableRewrite
from penstock.kernel.revert import RevertRequest
from penstock.lake.backup import backup_lake, forget_backups
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.stores.sqlite import SqliteStore
from penstock.testing.format_contract import Crash
from tests.erase.tables import alone, where_is
from tests.erase.test_erase_lance import (
    KINDS,
    LEFT,
    MARKER,
    location_of,
    make,
    opened,
    rows,
    rows_of,
    write,
)
from tests.erase.test_erase_older_than import now
from tests.sweep.tables import LateClock

YOUNGER = "zyounger0815"
"""A value that is deleted after the moment, and stays."""
WITH_YOUNGER = [*LEFT, {"id": 7, "name": YOUNGER}]
Made = tuple[datetime, str, dict[str, str]]


def row(number: int, name: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "name": name}])


def live_on(lake: Lake) -> dict[str, str]:
    """Let a row come and go after the moment; the two commits."""
    write(lake, row(7, YOUNGER))
    appended = lake.branch().head
    opened(lake).delete("id = 7")
    return {"appended": appended, "deleted": lake.branch().head}


def overwrite_marker(lake: Lake) -> None:
    """A table from which the marker went with its files."""
    write(lake, rows(), mode="create").create_scalar_index("name", "BTREE")
    lake.table("t").overwrite(pa.Table.from_pylist(LEFT))


def theirs(lake: Lake, version: int | None = None) -> list[dict[str, Any]]:
    """The rows that pylance finds in the table's folder, without the lake."""
    found = lance.dataset(location_of(lake), version=version).to_table(["id", "name"])
    rows: list[dict[str, Any]] = found.sort_by("id").to_pylist()
    return rows


def their_versions(lake: Lake) -> list[int]:
    return [one["version"] for one in lance.dataset(location_of(lake)).versions()]


def index_files(lake: Lake) -> list[str]:
    """The folders of the indexes of the newest version."""
    found = opened(lake).describe_indices()
    return sorted(str(segment.uuid) for one in found for segment in one.segments)


def advised(line: str) -> str:
    """The moment that an answer names."""
    return line.partition("older than ")[2].partition(" ")[0]


QUICK_KINDS = {*[*KINDS][::4]}


@pytest.fixture
def deleted(lake: Lake) -> datetime:
    """A moment before which the marker was overwritten, by the last change of the table."""
    overwrite_marker(lake)
    return now()


@pytest.fixture(
    params=[pytest.param(kind, marks=() if kind in QUICK_KINDS else pytest.mark.verify) for kind in KINDS]
)
def made(request: pytest.FixtureRequest, lake: Lake) -> Made:
    """A lake whose marker was deleted before a moment, and that lived on: the moment, the commit that the
    table was at by then, and later ones."""
    KINDS[request.param](lake)
    at, when = lake.branch().head, now()
    later = live_on(lake)
    lake.finish_background()
    lake.close()
    return when, at, later


def test_what_was_deleted_before_goes_or_is_told_until_a_later_erase_and_all_later_versions_are_read(
    made: Made, path: Path
) -> None:
    when, at, later = made
    assert where_is(path, MARKER)
    line, heads = "", list[str]()
    for _ in range(2):
        with alone(path) as lake:
            erased = lake.erase("t", older_than=when)
            heads.append(lake.branch().head)
            assert (erased.until, erased.older_than) == (None, when)
            first = erased.first_version
            if erased.finished:
                assert (erased.left, where_is(path, MARKER)) == ((), [])
            else:
                (line,) = erased.left
                assert "with rows that were deleted before that: retained versions need them" in line
            assert where_is(path, YOUNGER)
            assert rows_of(lake) == rows_of(lake, at) == theirs(lake) == LEFT
            assert rows_of(lake, later["appended"]) == theirs(lake, first + 1) == WITH_YOUNGER
            assert their_versions(lake)[0] == first
            for version in their_versions(lake):
                assert theirs(lake, version)[:2] == LEFT
                assert lake.table("t").to_lance(version=version).count_rows() >= 2
            with pytest.raises(HistoryExpired, match=f"before {when:%Y-%m-%d %H:%M} UTC .* by privacy"):
                lake.table("t").to_lance(version=first - 1)
            with pytest.raises(HistoryExpired):
                lake.at(f"{at}~1").table("t").to_arrow()
            assert lake.fsck().damages == ()
            assert all(one.problem == "" for one in lake.sweep_tables(dry_run=True))
    assert heads[0] == heads[1], "the second run has nothing to do"
    with alone(path) as lake:
        names = sorted(one.name for one in opened(lake).describe_indices())
        lake.revert(later["deleted"])
        assert rows_of(lake) == theirs(lake) == WITH_YOUNGER
        lake.restore("t", to=at)
        assert rows_of(lake) == LEFT
        lake.restore("t", to=heads[0])
        assert sorted(one.name for one in opened(lake).describe_indices()) == names
        lake.finish_background()
        assert lake.fsck().damages == ()
    if not line:
        return
    sleep(1.1)  # moments are told in whole seconds
    with alone(path) as lake:
        lake.erase("t", older_than=now())
    with alone(path) as lake:
        sleep(1.1)
        assert lake.erase("t", older_than=now()).finished, "what was restored went by being rewritten"
        assert where_is(path, MARKER) == []
        assert rows_of(lake) == theirs(lake) == LEFT
        assert lake.fsck().damages == ()


def test_following_the_answer_ends_the_erase(made: Made, path: Path) -> None:
    with alone(path) as lake:
        erased = lake.erase("t", older_than=made[0])
        if erased.finished:
            return
        sleep(1.1)  # moments are told in whole seconds
        ended = lake.erase("t", older_than=advised(erased.left[0]))
        assert (ended.finished, ended.left, where_is(path, MARKER)) == (True, (), [])
        assert rows_of(lake) == LEFT
        assert lake.fsck().damages == ()


def test_a_table_whose_last_change_was_the_deletion_is_no_exception(lake: Lake, path: Path) -> None:
    """Not even one by a condition, which its own manifest says."""
    write(lake, pa.Table.from_pylist(LEFT), mode="create")
    write(lake, row(2, MARKER))
    opened(lake).delete(f"name = '{MARKER}'")  # all rows of its fragment
    when = now()
    lake.tag("later").create()
    lake.close()
    with alone(path) as other:
        erased = other.erase("t", older_than=when)
        assert not erased.finished
        assert erased.left[0].startswith("the manifest of version 3 with rows")
        assert all("_versions/" in one or "_transactions/" in one for one in where_is(path, MARKER))
        sleep(1.1)
        other.tag("later").delete()
        assert other.erase("t", older_than=advised(erased.left[0])).finished
        assert where_is(path, MARKER) == []
        assert rows_of(other) == LEFT


def test_an_index_of_a_table_from_which_nothing_was_removed_is_not_made_anew(lake: Lake, path: Path) -> None:
    write(lake, pa.Table.from_pylist(LEFT), mode="create").create_scalar_index("name", "BTREE", name="by")
    write(lake, row(4, "dora"))
    opened(lake).optimize.optimize_indices()
    when = now()
    later = live_on(lake)
    before = index_files(lake)
    lake.close()
    for _ in range(2):
        with alone(path) as other:
            erased = other.erase("t", older_than=when)
            assert (erased.finished, erased.left, erased.rewritten_files) == (True, (), 0)
    with penstock.open(path) as other:
        assert index_files(other) == before
        write(other, row(5, "emma"))
        opened(other).optimize.optimize_indices()  # it is renewed as ever
        opened(other).optimize.compact_files()
        assert opened(other).to_table(filter="name = 'emma'").num_rows == 1
        assert rows_of(other, later["appended"])[-1]["name"] == YOUNGER


def test_rolling_erases_each_go_further(lake: Lake, path: Path, deleted: datetime) -> None:
    later = live_on(lake)
    opened(lake).optimize.compact_files(materialize_deletions_threshold=0.0)
    write(lake, row(9, "x"))
    afterwards = now()
    write(lake, row(8, "new"))
    lake.close()
    for _ in range(2):
        with alone(path) as other:
            assert other.erase("t", older_than=deleted).finished
            assert (where_is(path, MARKER), bool(where_is(path, YOUNGER))) == ([], True)
    with alone(path) as other:
        assert other.erase("t", older_than=afterwards).finished
        assert where_is(path, YOUNGER) == []
        with pytest.raises(HistoryExpired):
            other.at(later["appended"]).table("t").to_arrow()
        assert [one["id"] for one in rows_of(other)] == [1, 3, 8, 9]
        assert other.fsck().damages == ()


def test_an_erase_until_now_after_one_up_to_a_moment_takes_the_rest(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    live_on(lake)
    assert not lake.erase("t", older_than=deleted).finished, "files are younger than the grace period"
    lake.close()
    with alone(path) as other:
        assert other.erase("t").finished
        assert (where_is(path, MARKER), where_is(path, YOUNGER)) == ([], [])
        assert rows_of(other) == LEFT
        (line,) = other.erase("t", older_than=deleted).left
        assert "its history begins at" in line


def test_it_waits_for_the_grace_period_and_ends_after_it(tmp_path: Path) -> None:
    clock, path = LateClock(), tmp_path / "lake"
    with penstock.open(path, create=True, clock=clock) as lake:
        overwrite_marker(lake)
        when = now()
        later = live_on(lake)
        waiting = lake.erase("t", older_than=when)
        assert (waiting.finished, waiting.until is None, bool(where_is(path, MARKER))) == (False, False, True)
        clock.days = 8.1
        done = lake.erase("t", older_than=when)
        assert (done.finished, done.first_version) == (True, waiting.first_version)
        assert where_is(path, MARKER) == []
        assert rows_of(lake, later["appended"]) == WITH_YOUNGER
        assert lake.fsck().damages == ()


def test_where_nothing_is_older_nothing_is_done_and_a_dry_run_changes_nothing(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    lake.finish_background()
    before = lake.branch().head
    (line,) = lake.erase("t", older_than="2020-01-01").left
    assert "nothing of 't' is older than" in line
    live_on(lake)
    lake.branch("work").create()
    write(lake, row(6, "work"), "work")
    lake.finish_background()
    head = lake.branch().head
    told = lake.erase("t", older_than=deleted, dry_run=True)
    assert (told.first_version, told.log_files, told.data_files) == (3, 2, 3)
    assert (lake.branch().head, head != before) == (head, True)
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
        assert where_is(path, MARKER) == []


# -- who holds rows ----------------------------------------------------------------------------------------


def test_references_hold_it_if_they_are_older_and_younger_ones_stay_readable(lake: Lake, path: Path) -> None:
    write(lake, rows(), mode="create")
    lake.tag("old").create()
    lake.branch("own").create()
    write(lake, row(5, "own"), "own")
    lake.table("t").overwrite(pa.Table.from_pylist(LEFT))
    lake.branch("left").create()  # where history is to begin
    lake.branch("wrote").create()  # and one that was written to there
    write(lake, row(5, "wrote"), "wrote")
    when = now()
    lake.tag("young").create()
    live_on(lake)
    lake.branch("work").create()
    write(lake, row(6, "work"), "work")
    middle = lake.branch("work").head
    write(lake, row(8, "work"), "work")
    holders = ["branch 'left'", "branch 'own'", "branch 'wrote'", "tag 'old'"]
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t", older_than=when)
    assert refused.value.details["holders"] == holders
    assert "penstock rebase left" in refused.value.message
    told = lake.erase("t", older_than=when, dry_run=True).left
    assert sorted(one.partition(":")[0] for one in told) == holders
    lake.tag("old").delete()
    lake.branch("own").delete()
    lake.branch("wrote").delete()
    lake.rebase("left")
    lake.close()
    work = [*LEFT, {"id": 6, "name": "work"}, {"id": 8, "name": "work"}]
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path, MARKER) == []
        assert rows_of(other, "young") == LEFT
        assert rows_of(other, "work") == work
        assert rows_of(other, middle) == work[:3]
        with pytest.raises((HistoryExpired, VersionNotFound)):
            other.branch("work").table("t").to_lance(version=1)
        assert other.fsck().damages == ()
    with penstock.open(path) as other:
        write(other, row(9, "left"), "left")
        opened(other, "work").delete("id = 8")
        other.merge("work", "main")
        other.merge("left", "main")
        assert rows_of(other) == theirs(other) == [*work[:3], {"id": 9, "name": "left"}]
        assert other.fsck().damages == ()
    with alone(path) as other:
        assert [one.problem for one in other.sweep_tables(remove_data=True)] == [""]
        assert rows_of(other, middle) == work[:3]


def test_a_branch_from_after_the_moment_goes_on_with_its_indexes_and_is_merged(
    lake: Lake, path: Path
) -> None:
    make(lake).delete("id = 2")
    write(lake, row(4, "dora"))
    when = now()
    live_on(lake)
    lake.branch("work").create()
    write(lake, row(6, "work"), "work")
    lake.branch("tidied").create()
    write(lake, row(9, "tidied"), "tidied")
    lake.close()
    with alone(path) as other:
        line = other.erase("t", older_than=when).left[0]
        assert line.startswith("1 data file and 3 indexes with rows")
    with penstock.open(path) as other:
        opened(other, "tidied").optimize.optimize_indices()
        opened(other, "tidied").optimize.compact_files(materialize_deletions_threshold=0.0)
        assert opened(other, "tidied").to_table(filter="name = 'tidied'").num_rows == 1
        other.branch("tidied").delete()
        write(other, row(8, "work"), "work")
        opened(other, "work").delete("id = 8")
        other.rebase("work")
        assert opened(other, "work").to_table(filter="name = 'work'").num_rows == 1
        other.merge("work", "main")
        assert [one["id"] for one in rows_of(other)] == [1, 3, 4, 6]
        assert opened(other).to_table(filter="name = 'work'").num_rows == 1
        other.branch("work").delete()
        assert other.fsck().damages == ()
    for is_last in (False, True):
        sleep(1.1)
        with alone(path) as other:
            erased = other.erase("t", older_than=now())
            assert erased.finished or not is_last, erased.left
    assert where_is(path, MARKER) == []
    with alone(path) as other:
        assert [one["id"] for one in rows_of(other)] == [1, 3, 4, 6]
        assert opened(other).to_table(filter="name = 'work'").num_rows == 1
        assert other.fsck().damages == ()


def test_a_branch_that_is_created_where_history_begins_is_written_to_for_long(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    at = lake.branch().head
    live_on(lake)
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
    with penstock.open(path) as other:
        other.branch("again").create(at=at)
        for number in range(20):
            write(other, row(100 + number, "again"), "again")
        middle = other.branch("again").head
        write(other, row(200, "again"), "again")
    with alone(path) as other:
        other.sweep()
        assert [one.problem for one in other.sweep_tables(remove_data=True)] == [""]
        assert other.fsck().damages == ()
        assert len(rows_of(other, "again")) == 23
        assert len(rows_of(other, middle)) == 22
        other.merge("again", "main")
        assert len(rows_of(other)) == 23
        assert other.fsck().damages == ()


def test_a_branch_that_an_earlier_penstock_began_holds_it(
    lake: Lake, path: Path, deleted: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state does not say what it goes on from."""
    live_on(lake)
    monkeypatch.setattr(lance_format, "_find_forked_version", lambda *_: 0)
    lake.branch("work").create()
    write(lake, row(6, "work"), "work")
    monkeypatch.undo()
    write(lake, row(8, "work"), "work")
    with pytest.raises(EraseRefused, match="branch 'work': it has changes of its own"):
        lake.erase("t", older_than=deleted)
    lake.merge("work", "main")
    lake.branch("work").delete()
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
        assert where_is(path, MARKER) == []
        assert [one["id"] for one in rows_of(other)] == [1, 3, 6, 8]
        assert other.fsck().damages == ()


def test_what_a_merged_branch_had_before_the_moment_goes(lake: Lake, path: Path) -> None:
    """It left where history begins, and nothing but its own state tells when it was written to."""
    write(lake, pa.Table.from_pylist(LEFT), mode="create")
    write(lake, row(4, "x"))
    lake.branch("work").create()
    write(lake, row(2, MARKER), "work")
    opened(lake, "work").delete(f"name = '{MARKER}'")
    write(lake, row(5, "work"), "work")
    when = now()
    lake.merge("work", "main")
    lake.branch("work").delete()
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path, MARKER) == []
        assert [one["id"] for one in rows_of(other)] == [1, 3, 4, 5]
        assert other.fsck().damages == ()


def test_a_transaction_that_landed_on_top_of_others_leaves_nothing(lake: Lake, path: Path) -> None:
    """Its own versions have numbers that the table's have too."""
    write(lake, pa.Table.from_pylist(LEFT), mode="create")
    with lake.transaction("main") as transaction:
        mine = transaction.table("t")
        mine.append(row(2, MARKER))
        lance.dataset(namespace_client=lake.lance(f"tx/{transaction.id}"), table_id=["t"]).delete(
            f"name = '{MARKER}'"
        )
        mine.append(row(5, "landed"))
        write(lake, row(4, "x"))
    when = now()
    later = live_on(lake)
    lake.close()
    with alone(path) as other:
        erased = other.erase("t", older_than=when)
        assert erased.finished, erased.left
        assert where_is(path, MARKER) == []
        assert [one["id"] for one in rows_of(other)] == [1, 3, 4, 5]
        assert len(rows_of(other, later["appended"])) == 5
        assert other.fsck().damages == ()


def test_an_open_transaction_holds_what_it_began_with_and_a_younger_one_lands(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    early = lake.transaction("main")
    early.__enter__()
    with pytest.raises(EraseRefused, match=f"transaction {early.id}: wait for it"):
        lake.erase("t", older_than=deleted)
    early.table("t").append(row(5, "early"))
    live_on(lake)
    with pytest.raises(EraseRefused, match=f"transaction {early.id}: wait for it"):
        lake.erase("t", older_than=deleted)
    early.abort("not needed")
    with lake.transaction("main") as later:
        later.table("t").append(row(8, "before"))
        with alone(path) as other:
            assert other.erase("t", older_than=deleted).finished
        later.table("t").append(row(9, "after"))
    assert rows_of(lake) == [*LEFT, {"id": 8, "name": "before"}, {"id": 9, "name": "after"}]
    assert where_is(path, MARKER) == []
    lake.finish_background()
    assert theirs(lake) == rows_of(lake)
    assert lake.fsck().damages == ()


def test_a_backup_from_after_the_moment_has_earlier_history_and_a_later_one_has_none(
    lake: Lake, path: Path, tmp_path: Path, deleted: datetime
) -> None:
    live_on(lake)
    first = backup_lake(str(path), str(tmp_path / "backup"))
    with alone(path) as other, pytest.raises(EraseRefused, match=f"backup {first.point.id}"):
        other.erase("t", older_than=deleted)
    forget_backups(str(path), first.point.id)
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
        backup_lake(str(path), str(tmp_path / "later"), data=True)
        assert other.erase("t", older_than=deleted).finished
    assert where_is(path, MARKER) == []
    assert where_is(tmp_path / "later", MARKER) == []


def test_lances_own_branches_and_earlier_tags_hold_it_and_so_do_clones(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    namespace = lake.lance()
    namespace.create_table_tag({"id": ["t"], "tag": "old", "version": 1})
    namespace.create_table_tag({"id": ["t"], "tag": "start", "version": 3})
    namespace.create_table_branch({"id": ["t"], "name": "side"})
    live_on(lake)
    lake.finish_background()
    clone = path / "warehouse" / "clone"
    lance.dataset(location_of(lake)).shallow_clone(str(clone), 1)
    namespace.register_table({"id": ["copy"], "location": str(clone)})
    with pytest.raises(EraseRefused) as refused:
        lake.erase("t", older_than=deleted)
    holders = ["Lance's own branch 'side' of the table", "Lance's own tag 'old' of the table"]
    assert refused.value.details["holders"] == [*holders, "the clone 'copy'"]
    namespace.delete_table_branch({"id": ["t"], "name": "side"})
    lake.table("copy").overwrite(pa.Table.from_pylist(LEFT))
    lake.finish_background()
    lake.close()
    with alone(path) as other:
        assert other.erase("copy", all_references=True).finished
        assert other.erase("t", older_than=deleted, all_references=True).finished
        assert where_is(path, MARKER) == []
        assert {*other.lance().list_table_tags({"id": ["t"]}).tags} == {"start"}
        assert lance.dataset(location_of(other), version="start").count_rows() == 2
        assert other.fsck().damages == ()


# -- crashes and races -------------------------------------------------------------------------------------


ALL_STEPS: dict[str, tuple[Any, str]] = {
    "fragments are written anew": (TableRewrite, "compact_fragments"),
    "an index is made anew": (TableRewrite, "create_index"),
    "it is noted": (EraseRun, "_note_begun"),
    "the first version is committed": (LanceErasure, "commit_first_version"),
    "the horizon is set": (EraseRun, "_set_horizon"),
    "it is promoted": (LanceErasure, "cut_history"),
    "files are swept": (LanceErasure, "sweep_unneeded_files"),
    "the database is scrubbed": (SqliteStore, "scrub"),
    "it is noted that it has ended": (EraseRun, "_note_run"),
    "branches have had their turns": (EraseRun, "_commit_to_every_branch"),
}
QUICK_STEPS = {*[*ALL_STEPS][2::4]}


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "step",
    [pytest.param(step, marks=() if step in QUICK_STEPS else pytest.mark.verify) for step in ALL_STEPS],
)
def test_a_crash_at_any_step_is_taken_up_by_the_next_run(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
) -> None:
    write(lake, rows(), mode="create").create_scalar_index("name", "BTREE")
    opened(lake).delete("id = 2")
    when = now()
    later = live_on(lake)
    lake.finish_background()
    lake.close()
    owner, name = ALL_STEPS[step]
    real: Callable[..., Any] = getattr(owner, name)

    def crashing(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        if is_done:
            real(*given, **named)
        raise Crash

    with alone(path) as other:
        monkeypatch.setattr(owner, name, crashing)
        with pytest.raises(Crash):
            other.erase("t", older_than=when)
        assert rows_of(other, later["appended"]) == WITH_YOUNGER
    with alone(path) as other:
        told = other.erase("t", older_than=when)
        assert told.left[0].startswith("1 data file, 1 index and the manifest of version 3 with rows")
        assert rows_of(other, later["appended"]) == WITH_YOUNGER
        sleep(1.1)
        assert other.erase("t", older_than=advised(told.left[0])).finished
        assert where_is(path, MARKER) == []
        assert rows_of(other) == theirs(other) == LEFT
        assert other.fsck().damages == ()


@pytest.mark.parametrize("branch", ["main", "work"])
def test_a_revert_that_was_prepared_before_the_erase_is_refused_at_its_turn_on_every_branch(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, deleted: datetime, branch: str
) -> None:
    deletion = lake.branch().head
    live_on(lake)
    lake.branch("work").create()
    prepare, raced = RevertRequest.prepare, list[bool]()

    def racing(request: Any, reference: Any) -> None:
        prepare(request, reference)
        if not raced:
            with alone(path) as other:
                raced.append(other.erase("t", older_than=deleted).finished)

    monkeypatch.setattr(RevertRequest, "prepare", racing)
    with pytest.raises((MergeConflict, HistoryExpired), match="erased"):
        lake.revert(deletion, branch)
    assert raced == [True]
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
    assert where_is(path, MARKER) == []
    assert lake.fsck().damages == ()


def test_a_branch_that_comes_while_the_beginning_is_decided_is_written_to_afterwards(
    lake: Lake, path: Path, monkeypatch: pytest.MonkeyPatch, deleted: datetime
) -> None:
    """What is written there goes on from the version with which history begins, and must not be lost."""
    at = lake.branch().head
    live_on(lake)
    set_horizon, refused = EraseRun._set_horizon, list[str]()

    def racing(erase: EraseRun, horizon: Any, settled: Any) -> Any:
        lake.branch("new").create(at=at)
        with pytest.raises(PenstockError, match="is being erased") as told:
            lake.branch("new").table("t").append(row(6, "new"))
        refused.append(str(told.value))
        return set_horizon(erase, horizon, settled)

    with alone(path) as other:
        monkeypatch.setattr(EraseRun, "_set_horizon", racing)
        assert other.erase("t", older_than=deleted).finished
    assert len(refused) == 1
    write(lake, row(6, "new"), "new")
    with alone(path) as other:
        other.sweep_tables(remove_data=True)
        assert rows_of(other, "new") == [*LEFT, {"id": 6, "name": "new"}]
        assert other.fsck().damages == ()


@pytest.mark.parametrize("branch", ["main", "work"])
def test_an_index_of_an_erased_version_and_a_restore_of_one_do_not_come_back(
    lake: Lake, path: Path, branch: str
) -> None:
    write(lake, pa.Table.from_pylist(LEFT), mode="create")
    write(lake, row(2, MARKER))
    early = opened(lake)
    opened(lake).delete("id = 2")
    write(lake, row(4, "x"))
    when = now()
    live_on(lake)
    lake.branch("work").create()
    write(lake, row(8, "work"), "work")
    early = opened(lake, branch).checkout_version(2)
    before = lake.branch(branch).head
    assert not lake.erase("t", older_than=when).finished, "its files are there for a week"
    after = lake.branch(branch).head
    with pytest.raises(OSError, match="erased"):
        early.restore()
    with pytest.raises((OSError, RuntimeError, ValueError), match=r"erased|result for version"):
        early.create_scalar_index("name", "BTREE", name="late")
    assert lake.branch(branch).head == after != before
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert where_is(path, MARKER) == []
        assert other.fsck().damages == ()


def test_writers_go_on_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    make(lake).delete("id = 2")
    when = now()
    number = iter(range(100, 200))
    for name in ("rewrite_files", "_commit_first", "cut_history", "sweep_unneeded_files"):
        real, done = getattr(LanceErasure, name), list[int]()

        def appending(*given: Any, real: Any = real, done: list[int] = done, **named: Any) -> Any:
            if not done:
                done.append(1)
                write(lake, row(next(number), "new"))
            return real(*given, **named)

        monkeypatch.setattr(LanceErasure, name, appending)
    lake.erase("t", older_than=when)
    assert {1, 3, 100, 101, 102, 103} == {one["id"] for one in rows_of(lake)}
    assert lake.fsck().damages == ()
    assert all(one.problem == "" for one in lake.sweep_tables(dry_run=True))


@pytest.mark.parametrize("way", ["revert", "restore", "restore all", "transplant", "restore a version"])
def test_nothing_from_before_the_moment_is_brought_back(
    lake: Lake, path: Path, deleted: datetime, way: str
) -> None:
    deletion = lake.branch().head
    live_on(lake)
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
    with penstock.open(path) as other:
        ways: dict[str, Callable[[], object]] = {
            "revert": lambda: other.revert(deletion),
            "restore": lambda: other.restore("t", to=f"{deletion}~1"),
            "restore all": lambda: other.restore(all=True, to=f"{deletion}~1"),
            "transplant": lambda: other.transplant([f"{deletion}~1"], "main"),
            "restore a version": lambda: other.restore("t", version=1),
        }
        with pytest.raises((MergeConflict, HistoryExpired), match="was erased"):
            ways[way]()
        assert rows_of(other) == LEFT


# -- other tables ------------------------------------------------------------------------------------------


def test_a_private_table_and_a_registered_one_are_erased_up_to_a_moment(lake: Lake, path: Path) -> None:
    lake.lance().declare_table({"id": ["t"], "properties": {"penstock.private": "true"}})
    write(lake, rows(), mode="overwrite")
    lake.table("t").overwrite(pa.Table.from_pylist(LEFT))
    place = path / "warehouse" / "mine.lance"
    lance.write_dataset(rows(), place)
    lance.write_dataset(pa.Table.from_pylist(LEFT), place, mode="overwrite")
    lake.lance().register_table({"id": ["mine"], "location": str(place)})
    when = now()
    later = live_on(lake)
    lake.table("mine").append(row(7, YOUNGER))
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
        assert other.erase("mine", older_than=when).finished
        assert where_is(path, MARKER) == []
        assert rows_of(other, later["appended"]) == WITH_YOUNGER
        assert lance.dataset(place).to_table().to_pylist() == WITH_YOUNGER
        assert lance.dataset(place, version=2).to_table().to_pylist() == LEFT
        assert other.fsck().damages == ()


def test_a_branch_is_written_to_once_an_erase_that_was_interrupted_has_ended(
    lake: Lake, path: Path, deleted: datetime
) -> None:
    at = lake.branch().head
    live_on(lake)
    with pytest.MonkeyPatch.context() as patch, alone(path) as other:

        def crashing(*_given: Any) -> Any:
            raise Crash

        patch.setattr(EraseRun, "_set_horizon", crashing)
        with pytest.raises(Crash):
            other.erase("t", older_than=deleted)
    lake.branch("new").create(at=at)
    lake.branch("other").create()
    for branch in ("new", "other"):  # at the version with which history is to begin, and at a later one
        with pytest.raises(PenstockError, match="is being erased"):
            lake.branch(branch).table("t").append(row(6, branch))
    with (
        alone(path) as other,
        pytest.raises(EraseRefused, match="branch 'new': it builds on the history of the table from before"),
    ):
        other.erase("t", older_than=deleted)
    lake.branch("new").delete()
    with alone(path) as other:
        assert other.erase("t", older_than=deleted).finished
        assert where_is(path, MARKER) == []
    lake.branch("other").table("t").append(row(6, "other"))
    lake.branch("new").create(at=at).table("t").append(row(6, "new"))
    assert rows_of(lake, "new") == [*LEFT, {"id": 6, "name": "new"}]
