"""Statements of SQL over a lake, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PenstockError
from penstock.spark.spark_errors import unwrap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements one after the other; the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    for statement in statements:
        rows = [tuple(row) for row in spark.sql(statement).collect()]
    return rows


def ids(spark: SparkSession, table: str) -> list[int]:
    """The ids of a table, which may be named with a revision."""
    return sorted(row[0] for row in run(spark, f"SELECT id FROM {table}"))


def refusal(spark: SparkSession, statement: str) -> PenstockError:
    """The error that a statement of SQL is refused with. It reaches the program without a trace of Java's."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - what it is, the caller asks
        spark.sql(statement).collect()
    assert "\tat " not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    error = unwrap(caught.value)
    assert error is not None, caught.value
    return error
