"""The data pipeline: tables of a lake, written and read by Spark.

>>> from penstock.spark import read, session, write       # doctest: +SKIP
>>> spark = session(penstock.open("./lake"))              # doctest: +SKIP
>>> write(spark.range(3), "demo.numbers")                 # doctest: +SKIP

Data moves through Spark's own writers and readers. Penstock decides where files go and when they exist.
Importing this does not import PySpark, which comes with ``penstock[spark]``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from penstock.formats.delta.spark.change_feed import changes
    from penstock.formats.delta.spark.changes import delete, update
    from penstock.formats.delta.spark.merges import merge
    from penstock.spark.failures import unwrap
    from penstock.spark.job.concurrent_jobs import JobsMeet
    from penstock.spark.reading import read, view
    from penstock.spark.sessions import configure, session
    from penstock.spark.streaming import sink, stream
    from penstock.spark.writing import write

_HOME: Final = {
    "JobsMeet": "penstock.spark.job.concurrent_jobs",
    "changes": "penstock.formats.delta.spark.change_feed",
    "configure": "penstock.spark.sessions",
    "delete": "penstock.formats.delta.spark.changes",
    "merge": "penstock.formats.delta.spark.merges",
    "read": "penstock.spark.reading",
    "session": "penstock.spark.sessions",
    "sink": "penstock.spark.streaming",
    "stream": "penstock.spark.streaming",
    "unwrap": "penstock.spark.failures",
    "update": "penstock.formats.delta.spark.changes",
    "view": "penstock.spark.reading",
    "write": "penstock.spark.writing",
}

__all__ = [
    "JobsMeet",
    "changes",
    "configure",
    "delete",
    "merge",
    "read",
    "session",
    "sink",
    "stream",
    "unwrap",
    "update",
    "view",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
