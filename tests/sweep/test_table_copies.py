"""Files of tables that a fork of the lake reads stay, whatever becomes of them in its source."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable as ForeignTable

import penstock
from penstock.kernel.settings import Settings
from penstock.lake.copy import copy_lake
from penstock.lake.lake import Lake
from penstock.lake.root_maps import map_root
from penstock.stores.memory import MemoryStore
from tests.lance.tables import ids_at, written
from tests.sweep.pool import Pool
from tests.sweep.tables import LateClock, abandoned, ids, root_of, rows

ALONE = Settings(grace_s=0, nobody_writes=True, publish_wait_s=60.0, promote_wait_s=60.0)


def opened(place: Path, later: LateClock) -> Lake:
    return penstock.open(place, author="tester", settings=ALONE, clock=later)


@pytest.fixture
def source(tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    """A lake whose only table is a Delta table, with versions 0 to 2, and others on a branch."""
    with opened(tmp_path / "lake", later) as lake:
        table = lake.create_table("t", data=rows(1))
        table.append(rows(2))
        table.overwrite(rows(2))
        lake.branch("dev").create().table("t").append(rows(3))
        yield lake


@pytest.fixture
def fork(source: Lake, tmp_path: Path, later: LateClock) -> Iterator[Lake]:
    copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
    with opened(tmp_path / "fork", later) as fork:
        yield fork


def forget(lake: Lake, later: LateClock, *keys: str) -> None:
    """Let the source need nothing any more of what it had when it was forked, and sweep long afterwards."""
    lake.branch("dev").delete()
    for key in keys:
        lake.table(key).append(rows(7))
        lake.table(key).overwrite(rows(8))
    lake.keep_history(max_commits=1)
    later.days = 40
    lake.sweep()


def read_fork(fork: Lake) -> None:
    """Every version that the lake had when it was forked, read by Penstock and by another reader."""
    table = fork.table("t")
    assert [ids(table, version) for version in range(3)] == [[1], [1, 2], [2]]
    assert ids(fork.branch("dev").table("t")) == [2, 3]
    for version, expected in enumerate(([1], [1, 2], [2])):
        foreign = ForeignTable(str(root_of(table)), version=version)
        assert sorted(foreign.to_pyarrow_table()["id"].to_pylist()) == expected


def test_a_sweep_of_the_source_keeps_what_versions_and_branches_of_a_fork_need(
    source: Lake, fork: Lake, later: LateClock
) -> None:
    after = abandoned(source, source.table("t"), 9)
    forget(source, later, "t")
    (told,) = source.sweep_tables(remove_data=True)
    assert (told.problem, after <= set(told.names)) == ("", True), "files from after the fork go"
    assert told.forked > 0
    read_fork(fork)


def test_files_go_when_the_note_of_the_fork_is_removed(source: Lake, fork: Lake, later: LateClock) -> None:
    forget(source, later, "t")
    source.sweep_tables(remove_data=True)
    (note,) = (Path(source.warehouse) / "_penstock" / "data" / "forks").iterdir()
    assert fork.id in note.read_text()
    note.unlink()
    (told,) = source.sweep_tables(remove_data=True)
    assert (told.forked, told.data_files > 0) == (0, True)
    assert ids(source.table("t")) == [8]


def test_cleaning_the_log_of_the_source_keeps_what_a_fork_needs(
    source: Lake, fork: Lake, later: LateClock
) -> None:
    source.table("t").append(rows(7))
    source.delta.checkpoint("t")
    source.table("t").append(rows(7))
    forget(source, later, "t")
    assert source.delta.clean_log("t").names == ()
    read_fork(fork)
    (note,) = (Path(source.warehouse) / "_penstock" / "data" / "forks").iterdir()
    note.unlink()
    gone = source.delta.clean_log("t").names
    assert "_delta_log/00000000000000000000.json" in gone
    assert ids(source.table("t")) == [8]


def test_a_table_that_only_a_branch_had_stays_for_the_fork(tmp_path: Path, later: LateClock) -> None:
    """In the source nothing tells any more that it ever was a table."""
    with opened(tmp_path / "lake", later) as lake:
        lake.create_table("other", data=rows(0))
        lake.branch("dev").create()
        lake.create_table("t", data=rows(1), branch="dev")
        copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
        forget(lake, later, "other")
        swept = lake.sweep_tables(remove_data=True)
        assert [one.problem for one in swept] == ["", ""]
        with opened(tmp_path / "fork", later) as fork:
            assert ids(fork.branch("dev").table("t")) == [1]


def test_a_lake_without_a_warehouse_notes_a_fork_in_its_roots(tmp_path: Path, later: LateClock) -> None:
    store, copied = MemoryStore(later), MemoryStore(later)
    lake = penstock.open(store, author="tester", settings=ALONE, clock=later)
    lake.add_root(str(tmp_path / "tables"))
    lake.create_table("t", data=rows(1), location=str(tmp_path / "tables" / "t"))
    lake.branch("dev").create().table("t").append(rows(2))
    copy_lake(store, copied, clock=later)
    forget(lake, later, "t")
    (told,) = lake.sweep_tables(remove_data=True)
    assert (told.problem, told.forked > 0) == ("", True)
    fork = penstock.open(copied, clock=later)
    assert ids(fork.branch("dev").table("t")) == [1, 2]


def test_versions_of_a_lance_table_stay_for_a_fork(tmp_path: Path, later: LateClock) -> None:
    """Of a lake that has nothing else, and so has no file in its pool."""
    penstock.init(tmp_path / "lake").close()
    with opened(tmp_path / "lake", later) as lake:
        written(lake.lance(), "t", ids=(1,), mode="create")
        lake.branch("dev").create()
        written(lake.lance("dev"), "t", ids=(2,))
        lake.finish_background()
        copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
        forget(lake, later)
        (told,) = lake.sweep_tables(remove_data=True)
        assert (told.problem, told.forked > 0) == ("", True)
        with opened(tmp_path / "fork", later) as fork:
            assert ids_at(fork.lance("dev"), "t") == [1, 2]


def test_an_erase_names_forks_and_says_what_stays_for_them(
    source: Lake, fork: Lake, later: LateClock
) -> None:
    source.branch("dev").delete()
    with pytest.raises(penstock.errors.EraseRefused, match=r"fork of this lake at .*/fork"):
        source.erase("t")
    later.days = 40
    erased = source.erase("t", all_references=True)
    assert not erased.finished
    assert any("stay because a fork of the lake" in line for line in erased.left)


def test_an_erase_ends_once_the_fork_and_its_note_are_removed(
    source: Lake, tmp_path: Path, later: LateClock
) -> None:
    copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
    source.branch("dev").delete()
    later.days = 40
    with pytest.raises(penstock.errors.EraseRefused) as refused:
        source.erase("t")
    shutil.rmtree(tmp_path / "fork")
    _, _, told = refused.value.message.partition("then its note (")
    Path(told.partition(")")[0]).unlink()
    assert source.erase("t").finished
    assert ids(source.table("t")) == [2]


def test_an_erase_of_a_dropped_table_leaves_files_of_forks(
    source: Lake, fork: Lake, later: LateClock
) -> None:
    source.branch("dev").delete()
    source.branch().drop("t")
    later.days = 40
    with pytest.raises(penstock.errors.EraseRefused, match=r"fork of this lake at .*/fork"):
        source.erase("t", dropped=True)
    erased = source.erase("t", dropped=True, all_references=True)
    assert not erased.finished
    assert any("stay because a fork of the lake" in line for line in erased.left)
    read_fork(fork)


def test_an_erase_of_a_table_of_files_has_not_ended_while_files_stay_for_a_fork(
    tmp_path: Path, later: LateClock
) -> None:
    with opened(tmp_path / "lake", later) as lake:
        pool = Pool(lake)
        pool.write("t", "old")
        pool.write("t", "new", replaced=("",))
        copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
        later.days = 40
        erased = lake.erase("t", all_references=True)
        assert not erased.finished
        assert any("1 files stay because a fork of the lake" in line for line in erased.left)


@pytest.mark.parametrize("is_moved", [False, True])
def test_times_that_the_storage_gives_do_not_let_files_of_a_fork_go(
    source: Lake, tmp_path: Path, later: LateClock, is_moved: bool
) -> None:
    """The storage's clock is ahead of the lake's by an hour; or files were moved after the fork, by a program
    that gives them the time of that."""
    later.days = -1 / 24
    copy_lake(tmp_path / "lake", tmp_path / "fork", clock=later)
    source.branch("dev").delete()
    if is_moved:
        source.close()
        moved = tmp_path / "moved"
        shutil.copytree(tmp_path / "lake" / "warehouse", moved, copy_function=shutil.copyfile)
        map_root(tmp_path / "lake", str(tmp_path / "lake" / "warehouse"), str(moved), clock=later)
    with opened(tmp_path / "lake", later) as lake:
        lake.keep_history(max_commits=1)
        later.days = 40
        lake.sweep()
        (told,) = lake.sweep_tables(remove_data=True)
        assert (told.problem, told.data_files, told.forked > 0) == ("", 0, True)
