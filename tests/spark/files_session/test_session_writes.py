"""Writes of code that knows only its session: each is one commit to a table, or fails and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import CommitConflict, InvalidRequest, PenstockError
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.spark import configure, session
from penstock.spark.failures import unwrap
from penstock.spark.files import driver
from penstock.spark.jar import is_loaded
from penstock.spark.settings import LAKE, LAKE_ID, TABLES
from tests.spark.files.cases import about, by_folder, head, ids, in_pool, jobs, paths, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

KEY = "raw.events"


@pytest.fixture(autouse=True)
def _needs_the_jar(spark: SparkSession) -> None:
    if not is_loaded(spark):
        pytest.skip("Penstock's jar is not in this Spark")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where the code believes that it writes to."""
    return str(tmp_path / "somewhere" / "events")


@pytest.fixture
def mapped(spark: SparkSession, lake: Lake, place: str) -> SparkSession:
    return session(lake, tables={place: KEY})


def named(df: DataFrame, mode: str | None = "append", /, **options: Any) -> DataFrameWriter:
    """A write that names its table by an option."""
    writer = df.write if mode is None else df.write.mode(mode)
    return writer.option("penstock.table", KEY).options(
        **{f"penstock.{name}": value for name, value in options.items()}
    )


def refused(write: Callable[[], Any]) -> PenstockError:
    """What a write fails with: Spark's error says it in its first lines, and it is found again as it was."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        write()
    found = unwrap(caught.value)
    assert found is not None, caught.value
    assert str(caught.value).startswith(found.message)
    return found


# -- modes -------------------------------------------------------------------------------------------------


def test_a_write_is_a_commit_that_tells_what_ran_and_nothing_is_at_the_path(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    named(rows(spark, 0)).parquet(place)
    named(rows(spark, 10), message="nightly", author="ada").parquet(place)
    assert ids(lake, KEY) == [0, 1, 2, 10, 11, 12]
    assert not Path(place).exists()
    last, first = lake.log(limit=2)
    assert (first.message, last.message, last.authors) == (f"append 1 file to {KEY}", "nightly", ("ada",))
    told = {name: values[0] for name, values in first.properties.items()}
    assert told.items() >= {"mode": "append", "format": "parquet", "files": "1"}.items()
    assert told["spark.application"] == spark.sparkContext.applicationId
    job = jobs(lake)[0]
    assert (job.id, job.state, job.commit) == (
        last.properties["penstock.job"][0],
        JobState.COMMITTED,
        last.id,
    )
    assert json.loads(about(lake, KEY).schema) == rows(spark, 0).schema.jsonValue()


@pytest.mark.parametrize("mode", [None, "error", "ignore"])
def test_a_mode_that_spark_decides_by_the_path_is_refused(
    spark: SparkSession, lake: Lake, place: str, mode: str | None
) -> None:
    before = head(lake)
    meant = mode or "error"
    problem = refused(lambda: named(rows(spark, 0), mode).parquet(place))
    assert isinstance(problem, InvalidRequest)
    assert '.mode("append")' in problem.message
    assert f'.option("penstock.mode", "{meant}")' in problem.message
    assert (head(lake), jobs(lake), in_pool(lake)) == (before, [], set())


def test_a_write_that_spark_would_skip_without_a_word_is_refused(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    Path(place).mkdir(parents=True)
    with pytest.raises(Exception, match="Spark's mode 'ignore'") as caught:
        named(rows(spark, 0), "ignore", mode="ignore").parquet(place)
    assert isinstance(unwrap(caught.value), InvalidRequest)
    assert jobs(lake) == []


@pytest.mark.parametrize("has_files", [False, True], ids=["empty", "filled"])
@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_the_lakes_mode_is_decided_when_the_job_commits(
    spark: SparkSession, lake: Lake, place: str, mode: str, has_files: bool
) -> None:
    if has_files:
        named(rows(spark, 0)).parquet(place)
    before, files = head(lake), in_pool(lake)
    # Spark's own mode is the default one; the path is not there, so that it has no objection.
    write = named(rows(spark, 10), None, mode=mode)
    if has_files and mode == "error":
        problem = refused(lambda: write.parquet(place))
        assert isinstance(problem, CommitConflict)
        assert "has files already: 1; nothing was written" in problem.message
    else:
        write.parquet(place)
    if has_files and mode in ("error", "ignore"):
        assert (head(lake), in_pool(lake)) == (before, files)
        assert ids(lake, KEY) == [0, 1, 2]
    else:
        kept = [0, 1, 2] if has_files and mode == "append" else []
        assert ids(lake, KEY) == [*kept, 10, 11, 12]


@pytest.mark.parametrize("way", ["option", "writer", "session"])
def test_dynamic_overwrite_replaces_the_partitions_that_get_files(
    spark: SparkSession, lake: Lake, place: str, way: str
) -> None:
    named(rows(spark, 0, parts=(1, 2))).partitionBy("p").parquet(place)
    write = named(rows(spark, 500, parts=(2,)), "overwrite").partitionBy("p")
    if way == "option":
        write.option("penstock.partition_overwrite", "dynamic").parquet(place)
    elif way == "writer":
        write.option("partitionOverwriteMode", "dynamic").parquet(place)
    else:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            write.parquet(place)
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert by_folder(lake, KEY) == {"p=1": [10, 11, 12], "p=2": [520, 521, 522]}
    named(rows(spark, 500, parts=(2,)), "overwrite").partitionBy("p").parquet(place)
    assert by_folder(lake, KEY) == {"p=2": [520, 521, 522]}


# -- paths -------------------------------------------------------------------------------------------------


def test_a_mapped_path_is_a_table_and_what_is_below_it_a_folder(
    mapped: SparkSession, lake: Lake, place: str
) -> None:
    rows(mapped, 0).write.mode("append").parquet(place)
    rows(mapped, 10).write.mode("append").parquet(f"{place}/day=1")
    rows(mapped, 20).write.mode("append").parquet(f"{place}/day=2")
    rows(mapped, 30).write.mode("overwrite").parquet(f"{place}/day=1")
    assert by_folder(lake, KEY) == {"": [0, 1, 2], "day=1": [30, 31, 32], "day=2": [20, 21, 22]}
    assert not Path(place).exists()


def test_a_plain_path_stays_sparks_own(mapped: SparkSession, lake: Lake, place: str) -> None:
    other = Path(f"{place}-other")
    for _ in range(2):
        rows(mapped, 0, parts=(1, 2)).write.mode("overwrite").partitionBy("p").parquet(str(other))
    assert (other / "_SUCCESS").exists()
    assert mapped.read.parquet(str(other)).count() == 6
    assert jobs(lake) == []


def test_a_builder_that_was_told_of_paths_makes_a_session_that_commits(
    started_spark: SparkSession, lake: Lake, place: str
) -> None:
    before = {name: str(started_spark.conf.get(name)) for name in (LAKE, LAKE_ID)}
    made = configure(type(started_spark).builder, lake, tables={place: KEY}).getOrCreate()
    try:
        rows(made, 0).write.mode("append").parquet(place)
    finally:  # it is the session that Spark began with, which others use
        made.conf.unset(TABLES)
        for name, value in before.items():
            made.conf.set(name, value)
    assert ids(lake, KEY) == [0, 1, 2]


def test_inserts_of_sql_into_a_mapped_path(mapped: SparkSession, lake: Lake, place: str) -> None:
    mapped.sql(f"create table t (id bigint, p string) using parquet partitioned by (p) location '{place}'")
    try:
        mapped.sql("insert into t values (1, 'a/b'), (2, 'c')")
        assert by_folder(lake, KEY) == {"p=a%2Fb": [1], "p=c": [2]}
        mapped.sql("insert overwrite t partition (p = 'a/b') values (3)")
        assert by_folder(lake, KEY) == {"p=a%2Fb": [3], "p=c": [2]}
        rows(mapped, 0).selectExpr("id", "'d' as p").write.insertInto("t")
        assert by_folder(lake, KEY) == {"p=a%2Fb": [3], "p=c": [2], "p=d": [0, 1, 2]}
        problem = refused(
            lambda: mapped.sql("insert overwrite t partition (p = 'x') if not exists values (4)")
        )
        assert "IF NOT EXISTS" in problem.message
        mapped.sql("insert overwrite t select 9, 'z'")
        assert by_folder(lake, KEY) == {"p=z": [9]}
    finally:
        mapped.sql("drop table t")
    mapped.sql(f"insert overwrite directory '{place}' using parquet select 7L as id")
    assert by_folder(lake, KEY) == {"": [7]}


@pytest.mark.parametrize("statement", ["create table", "saveAsTable"])
def test_a_table_that_spark_creates_from_rows_is_refused_before_anything_is_written(
    mapped: SparkSession, lake: Lake, place: str, statement: str
) -> None:
    def create() -> None:
        if statement == "saveAsTable":
            rows(mapped, 0).write.mode("append").option("path", place).saveAsTable("made")
        else:
            mapped.sql(f"create table made using parquet location '{place}' as select 1 as id")

    assert "insertInto" in refused(create).message
    assert jobs(lake) == []


# -- failures ----------------------------------------------------------------------------------------------


def test_a_job_whose_task_fails_leaves_the_table_as_it_was(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    named(rows(spark, 0)).parquet(place)
    before, files = head(lake), in_pool(lake)
    bad = spark.sql("select if(id = 7, raise_error('no'), id) as id from range(0, 8, 1, 1)")
    with pytest.raises(Exception, match="USER_RAISED"):
        named(bad, "overwrite").parquet(place)
    assert (head(lake), in_pool(lake)) == (before, files)
    assert jobs(lake)[0].state is JobState.ABORTED


class Dying(driver.Driver):
    """A driver that dies at a step: before it has done anything, or when all is done."""

    def __init__(self, lake: Lake, step: str, *, late: bool = False) -> None:
        super().__init__(lake.id, lambda _: lake)
        self.step, self.late = step, late

    def answer(self, step: str, request: str) -> str:
        if step == self.step and self.late:
            super().answer(step, request)
        if step == self.step:
            raise RuntimeError("gone")
        return super().answer(step, request)


@pytest.mark.parametrize("step", ["check", "begin", "commit"])
def test_without_an_answer_the_job_fails_and_nothing_lands(
    spark: SparkSession, lake: Lake, place: str, step: str
) -> None:
    before = head(lake)
    jvm: Any = spark._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, Dying(lake, step))
    with pytest.raises(Exception, match=rf"nobody answered who decides on this write \({step}\)"):
        named(rows(spark, 0)).parquet(place)
    assert (head(lake), in_pool(lake)) == (before, set())
    assert all(one.state is JobState.ABORTED for one in jobs(lake))


def test_a_session_whose_lake_nobody_answers_for_writes_nothing(spark: SparkSession, place: str) -> None:
    spark.conf.set(LAKE_ID, "of a lake that no process has open")
    spark.conf.set(LAKE, "/no/server")
    with pytest.raises(Exception, match=r"name a Penstock server in its setting spark\.penstock\.lake"):
        named(rows(spark, 0)).parquet(place)
    assert not Path(place).exists()


def test_an_answer_that_is_lost_after_the_commit_keeps_the_files(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    jvm: Any = spark._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, Dying(lake, "commit", late=True))
    with pytest.raises(Exception, match="nobody answered"):
        named(rows(spark, 0), job_id="nightly").parquet(place)
    assert ids(lake, KEY) == [0, 1, 2]
    # The program runs the job again under its name, and is told that it is done.
    landed, files = head(lake), in_pool(lake)
    driver.register(spark, lake.id, lambda _: lake)
    named(rows(spark, 0), job_id="nightly").parquet(place)
    assert (head(lake), in_pool(lake)) == (landed, files)
    assert len(jobs(lake)) == 1


def test_a_job_that_somebody_aborts_while_it_writes_fails_with_that(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    class Aborting(driver.Driver):
        def answer(self, step: str, request: str) -> str:
            if step == "commit":
                lake.abort_job(jobs(lake)[0].id, "by hand")
            return super().answer(step, request)

    before = head(lake)
    jvm: Any = spark._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, Aborting(lake.id, lambda _: lake))
    assert "was aborted: by hand" in refused(lambda: named(rows(spark, 0)).parquet(place)).message
    assert (head(lake), in_pool(lake)) == (before, set())


# -- several at once ---------------------------------------------------------------------------------------


def test_jobs_of_two_threads_go_to_their_own_tables_and_lakes(
    spark: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    with penstock.open(tmp_path / "other") as other:
        beside = session(other, tables={place: "raw.beside"})
        with ThreadPoolExecutor(4) as threads:
            work = [
                threads.submit(named(rows(spark, 0)).parquet, place),
                threads.submit(named(rows(spark, 10)).option("penstock.table", "raw.two").parquet, place),
                threads.submit(rows(beside, 20).write.mode("append").parquet, place),
                threads.submit(rows(beside, 30).write.mode("append").parquet, place),
            ]
            for one in work:
                one.result(60)
        assert (ids(lake, KEY), ids(lake, "raw.two")) == ([0, 1, 2], [10, 11, 12])
        assert ids(other, "raw.beside") == [20, 21, 22, 30, 31, 32]


# -- options -----------------------------------------------------------------------------------------------


def test_a_branch_a_branch_of_the_jobs_own_and_a_marker(spark: SparkSession, lake: Lake, place: str) -> None:
    lake.branch("dev").create()
    before = head(lake)
    named(rows(spark, 0), branch="dev", job_branch=True, success_file=True).csv(place, header=True)
    assert head(lake) == before
    *files, marker = sorted(paths(lake, KEY, "dev"), reverse=True)
    assert (len(files), marker) == (1, "_SUCCESS")
    assert about(lake, KEY, "dev").options == {"header": "true"}
    assert [one.name for one in lake.branches()] == ["dev", "main"]
