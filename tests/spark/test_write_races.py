"""Writes that meet others, answers that are lost, jobs that take too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    ConflictError,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    TableConflict,
)
from penstock.formats.delta.lake.calls import CommitTables, CreateTable
from penstock.formats.delta.spark.job import files as files_module
from penstock.formats.delta.spark.job import tables
from penstock.formats.delta.spark.writes import table_creation
from penstock.kernel.reachable import show_no_progress
from penstock.kernel.settings import Settings
from penstock.lake.call import Call
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.spark import write
from penstock.spark.requests import WriteResult
from tests.spark.writing_cases import files_below, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S = 60


@pytest.fixture
def after_writing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[str]]:
    """Have something happen each time that a job has written its files, and before it commits them."""

    def have(happen: Callable[[], Any]) -> list[str]:
        jobs: list[str] = []
        original = files_module.write_files

        def write_files(*given: Any, **more: Any) -> Any:
            actions = original(*given, **more)
            jobs.append(more["branch"])
            happen()
            return actions

        for module in (table_creation, tables):
            monkeypatch.setattr(module, "write_files", write_files)
        return jobs

    return have


def once(happen: Callable[[], Any]) -> Callable[[], None]:
    """Something that happens the first time only: it may have jobs of its own."""
    pending = [happen]

    def maybe() -> None:
        if pending:
            pending.pop()()

    return maybe


def test_a_table_that_cannot_be_created_is_not_tried_again(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.table")
    jobs = after_writing(int)
    with pytest.raises(CommitConflict, match=r"'demo\.table' is not a namespace"):
        write(spark.range(1), "demo.table.below")
    assert jobs == ["main"]
    assert len(list(Path(lake.warehouse).rglob("part-*.parquet"))) == len(files_below(lake, "demo.table"))


@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_of_two_that_create_a_table_one_does(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]], mode: str
) -> None:
    both = Barrier(2)

    def meet() -> None:
        if len(jobs) <= 2:
            both.wait(WAIT_S)

    jobs = after_writing(meet)

    def one(first: int) -> WriteResult | PenstockError | None:
        try:
            return write(spark.range(first, first + 3), "demo.wanted", mode=mode)
        except PenstockError as problem:
            return problem

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(one, (0, 10)))
    rows = [row["id"] for row in seen(lake, "demo.wanted")]
    created = [one for one in found if isinstance(one, WriteResult) and one.version == 0]
    assert len(created) == 1
    (other,) = [one for one in found if one not in created]
    match mode:
        case "append":
            assert rows == [0, 1, 2, 10, 11, 12]
        case "overwrite":
            assert isinstance(other, WriteResult)
            assert other.version == 1
            assert rows == ([0, 1, 2] if found[0] is other else [10, 11, 12])
        case "error":
            assert isinstance(other, CommitConflict)
        case "ignore":
            assert other is None
    if mode in {"error", "ignore"}:
        assert rows in ([0, 1, 2], [10, 11, 12])
    # The files that the loser wrote for a table of its own are gone with it.
    warehouse = Path(lake.warehouse)
    tables_left = {one.relative_to(warehouse).parts[0] for one in warehouse.rglob("part-*.parquet")}
    assert len(tables_left) == 1


def test_rows_still_land_when_a_column_was_added_meanwhile_and_are_not_written_again(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.growing")
    more = spark.sql("select 5L as id, 'x' as name")
    jobs = after_writing(once(lambda: write(more, "demo.growing", merge_schema=True)))
    done = write(spark.range(1, 3), "demo.growing")
    assert done is not None
    assert done.version == 2
    assert len(jobs) == 2
    assert [(row["id"], row["name"]) for row in seen(lake, "demo.growing")] == [
        (0, None), (1, None), (2, None), (5, "x"),
    ]  # fmt: skip


def test_two_that_add_different_columns_both_do(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.growing")
    theirs = spark.sql("select 5L as id, 'x' as name")
    jobs = after_writing(once(lambda: write(theirs, "demo.growing", merge_schema=True)))
    write(spark.sql("select 6L as id, 1.5D as size"), "demo.growing", merge_schema=True)
    assert len(jobs) == 2
    assert seen(lake, "demo.growing")[1:] == [
        {"id": 5, "name": "x", "size": None},
        {"id": 6, "name": None, "size": 1.5},
    ]


def test_rows_that_do_not_fit_what_the_table_has_become_are_refused_and_removed(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.changing")
    other = spark.sql("select 'x' as name")
    after_writing(once(lambda: write(other, "demo.changing", mode="overwrite", overwrite_schema=True)))
    with pytest.raises(TableConflict):
        write(spark.range(1, 3), "demo.changing")
    assert seen(lake, "demo.changing") == [{"name": "x"}]
    snapshots = [lake.table("demo.changing").snapshot(version) for version in (0, 1)]
    committed = {file.path for one in snapshots for file in one.files()}
    assert files_below(lake, "demo.changing") == committed


def test_rows_do_not_land_in_another_table_that_has_the_key_by_now(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.replaced")
    root = Path(lake.table("demo.replaced").location)

    def replace() -> None:
        lake.commit([Delete(Key.parse("demo.replaced"))])
        write(spark.range(7, 8), "demo.replaced")

    after_writing(once(replace))
    with pytest.raises(ConflictError):
        write(spark.range(1, 3), "demo.replaced")
    assert [row["id"] for row in seen(lake, "demo.replaced")] == [7]
    assert len(list(root.rglob("part-*.parquet"))) == 1


def test_overwrites_that_meet_are_never_mixed_and_appends_are_kept_or_replaced_whole(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(3), "demo.numbers")

    def others() -> None:
        write(spark.range(10, 12), "demo.numbers", mode="overwrite")
        write(spark.range(20, 22), "demo.numbers")

    after_writing(once(others))
    write(spark.range(30, 32), "demo.numbers", mode="overwrite")
    assert [row["id"] for row in seen(lake, "demo.numbers")] == [30, 31]


def test_partitions_that_others_overwrite_meanwhile_stay_theirs(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.sql("select id, id % 3 as p from range(6)"), "demo.parts", partition_by="p")

    def dynamic(id: int, p: int) -> None:  # noqa: A002
        df = spark.sql(f"select {id}L as id, {p}L as p")
        write(df, "demo.parts", mode="overwrite", partition_overwrite="dynamic")

    def others() -> None:
        dynamic(101, 1)
        dynamic(102, 2)

    after_writing(once(others))
    dynamic(201, 1)
    assert [row["id"] for row in seen(lake, "demo.parts")] == [0, 3, 102, 201]


def test_a_replacement_that_rests_on_rows_which_others_changed_is_refused_and_removed(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(0, 4, 1, 1), "demo.numbers")
    after_writing(once(lambda: write(spark.range(2), "demo.numbers", mode="overwrite")))
    with pytest.raises(TableConflict):
        write(spark.range(3, 4), "demo.numbers", mode="overwrite", replace_where="id >= 3")
    assert [row["id"] for row in seen(lake, "demo.numbers")] == [0, 1]
    versions = [lake.table("demo.numbers").snapshot(version) for version in (0, 1)]
    assert files_below(lake, "demo.numbers") == {file.path for one in versions for file in one.files()}


def test_two_of_the_same_under_one_key_are_one_commit(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.once")
    again: list[WriteResult | None] = []
    after_writing(once(lambda: again.append(write(spark.range(1, 2), "demo.once", idempotency_key="k"))))
    done = write(spark.range(1, 2), "demo.once", idempotency_key="k")
    (other,) = again
    assert done is not None
    assert other is not None
    assert done.commit == other.commit
    assert len(seen(lake, "demo.once")) == 2
    assert files_below(lake, "demo.once") == {one.path for one in lake.table("demo.once").snapshot().files()}


def test_a_batch_that_two_write_at_once_is_there_once(
    spark: SparkSession, lake: Lake, after_writing: Callable[[Callable[[], Any]], list[str]]
) -> None:
    write(spark.range(1), "demo.batches", app_id="loader", batch=0)
    after_writing(once(lambda: write(spark.range(1, 2), "demo.batches", app_id="loader", batch=1)))
    done = write(spark.range(1, 2), "demo.batches", app_id="loader", batch=1)
    assert done is not None
    assert done.is_repeated
    assert [row["id"] for row in seen(lake, "demo.batches")] == [0, 1]


class Forgetful(Lake):
    """A lake that does what it is asked, and whose answers to commits are lost."""

    def do(self, call: Call[Any], progress: Callable[[str, int], None] = show_no_progress) -> Any:
        answer = super().do(call, progress)
        if isinstance(call, CommitTables | CreateTable):
            raise OutcomeUnknown("the answer was lost", key=call.idempotency_key)
        return answer


def test_nothing_is_removed_when_nobody_knows_whether_it_was_committed(
    spark: SparkSession, lake: Lake
) -> None:
    forgetful = Forgetful(lake.catalogue, lake.author)
    for rows in (1, 2):
        with pytest.raises(OutcomeUnknown):
            write(spark.range(1), "demo.lost", lake=forgetful, idempotency_key=f"write {rows}")
        assert len(seen(lake, "demo.lost")) == rows
        # Whoever asks again, under the same key, is told.
        known = write(spark.range(1), "demo.lost", idempotency_key=f"write {rows}")
        assert known is not None
        assert known.version == rows - 1
        assert len(seen(lake, "demo.lost")) == rows


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Lake]:
    """A lake that sweeps files as soon as they are there."""
    with penstock.open(
        tmp_path / "hasty", settings=Settings(data_grace_days=1e-9, nobody_writes=True)
    ) as lake:
        yield lake


def test_a_job_that_took_too_long_does_not_commit(spark: SparkSession, hasty: Lake) -> None:
    with pytest.raises(InvalidRequest, match="'data_grace_days' must"):
        write(spark.range(1), "demo.slow", lake=hasty)
    assert not hasty.table("demo.slow").exists
    assert list(Path(hasty.warehouse).rglob("part-*.parquet")) == []
    hasty.delta.create_empty(
        "demo.slow", '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    )
    with pytest.raises(InvalidRequest, match="nothing was committed"):
        write(spark.range(1), "demo.slow", lake=hasty)
    assert files_below(hasty, "demo.slow") == set()
