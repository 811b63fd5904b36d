"""Jobs that write one table at the same time: none commits before all have written, then all do at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.errors import CommitConflict, ConflictError, PenstockError, ReferenceNotFound
from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.answers import FilesWritten
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark import write
from penstock.spark.requests import WriteResult
from tests.spark.files.cases import (
    WAIT_S,
    after_writing,
    by_folder,
    entries,
    head,
    ids,
    in_pool,
    jobs,
    rows,
    save,
    together,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::penstock.spark.job.concurrent_jobs.ConcurrentJobsWarning")

Folders = dict[str, list[int]]


def committed(done: WriteResult | FilesWritten | PenstockError | None) -> str:
    assert isinstance(done, WriteResult | FilesWritten)
    assert done.commit is not None
    return done.commit.id


def in_order(lake: Lake, *done: WriteResult | PenstockError | None) -> list[int]:
    """The numbers of some jobs, in the order in which they landed."""
    landed = [one.id for one in reversed(lake.log())]
    return sorted(range(len(done)), key=lambda number: landed.index(committed(done[number])))


def test_property_36_appends_unite(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    done = together(monkeypatch, *(partial(save, rows(spark, first)) for first in (0, 10)))
    assert all(map(committed, done))
    assert ids(lake, "raw.events") == [0, 1, 2, 10, 11, 12]


def test_property_37_of_two_overwrites_the_later_one_is_there_alone(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 100))
    done = together(monkeypatch, *(partial(save, rows(spark, first), mode="overwrite") for first in (0, 10)))
    first, last = in_order(lake, *done)
    values = [[0, 1, 2], [10, 11, 12]]
    assert ids(lake, "raw.events") == values[last]
    assert ids(lake, "raw.events", committed(done[first])) == values[first]


def test_property_38_an_overwrite_and_an_append_are_as_if_one_came_after_the_other(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 100))
    done = together(
        monkeypatch, partial(save, rows(spark, 0), mode="overwrite"), partial(save, rows(spark, 10))
    )
    is_overwritten_last = in_order(lake, *done) == [1, 0]
    assert ids(lake, "raw.events") == ([0, 1, 2] if is_overwritten_last else [0, 1, 2, 10, 11, 12])


@pytest.mark.parametrize("other", ["error", "append", "overwrite"])
def test_property_39_error_is_refused_at_the_commit_where_another_job_was_first(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    done = together(
        monkeypatch,
        partial(save, rows(spark, 0), mode="error"),
        partial(save, rows(spark, 10), mode=other),
    )
    won = [one for one in done if isinstance(one, WriteResult)]
    refused = [one for one in done if isinstance(one, PenstockError)]
    if other == "error" or refused:
        (problem,) = refused
        assert isinstance(problem, CommitConflict)
        assert "already has files: 1; nothing was written" in problem.message
        assert len(won) == 1
        assert ids(lake, "raw.events") == ([0, 1, 2] if won[0] is done[0] else [10, 11, 12])
    else:
        assert ids(lake, "raw.events") == ([10, 11, 12] if other == "overwrite" else [0, 1, 2, 10, 11, 12])
    assert sorted(one.state for one in jobs(lake)) == ["aborted"] * len(refused) + ["committed"] * len(won)
    kept = {one.address for state in lake.log() for one in entries(lake, "raw.events", state.id)}
    assert in_pool(lake) == kept


def test_property_40_of_two_that_ignore_one_writes_and_the_other_does_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = together(monkeypatch, *(partial(save, rows(spark, first), mode="ignore") for first in (0, 10)))
    assert done.count(None) == 1
    assert ids(lake, "raw.events") == ([0, 1, 2] if done[1] is None else [10, 11, 12])
    assert len(lake.log()) == 1


def dynamic(df: Any) -> Callable[[], WriteResult | None]:
    return partial(save, df, mode="overwrite", partition_by="p", partition_overwrite="dynamic")


def test_property_41_dynamic_overwrites_are_serial_in_every_partition(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 1000, parts=(0, 1, 2, 3)), partition_by="p")
    done = together(
        monkeypatch, dynamic(rows(spark, 0, parts=(1, 2))), dynamic(rows(spark, 500, parts=(2, 3)))
    )
    expected: Folders = {f"p={part}": [1000 + 10 * part + n for n in range(3)] for part in range(4)}
    for number in in_order(lake, *done):
        for part in ((1, 2), (2, 3))[number]:
            expected[f"p={part}"] = [500 * number + 10 * part + n for n in range(3)]
    assert by_folder(lake, "raw.events") == expected


def test_property_42_a_dynamic_and_a_static_overwrite_are_as_if_one_came_after_the_other(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 1000, parts=(0, 1)), partition_by="p")
    static = partial(save, rows(spark, 500, parts=(1, 2)), mode="overwrite", partition_overwrite="static")
    done = together(monkeypatch, dynamic(rows(spark, 0, parts=(1,))), static)
    whole = {"p=1": [510, 511, 512], "p=2": [520, 521, 522]}
    last = in_order(lake, *done)[1]
    assert by_folder(lake, "raw.events") == (whole if last == 1 else {**whole, "p=1": [10, 11, 12]})


def test_property_43_jobs_on_other_tables_are_not_in_the_way(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = together(
        monkeypatch,
        *(partial(save, rows(spark, number), f"raw.t{number}", mode="overwrite") for number in range(3)),
    )
    assert len({committed(one) for one in done}) == 3
    assert [ids(lake, f"raw.t{number}")[0] for number in range(3)] == [0, 1, 2]


def test_property_44_sixty_four_jobs_on_one_branch_all_land(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_spark, others = 4, 60
    start = Barrier(with_spark + others)
    after_writing(monkeypatch, lambda: start.wait(WAIT_S))

    def plain(number: int) -> FilesWritten:
        folder = make_folder_name(lake.id, UUID(int=number), time.time_ns() // 1000)
        file = NewFile(path=f"n={number}/part", size=1)
        start.wait(WAIT_S)
        return lake.do(WriteFiles(key=Key.parse("raw.events"), folder=folder, added=(file,)))

    def job(number: int) -> WriteResult | FilesWritten | None:
        return save(rows(spark, number)) if number < with_spark else plain(number)

    with ThreadPoolExecutor(with_spark + others) as threads:
        done = list(threads.map(job, range(with_spark + others)))
    assert len({committed(one) for one in done}) == 64
    assert len(entries(lake, "raw.events")) == 64


def test_property_45_files_that_are_put_meanwhile_are_met_by_the_same_rules(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_writing(monkeypatch, lambda: lake.table("raw.events").files.put("by/hand", b"1"))
    with pytest.raises(CommitConflict, match="already has files: 1"):
        save(rows(spark, 0), mode="error")
    assert save(rows(spark, 0), mode="ignore") is None
    save(rows(spark, 0), mode="overwrite")
    assert ids(lake, "raw.events") == [0, 1, 2]


@pytest.mark.parametrize("how", ["deleted", "created anew", "set back"])
def test_property_46_a_job_does_not_land_on_a_branch_that_is_not_the_one_it_began_on(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    save(rows(spark, 100))
    first = head(lake)
    lake.branch("dev").create()
    save(rows(spark, 200), branch="dev")

    def happen() -> None:
        if how == "set back":
            lake.branch("dev").assign(first)
            return
        lake.branch("dev").delete()
        if how == "created anew":
            lake.branch("dev").create()

    after_writing(monkeypatch, happen)
    files = in_pool(lake)
    with pytest.raises((ConflictError, ReferenceNotFound)):
        save(rows(spark, 0), branch="dev")
    if how != "deleted":
        assert head(lake, "dev") == first
    assert in_pool(lake) == files


def test_property_1_nobody_sees_files_before_the_commit(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(rows(spark, 100))
    before = (head(lake), ids(lake, "raw.events"))
    seen: list[Any] = []
    after_writing(monkeypatch, lambda: seen.append((head(lake), ids(lake, "raw.events"))))
    save(rows(spark, 0), mode="overwrite")
    assert seen == [before]
    assert ids(lake, "raw.events") == [0, 1, 2]


def test_formats_that_race_to_create_a_table_do_not_mix(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = together(
        monkeypatch, *(partial(write, rows(spark, 0), "raw.events", format=name) for name in ("csv", "json"))
    )
    (problem,) = [one for one in done if isinstance(one, PenstockError)]
    assert "but the job writes" in problem.message
    assert len(entries(lake, "raw.events")) == 1
