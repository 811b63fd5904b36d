"""Spark for tests: a lake and a session of their own, in the one Spark of the process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.lake.lake import Lake
from penstock.spark.jar import is_jar_loaded
from penstock.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A lake of the test's own, on disk."""
    with penstock.open(tmp_path / "lake", create=True) as opened:
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
    if is_jar_loaded(jvm):
        thread = jvm.java.lang.Thread.currentThread()
        thread.setContextClassLoader(thread.getContextClassLoader().getParent())
