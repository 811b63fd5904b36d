"""Where the load runs: what was there before is there afterwards, and nothing else."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

import penstock
from penstock import IcebergTable
from penstock.bench.benchmark import BenchmarkPlan, run_benchmark
from penstock.bench.benchmark_lake import HOME, NOTE, BenchmarkLake, clean_up, open_guest_lake, own_lake
from penstock.errors import InvalidRequest, LakeNotFound, Unavailable
from penstock.kernel.description import make_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.model.encoding import NO_COMMIT
from penstock.model.references import Kind
from penstock.stores.port import Row, Store
from penstock.stores.sqlite import SqliteStore
from penstock.testing.samples import sample, scan_all

PLAN = BenchmarkPlan(writers=(2,), seconds=0.01)


def rows(place: Path) -> list[Row]:
    store = SqliteStore(place / "penstock.db", create=False)
    try:
        return [row for kind in Kind for row in store.references(kind.value)]
    finally:
        store.close()


def files(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake that somebody uses."""
    place = tmp_path / "lake"
    with penstock.init(place) as made:
        made.branch().put("sales", IcebergTable(metadata_location="s3://b/1"))
        made.branch("bench/mine").create()
        made.tag("v1").create()
    return place


class Stopped(BaseException):
    """Somebody pressed Ctrl-C."""


# -- a lake of its own -------------------------------------------------------------------------------------


def test_a_directory_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    with own_lake(str(tmp_path / "deep" / "down")) as site:
        assert len(list(run_benchmark(site, PLAN))) == 3
        assert (tmp_path / "deep" / "down" / "penstock.db").exists()
    assert files(tmp_path) == set()


def test_of_a_directory_that_was_there_only_the_database_goes(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with own_lake(str(tmp_path)) as site:
        site.create_branches(2)
    assert files(tmp_path) == {"notes.txt"}


def test_a_database_that_was_there_stays_and_is_empty_again(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "penstock.db").close()
    with own_lake(f"sqlite://{tmp_path}") as site:
        site.create_branches(2)
        assert len(rows(tmp_path)) == 4
    assert files(tmp_path) == {"penstock.db"}
    assert rows(tmp_path) == []
    store = SqliteStore(tmp_path / "penstock.db")
    assert scan_all(store) == []
    store.close()


@pytest.mark.parametrize("where", ["deep", "deep/down"])
def test_what_somebody_put_beside_it_is_left(tmp_path: Path, where: str) -> None:
    with own_lake(str(tmp_path / "deep" / "down")):
        (tmp_path / where / "mine.txt").write_text("mine")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]


def test_a_relative_directory_is_gone_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with own_lake("new/lake"):
        assert (tmp_path / "new" / "lake" / "penstock.db").exists()
    assert files(tmp_path) == set()


def test_the_directory_of_another_embedded_store_is_gone_again(tmp_path: Path) -> None:
    with own_lake(f"rocksdb://{tmp_path}/new/lake") as site:
        assert len(list(run_benchmark(site, PLAN))) == 3
        assert (tmp_path / "new" / "lake").is_dir()
    assert files(tmp_path) == set()


@pytest.mark.parametrize("stop", [Stopped, KeyboardInterrupt])
def test_interrupted_it_tidies_up(tmp_path: Path, stop: type[BaseException]) -> None:
    calls = count()

    def interrupt(*_: object) -> None:
        if next(calls) == 4:
            raise stop

    with pytest.raises(stop), own_lake(str(tmp_path / "lake")) as site:
        list(run_benchmark(site, PLAN, interrupt))
    assert files(tmp_path) == set()


def test_a_lake_that_is_there_is_refused_and_left_as_it_is(lake: Path) -> None:
    before = rows(lake)
    with pytest.raises(InvalidRequest, match="--in-lake"), own_lake(str(lake)):
        pass
    assert rows(lake) == before


@pytest.mark.parametrize("what", ["an object", "a branch", "a tombstone"])
def test_a_store_that_is_not_empty_is_refused_and_left_as_it_is(tmp_path: Path, what: str) -> None:
    store = SqliteStore(tmp_path / "penstock.db")
    if what == "an object":
        store.store(sample(1))
    else:
        kernel = Kernel(store)
        kernel.references.create_reference("mine", Kind.BRANCH, NO_COMMIT)
        if what == "a tombstone":
            kernel.references.delete_reference("mine")
    before = scan_all(store), rows(tmp_path)
    with pytest.raises(InvalidRequest, match="not empty"), own_lake(str(tmp_path)):
        pass
    assert (scan_all(store), rows(tmp_path)) == before
    store.close()


def test_a_lake_that_was_replaced_meanwhile_is_not_erased(tmp_path: Path) -> None:
    def replace(store: Store) -> None:
        store.erase()
        write_description(store, make_description(1, "main", "", ()))

    place = tmp_path / "new"
    with pytest.raises(InvalidRequest, match="was replaced"), own_lake(str(place)) as site:
        replace(site.store)
    assert [row.name for row in rows(place)] == ["@lake"]


# -- a lake that is there ----------------------------------------------------------------------------------


def test_as_a_guest_it_leaves_the_rows_as_they_were(lake: Path) -> None:
    before = rows(lake)
    with open_guest_lake(str(lake)) as site:
        list(run_benchmark(site, PLAN))
        assert len(rows(lake)) == len(before) + 64
    assert rows(lake) == before
    with penstock.open(lake) as opened:
        assert opened.fsck().damages == ()


def test_what_a_guest_leaves_the_sweep_removes(lake: Path) -> None:
    settings = penstock.Settings(grace_s=0, idempotency_days=0, nobody_writes=True)
    with penstock.open(lake, settings=settings) as opened:
        opened.sweep()
        kept = {one.id for one in scan_all(opened.kernel.store)}
        with open_guest_lake(str(lake)) as site:
            site.create_branches(3)
        assert {one.id for one in scan_all(opened.kernel.store)} > kept
        opened.sweep()
        assert {one.id for one in scan_all(opened.kernel.store)} == kept


@pytest.mark.parametrize("stop", [Stopped, KeyboardInterrupt])
def test_an_interrupted_guest_deletes_its_branches(lake: Path, stop: type[BaseException]) -> None:
    def begin(site: BenchmarkLake) -> None:
        site.create_branches(5)
        raise stop

    before = rows(lake)
    with pytest.raises(stop), open_guest_lake(str(lake)) as site:
        begin(site)
    assert rows(lake) == before


def test_a_branch_that_somebody_deleted_is_no_hindrance(lake: Path) -> None:
    before = rows(lake)
    with open_guest_lake(str(lake)) as site:
        first, *_ = site.create_branches(3)
        with penstock.open(lake) as opened:
            opened.kernel.references.delete_reference(first, leave_log=False)
    assert rows(lake) == before


def test_a_guest_needs_a_lake(tmp_path: Path) -> None:
    with pytest.raises(LakeNotFound), open_guest_lake(str(tmp_path / "nowhere")):
        pass
    assert files(tmp_path) == set()


def test_what_cannot_be_removed_is_told_with_the_way_out(lake: Path) -> None:
    def lose_the_rows(site: BenchmarkLake) -> None:
        site.create_branches(1)
        with closing(sqlite3.connect(lake / "penstock.db")) as connection, connection:
            connection.execute("DROP TABLE refs")

    with (
        pytest.raises(Unavailable, match=r"could not be removed(.|\n)*--clean"),
        open_guest_lake(str(lake)) as site,
    ):
        lose_the_rows(site)


# -- what a killed one left --------------------------------------------------------------------------------


KILLED = """
import os, signal, sys
from penstock.bench import benchmark_lake

with getattr(benchmark_lake, sys.argv[1])(sys.argv[2]) as begun:
    begun.create_branches(3)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(context: str, place: Path) -> None:
    """A bench that ends without a chance to tidy up."""
    ended = subprocess.run([sys.executable, "-c", KILLED, context, place], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_branches_that_were_left_are_deleted_and_no_others(lake: Path) -> None:
    before = rows(lake)
    killed("open_guest_lake", lake)
    assert len(rows(lake)) == len(before) + 3
    assert clean_up(str(lake)).branches == 3
    assert rows(lake) == before
    assert clean_up(str(lake)).branches == 0


def test_a_lake_that_was_left_is_erased(tmp_path: Path) -> None:
    killed("own_lake", tmp_path)
    assert clean_up(str(tmp_path)).branches == 4
    assert rows(tmp_path) == []
    with own_lake(str(tmp_path)):
        pass


def test_a_lake_that_was_left_and_taken_up_is_not_erased(tmp_path: Path) -> None:
    killed("own_lake", tmp_path)
    with penstock.open(tmp_path) as opened:
        assert opened.default_branch == HOME
        assert opened.branch().reference.note == NOTE
        opened.branch("mine").create()
    before = rows(tmp_path)
    with pytest.raises(InvalidRequest, match="somebody else uses it"):
        clean_up(str(tmp_path))
    assert rows(tmp_path) == before
