"""Errors of Penstock, found again in what Spark makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict, InvalidRequest, KeyNotFound, PenstockError, TableConflict
from penstock.lake.lake import Lake
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.spark.failures import LINE_MAX_BYTES, telling, unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "sales.orders"
SCHEMA = pa.schema([("id", pa.int64())])
CONFLICT = Conflict(ConflictKind.FORMAT, Key.parse(KEY), why="was replaced")


def told(error: PenstockError) -> str:
    """What is left of an error that leaves one of Spark's workers: text."""
    try:
        with telling():
            raise error
    except PenstockError:
        return traceback.format_exc()


@pytest.mark.parametrize(
    "error",
    [
        KeyNotFound("there is no 'x'", key="x"),
        InvalidRequest('several\nlines, "quotes" and {braces}', column="a\nb"),
        TableConflict([CONFLICT], winners={"x": 3}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_an_error_comes_back_from_text_as_it_was(error: PenstockError) -> None:
    found = unwrap(RuntimeError(f"Spark says: {told(error)} SQLSTATE: 38000"))
    assert type(found) is type(error)
    assert found is not None
    assert (found.message, found.details) == (error.message, error.details)


def test_an_error_of_penstock_itself_and_one_that_another_was_raised_for_are_found() -> None:
    error = KeyNotFound("there is no 'x'")
    outer = RuntimeError("outer")
    outer.__cause__ = error
    assert unwrap(error) is error
    assert unwrap(outer) is error
    assert unwrap(None) is None
    assert unwrap(RuntimeError("something else")) is None


def test_what_is_too_long_to_be_told_is_left_out_and_the_kind_of_the_error_stays() -> None:
    error = TableConflict([CONFLICT], "refused", winners=["x" * 100] * 1000, version=3)
    text = told(error)
    found = unwrap(RuntimeError(text))
    assert len(text) < 2 * LINE_MAX_BYTES
    assert isinstance(found, TableConflict)
    assert (found.message, found.details["version"], found.conflicts) == ("refused", 3, ())


def test_a_line_that_was_cut_is_no_error_of_penstock_and_does_no_harm() -> None:
    text = told(KeyNotFound("there is no 'x'"))
    assert unwrap(RuntimeError(text[: text.index('"message"')])) is None


def test_text_says_nothing_of_where_in_penstock_the_error_was_raised() -> None:
    def deep() -> None:
        raise InvalidRequest("no")

    try:
        with telling():
            deep()
    except InvalidRequest:
        assert "deep" not in traceback.format_exc()


def test_a_commit_that_is_refused_raises_through_spark_what_can_be_unwrapped(
    spark: SparkSession, lake: Lake
) -> None:
    lake.create_table(KEY, schema=SCHEMA)
    root = Path(lake.table(KEY).location)
    rows = spark.range(0, 3, 1, 1).mapInArrow(replacing(lake.url), "id long")
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as raised:
        rows.write.format("penstock").options(lake=lake.url, table=KEY).mode("append").save()
    found = unwrap(raised.value)
    assert isinstance(found, CommitConflict)
    assert [one.key for one in found.conflicts] == [Key.parse(KEY)]
    assert lake.table(KEY).to_arrow().num_rows == 0
    assert not list(root.rglob("part-*"))


@pytest.mark.reliability
def test_over_spark_connect_errors_can_be_unwrapped_too(lake: Lake) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio, which is not among the requirements")
    lake.create_table(KEY, schema=SCHEMA)
    program = Path(__file__).with_name("connect_program.py")
    # Only so does Spark take a free port for the server and its client.
    testing = {"SPARK_TESTING": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = os.environ | testing | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(program), lake.url, KEY],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.split() == ["3", "KeyNotFound", "InvalidRequest"], done.stderr[-3000:]


def replacing(url: str) -> Callable[[Any], Any]:
    """A step of a job in which somebody else drops the table and creates another, before the job commits."""

    def replace(batches: Any) -> Any:
        import pyarrow

        import penstock
        from penstock.model.keys import Key
        from penstock.model.operations import Delete

        with penstock.open(url) as lake:
            lake.commit([Delete(Key.parse("sales.orders"))])
            lake.create_table("sales.orders", schema=pyarrow.schema([("id", pyarrow.int64())]))
        yield from batches

    return replace
