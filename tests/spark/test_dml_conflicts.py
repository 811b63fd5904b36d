"""Changes that meet: on the same files one of them is refused, elsewhere both land, and no row is lost.

Each change is cut in two where it matters: its files are written, and then it is committed. What others do
comes in between.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import OutcomeUnknown, TableConflict
from penstock.formats.delta.lake.row_rewrite import RowRewrite
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites.change_plans import plan_delete, plan_update
from penstock.formats.delta.spark.rewrites.merges import plan_merge
from penstock.lake.call import CommitDescription
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.merge_builder import merge
from penstock.spark.row_changes import delete, update
from tests.spark.writing_cases import delta_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.stock"
SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.string()), ("v", pa.int64())])


def rows(*given: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip("kpv", one, strict=True)) for one in given], SCHEMA)


@pytest.fixture
def create(lake: Lake) -> Callable[..., Table]:
    """Makes a table with two files in each of two partitions: 1 and 2 in ``a``, 3 and 4 in ``b``."""

    def made(**wanted: Any) -> Table:
        lake.delta.create(KEY, schema=SCHEMA, **{"partition_by": ["p"], **wanted})
        table = lake.table(KEY)
        for k, p in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
            table.append(rows((k, p, 0)))
        return table

    return made


def found(table: Table) -> dict[int, int]:
    """Values by key, as the lake and deltalake both read them; no key is there twice."""
    table.backfill_to_version()
    there = table.to_arrow().to_pylist()
    others = delta_table(table.location).to_pyarrow_table().to_pylist()
    by_key = {one["k"]: one["v"] for one in there}
    assert len(by_key) == len(there) == len(others)
    assert {one["k"]: one["v"] for one in others} == by_key
    return by_key


def files(table: Table) -> set[str]:
    """The data files that lie in the table's folder, part of it or not."""
    return {str(one) for one in Path(table.location).rglob("*.parquet") if "_delta_log" not in one.parts}


def begun(spark: SparkSession, lake: Lake, how: str, where: str) -> RowRewrite:
    """A change whose files are written."""
    table = JobTable(lake, KEY)
    planned = None
    if how == "delete":
        planned = plan_delete(spark, table, where)
    elif how == "update":
        planned = plan_update(spark, table, {"v": "v + 1"}, where)
    else:
        given = [(k, "a" if k < 3 else "b", 9) for k in range(1, 5)]
        source = spark.createDataFrame(given, "k long, p string, v long")
        on = "target.k = source.k and " + re.sub(r"\b([kpv]) ", r"target.\1 ", where)
        planned = plan_merge(table, merge(source, KEY, on, lake=lake).when_matched_update_all().plan)
    assert planned is not None
    return planned


def land(change: RowRewrite) -> int:
    return change.commit_rewrite(CommitDescription(), None).version


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        pytest.param("delete", "delete", marks=pytest.mark.verify),
        ("delete", "update"),
        ("update", "merge"),
        pytest.param("merge", "delete", marks=pytest.mark.verify),
        pytest.param("merge", "merge", marks=pytest.mark.verify),
    ],
)
def test_of_two_changes_of_the_same_file_one_is_refused_and_leaves_nothing(
    spark: SparkSession, create: Callable[..., Table], lake: Lake, winner: str, loser: str
) -> None:
    table = create()
    first, second = (begun(spark, lake, how, "k = 1 and v = 0") for how in (winner, loser))
    version = land(first)
    after, there = found(table), files(table)
    with pytest.raises(TableConflict, match=f"version {version}") as caught:
        land(second)
    assert KEY in caught.value.message
    assert found(table) == after
    assert table.version == version
    assert files(table) < there or loser == "delete"


@pytest.mark.verify
def test_changes_of_other_files_and_partitions_all_land(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create()
    changes = [
        begun(spark, lake, "update", "p = 'a' and v >= 0"),
        begun(spark, lake, "delete", "p = 'b' and k = 3"),
        begun(spark, lake, "merge", "p = 'b' and k = 4"),
    ]
    assert [land(one) for one in changes] == [5, 6, 7]
    assert found(table) == {1: 1, 2: 1, 4: 9}


def test_a_condition_that_is_a_column_looks_no_further_than_its_text_would(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    from pyspark.sql import functions as f

    table = create()
    in_a = plan_update(spark, JobTable(lake, KEY), {"v": 3}, (f.col("p") == "a") & (f.col("v") == 0))
    assert in_a is not None
    update(spark, KEY, {"v": 4}, f.col("p") == "b")
    land(in_a)
    assert found(table) == {1: 3, 2: 3, 3: 4, 4: 4}


def test_a_change_that_puts_rows_where_another_looked_is_in_its_way(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create()
    moved = plan_update(spark, JobTable(lake, KEY), {"p": "'b'", "v": "7"}, "k = 1")
    emptied = plan_delete(spark, JobTable(lake, KEY), "p = 'b'")
    counted = begun(spark, lake, "update", "p = 'a' and k = 2")
    assert moved is not None
    assert emptied is not None
    land(moved)
    with pytest.raises(TableConflict, match="which this transaction would have read"):
        land(emptied)
    land(counted)
    assert found(table) == {1: 7, 2: 1, 3: 0, 4: 0}


@pytest.mark.verify
@pytest.mark.parametrize("how", ["delete", "update", "merge"])
def test_rows_that_are_appended_meanwhile_stay_as_they_are(
    spark: SparkSession, create: Callable[..., Table], lake: Lake, how: str
) -> None:
    table = create(partition_by=())
    change = begun(spark, lake, how, "k = 1")
    table.append(rows((10, "a", 5)))
    land(change)
    after = {"delete": {}, "update": {1: 1}, "merge": {1: 9}}[how]
    assert found(table) == {2: 0, 3: 0, 4: 0, 10: 5} | after


def test_a_table_that_asks_for_it_refuses_a_change_after_an_append_to_what_it_read(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create(properties={"delta.isolationLevel": "Serializable"})
    in_a, in_b = begun(spark, lake, "delete", "p = 'a'"), begun(spark, lake, "update", "p = 'b'")
    table.append(rows((10, "a", 5)))
    with pytest.raises(TableConflict, match="version 5"):
        land(in_a)
    land(in_b)
    assert found(table) == {1: 0, 2: 0, 3: 1, 4: 1, 10: 5}


@pytest.mark.verify
def test_two_merges_do_not_insert_the_same_row(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create(partition_by=())
    source = spark.createDataFrame([(7, "a", 7)], "k long, p string, v long")
    inserting = merge(source, KEY, "target.k = source.k").when_not_matched_insert_all()
    both = [plan_merge(JobTable(lake, KEY), inserting.plan) for _ in range(2)]
    assert both[0] is not None
    assert both[1] is not None
    land(both[0])
    with pytest.raises(TableConflict):
        land(both[1])
    assert found(table)[7] == 7


@pytest.mark.verify
def test_a_merge_that_inserts_is_refused_when_a_row_that_it_matched_is_gone(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create()
    source = spark.createDataFrame([(1, "a", 7), (2, "a", 7)], "k long, p string, v long")
    changing = merge(source, KEY, "target.k = source.k").when_matched_update({"v": "1"}, "target.k = 2")
    change = plan_merge(JobTable(lake, KEY), changing.when_not_matched_insert_all().plan)
    assert change is not None
    delete(spark, KEY, "k = 1")
    with pytest.raises(TableConflict):
        land(change)
    assert found(table) == {2: 0, 3: 0, 4: 0}


class Forgetful(JobTable):
    """A table whose owner commits, and whose answer is lost on the way."""

    def commit_actions(self, *args: Any, **kwargs: Any) -> Any:
        super().commit_actions(*args, **kwargs)
        raise OutcomeUnknown("the answer was lost")


def test_files_stay_when_nobody_knows_whether_they_are_committed(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create()
    planned = plan_update(spark, Forgetful(lake, KEY), {"v": "5"}, "k = 1")
    assert planned is not None
    with pytest.raises(OutcomeUnknown):
        land(planned)
    assert found(table) == {1: 5, 2: 0, 3: 0, 4: 0}


@pytest.mark.verify
def test_changes_at_the_same_time_add_up_to_one_after_the_other(
    spark: SparkSession, create: Callable[..., Table], lake: Lake, seed: int
) -> None:
    table = create(partition_by=())
    writers, rounds = 3, 2
    meet = Barrier(writers, timeout=120)

    def work(number: int) -> dict[int, int]:
        """Add to some keys, again and again; returns how often each was added to."""
        chance = random.Random(seed + number)
        counted: dict[int, int] = {}
        for _ in range(rounds):
            keys = chance.sample(range(1, 5), 2)
            where = f"k in ({keys[0]}, {keys[1]})"
            planned = plan_update(spark, JobTable(lake, KEY), {"v": "v + 1"}, where)
            assert planned is not None
            meet.wait()  # all of them have read the same version
            try:
                land(planned)
            except TableConflict:
                while True:
                    try:
                        update(spark, KEY, {"v": "v + 1"}, where)
                        break
                    except TableConflict:
                        continue
            for key in keys:
                counted[key] = counted.get(key, 0) + 1
            meet.wait()
        table.append(rows((100 + number, "c", 0)))
        return counted

    with ThreadPoolExecutor(writers) as threads:
        counts = list(threads.map(work, range(writers)))
    wanted = {key: sum(one.get(key, 0) for one in counts) for key in range(1, 5)}
    after = found(table)
    assert {key: after[key] for key in range(1, 5)} == wanted
    assert len(after) == 4 + writers
    assert table.version == 4 + writers * rounds + writers


def test_a_job_reads_the_commit_that_it_began_at_even_if_its_branch_is_set_to_another(lake: Lake) -> None:
    """Both have a version of the same number, and not the same rows."""
    lake.create_table("t", data=pa.table({"v": [0]}))
    lake.branch("side").create()
    side = lake.table("t", "side")
    side.append(pa.table({"v": [1]}))
    job = JobTable(lake, "t", "side")
    lake.branch("side").assign(lake.at("main").id)
    side.append(pa.table({"v": [2]}))
    assert job.version == side.version == 1
    assert sorted(job.snapshot.to_arrow()["v"].to_pylist()) == [0, 1]
