"""Files of a Delta table are rewritten by Spark with the same rows: together, or along a curve."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.spark.rewrites import compaction
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from penstock.spark.row_changes import delete
from penstock.spark.streams import stream
from penstock.spark.upkeep import optimize
from tests.spark.counted_work import counted_work
from tests.spark.reading_tables import in_each_engine, using

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.visits"
ALL = {
    "delta.enableRowTracking": "true",
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
}
START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = (date(2026, 11, 1), date(2026, 11, 2), None)


def visits(first: int, count: int = 12) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "day": pa.array([DAYS[number % 3] for number in numbers], pa.date32()),
            "page": pa.array([f"p{number % 7}" if number % 5 else None for number in numbers]),
            "at": pa.array([START + timedelta(hours=number % 24) for number in numbers]),
        }
    )


def make(lake: Lake, appends: int = 4, **options: Any) -> Table:
    options = {"partition_by": ["day"], **options}
    lake.delta.create(KEY, schema=visits(0).schema, **options)
    table = lake.table(KEY)
    for number in range(appends):
        table.append(visits(12 * number))
    return table


def all_rows(table: Table, *more: str) -> list[tuple[Any, ...]]:
    columns = ["id", "day", "page", "at", *more]
    rows = table.to_arrow(columns=columns).to_pylist()
    return sorted((tuple(row[name] for name in columns) for row in rows), key=lambda row: row[0])


@in_each_engine
def test_small_files_of_a_partition_become_one_and_rows_keep_their_ids(
    lake: Lake, spark: SparkSession, engine: str
) -> None:
    using(spark, engine)
    table = make(lake, properties=ALL)
    table.delete("id % 6 = 1")
    assert any(file.deletion_vector for file in table.snapshot().files())
    before, seen = all_rows(table, "_row_id", "_row_commit_version"), list[tuple[int, int]]()
    done = optimize(spark, KEY, progress=lambda part, whole: seen.append((part, whole)))
    assert (done.files_removed, done.files_added, done.version) == (12, 3, table.version)
    assert seen[-1][0] == seen[-1][1] == done.bytes_removed
    assert all_rows(table, "_row_id", "_row_commit_version") == before
    files = list(table.snapshot().files())
    assert len(files) == 3
    assert not any(file.data_change or file.deletion_vector for file in files)
    past = table.history(1)[0]
    assert (past.operation, past.parameters["zOrderBy"]) == ("OPTIMIZE", "[]")
    assert optimize(spark, KEY).version is None


def test_rows_that_are_put_together_go_to_no_other_task(lake: Lake, spark: SparkSession) -> None:
    table = make(lake, properties=ALL)
    table.delete("id % 6 = 1")
    before = all_rows(table, "_row_id")
    with counted_work(spark) as work:
        assert optimize(spark, KEY).files_added == 3
    assert (work.shuffled_rows, work.writing_tasks) == (0, 3)
    assert all_rows(table, "_row_id") == before
    for number in range(4, 6):
        table.append(visits(12 * number))
    target = 2 * max(file.size for file in table.snapshot().files())
    with counted_work(spark) as work:
        assert optimize(spark, KEY, target_file_bytes=target, zorder_by="id").files_added >= 3
    assert work.shuffled_rows > 0  # or nothing would be counted


@pytest.mark.parametrize("limit", ["SCANS_MAX", "BROADCAST_MAX_WORDS", "FAR_FILES_MAX"])
def test_what_takes_too_many_scans_or_too_much_memory_or_time_goes_to_other_tasks(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(compaction, limit, 1)
    if limit == "FAR_FILES_MAX":
        monkeypatch.setattr(compaction, "_is_far", lambda _: True)
    table = make(lake, partition_by=[], properties=ALL)
    table.delete("id % 6 = 1")
    before = all_rows(table, "_row_id")
    target = 2 * max(file.size for file in table.snapshot().files()) + 100
    with counted_work(spark) as work:
        assert optimize(spark, KEY, target_file_bytes=target).files_added == 2
    assert work.shuffled_rows == len(before)
    assert all_rows(table, "_row_id") == before


def test_a_task_writes_small_files_of_several_partitions(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "TASKS_MIN", 2)
    table = make(lake)
    before = all_rows(table)
    with counted_work(spark) as work:
        assert optimize(spark, KEY).files_added == 3
    assert (work.shuffled_rows, work.writing_tasks) == (0, 2)
    assert all_rows(table) == before


@pytest.mark.verify
def test_the_feed_and_streams_pass_over_it_and_deltalake_reads_it(
    lake: Lake, spark: SparkSession, tmp_path: Any
) -> None:
    table = make(lake, properties={"delta.enableChangeDataFeed": "true"})
    version, before = table.version, all_rows(table)
    optimize(spark, KEY, where="day = '2026-11-01'")
    assert [file.partition_values["day"] for file in table.snapshot().files()].count("2026-11-01") == 1
    assert len(list(table.snapshot().files())) == 9
    assert changes(spark, KEY, version + 1).count() == 0
    query = stream(spark, KEY, starting_version=version + 1).writeStream.format("memory").queryName("seen")
    started = (
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    started.awaitTermination()
    assert spark.table("seen").count() == 0
    table.backfill_to_version()
    theirs = pa.table(deltalake.DeltaTable(table.location).scan())
    assert sorted(theirs["id"].to_pylist()) == [row[0] for row in before]
    with pytest.raises(InvalidRequest, match="not a partition column"):
        optimize(spark, KEY, where="id = 1")


@pytest.mark.parametrize("columns", [("id", "page"), pytest.param(("at",), marks=pytest.mark.verify)])
def test_rows_are_sorted_along_a_curve(lake: Lake, spark: SparkSession, columns: tuple[str, ...]) -> None:
    lake.table(KEY).write(visits(0, 3000))
    table = lake.table(KEY)
    table.append(visits(3000, 3000))
    before = all_rows(table)
    done = optimize(spark, KEY, zorder_by=columns, target_file_bytes=1500)
    assert done.files_added > 6
    assert all_rows(table) == before
    files = list(table.snapshot().files())
    wanted = "id < 400 and page = 'p3'" if columns[0] == "id" else "at < '2026-11-01T03:00:00'"
    assert len(list(table.snapshot().files(wanted))) < len(files) / 2
    with pytest.raises(InvalidRequest, match="no such column"):
        optimize(spark, KEY, zorder_by="z")


@pytest.mark.verify
def test_a_clustered_table_is_sorted_by_its_own_columns_once(lake: Lake, spark: SparkSession) -> None:
    table = make(lake, partition_by=[], cluster_by=["page"], properties={"delta.columnMapping.mode": "name"})
    before = all_rows(table)
    assert optimize(spark, KEY).files_removed == 4
    assert all(file.clustering_provider == "liquid" for file in table.snapshot().files())
    assert optimize(spark, KEY).files_removed == 0
    assert all_rows(table) == before


@pytest.mark.parametrize("vectors", [pytest.param("false", marks=pytest.mark.verify), "true"])
def test_appends_are_no_conflict_and_files_that_a_delete_changed_are_taken_again(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, vectors: str
) -> None:
    table = make(lake, properties={"delta.enableDeletionVectors": vectors})
    commit, tries = DeltaJob.commit_actions, list[str]()

    def wrapped(self: DeltaJob, actions: Any, **how: Any) -> Any:
        if how["operation"] == "OPTIMIZE":
            tries.append("optimize")
            table.append(visits(100 * len(tries)))
            if len(tries) == 1:
                assert table.delete("id = 3").deleted == 1
        return commit(self, actions, **how)

    monkeypatch.setattr(DeltaJob, "commit_actions", wrapped)
    done = optimize(spark, KEY)
    assert (len(tries), done.files_skipped) == (2, 0)
    expected = [*range(48), *range(100, 112), *range(200, 212)]
    assert [row[0] for row in all_rows(table)] == [number for number in expected if number != 3]
    assert len(list(table.snapshot().files())) == 6  # and those of the last append


def test_a_delete_of_spark_that_a_compaction_overtook_is_made_anew(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake)
    commit, seen = DeltaJob.commit_actions, list[str]()

    def wrapped(self: DeltaJob, actions: Any, **how: Any) -> Any:
        seen.append(how["operation"])
        if len(seen) == 1:
            assert table.optimize().files_removed == 12
        return commit(self, actions, **how)

    monkeypatch.setattr(DeltaJob, "commit_actions", wrapped)
    assert delete(spark, KEY, "id >= 10") is not None
    assert seen == ["DELETE", "OPTIMIZE", "DELETE"]
    assert [row[0] for row in all_rows(table)] == list(range(10))


@pytest.mark.verify
def test_a_job_that_fails_leaves_no_file(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake)
    before = count_data_files(table)

    def refuse(self: DeltaJob, actions: Any, **how: Any) -> Any:
        raise InvalidRequest("no")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaJob, "commit_actions", refuse)
        with pytest.raises(InvalidRequest, match="no"):
            optimize(spark, KEY)
    assert optimize(spark, KEY).files_added == 3
    assert count_data_files(table) >= before + 3


def count_data_files(table: Table) -> int:
    folders = os.walk(table.location)
    return sum(
        name.endswith(".parquet")
        for folder, _, names in folders
        for name in names
        if "_delta_log" not in folder
    )


@pytest.mark.verify
def test_tables_of_other_formats(lake: Lake, spark: SparkSession) -> None:
    for number in range(3):
        lake.table("shop.files").write(visits(12 * number), format="parquet")
    assert optimize(spark, "shop.files").files_added == 1
    assert lake.table("shop.files").count() == 36
    lake.table("shop.csv").write(visits(0).select(["id", "page"]), format="csv")
    with pytest.raises(NotManaged, match="a table of csv files"):
        optimize(spark, "shop.csv")
