"""Which engine a transaction reads and writes with: Spark is only looked for where a program uses it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import InvalidRequest


def is_spark_frame(data: object) -> bool:
    """Whether rows are a DataFrame of Spark, in any of its forms."""
    kinds = type(data).__mro__
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.sql.") for kind in kinds)


def load_penstock_spark(module: str = "") -> Any:
    """The package that reads and writes with Spark, which is above this one, or a module of it."""
    return import_module(f"penstock.spark.{module}" if module else "penstock.spark")


def find_spark_session(session: Any, otherwise: str) -> Any:
    """The session of Spark that is given, or the active one; ``InvalidRequest`` says what does without."""
    if session is not None:
        return session
    try:
        active = import_module("pyspark.sql").SparkSession.getActiveSession()
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] != "pyspark":
            raise
        active = None
    if active is None:
        raise InvalidRequest(
            f"no Spark session is active: give one, as in spark=…; without Spark, read with {otherwise}"
        )
    return active
