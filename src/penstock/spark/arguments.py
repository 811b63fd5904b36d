"""Arguments of another kind than they should be: told in a sentence, before the lake or Spark is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest
from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_session(spark: Any) -> None:
    """``InvalidRequest`` for what is no Spark session, and for one that was stopped."""
    if not _is_sparks(spark, "SparkSession"):
        raise InvalidRequest(
            "the first argument must be a Spark session, as penstock.spark.session(lake) returns it, got "
            f"{_shorten_value(spark)}"
        )
    if _is_stopped(spark):
        raise InvalidRequest(
            "this Spark session was stopped; create a new one by penstock.spark.session(lake), and its "
            "DataFrames again"
        )


def check_frame(df: Any) -> None:
    """``InvalidRequest`` for what is no DataFrame of Spark's, and for one whose session was stopped."""
    if not _is_sparks(df, "DataFrame"):
        raise InvalidRequest(
            f"the first argument must be a Spark DataFrame, got {_shorten_value(df)}\n  Convert it by "
            "spark.createDataFrame(…). Rows of Arrow or pandas can be written without Spark, by "
            "lake.table(key).append(…)."
        )
    check_session(df.sparkSession)


def check_version(version: Any, name: str = "version") -> None:
    """``InvalidRequest`` for what is given as a table's version and is no whole number. None is none."""
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise InvalidRequest(f"'{name}' must be an integer, such as 3, got {_shorten_value(version)}")


def check_values(values: Any) -> None:
    """``InvalidRequest`` for what is to be assigned and does not say to which columns."""
    if not isinstance(values, Mapping):
        raise InvalidRequest(
            f"'set' must be a dict from columns to new values, such as {{'amount': 'amount * 2'}}, got "
            f"{_shorten_value(values)}"
        )


def _is_sparks(value: Any, name: str) -> bool:
    """Whether it is of a class of PySpark's. Over Spark Connect there is another of the same name."""
    return any(
        base_type.__name__ == name and base_type.__module__.startswith("pyspark.sql.")
        for base_type in type(value).__mro__
    )


def _is_stopped(spark: SparkSession) -> bool:
    if jar.is_classic(spark):
        return spark.sparkContext._jsc is None
    return bool(getattr(spark, "is_stopped", False))


def _shorten_value(value: Any) -> str:
    """What somebody gave, briefly."""
    if value is None or isinstance(value, str | int | float):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    kind = type(value)
    origin = "" if kind.__module__ == "builtins" else f" of {kind.__module__.partition('.')[0]}"
    return f"of the type {kind.__name__}{origin}"
