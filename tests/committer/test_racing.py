"""Jobs that meet on one branch: those of other tables do not notice, and however many there are, all land."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, get_ident
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

import penstock
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.answers import FilesWritten
from penstock.formats.files.lake.calls import AbortJob, BeginJob, NewFile, WriteFiles
from penstock.formats.files.lake.pending_changes import write_file_list
from penstock.formats.files.lake.pool import find_pool
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.model.keys import Key
from penstock.stores.memory import MemoryStore
from penstock.testing.faults import FaultyStore, Point
from penstock.testing.threads import at_once
from tests.formats.files.lakes import new_store, paths, write
from tests.jobs import lakes
from tests.spark.files.cases import WAIT_S, after_writing, ids, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 64
FILES = 10_000
PEAK_MAX_BYTES = 64 * 1024 * 1024


def job_of(number: int) -> tuple[str, str]:
    """The id and the fence of a job."""
    return f"{number:032x}", f"{number + 1000:032x}"


def run_job(lake: Lake, number: int, key: str, **more: object) -> FilesWritten:
    """A job from its beginning to its commit, with one file."""
    id_, fence = job_of(number)
    begun = lake.do(BeginJob(id=id_, fence=fence, key=Key.parse(key)))
    folder = begun.folder.removeprefix(find_pool(lake.warehouse))
    file = NewFile(path=f"{number}.csv", size=1)
    call = WriteFiles(key=Key.parse(key), job=id_, fence=fence, folder=folder, added=(file,), **more)  # type: ignore[arg-type]
    return lake.do(call)


def test_property_43_a_job_that_runs_or_stands_still_is_in_nobodys_way(lake: Lake) -> None:
    """While it has files that are in no commit, other tables are written, merged and swept as ever."""
    running = lake.do(BeginJob(id="1" * 32, fence="a" * 32, key=Key.parse("raw.slow"), own_branch=True))
    Path(running.folder).mkdir(parents=True)
    (Path(running.folder) / "part").write_bytes(b"1")
    run_job(lake, 2, "raw.other")
    lake.branch("dev").create()
    lake.table("raw.third", "dev").files.put("x", b"1")
    assert lake.merge("dev").commit is not None
    assert not lake.sweep_files(remove_data=True).problem
    assert (Path(running.folder) / "part").exists()
    assert lake.do(AbortJob(id="1" * 32)).state is JobState.ABORTED


def test_property_43_a_job_of_spark_that_waits_does_not_keep_one_of_another_table_waiting(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_written, other_landed, here = Event(), Event(), get_ident()

    def meanwhile() -> None:
        if get_ident() != here:
            is_written.set()
            assert other_landed.wait(WAIT_S)

    after_writing(monkeypatch, meanwhile)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(save, rows(spark, 0), "raw.slow", "overwrite")
        assert is_written.wait(WAIT_S)
        assert save(rows(spark, 10), "raw.other", mode="overwrite") is not None
        assert not slow.done()
        other_landed.set()
        assert slow.result(WAIT_S) is not None
    assert (ids(lake, "raw.slow"), ids(lake, "raw.other")) == ([0, 1, 2], [10, 11, 12])


@pytest.mark.parametrize("tables", [1, MANY], ids=["one table", "as many tables"])
def test_property_44_sixty_four_jobs_of_two_processes_on_one_branch_all_land(
    lake: Lake, tmp_path: Path, tables: int
) -> None:
    """None of them has to ask twice, and the log has each of them once."""
    with penstock.open(tmp_path / "lake", create=False) as other:

        def job(number: int) -> Callable[[], FilesWritten]:
            return lambda: run_job((lake, other)[number % 2], number, f"raw.t{number % tables}")

        done = at_once(*map(job, range(MANY)))
    landed = [one.id for one in lake.log(limit=None)]
    assert sorted(landed) == sorted(one.commit.id for one in done if one.commit is not None)
    assert len(landed) == MANY
    for number in range(MANY):
        assert lake.table(f"raw.t{number % tables}").files.exists(f"{number}.csv")


def test_property_49_a_merge_that_lost_its_swap_is_the_merge_of_what_is_there_then() -> None:
    """The same commits, merged at once and merged after a swap was lost to one of them."""
    inner = new_store()
    store = FaultyStore(inner, locking=False)
    raced, quiet = (penstock.open(one, create=False) for one in (store, new_store()))

    def fork(lake: Lake) -> None:
        write(lake, *(f"day={day}/{number}" for day in range(20) for number in range(20)))
        lake.branch("dev").create()
        write(lake, "day=3/new", "day=5/new", branch="dev", replaced=["day=3/"])
        write(lake, "day=1/here", branch="main")

    def late(lake: Lake) -> None:
        write(lake, "day=3/late", "day=4/late", removed=["day=7/7"])

    fork(raced)
    store.at(Point.BEFORE_SWAP, lambda: late(penstock.open(inner, create=False)))
    assert raced.merge("dev").commit is not None
    fork(quiet)
    late(quiet)
    quiet.merge("dev")
    assert "day=3/late" not in paths(raced)
    assert paths(raced) == paths(quiet)
    assert not raced.fsck().damages


def test_property_53_ten_thousand_files_of_a_job_need_little_memory_and_a_small_request(lake: Lake) -> None:
    id_, fence = job_of(1)
    begun = lake.do(BeginJob(id=id_, fence=fence, key=Key.parse("raw.events")))
    folder = begun.folder.removeprefix(find_pool(lake.warehouse))
    new = tuple(
        NewFile(path=f"day={number % 100}/part-{number:05d}-{UUID(int=number)}.parquet", size=number)
        for number in range(FILES)
    )
    tracemalloc.start()
    try:
        added = write_file_list(lake.places.open_place(find_pool(lake.warehouse)), folder, new)
        call = WriteFiles(key=Key.parse("raw.events"), job=id_, fence=fence, folder=folder, added=added)
        lake.do(call)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < PEAK_MAX_BYTES
    assert lake.table("raw.events").files.total().files == FILES
    assert lake.table("raw.events").files.total("day=7/").files == FILES // 100


def test_property_56_a_writer_whose_clock_is_wrong_lands_after_what_was_there() -> None:
    """The log has the order of landing, whatever the clocks say."""
    store, hour_us = MemoryStore(), 3_600_000_000
    now_us = lakes.START_US
    ahead = lakes.open_lake(store, lambda: now_us + hour_us)
    behind = lakes.open_lake(store, lambda: now_us - hour_us)
    folders = [make_folder_name(ahead.id, uuid4(), now_us) for _ in range(3)]
    written = [
        lake.do(
            WriteFiles(key=lakes.EVENTS, folder=folder, replaced=("",), added=(NewFile(path=name, size=1),))
        )
        for lake, folder, name in zip((ahead, behind, ahead), folders, "abc", strict=True)
    ]
    assert [one.id for one in reversed(behind.log())] == [one.commit.id for one in written if one.commit]
    assert lakes.files(behind) == ["c"]
