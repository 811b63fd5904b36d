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
    from penstock.spark.change_feed import changes
    from penstock.spark.job.concurrent_jobs import ConcurrentJobsWarning
    from penstock.spark.merge_builder import merge
    from penstock.spark.reader import read, view
    from penstock.spark.requests import WriteResult
    from penstock.spark.row_changes import delete, update
    from penstock.spark.row_diff import diff_rows
    from penstock.spark.sessions import configure, session
    from penstock.spark.spark_errors import unwrap
    from penstock.spark.streams import sink, stream
    from penstock.spark.upkeep import optimize
    from penstock.spark.writer import write

_HOME: Final = {
    "ConcurrentJobsWarning": "job.concurrent_jobs",
    "WriteResult": "requests",
    "changes": "change_feed",
    "configure": "sessions",
    "delete": "row_changes",
    "diff_rows": "row_diff",
    "merge": "merge_builder",
    "optimize": "upkeep",
    "read": "reader",
    "session": "sessions",
    "sink": "streams",
    "stream": "streams",
    "unwrap": "spark_errors",
    "update": "row_changes",
    "view": "reader",
    "write": "writer",
}

__all__ = [
    "ConcurrentJobsWarning",
    "WriteResult",
    "changes",
    "configure",
    "delete",
    "diff_rows",
    "merge",
    "optimize",
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
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
