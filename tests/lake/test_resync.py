"""A lake that is older than its tables: commits are refused, and a resync loses no row."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.root import penstock as root
from penstock.errors import (
    CommitConflict,
    ForeignCommit,
    InvalidLog,
    KeyNotFound,
    LakeMoved,
    NotManaged,
    OutOfSync,
    PenstockError,
    Unavailable,
)
from penstock.formats.delta.lake.calls import CommitTables, TableCommit
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.delta.publishing import publisher
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.lance.chains import ManifestChains
from penstock.formats.lance.folder_check import FolderCheck
from penstock.formats.lance.lake.calls import CommitLance, DeregisterLance, GetLanceStatus, RegisterLance
from penstock.formats.lance.plugin import LancePlugin
from penstock.formats.lance.rest.api import LANCE
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.resync_calls import ResyncResult
from penstock.model.content import ManagedTable
from penstock.model.keys import Key
from penstock.model.merges import MergeMode
from penstock.model.nessie import IcebergTable
from penstock.server.access import OpenGate
from penstock.server.limits import Limits
from penstock.server.native import NATIVE
from penstock.storage.places import Place
from tests.lake.restored import (
    FORMATS,
    KEYS,
    ids,
    location_of,
    read_outside,
    restore_lake,
    rows,
    write,
)
from tests.lance.rest.talking import Talk
from tests.plugins import plugin_of
from tests.server.running import local

in_each_format = pytest.mark.parametrize("kind", FORMATS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def behind(place: Path, kind: str, *since: int) -> Lake:
    """A lake with row 1 on main and row 10 on a branch, whose table got other rows since."""

    def before(lake: Lake) -> None:
        write(lake, kind, 1)
        lake.branch("dev").create()
        write(lake, kind, 10, branch="dev")

    def after(lake: Lake) -> None:
        for number in since:
            write(lake, kind, number)

    restore_lake(place, before, after)
    return penstock.open(place)


def everywhere(lake: Lake, kind: str) -> list[list[int]]:
    """What a table's readers find, in the lake and outside of it."""
    lake.finish_background()
    return [ids(lake.table(KEYS[kind]).to_arrow()), *read_outside(location_of(lake, kind), kind)]


# -- noticing ----------------------------------------------------------------------------------------------


def merge_branch(lake: Lake, kind: str) -> None:
    lake.merge("dev")


def merge_by_force(lake: Lake, kind: str) -> None:
    lake.merge("dev", default=MergeMode.FORCE)


def merge_into_branch(lake: Lake, kind: str) -> None:
    lake.merge("main", "dev")


def merge_drop(lake: Lake, kind: str) -> None:
    lake.merge("without")


def rebase_branch(lake: Lake, kind: str) -> None:
    lake.rebase("dev")


def in_transaction(lake: Lake, kind: str) -> None:
    with lake.transaction() as tx:
        tx.table(KEYS[kind]).append(rows(3))


def land_transaction_of_before(lake: Lake, kind: str) -> None:
    (before,) = lake.transactions()
    lake.find_transaction(before.id).land()


def drop_in_transaction(lake: Lake, kind: str) -> None:
    with lake.transaction() as tx:
        tx.drop(KEYS[kind])


def on_branch(lake: Lake, kind: str) -> None:
    write(lake, kind, 3, branch="dev")


def append(lake: Lake, kind: str) -> None:
    write(lake, kind, 3)


def transplant(lake: Lake, kind: str) -> None:
    lake.transplant("dev", "main")


def revert(lake: Lake, kind: str) -> None:
    lake.revert(lake.log()[0].id)


def restore(lake: Lake, kind: str) -> None:
    lake.restore(KEYS[kind], to=lake.log()[1].id)


def restore_all(lake: Lake, kind: str) -> None:
    lake.restore(all=True, to=lake.log()[1].id)


def restore_version(lake: Lake, kind: str) -> None:
    lake.restore(KEYS[kind], version=0 if kind == "delta" else 1)


def drop(lake: Lake, kind: str) -> None:
    lake.branch().drop(KEYS[kind])


def release(lake: Lake, kind: str) -> None:
    lake.delta.release(KEYS[kind])


WAYS = [
    append,
    merge_branch,
    merge_by_force,
    merge_into_branch,
    merge_drop,
    rebase_branch,
    in_transaction,
    land_transaction_of_before,
    drop_in_transaction,
    on_branch,
    transplant,
    revert,
    restore,
    restore_all,
    restore_version,
    drop,
    release,
]


def behind_with_more(place: Path, kind: str) -> Lake:
    """The same with two rows on main, a branch without the table, and a transaction that has not landed."""

    def before(lake: Lake) -> None:
        write(lake, kind, 1)
        lake.branch("dev").create()
        write(lake, kind, 10, branch="dev")
        write(lake, kind, 11)
        lake.branch("without").create()
        lake.branch("without").drop(KEYS[kind])
        lake.transaction(lease_s=3600).table(KEYS[kind]).append(rows(20))

    restore_lake(place, before, lambda lake: write(lake, kind, 2))
    return penstock.open(place)


@in_each_format
def test_no_way_of_committing_gets_past_a_table_that_is_ahead(place: Path, kind: str) -> None:
    """Each is refused, so that the next one finds the lake as it was."""
    with behind_with_more(place, kind) as lake:
        head = lake.branch().head
        for way in (one for one in WAYS if (one, kind) != (release, "lance")):
            with pytest.raises(OutOfSync, match=f"penstock resync {KEYS[kind]}") as refused:
                way(lake, kind)
            assert refused.value.details["table"] == KEYS[kind], way
        assert lake.branch().head == head
        outside = read_outside(location_of(lake, kind), kind)
        assert everywhere(lake, kind) == [[1, 11], *[[1, 2, 11]] * len(outside)]
        lake.resync(KEYS[kind])
        drop(lake, kind)


def test_a_lance_table_that_is_ahead_keeps_all_of_its_versions_if_it_is_deregistered(place: Path) -> None:
    key = KEYS["lance"]
    with behind_with_more(place, "lance") as lake:
        for name in ("dev", "without"):
            lake.branch(name).delete()
        (transaction,) = lake.transactions()
        lake.find_transaction(transaction.id).abort()
        location = location_of(lake, "lance")
        lake.do(CommitLance(operations=(DeregisterLance(key=Key.parse(key)),)))
        lake.finish_background()
        assert read_outside(location, "lance") == [[1, 2, 11]]
        lake.do(CommitLance(operations=(RegisterLance(key=Key.parse(key), location=location),)))
        write(lake, "lance", 3)
        assert everywhere(lake, "lance") == [[1, 2, 3, 11]] * 2


@pytest.mark.verify
@in_each_format
def test_a_table_that_is_ahead_is_told_of_over_http_by_a_status_that_no_client_repeats(
    place: Path, kind: str
) -> None:
    patient = Limits(request_timeout_s=120, row_timeout_s=100)  # the first one starts a process for rows
    with (
        behind(place, kind, 2) as lake,
        local(lake.catalogue, [NATIVE, LANCE], limits=patient, gate=OpenGate()) as server,
    ):
        with penstock.open(server.url) as remote, pytest.raises(OutOfSync):
            remote.branch().drop(KEYS[kind])
        assert '"status":409' in server.log.replace(" ", "")
        if kind == "lance":
            talk = Talk(server, "/lance")
            for said in (
                talk("/table/a$v/insert", rows(3)),
                talk("/table/a$v/delete", {"predicate": "id = 1"}),
                talk("/table/a$v/drop", {}),
                talk("/table/a$v/restore", {"version": 1}),
            ):
                assert (said.status, "penstock resync a.v" in said.error) == (409, True), said
        assert '"status":500' not in server.log.replace(" ", "")
        assert read_outside(location_of(lake, kind), kind)[0] == [1, 2]


@in_each_format
def test_a_table_whose_storage_is_gone_can_be_dropped(place: Path, kind: str) -> None:
    with penstock.open(place) as lake:
        write(lake, kind, 1)
        lake.finish_background()
        location = location_of(lake, kind)
    shutil.rmtree(location)
    with penstock.open(place) as lake:
        lake.branch().drop(KEYS[kind])
        with pytest.raises(KeyNotFound):
            lake.table(KEYS[kind]).to_arrow()


def test_what_has_no_log_cannot_be_out_of_sync(place: Path) -> None:
    with penstock.open(place) as lake:
        lake.branch().put("a.ice", IcebergTable(metadata_location="s3://b/m.json", snapshot_id=1))
        lake.table("a.files").files.put("one.txt", b"1")
        for key in ("a.ice", "a.files"):
            with pytest.raises(NotManaged, match="cannot be out of sync") as refused:
                lake.resync(key)
            assert "adopt" not in refused.value.message


@in_each_format
def test_every_look_at_the_lake_tells_of_a_table_that_is_ahead(
    place: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(place, kind, 2) as lake:
        assert [(one.object, "out of sync" in one.what) for one in lake.fsck().damages] == [
            (KEYS[kind], True)
        ]
        (found,) = lake.resync(dry_run=True).tables
        assert (str(found.key), found.known + 1) == (KEYS[kind], found.version)
        if kind == "delta":
            (status,) = lake.delta.status()
            assert "out of sync" in status.alarm
        else:
            assert "out of sync" in lake.do(GetLanceStatus(key=Key.parse(KEYS[kind]))).alarm
            ran = CliRunner().invoke(root, ["--lake", str(place), "lance", "status", KEYS[kind]])
            assert (ran.exit_code, "penstock resync a.v" in ran.output) == (0, True)
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [1], "reads go on"


@in_each_format
def test_a_table_that_is_ahead_is_told_of_by_the_log_of_a_process_that_reads(
    place: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"), behind(place, kind, 2) as lake:
        lake.finish_background()
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [1]
    assert [one for one in caplog.messages if KEYS[kind] in one and "out of sync" in one]


@in_each_format
def test_a_sweep_of_a_lake_that_is_older_than_its_tables_removes_none_of_their_files(
    place: Path, kind: str
) -> None:
    behind(place, kind, 2).close()
    settings = penstock.Settings(grace_s=0, data_grace_days=0, nobody_writes=True)
    with penstock.open(place, settings=settings) as lake:
        for one in Path(location_of(lake, kind)).rglob("*"):
            os.utime(one, (0, 0))
        swept = lake.sweep_tables(remove_data=True)
        assert [one.problem for one in swept if one.problem] or not sum(one.data_files for one in swept)
        lake.resync(KEYS[kind])
        assert everywhere(lake, kind)[0] == [1, 2]


@in_each_format
def test_a_table_that_is_in_sync_is_looked_at_once_by_a_process(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    checks: dict[str, Any] = {"delta": LogCheck, "lance": FolderCheck}
    compare = checks[kind].compare

    def counted(self: Any, *given: Any, **named: Any) -> Any:
        looks.append(kind)
        return compare(self, *given, **named)

    with penstock.open(place) as lake:
        write(lake, kind, 1)
    monkeypatch.setattr(checks[kind], "compare", counted)
    with penstock.open(place) as lake:
        lake.finish_background()  # who writes while the background looks would look as well
        for number in (2, 3, 4):
            write(lake, kind, number)
    assert len(looks) <= 1


def test_the_look_at_a_log_adds_no_request_to_the_first_commit_and_none_to_the_next(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the publisher looked up before is looked up a little earlier, and not again."""
    asked: list[str] = []
    for name in ("list", "read", "size", "look"):
        real = getattr(Place, name)

        def noted(self: Place, *given: Any, _real: Any = real, _name: str = name) -> Any:
            asked.append(_name)
            return _real(self, *given)

        monkeypatch.setattr(Place, name, noted)
    with penstock.open(place) as lake:
        write(lake, "delta", 1)

    def requests(*, checked: bool) -> list[int]:
        counts = []
        with penstock.open(place) as lake:
            lake.finish_background()
            if not checked:
                monkeypatch.setattr(LogCheck, "require_in_sync", lambda *_, **__: None)
            table = lake.table("a.t")
            for number in (2, 3):
                asked.clear()
                table.append(rows(number))
                lake.finish_background()
                counts.append(len(asked))
        return counts

    with_check, without = requests(checked=True), requests(checked=False)
    assert with_check[0] <= without[0] + 1
    assert with_check[1] == without[1]


@in_each_format
def test_what_another_process_published_meanwhile_raises_no_alarm(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits and publishes between this one's look at the branch and that at the table."""
    with penstock.open(place) as lake:
        write(lake, kind, 1)
    check: Any = {"delta": LogCheck, "lance": FolderCheck}[kind]
    compare, raced = check.compare, list[int]()
    with penstock.open(place) as slow, penstock.open(place) as fast:
        for one in (slow, fast):
            one.finish_background()  # their looks at what was left are no part of the race
            assert isinstance(one.catalogue, Embedded)
            parts: Any = (
                plugin_of(one.catalogue, DeltaPlugin).parts
                if kind == "delta"
                else plugin_of(one.catalogue, LancePlugin).parts
            )
            (parts.publisher if kind == "delta" else parts.folder_check)._in_sync.clear()

        def race(self: Any, *given: Any, **named: Any) -> Any:
            if not raced:
                raced.append(1)
                for number in (2, 3):
                    write(fast, kind, number)
                fast.finish_background()
            return compare(self, *given, **named)

        monkeypatch.setattr(check, "compare", race)
        write(slow, kind, 4)
        assert raced
        fast.finish_background()
        assert everywhere(slow, kind) == [[1, 2, 3, 4]] * len(everywhere(slow, kind))


# -- taking over -------------------------------------------------------------------------------------------


@in_each_format
def test_a_resync_takes_over_all_rows_and_keeps_key_id_history_and_branches(place: Path, kind: str) -> None:
    with behind(place, kind, 2, 3) as lake:
        was, head = lake.at().get(KEYS[kind]), lake.branch().head
        done = lake.resync(KEYS[kind])
        now = lake.at().get(KEYS[kind])
        assert isinstance(was, ManagedTable)
        assert isinstance(now, ManagedTable)
        assert (now.id, now.location) == (was.id, was.location)
        assert (len(done.tables), done.in_sync) == (1, 0)
        write(lake, kind, 4)
        assert everywhere(lake, kind) == [[1, 2, 3, 4]] * len(everywhere(lake, kind))
        assert ids(lake.at(head).table(KEYS[kind]).to_arrow()) == [1]
        assert ids(lake.branch("dev").table(KEYS[kind]).to_arrow()) == [1, 10]
        lake.merge("dev")
        assert everywhere(lake, kind) == [[1, 2, 3, 4, 10]] * len(everywhere(lake, kind))
        assert lake.fsck().damages == ()
    with penstock.open(place) as again:
        write(again, kind, 5)
        assert everywhere(again, kind)[0] == [1, 2, 3, 4, 5, 10]


@in_each_format
def test_a_resync_is_done_once_however_often_it_is_asked_for(place: Path, kind: str) -> None:
    with behind(place, kind, 2) as lake, penstock.open(place) as other:
        assert len(lake.resync(KEYS[kind]).tables) == 1
        head = lake.branch().head
        assert other.resync(KEYS[kind]) == lake.resync(KEYS[kind]) == ResyncResult(tables=(), in_sync=1)
        assert lake.branch().head == head


@in_each_format
def test_of_two_resyncs_at_once_one_does_it(place: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with behind(place, kind, 2) as lake, penstock.open(place) as other:
        commit, raced = lake.kernel.commit, list[ResyncResult]()

        def race(*given: Any, **named: Any) -> Any:
            if not raced:
                raced.append(other.resync(KEYS[kind]))
            return commit(*given, **named)

        monkeypatch.setattr(lake.kernel, "commit", race)
        assert lake.resync(KEYS[kind]) == ResyncResult(tables=(), in_sync=1)
        assert len(raced[0].tables) == 1
        assert [one.message for one in lake.log()].count(
            f"resync {KEYS[kind]} with the versions that it has"
        ) == 1


@in_each_format
def test_a_commit_that_races_with_a_resync_lands_on_top_of_it_or_not_at_all(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind(place, kind, 2) as lake, penstock.open(place) as other:
        commit, refused = lake.kernel.commit, list[type[Exception]]()

        def race(*given: Any, **named: Any) -> Any:
            if not refused:
                try:
                    write(other, kind, 3)
                except PenstockError as problem:
                    refused.append(type(problem))
            return commit(*given, **named)

        monkeypatch.setattr(lake.kernel, "commit", race)
        lake.resync(KEYS[kind])
        assert refused == [OutOfSync]
        write(other, kind, 3)
        assert everywhere(other, kind)[0] == [1, 2, 3]


def _killed(place: Path, kind: str, ready: Any) -> None:
    with penstock.open(place) as lake:
        commit = lake.kernel.commit

        def stop(*given: Any, **named: Any) -> Any:
            if ready.value:
                commit(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        lake.kernel.commit = stop  # type: ignore[method-assign]
        lake.resync()


@in_each_format
@pytest.mark.parametrize("is_after", [False, pytest.param(True, marks=pytest.mark.verify)])
def test_a_resync_that_is_killed_is_gone_on_with(place: Path, kind: str, is_after: bool) -> None:
    behind(place, kind, 2).close()
    context = multiprocessing.get_context("spawn")
    flag = context.Value("b", is_after)
    process = context.Process(target=_killed, args=(place, kind, flag))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with penstock.open(place) as lake:
        lake.resync()
        write(lake, kind, 3)
        assert everywhere(lake, kind) == [[1, 2, 3]] * len(everywhere(lake, kind))


def test_all_tables_of_a_lake_are_resynced_and_what_stands_against_one_keeps_no_other(place: Path) -> None:
    def before(lake: Lake) -> None:
        for kind in FORMATS:
            for name in ("ahead", "fine", "gone"):
                write(lake, kind, 1, f"{kind}.{name}")
            lake.finish_background()
            write(lake, kind, 0, f"{kind}.gone")

    def after(lake: Lake) -> None:
        for kind in FORMATS:
            write(lake, kind, 2, f"{kind}.ahead")
            write(lake, kind, 5, f"{kind}.new")
            write(lake, kind, 6, f"{kind}.new")
        gone = Path(location_of(lake, "delta", "delta.gone"))
        lake.finish_background()
        for one in sorted(gone.rglob("*"), reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()

    restore_lake(place, before, after)
    with penstock.open(place) as lake:
        done = lake.resync()
        taken = {str(one.key): (one.known, one.version) for one in done.tables if not one.problem}
        assert taken == {
            "delta.ahead": (0, 1),
            "lance.ahead": (1, 2),
            "delta.new": (-1, 1),
            "lance.new": (-1, 2),
        }
        assert [str(one.key) for one in done.tables if one.problem] == ["delta.gone"]
        for kind in FORMATS:
            assert ids(lake.table(f"{kind}.ahead").to_arrow()) == [1, 2]
            assert ids(lake.table(f"{kind}.new").to_arrow()) == [5, 6]
            write(lake, kind, 7, f"{kind}.new")
            with suppress(InvalidLog):  # of the one that is gone
                lake.finish_background()
            for read in read_outside(location_of(lake, kind, f"{kind}.new"), kind):
                assert read == [5, 6, 7]
        assert [str(one.key) for one in lake.resync().tables] == ["delta.gone"]


def test_a_table_that_came_since_and_whose_key_is_taken_gets_another_one(place: Path) -> None:
    def before(lake: Lake) -> None:
        write(lake, "delta", 1, "a.t")

    def after(lake: Lake) -> None:
        write(lake, "delta", 5, "a.new")

    restore_lake(place, before, after)
    with penstock.open(place) as lake:
        write(lake, "delta", 9, "a.new")
        (taken,) = lake.resync().tables
        assert ids(lake.table(taken.key).to_arrow()) == [5]
        assert ids(lake.table("a.new").to_arrow()) == [9]


def test_a_table_that_was_dropped_is_not_brought_back(place: Path) -> None:
    with penstock.open(place) as lake:
        write(lake, "delta", 1)
        lake.branch().drop("a.t")
        assert lake.resync() == ResyncResult(tables=(), in_sync=0)
        with pytest.raises(KeyNotFound):
            lake.resync("a.t")


def dropped_and_brought_back(place: Path, kind: str) -> str:
    """A lake whose table with rows 1 and 2 was dropped when the copy was made, came back afterwards and got
    row 3; the commit of the lake that has row 1."""
    heads: list[str] = []

    def before(lake: Lake) -> None:
        write(lake, kind, 1)
        heads.append(lake.branch().head)
        write(lake, kind, 2)
        lake.branch().drop(KEYS[kind])

    def after(lake: Lake) -> None:
        lake.revert(lake.branch().head)
        write(lake, kind, 3)

    restore_lake(place, before, after)
    return heads[0]


@in_each_format
@pytest.mark.parametrize("is_all", [pytest.param(False, marks=pytest.mark.verify), True])
def test_a_table_that_was_dropped_when_the_copy_was_made_and_came_back_since_is_brought_back(
    place: Path, kind: str, is_all: bool
) -> None:
    commit = dropped_and_brought_back(place, kind)
    with penstock.open(place) as lake:
        with pytest.raises(OutOfSync, match=f"penstock resync {KEYS[kind]}"):
            lake.restore(KEYS[kind], to=commit)
        assert [str(one.key) for one in lake.resync(dry_run=True).tables] == [KEYS[kind]]
        (done,) = lake.resync(None if is_all else KEYS[kind]).tables
        assert (str(done.key), done.problem) == (KEYS[kind], "")
        assert done.version > done.known
        assert all(found == [1, 2, 3] for found in everywhere(lake, kind))
        write(lake, kind, 4)
        assert all(found == [1, 2, 3, 4] for found in everywhere(lake, kind))
        lake.restore(KEYS[kind], to=commit)
        assert all(found == [1] for found in everywhere(lake, kind))
        assert lake.resync().tables == ()
        assert lake.fsck().damages == ()


@in_each_format
def test_a_table_that_came_back_and_whose_key_is_taken_gets_another_one(place: Path, kind: str) -> None:
    dropped_and_brought_back(place, kind)
    with penstock.open(place) as lake:
        lake.create_table(KEYS[kind], data=rows(9))
        (done,) = lake.resync().tables
        assert str(done.key) != KEYS[kind]
        assert done.problem == ""
        assert ids(lake.table(str(done.key)).to_arrow()) == [1, 2, 3]
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [9]


@in_each_format
def test_a_sweep_removes_nothing_of_a_table_that_was_dropped_when_the_copy_was_made_and_came_back(
    place: Path, kind: str
) -> None:
    dropped_and_brought_back(place, kind)
    settings = penstock.Settings(grace_s=0, data_grace_days=0, nobody_writes=True)
    for one in (place / "warehouse").rglob("*"):
        os.utime(one, (0, 0))
    with penstock.open(place, settings=settings) as lake:
        lake.sweep_tables(remove_data=True)
        lake.resync()
        assert all(found == [1, 2, 3] for found in everywhere(lake, kind))


# -- two histories -----------------------------------------------------------------------------------------


def forked(place: Path, kind: str, own: Callable[[Lake], object]) -> Lake:
    """A lake with row 1 that has versions of its own after the copy was put back, as nobody noticed."""
    lake = behind(place, kind, 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LogCheck, "require_in_sync", lambda *_, **__: None)
        patched.setattr(LogCheck, "is_checked", lambda *_: True)
        patched.setattr(FolderCheck, "require_in_sync", lambda *_, **__: None)
        own(lake)
        lake.close()
    return penstock.open(place)


def test_rows_that_only_the_lake_has_are_added_on_top(place: Path) -> None:
    def own(lake: Lake) -> None:
        for number in (3, 4):
            write(lake, "delta", number)

    with forked(place, "delta", own) as lake:
        with pytest.raises(OutOfSync, match=r"version 1 at .* is not the one that the lake has"):
            write(lake, "delta", 5)
        head = lake.branch().head
        (done,) = lake.resync("a.t").tables
        assert (done.own, done.repeated, done.commit) == ((1, 2), True, head)
        write(lake, "delta", 5)
        assert everywhere(lake, "delta") == [[1, 2, 3, 4, 5]] * len(everywhere(lake, "delta"))
        assert ids(lake.at(head).table("a.t").to_arrow()) == [1, 3, 4]
        assert ids(lake.branch("dev").table("a.t").to_arrow()) == [1, 10]
        assert lake.resync("a.t").tables == ()
        assert lake.fsck().damages == ()


def test_rows_that_are_added_on_top_of_a_table_that_tracks_rows_get_the_ids_that_follow(place: Path) -> None:
    tracked = {"delta.enableRowTracking": "true"}
    restore_lake(
        place,
        lambda lake: lake.delta.create("a.t", data=rows(1), properties=tracked),
        lambda lake: lake.table("a.t").append(rows(2)),
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LogCheck, "require_in_sync", lambda *_, **__: None)
        patched.setattr(LogCheck, "is_checked", lambda *_: True)
        with penstock.open(place) as lake:
            lake.table("a.t").append(rows(3))
    with penstock.open(place) as lake:
        (done,) = lake.resync("a.t").tables
        assert done.repeated
        table = lake.table("a.t")
        table.append(rows(4))
        found = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
        by_id = {one["id"]: (one["_row_id"], one["_row_commit_version"]) for one in found}
        assert by_id == {1: (0, 0), 2: (1, 1), 3: (2, 2), 4: (3, 3)}


def test_a_file_that_the_lake_has_committed_twice_is_added_on_top_once(place: Path) -> None:
    def own(lake: Lake) -> None:
        write(lake, "delta", 3)
        table = lake.table("a.t")
        before = {one.path for one in table.snapshot(0).files()}
        table.append_actions([one for one in table.snapshot().files() if one.path not in before])

    with forked(place, "delta", own) as lake:
        lake.resync("a.t")
        write(lake, "delta", 4)
        assert everywhere(lake, "delta") == [[1, 2, 3, 4]] * len(everywhere(lake, "delta"))
        assert len(list(lake.table("a.t").snapshot().files())) == 4
        lake.finish_background()
        folder = Path(location_of(lake, "delta")) / "_delta_log"
        for commit in folder.glob("*.json"):
            paths = [
                json.loads(one)["add"]["path"] for one in commit.read_text().splitlines() if '"add"' in one
            ]
            assert len(paths) == len(set(paths))


@pytest.mark.verify
def test_what_cannot_be_added_on_top_is_left_only_if_that_is_said(place: Path) -> None:
    def own(lake: Lake) -> None:
        lake.table("a.t").overwrite(rows(3))

    with forked(place, "delta", own) as lake:
        head = lake.branch().head
        with pytest.raises(OutOfSync, match="--leave-own") as refused:
            lake.resync("a.t")
        assert refused.value.details["commit"] == lake.branch().head == head
        (done,) = lake.resync("a.t", leave_own=True).tables
        assert (done.own, done.repeated, done.commit) == ((1, 1), False, head)
        assert everywhere(lake, "delta") == [[1, 2]] * len(everywhere(lake, "delta"))
        assert ids(lake.at(head).table("a.t").to_arrow()) == [3]
        lake.table("a.t").append(lake.at(done.commit).table("a.t").to_arrow())  # as the message advises
        assert everywhere(lake, "delta") == [[1, 2, 3]] * len(everywhere(lake, "delta"))


def test_a_writer_that_has_read_the_lakes_own_version_is_refused_after_a_resync(place: Path) -> None:
    own: list[Any] = []

    def begin(lake: Lake) -> None:
        write(lake, "delta", 3)
        own.append(lake.at().get("a.t"))

    with forked(place, "delta", begin) as lake:
        lake.resync("a.t")
        action = json.dumps({"remove": {"path": "x.parquet", "dataChange": True}})
        late = TableCommit(key=Key("a", "t"), actions=action, read_version=1, table=own[0].id)
        with pytest.raises(CommitConflict, match="is another table now"):
            lake.do(CommitTables(tables=(late,)))
        assert everywhere(lake, "delta")[0] == [1, 2, 3]


def test_a_foreign_writers_rows_are_taken_over(place: Path) -> None:
    """Somebody who does not heed the table's features has put a commit into its log."""
    with penstock.open(place) as lake:
        write(lake, "delta", 1)
        write(lake, "delta", 2)
        location = Path(location_of(lake, "delta"))
        lake.finish_background()
    log = location / "_delta_log"
    data = (log / f"{1:020}.json").read_text()
    (log / f"{2:020}.json").write_text(data.replace('"path":"', '"path":"copy-'))
    for one in location.glob("*.parquet"):
        (location / f"copy-{one.name}").write_bytes(one.read_bytes())
    with penstock.open(place) as lake:
        with pytest.raises(OutOfSync):
            write(lake, "delta", 3)
        lake.resync("a.t")
        write(lake, "delta", 3)
        assert everywhere(lake, "delta") == [[1, 2, 2, 3]] * len(everywhere(lake, "delta"))


def own_versions_of_lance(place: Path, *numbers: int) -> Callable[[Lake], None]:
    """Rows that a lake adds in versions that it cannot promote, because a stranger's has the first place."""

    def own(lake: Lake) -> None:
        def fail(*_: object) -> bool:
            raise Unavailable("the bucket is away")

        newest = Path(location_of(lake, "lance")) / "_versions" / f"{2**64 - 1 - 2}.manifest"
        aside = newest.rename(place.parent / newest.name)  # until the lake has written its own
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ManifestChains, "put_manifest", fail)
            for number in numbers:
                lake.table("a.v").append(rows(number))
            lake.close()
        aside.rename(newest)

    return own


@pytest.mark.verify
@pytest.mark.parametrize("own", [(3,), (3, 5)], ids=["one", "several"])
def test_versions_of_lance_that_only_the_lake_has_are_left_only_if_that_is_said(
    place: Path, own: tuple[int, ...]
) -> None:
    """Also if the newest of them has no place that is taken, and only waits behind one that has."""
    with forked(place, "lance", own_versions_of_lance(place, *own)) as lake:
        with pytest.raises(OutOfSync, match=r"version 2 at .* is not the one that the lake has"):
            write(lake, "lance", 4)
        with pytest.raises(OutOfSync, match="--leave-own"):
            lake.resync("a.v")
        (done,) = lake.resync("a.v", leave_own=True).tables
        assert done.own == (2, 1 + len(own))
        write(lake, "lance", 4)
        assert everywhere(lake, "lance") == [[1, 2, 4]] * len(everywhere(lake, "lance"))


@in_each_format
def test_a_process_that_found_a_strangers_version_goes_on_after_another_one_has_resynced(
    place: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger's version comes between the lake's decision and its publishing."""
    with penstock.open(place) as lake, penstock.open(place) as other:
        write(lake, kind, 1)
        lake.finish_background()
        put_version_of_a_stranger(lake, kind, monkeypatch)
        write(lake, kind, 3)
        with pytest.raises(ForeignCommit):
            lake.finish_background()
        for _ in range(2):
            with pytest.raises(OutOfSync):
                write(lake, kind, 4)
        other.resync(KEYS[kind], leave_own=True)
        other.finish_background()
        write(lake, kind, 4)
        lake.finish_background()
        repeated = [3] if kind == "delta" else []
        assert everywhere(lake, kind) == [[1, 2, *repeated, 4]] * len(everywhere(lake, kind))
        assert lake.fsck().damages == ()


def put_version_of_a_stranger(lake: Lake, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a stranger's version with row 2 at the next place, at the moment when the lake puts its own."""
    location = Path(location_of(lake, kind))
    if kind == "delta":
        log = location / "_delta_log"
        action = json.loads((log / f"{0:020}.json").read_text().splitlines()[-1])
        assert "add" in action
        pq.write_table(rows(2), location / "strange.parquet")
        action["add"] |= {"path": "strange.parquet", "size": (location / "strange.parquet").stat().st_size}
        action["add"].pop("stats", None)
        there, data = log / f"{1:020}.json", json.dumps(action).encode()
        patched: Any = publisher
        name = "publish_versions"
    else:
        lance.write_dataset(rows(2), location, mode="append")
        there = location / "_versions" / f"{2**64 - 1 - 2}.manifest"
        data = there.read_bytes()
        there.unlink()
        patched, name = ManifestChains, "put_manifest"
    real = getattr(patched, name)

    def late(*given: Any, **named: Any) -> Any:
        there.write_bytes(data)
        monkeypatch.setattr(patched, name, real)
        return real(*given, **named)

    monkeypatch.setattr(patched, name, late)


@in_each_format
def test_the_former_location_of_a_lake_that_moved_says_so_and_not_that_its_tables_are_out_of_sync(
    place: Path, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.open(place) as lake:
        write(lake, kind, 1)
        lake.finish_background()
    penstock.move(place, tmp_path / "moved")
    with penstock.open(tmp_path / "moved") as lake:
        write(lake, kind, 2)
        lake.finish_background()
    with caplog.at_level(logging.WARNING, "penstock"), penstock.open(place) as lake:
        lake.finish_background()
        assert ids(lake.table(KEYS[kind]).to_arrow()) == [1]
        assert lake.fsck().damages == ()
        if kind == "delta":
            (alarm,) = (one.alarm for one in lake.delta.status())
        else:
            alarm = lake.do(GetLanceStatus(key=Key.parse(KEYS[kind]))).alarm
        assert "has moved to" in alarm
        with pytest.raises(LakeMoved):
            write(lake, kind, 3)
    assert not [one for one in caplog.messages if "out of sync" in one]
    ran = CliRunner().invoke(root, ["--lake", str(place), "doctor"])
    assert f"the lake has moved to {tmp_path / 'moved'}; this location is read-only" in ran.output
    assert "resync" not in ran.output
