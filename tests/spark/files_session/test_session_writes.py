"""Writes of code that knows only its session: each is one commit to a table, or fails and leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import CommitConflict, InvalidKey, InvalidRequest, PenstockError
from penstock.lake.lake import Lake
from penstock.model.jobs import JobState
from penstock.spark import configure, driver, read, session
from penstock.spark.jar import COMMIT_PROTOCOL_SETTING, has_protocol
from penstock.spark.settings import LAKE, LAKE_ID, TABLES
from penstock.spark.spark_errors import unwrap
from tests.spark.conftest import hide_classes
from tests.spark.files.cases import about, by_folder, head, ids, in_pool, jobs, paths, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

KEY = "raw.events"


@pytest.fixture(autouse=True)
def _needs_the_jar(spark: SparkSession) -> None:
    if not has_protocol(spark):
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
    assert json.loads(about(lake, KEY).layout.schema) == rows(spark, 0).schema.jsonValue()


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
    with pytest.raises(Exception, match="Spark decides mode 'ignore'") as caught:
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
        assert "already has files: 1; nothing was written" in problem.message
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
    rows(mapped, 10).write.mode("append").parquet(f"{place}/day=1")
    rows(mapped, 20).write.mode("append").parquet(f"{place}/day=2")
    rows(mapped, 30).write.mode("overwrite").parquet(f"{place}/day=1")
    assert by_folder(lake, KEY) == {"day=1": [30, 31, 32], "day=2": [20, 21, 22]}
    assert read(mapped, KEY).where("day = 2").count() == 3
    assert not Path(place).exists()


@pytest.mark.parametrize("way", ["format", "partition", "columns", "options"])
def test_files_below_a_mapped_path_are_as_those_of_the_table(
    mapped: SparkSession, lake: Lake, place: str, way: str
) -> None:
    data = rows(mapped, 0).selectExpr("id", "'x' as s")
    data.write.mode("append").csv(f"{place}/day=1")
    before = head(lake)

    def other() -> None:
        match way:
            case "format":
                data.write.mode("append").json(f"{place}/day=2")
            case "partition":
                data.write.mode("append").csv(f"{place}/hour=2")
            case "columns":
                data.select("s", "id").write.mode("append").csv(f"{place}/day=2")
            case "options":
                data.write.mode("append").option("header", True).csv(f"{place}/day=2")

    problem = refused(other)
    assert isinstance(problem, InvalidRequest)
    assert problem.message.startswith(f"'{KEY}' has files ")
    assert (head(lake), len(in_pool(lake))) == (before, 1)
    data.write.mode("append").csv(f"{place}/day=2")
    assert sorted(read(mapped, KEY).select("id", "day").collect()) == [
        (n, day) for n in range(3) for day in (1, 2)
    ]


def test_each_insert_of_a_statement_goes_to_its_table(
    spark: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    mapped = session(lake, tables={place: KEY, f"{place}2": "raw.two"})
    for name, where in (("one", place), ("two", f"{place}2"), ("own", str(tmp_path / "own"))):
        mapped.sql(f"create table {name} (id bigint) using parquet location '{where}'")
    try:
        mapped.sql(
            "from range(3) insert into own select id "
            "insert into one select id + 10 insert into two select id + 20"
        )
        assert (ids(lake, KEY), ids(lake, "raw.two")) == ([10, 11, 12], [20, 21, 22])
        assert mapped.read.parquet(str(tmp_path / "own")).count() == 3
    finally:
        for name in ("one", "two", "own"):
            mapped.sql(f"drop table {name}")


def test_a_key_that_looks_like_a_path_is_refused(spark: SparkSession, lake: Lake, place: str) -> None:
    problem = refused(
        lambda: rows(spark, 0).write.mode("append").option("penstock.table", "a//`b").csv(place)
    )
    assert isinstance(problem, InvalidKey)
    assert jobs(lake) == []


@pytest.mark.parametrize("lack", ["classes", "protocol"])
def test_paths_are_not_mapped_where_writes_would_go_there(
    spark: SparkSession, lake: Lake, place: str, lack: str
) -> None:
    if lack == "classes":
        hide_classes(spark)
    else:
        spark.conf.set(COMMIT_PROTOCOL_SETTING, "org.apache.spark.internal.io.HadoopMapReduceCommitProtocol")
    with pytest.raises(InvalidRequest, match="'tables' would have no effect"):
        session(lake, tables={place: KEY})
    assert not spark.conf.get(TABLES, "")
    builder = type(spark).builder.config(
        COMMIT_PROTOCOL_SETTING, str(spark.conf.get(COMMIT_PROTOCOL_SETTING))
    )
    with pytest.raises(InvalidRequest, match="'tables' would have no effect"):
        configure(builder, lake, tables={place: KEY})


def test_a_session_that_is_made_of_another_works_with_the_same_lake_and_paths(
    mapped: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    made = mapped.newSession().newSession()
    rows(made, 0).write.mode("append").parquet(place)
    assert ids(lake, KEY) == [0, 1, 2]
    with penstock.open(tmp_path / "other", create=True) as other:
        beside = session(other)
        rows(beside, 0).write.parquet(place)
        assert (ids(lake, KEY), jobs(other)) == ([0, 1, 2], [])
    assert Path(place).exists()


@pytest.mark.verify
def test_a_stream_to_a_mapped_path_is_refused_and_its_batches_are_written(
    mapped: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    rows(mapped, 0).write.parquet(str(tmp_path / "in"))
    coming = mapped.readStream.schema("id long").parquet(str(tmp_path / "in"))

    def run(writer: DataStreamWriter, name: str) -> StreamingQuery:
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / name)).start()
        query.awaitTermination(60)
        return query

    with pytest.raises(Exception, match="foreachBatch"):
        run(coming.writeStream.format("parquet").option("path", place), "refused")
    assert not list(Path(place).glob("part-*"))
    run(coming.writeStream.format("parquet").option("path", str(tmp_path / "own")), "own")
    assert mapped.read.parquet(str(tmp_path / "own")).count() == 3

    def batch(df: DataFrame, _: int) -> None:
        df.write.mode("append").parquet(place)

    run(coming.writeStream.foreachBatch(batch), "batches")
    assert ids(lake, KEY) == [0, 1, 2]


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
    assert len(list(Path(lake.warehouse).glob("_penstock/data/2*/*"))) == 1  # the folder of the first job


def test_what_nobody_thought_of_is_told_in_a_sentence(
    spark: SparkSession, lake: Lake, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: str) -> Lake:
        raise ZeroDivisionError("of all things")

    jvm: Any = spark._jvm
    jvm.io.penstock.spark.JobDrivers.register(lake.id, driver.Driver(lake.id, broken))
    with pytest.raises(
        Exception, match=r"failed at this write \(check\): ZeroDivisionError: of all"
    ) as caught:
        named(rows(spark, 0)).parquet(place)
    assert "Traceback" not in str(caught.value)
    assert "ZeroDivisionError" in caplog.text


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
    driver.register_driver(spark, lake.id, lambda _: lake)
    named(rows(spark, 0), job_id="nightly").parquet(place)
    assert (head(lake), in_pool(lake)) == (landed, files)
    assert len(jobs(lake)) == 1


def test_a_rerun_that_fails_takes_nothing_from_the_attempt_that_landed(
    spark: SparkSession, lake: Lake, place: str
) -> None:
    named(rows(spark, 0), job_id="nightly").parquet(place)
    landed = head(lake), in_pool(lake)
    bad = spark.sql("select if(id = 7, raise_error('no'), id) as id from range(0, 8, 1, 1)")
    with pytest.raises(Exception, match="USER_RAISED"):
        named(bad, job_id="nightly").parquet(place)
    assert head(lake) == landed[0]
    assert landed[1] <= in_pool(lake)
    assert ids(lake, KEY) == [0, 1, 2]


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


@pytest.mark.filterwarnings("ignore::penstock.spark.job.concurrent_jobs.ConcurrentJobsWarning")
def test_jobs_of_two_threads_go_to_their_own_tables_and_lakes(
    spark: SparkSession, lake: Lake, place: str, tmp_path: Path
) -> None:
    with penstock.open(tmp_path / "other", create=True) as other:
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
    assert about(lake, KEY, "dev").layout.options == {"header": "true"}
    assert [one.name for one in lake.branches()] == ["dev", "main"]
