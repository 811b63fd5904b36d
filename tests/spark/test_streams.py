"""Streams into tables and out of them: every row once, whatever is interrupted, and wherever."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark.spark_errors import unwrap
from penstock.spark.streams import sink, stream
from tests.spark.reading_tables import using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE, TARGET = "t.source", "t.target"
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(autouse=True)
def _tables(lake: Lake) -> None:
    lake.create_table(SOURCE, data=numbers(1, 2))
    lake.table(SOURCE).append(numbers(3, 4))
    lake.create_table(TARGET, schema=SCHEMA)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake) -> list[int]:
    return sorted(lake.table(TARGET).to_arrow()["id"].to_pylist())


def tenfold(spark: SparkSession, **options: Any) -> DataFrame:
    """The source table as a stream, one file to a batch, and something done to its rows."""
    return stream(spark, SOURCE, max_files_per_trigger=1, **options).selectExpr("id * 10 AS id")


def run(rows: DataFrame, checkpoint: Path, batch: Callable[[DataFrame, int], None]) -> None:
    """Write all that there is now. Raises what ended the query early."""
    writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def run_format(rows: DataFrame, lake: Lake, checkpoint: Path) -> None:
    """The same by ``format("penstock")``."""
    writer = rows.writeStream.format("penstock").options(lake=lake.url, table=TARGET)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def interrupted(batch: Callable[[DataFrame, int], None], at: int, *, after: bool) -> Callable[..., None]:
    """A sink whose process comes to grief in one batch, right before the rows are written or right after."""

    def write(rows: DataFrame, number: int) -> None:
        if number == at and not after:
            raise RuntimeError("interrupted")
        batch(rows, number)
        if number == at:
            raise RuntimeError("interrupted")

    return write


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(False, id="before the commit", marks=pytest.mark.verify),
        pytest.param(True, id="after the commit"),
    ],
)
def test_a_query_that_is_interrupted_in_a_batch_goes_on_with_every_row_once(
    spark: SparkSession, lake: Lake, checkpoint: Path, after: bool
) -> None:
    with pytest.raises(Exception, match="interrupted"):
        run(tenfold(spark), checkpoint, interrupted(sink(TARGET), 1, after=after))
    assert len(ids(lake)) == (4 if after else 2)
    lake.table(SOURCE).append(numbers(5))
    run(tenfold(spark), checkpoint, sink(TARGET))
    assert ids(lake) == [10, 20, 30, 40, 50]


@pytest.mark.reliability
def test_a_driver_that_is_killed_after_a_commit_leaves_a_query_that_goes_on_with_every_row_once(
    spark: SparkSession, lake: Lake, checkpoint: Path
) -> None:
    program = Path(__file__).with_name("killed_stream_program.py")
    killed = subprocess.run(
        [sys.executable, str(program), lake.url, SOURCE, TARGET, str(checkpoint)],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    assert len(ids(lake)) == 2
    assert _names(checkpoint / "offsets") == ["0"]
    assert _names(checkpoint / "commits") == []
    files = _data_files(lake)
    run(tenfold(spark), checkpoint, sink(TARGET))
    assert ids(lake) == [10, 20, 30, 40]
    assert len(_data_files(lake) - files) == 1  # the first batch was not even written again


@pytest.mark.verify
def test_a_batch_that_is_repeated_by_format_penstock_is_in_the_table_once(
    spark: SparkSession, lake: Lake, checkpoint: Path
) -> None:
    run_format(tenfold(spark), lake, checkpoint)
    assert ids(lake) == [10, 20, 30, 40]
    # As it is left by a driver that is killed after the last batch has landed, and before Spark notes it.
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    lake.table(SOURCE).append(numbers(5))
    run_format(tenfold(spark), lake, checkpoint)
    assert ids(lake) == [10, 20, 30, 40, 50]


@pytest.mark.verify
def test_a_stream_that_cannot_go_on_says_why_by_a_typed_error(
    spark: SparkSession, lake: Lake, checkpoint: Path
) -> None:
    run(tenfold(spark), checkpoint, sink(TARGET))
    lake.table(SOURCE).overwrite(numbers(7))
    with pytest.raises(Exception, match="skipChangeCommits") as raised:
        run(tenfold(spark), checkpoint, sink(TARGET))
    found = unwrap(raised.value)
    assert isinstance(found, InvalidRequest)
    assert found.details == {"key": SOURCE, "version": 2}
    run(tenfold(spark, skip_change_commits=True), checkpoint, sink(TARGET))
    assert ids(lake) == [10, 20, 30, 40]


@pytest.mark.verify
def test_batches_that_are_whole_results_take_each_others_place(
    spark: SparkSession, lake: Lake, checkpoint: Path
) -> None:
    run(tenfold(spark), checkpoint, sink(TARGET, mode="complete"))
    assert ids(lake) == [30, 40]


@pytest.mark.verify
def test_a_name_of_the_users_own_that_outlives_its_checkpoint_is_warned_of(
    spark: SparkSession, lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tenfold(spark), tmp_path / "first", sink(TARGET, app_id="orders"))
    assert not _warnings(caplog.records)
    run(tenfold(spark), tmp_path / "second", sink(TARGET, app_id="orders"))
    assert ids(lake) == [10, 20, 30, 40]
    assert any("choose another app_id" in one for one in _warnings(caplog.records))


def test_a_mode_that_no_stream_has_is_refused() -> None:
    sink(TARGET, mode="Append")
    with pytest.raises(InvalidRequest, match="append, overwrite, complete"):
        sink(TARGET, mode="update")


@pytest.mark.parametrize("name", ["idempotency_key", "batch"])
def test_a_sink_takes_nothing_under_which_all_batches_would_be_one(name: str) -> None:
    given: dict[str, Any] = {name: 1}
    with pytest.raises(InvalidRequest, match=f"a stream into a table has no argument '{name}'"):
        sink(TARGET, **given)


def test_a_batch_without_rows_makes_no_version_and_is_not_said_to_be_left_out(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    batch = sink(TARGET, app_id="orders")
    batch(spark.range(1), 0)
    batch(spark.range(0), 1)
    batch(spark.range(1, 2), 2)
    assert ids(lake) == [0, 1]
    assert lake.table(TARGET).version == 2
    assert not _warnings(caplog.records)
    batch(spark.range(1, 2), 2)
    assert lake.table(TARGET).version == 2
    assert len(_warnings(caplog.records)) == 1


def test_a_batch_is_in_the_table_once_without_the_jar_too(spark: SparkSession, lake: Lake) -> None:
    batch = sink(TARGET, app_id="orders")
    using(spark, "fallback")
    for number in (0, 0, 1):
        batch(spark.range(2 * number, 2 * number + 2), number)
    assert ids(lake) == [0, 1, 2, 3]


def test_batches_that_are_whole_results_do_so_whatever_the_session_says_of_partitions(
    spark: SparkSession, lake: Lake
) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    batch = sink("t.parts", app_id="orders", mode="complete", partition_by="part")
    for number in range(2):
        batch(spark.sql(f"select {number} as id, {number} as part"), number)
    assert lake.table("t.parts").to_arrow()["id"].to_pylist() == [1]
    batch(spark.sql("select 0 as id, 0 as part").where("false"), 2)
    assert len(lake.table("t.parts").to_arrow()) == 0


def _warnings(records: Sequence[logging.LogRecord]) -> list[str]:
    return [one.getMessage() for one in records if one.name == "penstock"]


def _names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.glob("[0-9]*")) if folder.is_dir() else []


def _data_files(lake: Lake) -> set[Path]:
    return set(Path(lake.table(TARGET).location).rglob("*.parquet"))
