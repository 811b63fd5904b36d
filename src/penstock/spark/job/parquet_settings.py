"""Settings of a session that decide how Spark's Parquet writer stores values, held for the time of a job.

Spark has no option of a single write for them. Readers of a Delta table rely on how values are stored: times
in microseconds, which INT96 is not to all of them, and columns by their ids where a table has such. So these
hold while a job writes, whatever the session says, and are as they were afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from penstock.spark import jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"
MICROSECONDS: Final = {TIMESTAMPS: "TIMESTAMP_MICROS"}
UNSHREDDED: Final = {
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
"""Variants as every reader of them knows them."""


class _HeldSetting:
    """A setting of a session that jobs hold right now."""

    def __init__(self, before: str | None) -> None:
        self.before = before
        """What the session said, ``None`` for Spark's default."""
        self.jobs = 0


_HELD: Final[dict[tuple[str, str], _HeldSetting]] = {}
"""By session and name."""
_LOCK: Final = Lock()


@contextmanager
def hold_settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Let a session have settings while a job writes. Several jobs at once hold them together.

    A setting has the same value for all who hold it. Other writes of the session that begin meanwhile are
    made with it, too.
    """
    session = _get_session_id(spark)
    with _LOCK:
        for name, value in wanted.items():
            held = _HELD.get((session, name))
            if held is None:
                held = _HELD[session, name] = _HeldSetting(_read_setting(spark, name))
                if held.before != value:
                    spark.conf.set(name, value)
            held.jobs += 1
    try:
        yield
    finally:
        with _LOCK:
            for name, value in wanted.items():
                held = _HELD[session, name]
                held.jobs -= 1
                if not held.jobs:
                    del _HELD[session, name]
                    _restore_setting(spark, name, held.before, value)


def _restore_setting(spark: SparkSession, name: str, before: str | None, held: str) -> None:
    if before is None:
        spark.conf.unset(name)
    elif before != held:
        spark.conf.set(name, before)


def unset_settings(spark: SparkSession, wanted: Mapping[str, str]) -> dict[str, str]:
    """Of settings those of which the session says nothing, so that Spark's default would hold."""
    session = _get_session_id(spark)
    unset = {}
    with _LOCK:
        for name, value in wanted.items():
            held = _HELD.get((session, name))
            if (_read_setting(spark, name) if held is None else held.before) is None:
                unset[name] = value
    return unset


def _read_setting(spark: SparkSession, name: str) -> str | None:
    """What a session says of a setting; ``None`` for Spark's default."""
    if jar.is_classic(spark):
        chosen = spark._jsparkSession.conf()
        return str(chosen.get(name)) if chosen.contains(name) else None
    return spark.conf.getAll.get(name)


def _get_session_id(spark: SparkSession) -> str:
    """What two objects of Python for one session have in common."""
    if jar.is_classic(spark):
        return str(spark._jsparkSession.sessionUUID())
    return str(spark.session_id)  # type: ignore[attr-defined]
