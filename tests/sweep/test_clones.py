"""The rows of a clone stay readable, whatever becomes of the table that it was cloned from."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow.parquet import read_table  # type: ignore[import-untyped]

import penstock
from penstock.errors import (
    EraseRefused,
    HistoryExpired,
    InvalidRequest,
    OutOfSync,
    TableStateRefused,
)
from penstock.formats.delta.lake import handlers
from penstock.formats.delta.lake.clone_needs import CloneNeeds
from penstock.formats.delta.lake.clones import plan_clone
from penstock.formats.delta.ownership.clones import SourceFinder, has_clones
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.kernel.description import CLONES_VERSION, read_description
from penstock.kernel.settings import Settings
from penstock.lake.answers import ErasedTable
from penstock.lake.backup import backup_lake, forget_backups, restore_backup
from penstock.lake.copy import copy_lake
from penstock.lake.embedded import Embedded
from penstock.lake.erase import EraseRun
from penstock.lake.lake import Lake
from penstock.lake.missing_files import list_missing_files
from penstock.lake.root_maps import map_root
from tests.lake.restored import restore_lake
from tests.sweep.tables import LateClock, abandoned, data_files, ids, only, root_of, rows

ALONE = Settings(grace_s=0, nobody_writes=True, publish_wait_s=60.0)
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def lake(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", create=True, author="tester", settings=ALONE, clock=later) as lake:
        yield lake


def embedded(lake: Lake) -> Embedded:
    found = lake.catalogue
    assert isinstance(found, Embedded)
    return found


@pytest.fixture
def cloned(lake: Lake) -> Lake:
    """A table with two files, and a clone of it."""
    lake.create_table("source", data=rows(1, 2)).append(rows(3))
    lake.delta.clone("source", "clone")
    return lake


def forget(lake: Lake, later: LateClock) -> None:
    """Let nothing be retained but what heads have, also not in logs, and sweep long afterwards."""
    lake.keep_history(max_commits=1)
    later.days += 40
    lake.sweep()
    for status in lake.delta.status():
        lake.delta.checkpoint(status.key)
        lake.table(status.key).append(rows())
        lake.table(status.key).append(rows())  # so that the lake knows that the checkpoint is published
    later.days += 40
    lake.sweep()
    for status in lake.delta.status():
        lake.delta.clean_log(status.key)
    lake.sweep_tables(remove_data=True)


def erase(
    lake: Lake, later: LateClock, key: str, *, dropped: bool = False, dry_run: bool = False
) -> ErasedTable:
    """Erase a table long after its files were written."""
    later.days += 40
    return lake.erase(key, dropped=dropped, dry_run=dry_run)


def overwritten(lake: Lake, later: LateClock) -> None:
    lake.table("source").overwrite(rows(9))
    lake.table("source").append(rows(8))
    forget(lake, later)
    assert ids(lake.table("source")) == [8, 9]


def dropped(lake: Lake, later: LateClock) -> None:
    lake.branch().drop("source")
    lake.create_table("other", data=rows(0)).append(rows(1))
    forget(lake, later)


def optimized(lake: Lake, later: LateClock) -> None:
    lake.table("source").optimize()
    lake.table("source").append(rows(8))
    forget(lake, later)
    lake.delta.clean_log("source")


@pytest.mark.parametrize("become", [overwritten, dropped, optimized])
def test_a_sweep_of_the_source_leaves_the_files_of_a_clone(
    cloned: Lake, later: LateClock, become: Callable[[Lake, LateClock], None]
) -> None:
    become(cloned, later)
    assert ids(cloned.table("clone")) == [1, 2, 3]
    cloned.table("clone").delete("id = 1")
    assert ids(cloned.table("clone")) == [2, 3]


def test_files_go_once_no_version_of_a_clone_has_them(cloned: Lake, later: LateClock) -> None:
    left = abandoned(cloned, cloned.table("source"), 7)
    source = root_of(cloned.table("source"))
    before = data_files(source)
    overwritten(cloned, later)
    assert data_files(source) >= before - left, "a clone has them"
    assert not data_files(source) & left
    cloned.table("clone").overwrite(rows(5))
    cloned.table("clone").append(rows(6))
    erase(cloned, later, "clone")
    assert data_files(source) >= before - left, "earlier versions of the source have them"
    erase(cloned, later, "source")
    forget(cloned, later)
    assert not data_files(source) & before
    assert (ids(cloned.table("clone")), ids(cloned.table("source"))) == ([5, 6], [8, 9])


def test_a_clone_on_a_branch_that_is_merged(cloned: Lake, later: LateClock) -> None:
    dev = cloned.branch("dev").create()
    dev.table("source").append(rows(4))
    cloned.delta.clone("source", "trial", ref="dev", branch="dev")
    cloned.delta.clone("clone", "again", branch="dev")
    dev.table("trial").append(rows(5))
    overwritten(cloned, later)
    assert ids(dev.table("trial")) == [1, 2, 3, 4, 5]
    cloned.merge("dev", keys={"source": "drop"})
    dev.delete()
    forget(cloned, later)
    assert ids(cloned.table("trial")) == [1, 2, 3, 4, 5]
    assert ids(cloned.table("again")) == [1, 2, 3]


def test_a_source_that_was_only_on_a_branch_that_is_gone(lake: Lake, later: LateClock) -> None:
    lake.create_table("other", data=rows(0))
    dev = lake.branch("dev").create()
    lake.delta.create("source", data=rows(1, 2), branch="dev")
    lake.delta.clone("source", "clone", ref="dev")
    dev.delete()
    lake.table("other").append(rows(1))
    forget(lake, later)
    assert ids(lake.table("clone")) == [1, 2]


def test_a_revert_of_the_clone_lets_the_files_go(cloned: Lake, later: LateClock) -> None:
    source = root_of(cloned.table("source"))
    before = data_files(source)
    cloned.revert(cloned.branch().head)
    assert not cloned.table("clone").exists
    cloned.table("source").overwrite(rows(9))
    cloned.table("source").append(rows(8))
    erase(cloned, later, "clone", dropped=True)
    erase(cloned, later, "source")
    assert not data_files(source) & before


def test_what_a_clone_deletes_comes_back_by_a_revert(cloned: Lake, later: LateClock) -> None:
    clone = cloned.table("clone")
    clone.delete("id < 3")
    commit = cloned.branch().head
    clone.append(rows(4))
    cloned.table("source").overwrite(rows(9))
    cloned.table("source").append(rows(8))
    later.days = 40
    cloned.sweep_tables(remove_data=True)
    cloned.revert(commit)
    assert ids(clone) == [1, 2, 3, 4]
    clone.restore(version=0)
    assert ids(clone) == [1, 2, 3]


def test_an_older_version_is_cloned(lake: Lake) -> None:
    lake.create_table("source", data=rows(1)).append(rows(2))
    lake.delta.clone("source", "first", version=0)
    assert ids(lake.table("first")) == [1]


def test_deletion_vectors_of_the_source_and_of_the_clone(lake: Lake, later: LateClock) -> None:
    lake.delta.create("source", data=rows(*range(1, 50)), properties=VECTORS)
    lake.table("source").delete("id > 3")
    lake.delta.clone("source", "clone")
    lake.table("source").delete("id = 1")
    lake.table("clone").delete("id = 2")
    lake.table("source").append(rows(8))
    forget(lake, later)
    assert (ids(lake.table("clone")), ids(lake.table("source"))) == ([1, 3], [2, 3, 8])
    lake.delta.clone("clone", "again")
    lake.table("clone").optimize()
    lake.table("clone").append(rows(7))
    forget(lake, later)
    assert (ids(lake.table("again")), ids(lake.table("clone"))) == ([1, 3], [1, 3, 7])


def test_an_optimized_clone_has_files_of_its_own(cloned: Lake, later: LateClock) -> None:
    cloned.table("clone").optimize()
    assert all(not file.path.startswith("/") for file in cloned.table("clone").snapshot().files())
    assert ids(cloned.table("clone")) == [1, 2, 3]


# -- erase -------------------------------------------------------------------------------------------------


def test_an_erase_of_the_source_lists_the_clone_that_holds_rows(cloned: Lake, later: LateClock) -> None:
    cloned.table("source").delete("id = 1")
    with pytest.raises(EraseRefused) as refused:
        erase(cloned, later, "source")
    assert refused.value.details["holders"] == ["clone 'clone'"]
    assert any("clone 'clone'" in line for line in erase(cloned, later, "source", dry_run=True).left)
    cloned.table("clone").delete("id = 1")
    with pytest.raises(EraseRefused):
        erase(cloned, later, "source")  # earlier versions of the clone have the row
    erased = erase(cloned, later, "clone")
    assert erased.finished
    assert any("was cloned from" in line for line in erased.left)
    assert erase(cloned, later, "source").finished
    assert (ids(cloned.table("clone")), ids(cloned.table("source"))) == ([2, 3], [2, 3])
    (table,) = {root_of(cloned.table("source"))}
    assert not any(1 in read_table(table / name)["id"].to_pylist() for name in data_files(table))


def test_a_clone_that_has_none_of_the_erased_rows_is_not_in_the_way(lake: Lake, later: LateClock) -> None:
    lake.create_table("source", data=rows(1, 2)).append(rows(3))
    lake.table("source").delete("id = 1")
    lake.delta.clone("source", "clone")
    assert erase(lake, later, "source").finished
    assert ids(lake.table("clone")) == [2, 3]


def test_rows_that_the_source_deleted_by_vectors_are_held_by_the_clone(lake: Lake, later: LateClock) -> None:
    lake.delta.create("source", data=rows(1, 2), properties=VECTORS)
    lake.delta.clone("source", "clone")
    lake.table("source").delete("id = 1")
    with pytest.raises(EraseRefused, match="clone 'clone'"):
        erase(lake, later, "source")


def test_a_dropped_source_is_erased_after_its_clone(cloned: Lake, later: LateClock) -> None:
    source = root_of(cloned.table("source"))
    cloned.branch().drop("source")
    with pytest.raises(EraseRefused, match="clone 'clone'"):
        erase(cloned, later, "source", dropped=True)
    assert ids(cloned.table("clone")) == [1, 2, 3]
    cloned.branch().drop("clone")
    with pytest.raises(EraseRefused):
        erase(cloned, later, "source", dropped=True)  # the clone can be restored
    assert erase(cloned, later, "clone", dropped=True).finished
    assert erase(cloned, later, "source", dropped=True).finished
    assert not source.exists()


def test_a_clone_of_what_is_erased_meanwhile_is_dropped(
    cloned: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned.branch().drop("clone")
    erase(cloned, later, "clone", dropped=True)
    cloned.table("source").delete("id = 1")

    def erase_between(*asked: object) -> object:
        plan = plan_clone(*asked)  # type: ignore[arg-type]
        erase(cloned, later, "source")
        return plan

    monkeypatch.setattr(f"{handlers.__name__}.plan_clone", erase_between)
    for _ in range(2):  # nor is it the answer of a retry that it was made
        with pytest.raises(TableStateRefused, match="was dropped again"):
            cloned.delta.clone("source", "late", version=0, idempotency_key="k")
        assert not cloned.table("late").exists
        monkeypatch.setattr(f"{handlers.__name__}.plan_clone", plan_clone)


class Killed(BaseException):
    """What a process that is killed does not come back from."""


def die_after_the_commit(monkeypatch: pytest.MonkeyPatch, lake: Lake, between: Callable[[], object]) -> None:
    """Clone version 0 of the source as a process that plans it, is slow, and dies once it is committed."""

    def plan_slowly(*asked: object) -> object:
        plan = plan_clone(*asked)  # type: ignore[arg-type]
        between()
        return plan

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"{handlers.__name__}.plan_clone", plan_slowly)
        patch.setattr(handlers.DeltaHandlers, "_require_source", die)
        with pytest.raises(Killed):
            lake.delta.clone("source", "late", version=0, idempotency_key="k")
    assert lake.table("late").exists


def test_a_clone_whose_files_went_is_not_the_answer_of_a_retry(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process died before it could see that."""
    lake.create_table("source", data=rows(1, 2)).delete("id = 1")
    die_after_the_commit(monkeypatch, lake, lambda: erase(lake, later, "source"))
    for _ in range(2):
        with pytest.raises(TableStateRefused, match="clone the table again with another idempotency key"):
            lake.delta.clone("source", "late", version=0, idempotency_key="k")
    lake.branch().drop("late")
    lake.delta.clone("source", "late", idempotency_key="l")
    assert ids(lake.table("late")) == [2]


def test_a_retry_waits_for_an_erase_that_may_not_have_seen_the_clone(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("source", data=rows(1, 2)).delete("id = 1")

    def kill(*_: object) -> None:
        raise Killed

    def begin_erase() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(EraseRun, "_remove_old_files", kill)
            with pytest.raises(Killed):
                erase(lake, later, "source")

    die_after_the_commit(monkeypatch, lake, begin_erase)
    with pytest.raises(TableStateRefused, match="try again when the erase has ended"):
        lake.delta.clone("source", "late", version=0, idempotency_key="k")
    with pytest.raises(EraseRefused, match="clone 'late'"):
        erase(lake, later, "source")  # it was seen now
    lake.branch().drop("late")
    assert erase(lake, later, "late", dropped=True).finished
    assert erase(lake, later, "source").finished
    lake.delta.clone("source", "late", idempotency_key="l")
    assert ids(lake.table("late")) == [2]


def test_a_clone_that_was_made_whole_is_the_answer_of_a_retry(
    cloned: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_after_the_commit(monkeypatch, cloned, lambda: None)
    made = cloned.delta.clone("source", "late", version=0, idempotency_key="k")
    cloned.branch().drop("source")
    assert cloned.delta.clone("source", "late", version=0, idempotency_key="k") == made
    assert ids(cloned.table("late")) == [1, 2]
    cloned.branch().drop("late")
    assert cloned.delta.clone("source", "late", version=0, idempotency_key="k") == made


def test_files_of_deletion_vectors_that_are_gone_are_missed(lake: Lake) -> None:
    """Of the table, and of the clone that has them there."""
    lake.delta.create("source", data=rows(*range(50_000)), properties=VECTORS)
    lake.table("source").delete("id % 3 = 0")
    lake.delta.clone("source", "clone")
    assert not list(list_missing_files(lake))
    (vectors,) = root_of(lake.table("source")).glob("*.bin")
    vectors.unlink()
    missed = [(file.table, vectors.name in file.what) for file in list_missing_files(lake)]
    assert missed == [("clone", True), ("source", True)]


# -- what has expired --------------------------------------------------------------------------------------


def test_a_state_that_has_expired_is_not_cloned(lake: Lake, later: LateClock) -> None:
    """Its files may be gone, however the commit is named."""
    lake.create_table("source", data=rows(1, 2))
    lake.tag("kept").create()
    head = lake.branch().head
    overwritten(lake, later)
    lake.delta.clone("source", "clone", ref="kept")
    assert ids(lake.table("clone")) == [1, 2]
    lake.tag("kept").delete()
    lake.branch().drop("clone")
    forget(lake, later)
    names = ("main~6", f"main@{head}", head)
    for name in names:
        with pytest.raises(HistoryExpired):
            lake.delta.clone("source", "clone", ref=name)
    assert not lake.table("clone").exists


def test_what_a_transaction_has_written_is_cloned_in_it_alone(lake: Lake) -> None:
    lake.create_table("source", data=rows(1))
    with lake.transaction() as transaction:
        transaction.table("source").append(rows(2))
        with pytest.raises(InvalidRequest, match="transaction"):
            lake.delta.clone("source", "clone", ref=transaction.branch)
        lake.delta.clone("source", "clone", ref=transaction.branch, branch=transaction.branch)
        assert not lake.table("clone").exists
    assert ids(lake.table("clone")) == [1, 2]


def test_a_clone_of_a_version_that_the_log_lost_meanwhile_is_dropped(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("source", data=rows(1, 2)).append(rows(3))

    def forget_between(*asked: object) -> object:
        plan = plan_clone(*asked)  # type: ignore[arg-type]
        overwritten(lake, later)
        return plan

    monkeypatch.setattr(f"{handlers.__name__}.plan_clone", forget_between)
    for _ in range(2):  # nor is it the answer of a retry that it was made
        with pytest.raises(TableStateRefused, match="was dropped again"):
            lake.delta.clone("source", "late", version=0, idempotency_key="k")
        assert not lake.table("late").exists
        monkeypatch.setattr(f"{handlers.__name__}.plan_clone", plan_clone)


@pytest.mark.parametrize("way", ["recover", "resync"])
def test_a_lake_that_takes_a_clone_over_knows_of_it(tmp_path: Path, later: LateClock, way: str) -> None:
    """It has made none itself, and its own sweep is to leave the files nevertheless."""
    warehouse, place = str(tmp_path / "warehouse"), tmp_path / "lake"
    with penstock.init(place, warehouse=warehouse, settings=ALONE) as lake:
        lake.create_table("source", data=rows(1, 2))
        lake.finish_background()
        shutil.copytree(place, tmp_path / "before")
        lake.delta.clone("source", "clone")
        lake.finish_background()
        lost, places = lake.id, {key: lake.table(key).location for key in ("source", "clone")}
    if way == "recover":
        place = tmp_path / "new"
        with penstock.init(place, warehouse=warehouse, settings=ALONE) as lake:
            for key, location in places.items():
                lake.delta.recover(location, key, lost=lost)
    else:
        place = tmp_path / "before"
        with penstock.open(place, settings=ALONE) as lake:
            lake.resync()
    with penstock.open(place, settings=ALONE, clock=later) as lake:
        overwritten(lake, later)
        assert ids(lake.table("clone")) == [1, 2]


# -- races and crashes of sweeps ---------------------------------------------------------------------------


def test_the_first_clone_of_a_lake_is_seen_by_the_next_look_of_a_sweep_that_goes_on(lake: Lake) -> None:
    """What was looked at before was not looked at for the sake of clones."""
    lake.create_table("source", data=rows(1, 2))
    catalogue = embedded(lake)
    (plugin,) = (plugin for plugin in catalogue.plugins if isinstance(plugin, DeltaPlugin))
    needs = CloneNeeds(catalogue.kernel, plugin.parts)
    location = lake.table("source").get_commits().location
    assert [table.location for table in needs.walk_unseen_tables()] == [location]
    assert (needs.find_clones(location), has_clones(catalogue.kernel)) == ([], False)
    lake.delta.clone("source", "clone")
    (file,) = data_files(root_of(lake.table("source")))
    assert not needs.is_needed_file(location, file)
    assert len({table.location for table in needs.walk_unseen_tables()}) == 2
    assert needs.is_needed_file(location, file)
    needs.check_clones(location)


def test_nothing_of_the_source_goes_while_the_log_of_a_clone_cannot_be_read(
    cloned: Lake, later: LateClock
) -> None:
    for key in ("source", "clone"):
        cloned.table(key).overwrite(rows(9))
        cloned.table(key).append(rows(8))
    cloned.keep_history(max_commits=1)
    later.days = 40
    cloned.sweep()
    log = root_of(cloned.table("clone")) / "_delta_log"
    shutil.move(log, log.with_name("away"))
    before = data_files(root_of(cloned.table("source")))
    (told,) = cloned.sweep_tables("source", remove_data=True)
    assert told.problem
    shutil.move(log.with_name("away"), log)
    assert data_files(root_of(cloned.table("source"))) == before
    assert only(cloned.sweep_tables("source", remove_data=True)).problem == ""
    assert ids(cloned.table("clone"), 0) == [1, 2, 3]


def test_a_lake_without_clones_looks_nothing_up_for_them(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_table("source", data=rows(1))
    monkeypatch.setattr(SourceFinder, "find_sources", None)
    assert only(lake.sweep_tables(remove_data=True)).problem == ""


def test_an_older_penstock_refuses_a_lake_with_clones(cloned: Lake) -> None:
    assert read_description(embedded(cloned).kernel.store).format_version == CLONES_VERSION


# -- whole lakes -------------------------------------------------------------------------------------------


def test_a_backup_with_data_has_the_files_of_clones(cloned: Lake, tmp_path: Path, later: LateClock) -> None:
    overwritten(cloned, later)
    dropped(cloned, later)
    cloned.close()
    backup_lake(tmp_path / "lake", tmp_path / "backups", data=True, clock=later)
    shutil.rmtree(tmp_path / "lake")
    restore_backup(tmp_path / "backups", tmp_path / "lake", own=True, source_is_gone=True)
    with penstock.open(tmp_path / "lake", settings=ALONE, clock=later) as restored:
        assert ids(restored.table("clone")) == [1, 2, 3]
        forget(restored, later)
        assert ids(restored.table("clone")) == [1, 2, 3]


def test_a_backup_without_data_keeps_the_files_of_clones_until_it_is_forgotten(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    """Nobody else needs the files: the clone was on a branch that is gone."""
    place, backups = tmp_path / "lake", tmp_path / "backups"
    lake.create_table("source", data=rows(1, 2)).append(rows(3))
    dev = lake.branch("dev").create()
    lake.delta.clone("source", "clone", branch="dev")
    source = root_of(lake.table("source"))
    needed = data_files(source)
    lake.finish_background()
    made = backup_lake(place, backups, clock=later)
    dev.delete()
    overwritten(lake, later)
    assert data_files(source) >= needed
    assert forget_backups(place, made.point.id, clock=later) == [made.point.id]
    forget(lake, later)
    assert not data_files(source) & needed


def test_clones_of_a_backup_without_data_are_read_beside_the_lake_that_has_them_no_more(
    lake: Lake, tmp_path: Path, later: LateClock
) -> None:
    lake.create_table("source", data=rows(1, 2)).append(rows(3))
    dev = lake.branch("dev").create()
    lake.delta.clone("source", "clone", branch="dev")
    lake.finish_background()
    backup_lake(tmp_path / "lake", tmp_path / "backups", clock=later)
    dev.delete()
    overwritten(lake, later)
    restore_backup(tmp_path / "backups", tmp_path / "restored", clock=later)
    with penstock.open(tmp_path / "restored", settings=ALONE, clock=later) as restored:
        assert ids(restored.branch("dev").table("clone")) == [1, 2, 3]


def test_a_lake_of_a_backup_without_data_goes_on_with_its_clones(
    cloned: Lake, tmp_path: Path, later: LateClock
) -> None:
    """The source of the clone is dropped before the backup, and the database is lost afterwards."""
    dropped(cloned, later)
    place, backups = tmp_path / "lake", tmp_path / "backups"
    cloned.close()
    backup_lake(place, backups, clock=later)
    for part in place.glob("penstock.db*"):
        part.unlink()
    restore_backup(backups, tmp_path / "restored", own=True, source_is_gone=True, clock=later)
    with penstock.open(tmp_path / "restored", settings=ALONE, clock=later) as restored:
        forget(restored, later)
        assert ids(restored.table("clone")) == [1, 2, 3]
        restored.table("clone").delete("id = 1")
        restored.table("clone").overwrite(rows(5))
        restored.table("clone").append(rows(6))
        forget(restored, later)
        assert ids(restored.table("clone")) == [5, 6]


@pytest.mark.parametrize("again", [False, True], ids=["behind", "forked"])
def test_a_resync_of_a_lake_with_clones_loses_no_row(
    tmp_path: Path, later: LateClock, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """The database comes back from a copy that knows the clone, while clone and source went on."""
    place = tmp_path / "lake"
    with penstock.open(place, create=True):
        pass

    def before(lake: Lake) -> None:
        lake.create_table("source", data=rows(1, 2)).append(rows(3))
        lake.delta.clone("source", "clone")

    def after(lake: Lake) -> None:
        lake.table("clone").append(rows(4))
        lake.table("clone").delete("id = 1")
        lake.table("source").delete("id = 3")

    restore_lake(place, before, after)
    if again:
        with monkeypatch.context() as unnoticed:
            unnoticed.setattr(LogCheck, "require_in_sync", lambda *_, **__: None)
            unnoticed.setattr(LogCheck, "is_checked", lambda *_: True)
            with penstock.open(place) as lake:
                lake.table("clone").append(rows(7))
                lake.table("source").append(rows(8))
    own = [7] if again else []
    with penstock.open(place, settings=ALONE, clock=later) as lake:
        with pytest.raises(OutOfSync):
            lake.table("clone").append(rows(9))
        assert {str(resynced.key) for resynced in lake.resync().tables} == {"clone", "source"}
        assert ids(lake.table("clone")) == [2, 3, 4, *own]
        assert ids(lake.table("source")) == [1, 2, *([8] if again else [])]
        overwritten(lake, later)
        assert ids(lake.table("clone")) == [2, 3, 4, *own]
        lake.table("clone").append(rows(6))
        assert ids(lake.table("clone")) == [2, 3, 4, 6, *own]
        assert lake.fsck().damages == ()


def test_a_fork_reads_a_clone_and_makes_none(cloned: Lake, tmp_path: Path, later: LateClock) -> None:
    copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
    with penstock.open(tmp_path / "fork", settings=ALONE, clock=later) as fork:
        overwritten(cloned, later)
        assert ids(fork.table("clone")) == [1, 2, 3]
        with pytest.raises(penstock.errors.PenstockError, match="lake"):
            fork.delta.clone("source", "mine")


def test_files_that_were_moved_are_found_by_their_clones(tmp_path: Path, later: LateClock) -> None:
    roots = [str(tmp_path / "one"), str(tmp_path / "two")]
    with penstock.init(tmp_path / "lake", warehouse=roots[0], settings=ALONE) as lake:
        lake.create_table("source", data=rows(1, 2))
        lake.delta.clone("source", "clone")
    shutil.move(roots[0], roots[1])
    map_root(tmp_path / "lake", roots[0], roots[1])
    with penstock.open(tmp_path / "lake", settings=ALONE, clock=later) as lake:
        assert ids(lake.table("clone")) == [1, 2]
        lake.delta.clone("clone", "again")
        lake.table("clone").delete("id = 1")
        overwritten(lake, later)
        assert (ids(lake.table("clone")), ids(lake.table("again"))) == ([2], [1, 2])
    assert not Path(roots[0]).exists()


# -- handing back ------------------------------------------------------------------------------------------


def test_neither_a_clone_nor_its_source_is_released(cloned: Lake) -> None:
    with pytest.raises(TableStateRefused, match="is a clone"):
        cloned.delta.release("clone")
    with pytest.raises(TableStateRefused, match="its clone 'clone' needs its files"):
        cloned.delta.release("source")
    assert {table.outcome for table in cloned.delta.release_all().tables} == {"refused"}
    cloned.create_table("copy", data=cloned.table("clone").snapshot())
    cloned.branch().drop("clone")
    for key in ("source", "copy"):
        place = cloned.delta.release(key).location
        assert sorted(penstock.read_delta(place).to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_clones_in_a_bucket(lake_in_a_bucket: Lake, later: LateClock) -> None:
    lake = lake_in_a_bucket
    lake.delta.create("source", data=rows(*range(1, 40)), properties=VECTORS)
    lake.table("source").delete("id > 3")
    lake.delta.clone("source", "clone")
    lake.delta.clone("clone", "again")
    (file,) = lake.table("clone").snapshot().files()
    assert file.path.startswith(f"{lake.table('source').location}/")
    lake.table("clone").delete("id = 2")
    overwritten(lake, later)
    assert (ids(lake.table("clone")), ids(lake.table("again"))) == ([1, 3], [1, 2, 3])
