"""Which engine a transaction reads and writes with: Spark is only looked for where a program uses it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import InvalidRequest


def is_spark_frame(data: object) -> bool:
    """Whether rows are a DataFrame of Spark, in any of its forms."""
    kinds = type(data).__mro__
    return any(one.__name__ == "DataFrame" and one.__module__.startswith("pyspark.sql.") for one in kinds)


def penstock_spark() -> Any:
    """The package that reads and writes with Spark, which is above this one."""
    return import_module("penstock.spark")


def session_of(given: Any, otherwise: str) -> Any:
    """The session of Spark that is given, or the active one; ``InvalidRequest`` says what does without."""
    if given is not None:
        return given
    try:
        found = import_module("pyspark.sql").SparkSession.getActiveSession()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "pyspark":
            raise
        found = None
    if found is None:
        raise InvalidRequest(
            f"no session of Spark is active here: give one, as in spark=…; without Spark, {otherwise} reads"
        )
    return found
