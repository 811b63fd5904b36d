"""Errors of Penstock that come through a real Spark are found again in what it raises."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import CommitConflict
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark.spark_errors import unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "sales.orders"
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.verify
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
