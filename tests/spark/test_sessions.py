"""Sessions: which lake they work with, what they are told, and what they leave alone."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest

import penstock
from penstock.errors import InvalidRequest, LakeNotFound
from penstock.lake.lake import Lake
from penstock.spark import jar, settings, write
from penstock.spark.session_lakes import get_lake
from penstock.spark.sessions import configure, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_works_with_the_lake_that_it_was_made_for(
    spark: SparkSession, lake: Lake, started_spark: SparkSession
) -> None:
    assert get_lake(spark) is lake
    assert spark.conf.get("spark.penstock.lake") == lake.url
    assert get_lake(started_spark) is not lake


def test_one_spark_serves_several_lakes_each_by_a_session_of_its_own(spark: SparkSession, lake: Lake) -> None:
    with penstock.open("memory:") as second, penstock.open("memory:") as third:
        sessions = [session(second), session(third)]
        assert [get_lake(one) for one in sessions] == [second, third]
        assert session(second) is sessions[0]
        spark.range(3).createOrReplaceTempView("numbers")
        assert not sessions[0].catalog.tableExists("numbers")
        assert session(lake) is spark
        assert spark.table("numbers").count() == 3


def test_threads_that_ask_at_once_get_the_same_session(started_spark: SparkSession, lake: Lake) -> None:
    barrier = Barrier(4)
    found: list[SparkSession] = []

    def ask() -> None:
        barrier.wait()
        found.append(session(lake))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({id(one) for one in found}) == 1


def test_sessions_that_spark_makes_of_one_know_its_lake(spark: SparkSession, lake: Lake) -> None:
    from pyspark.sql import SparkSession

    clone = SparkSession(
        spark.sparkContext, spark._jsparkSession.cloneSession()
    )  # as a stream's batches have
    assert get_lake(clone) is lake


def test_a_session_with_an_address_alone_opens_the_lake_once(started_spark: SparkSession, lake: Lake) -> None:
    other = started_spark.newSession()
    other.conf.unset(settings.LAKE_ID)
    other.conf.set(settings.LAKE, lake.url)
    with get_lake(other) as opened:
        assert (opened.id, opened is lake) == (lake.id, False)
        assert get_lake(other) is opened


def test_an_address_without_a_lake_makes_none(started_spark: SparkSession, tmp_path: Path) -> None:
    other = started_spark.newSession()
    other.conf.unset(settings.LAKE_ID)
    other.conf.set(settings.LAKE, str(tmp_path / "nowhere"))
    with pytest.raises(LakeNotFound):
        get_lake(other)
    assert not (tmp_path / "nowhere").exists()


def test_a_session_without_a_lake_is_told_how_to_get_one(started_spark: SparkSession) -> None:
    other = started_spark.newSession()
    other.conf.set(settings.LAKE_ID, "")
    other.conf.set(settings.LAKE, "")
    with pytest.raises(InvalidRequest, match=r"penstock\.spark\.session\(lake\)"):
        get_lake(other)


def test_a_place_is_as_good_as_a_lake(started_spark: SparkSession, tmp_path: Path) -> None:
    spark = session(tmp_path / "lake")
    with get_lake(spark) as opened:
        assert opened.url == str(tmp_path / "lake")
        assert session(tmp_path / "lake") is spark


def test_a_session_is_made_for_a_lake_and_nothing_else(started_spark: SparkSession) -> None:
    for wrong in (None, 3, started_spark):
        with pytest.raises(InvalidRequest, match=r"as penstock\.open\('\./lake'\) returns it"):
            session(wrong)  # type: ignore[arg-type]


def test_a_lake_that_was_closed_gets_no_session(started_spark: SparkSession, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "closed") as closed:
        pass
    with pytest.raises(InvalidRequest, match="was closed; open the lake again"):
        session(closed)


@pytest.mark.parametrize("is_first_closed", [True, False])
def test_of_two_objects_for_a_lake_the_one_that_is_open_serves_the_session(
    spark: SparkSession, lake: Lake, is_first_closed: bool
) -> None:
    with penstock.open(lake.url) as twin:
        assert session(twin) is spark
        assert get_lake(spark) is twin
        (lake if is_first_closed else twin).close()
        assert get_lake(spark) is (twin if is_first_closed else lake)


def test_an_object_for_a_lake_that_nobody_has_any_more_is_let_go(spark: SparkSession, lake: Lake) -> None:
    twin = penstock.open(lake.url)
    session(twin)
    session(lake)
    seen = ref(twin)
    twin.close()
    del twin
    gc.collect()
    assert seen() is None
    assert get_lake(spark) is lake


def test_a_lake_that_was_opened_by_its_address_and_closed_is_opened_again(
    started_spark: SparkSession, tmp_path: Path
) -> None:
    penstock.init(tmp_path / "lake").close()
    with get_lake(session(tmp_path / "lake")) as first:
        pass
    with get_lake(session(tmp_path / "lake")) as second:
        assert second is not first
        assert second.about.id == first.id


@pytest.fixture
def log(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """What Spark's log says on the terminal from now on."""
    java: Any = spark._jvm
    core = java.org.apache.logging.log4j.core
    root = java.org.apache.logging.log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    layout = core.layout.PatternLayout.newBuilder().withPattern("%c{1}: %m%n").build()
    writer = java.java.io.StringWriter()
    appender = core.appender.WriterAppender.createAppender(layout, None, writer, "test", False, True)
    appender.start()
    root.addAppender(appender, None, None)
    yield writer.toString
    root.removeAppender("test")
    appender.stop()


def test_what_a_job_fails_of_is_raised_and_not_told_in_the_log_too(
    spark: SparkSession, log: Callable[[], str]
) -> None:
    from pyspark.errors import SparkRuntimeException

    refused = spark.createDataFrame([(1, "__HIVE_DEFAULT_PARTITION__")], "id LONG, part STRING")
    with pytest.raises(InvalidRequest, match="is reserved for null"):
        write(refused, "demo.rows", partition_by="part")
    fails = spark.range(1).selectExpr("id", "if(id = 0, raise_error('no'), 1) AS one")
    with pytest.raises(SparkRuntimeException):
        fails.collect()
    kept = fails.persist()
    with pytest.raises(SparkRuntimeException):
        kept.collect()
    kept.unpersist()
    assert log() == ""


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ("scheduler.TaskSetManager", "Lost task 0.0 in stage 1.0 (TID 3) (10.0.0.7 executor 4): no space"),
        ("scheduler.TaskSetManager", "Stage 3 contains a task of very large size (2000 KiB)."),
        ("executor.Executor", "Issue communicating with driver in heartbeater"),
        ("storage.BlockManager", "Persisting block rdd_1_0 to disk instead."),
        ("util.Utils", "Uncaught exception in thread main"),
        ("sql.execution.datasources.FileFormatWriter", "something else"),
    ],
)
def test_what_is_raised_nowhere_is_told_in_the_log(
    spark: SparkSession, log: Callable[[], str], logger: str, message: str
) -> None:
    java: Any = spark._jvm
    java.org.apache.logging.log4j.LogManager.getLogger(f"org.apache.spark.{logger}").error(message)
    assert log() == f"{logger.rpartition('.')[2]}: {message}\n"


def test_writes_go_through_penstocks_protocol_where_there_is_the_jar(spark: SparkSession) -> None:
    assert jar.has_protocol(spark) is (jar.find_jar() is not None)


def test_writes_that_are_not_penstocks_are_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(4).write.parquet(str(tmp_path / "plain"))
    assert (tmp_path / "plain" / "_SUCCESS").exists()
    assert spark.read.parquet(str(tmp_path / "plain")).count() == 4


def test_timestamps_have_microseconds_and_the_time_zone_is_the_users(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.sql.parquet.compression.codec") == "zstd"
    assert settings.WRITES.keys().isdisjoint({"spark.sql.session.timeZone"})
    java = spark._jvm.java.util.TimeZone.getDefault().getID()  # type: ignore[union-attr]
    assert spark.conf.get("spark.sql.session.timeZone") == java


def test_workers_run_the_callers_python(spark: SparkSession) -> None:
    (worker,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert worker == os.environ.get("PYSPARK_PYTHON", sys.executable)


def test_a_running_spark_keeps_what_the_user_chose_and_says_what_comes_too_late(
    started_spark: SparkSession,
) -> None:
    with penstock.open("memory:") as lake:
        spark = session(lake)
        spark.conf.set("spark.sql.parquet.compression.codec", "snappy")
        with pytest.warns(UserWarning, match=r"too late to set spark\.driver\.memory$"):
            again = session(
                lake,
                master="local[2]",
                conf={"spark.driver.memory": "7g", "spark.sql.ansi.enabled": False},
            )
        assert again is spark
        assert spark.conf.get("spark.sql.parquet.compression.codec") == "snappy"
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"


def test_a_builder_for_spark_connect_is_told_of_the_lake_and_nothing_that_its_server_decides(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    builder = configure(SparkSession.builder.remote("sc://db.example"), lake)
    assert builder._options == {
        "spark.remote": "sc://db.example",
        **settings.WRITES,
        settings.LAKE: lake.url,
        settings.LAKE_ID: lake.id,
    }
    assert "PYSPARK_PYTHON" not in os.environ


def test_without_pyspark_it_is_said_how_to_get_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(InvalidRequest, match=r"pip install 'penstock\[spark\]'"):
        session(lake)


def test_a_session_of_a_place_without_a_lake_makes_none_before_the_first_write(
    started_spark: SparkSession, tmp_path: Path
) -> None:
    place = tmp_path / "new"
    with penstock.open(place) as lake:
        spark = session(lake)
        assert get_lake(spark) is lake
        with pytest.raises(LakeNotFound, match="The first write"):
            penstock.spark.read(spark, "a.t")
        assert not place.exists()
        write(spark.range(3), "a.t")
        assert session(lake).conf.get(settings.LAKE) == str(place)
        assert penstock.spark.read(session(lake), "a.t").count() == 3
        for format_ in ("parquet", "lance"):
            with penstock.open(tmp_path / format_) as other:
                write(session(other).range(2), "a.t", format=format_)
                assert other.table("a.t").to_arrow().num_rows == 2
