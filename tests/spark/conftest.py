"""Spark for tests: started once in each process of the suite, small and quiet, as users start it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import InvalidRequest
from penstock.lake.lake import Lake
from penstock.spark.jar import is_in
from penstock.spark.java import find_java
from penstock.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Compiled once and quickly rather than well: what runs for seconds does not repay more.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def started_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of this process. It works with a lake that no test writes to."""
    try:
        find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)
    home = tmp_path_factory.mktemp("spark")
    with penstock.open(home / "lake") as lake:
        spark = session(
            lake,
            app="penstock tests",
            master="local[2]",
            conf={
                "spark.ui.enabled": False,
                "spark.sql.shuffle.partitions": 2,
                "spark.sql.warehouse.dir": home / "warehouse",
                "spark.local.dir": home / "scratch",
                "spark.driver.extraJavaOptions": QUICK_JVM,
            },
        )
        yield spark
        spark.stop()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake of the test's own, on disk."""
    with penstock.open(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def spark(started_spark: SparkSession, lake: Lake) -> Iterator[SparkSession]:
    """A session of the test's own, which works with its lake."""
    jvm: Any = started_spark._jvm
    thread = jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    yield session(lake)
    thread.setContextClassLoader(loader)


def hide_classes(spark: SparkSession) -> None:
    """Let this thread find no classes in the session's JVM but those that Spark itself comes with."""
    jvm: Any = spark._jvm
    if is_in(jvm):
        thread = jvm.java.lang.Thread.currentThread()
        thread.setContextClassLoader(thread.getContextClassLoader().getParent())
