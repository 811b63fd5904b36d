"""The Spark of a process, lent to programs that start and stop a Spark: documents, and ``penstock demo``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def lent(running: SparkSession) -> Iterator[list[SparkSession]]:
    """Let a session that is made be the active one, as if it had started Spark, and ``stop()`` end it alone.

    A session that was stopped does nothing more; Spark goes on for others. Yields those that were stopped.
    """
    stopped: list[SparkSession] = []
    original = type(running).newSession

    def new_session(session: Any) -> SparkSession:
        made = original(session)
        _activate(made)
        return made

    def stop(session: Any) -> None:
        _activate(running)
        session._jsparkSession = None
        stopped.append(session)

    with mock.patch.multiple(type(running), newSession=new_session, stop=stop):
        try:
            yield stopped
        finally:
            _activate(running)


def _activate(session: SparkSession) -> None:
    """Have ``SparkSession.getActiveSession()`` find a session, in Python and in this thread of the JVM."""
    jvm: Any = session._jvm
    type(session)._activeSession = session
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


@contextmanager
def working_directory(running: SparkSession, directory: Path) -> Iterator[None]:
    """Have Spark, which started elsewhere, find relative paths below a directory."""
    jvm: Any = running._jvm
    system, hadoop = jvm.java.lang.System, jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(running.sparkContext._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory(), system.getProperty("user.dir")
    files.setWorkingDirectory(hadoop.Path(str(directory)))
    system.setProperty("user.dir", str(directory))  # Hadoop asks for it each time, Java itself never again
    try:
        yield
    finally:
        files.setWorkingDirectory(before[0])
        system.setProperty("user.dir", before[1])
