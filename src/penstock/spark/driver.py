"""The driver's side of reads and writes by code that knows only its session: Spark's JVM asks, this process
decides.

Penstock's class in the JVM is handed a callback for each lake. It calls back from the thread that reads or
writes, and waits. If this process is gone, nobody answers, the query fails, and nothing of a job lands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.spark import jar, spark_errors
from penstock.spark.format import files_format
from penstock.spark.job.concurrent_jobs import ConcurrentJobsWarning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake

LakeOfId = Callable[[str], "Lake | None"]
"""Finds the lake of an id that this process has open."""

READ: Final = "read"
"""The step that is a read; all others are of a write."""
_LOG: Final = logging.getLogger("penstock.spark")


class Driver:
    """Answers for one lake. May be called from many threads at once."""

    class Java:
        """As py4j wants to be told of what the JVM may call."""

        implements: Final = ["io.penstock.spark.PlanDriver"]

    def __init__(
        self,
        lake_id: str,
        lake_of_id: LakeOfId,
        wrap: Callable[[Any], SparkSession] | None = None,
    ) -> None:
        """``wrap`` makes a session of the JVM one of Python's, ``wrap_session`` if it is not given."""
        self._lake_id, self._lake_of_id = lake_id, lake_of_id
        self._wrap = wrap_session if wrap is None else wrap

    def answer(self, step: str, request: str) -> str:
        """The answer to a read, or to a step of a write, as JSON. An error is told by its text, since it goes
        through a JVM."""
        answer: Any
        try:
            answer = files_format().answer_session(self._lake, step, request)
        except Exception as problem:  # noqa: BLE001 - told in a sentence, where a trace would be shown
            answer = _describe_error(problem, "read" if step == READ else "write", step)
        return msgspec.json.encode(answer).decode()

    def act(self, step: str, session: Any, request: str, parts: Any) -> Any:
        """The answer to a question of the catalog: a DataFrame of the JVM for a read, otherwise JSON.

        ``session`` is the JVM's, and so are the DataFrames and columns in ``parts``.
        """
        answer: Any
        try:
            from penstock.spark.catalog.answers import answer_question

            answer = answer_question(
                partial(self._wrap, session), self._lake, step, request, partial(_list_parts, parts)
            )
        except Exception as problem:  # noqa: BLE001 - answer in a sentence, where a trace would be shown
            answer = _describe_error(problem, "statement", step)
            with suppress(Exception):  # the first error is the one to be told
                from penstock.spark.catalog.answers import state_after_failure

                answer |= state_after_failure(self._lake, request)
        return answer._jdf if hasattr(answer, "_jdf") else msgspec.json.encode(answer).decode()

    @property
    def _lake(self) -> Lake:
        lake = self._lake_of_id(self._lake_id)
        if lake is None:
            raise InvalidRequest("the lake that this session works with is not open in this process")
        return lake


def _describe_error(problem: Exception, subject: str, step: str) -> dict[str, Any]:
    """What the JVM is told of an error."""
    from pyspark.errors import PySparkException

    if isinstance(problem, PySparkException) and (inside := spark_errors.unwrap(problem)) is not None:
        problem = inside
    if isinstance(problem, PenstockError):
        return {"error": problem.message, "details": spark_errors.as_line(problem)}
    if isinstance(problem, ConcurrentJobsWarning):
        return {"error": str(problem)}
    if isinstance(problem, PySparkException):
        return {"error": str(problem)}
    _LOG.error("Penstock failed at a %s of Spark (%s)", subject, step, exc_info=problem)
    return {"error": f"Penstock failed at this {subject} ({step}): {type(problem).__name__}: {problem}"}


def _list_parts(java: Any) -> list[Any]:
    """A list of the JVM as one of Python's. To iterate over it would end by an error of the JVM, of which
    PySpark asks a hundred times what it is."""
    return [java[place] for place in range(len(java))]


def wrap_session(java: Any) -> SparkSession:
    """A session of the JVM, as Python has it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context
    assert context is not None
    return SparkSession(context, java)


def register_driver(spark: SparkSession, lake_id: str, lake_of_id: LakeOfId) -> None:
    """Let the JVM of a session ask this process of writes to a lake's tables.

    Nothing happens without Penstock's classes there, and over Spark Connect.
    """
    if not jar.has_classes(spark):
        return
    from pyspark.java_gateway import ensure_callback_server_started

    assert spark._jvm is not None
    ensure_callback_server_started(  # type: ignore[no-untyped-call]
        spark.sparkContext._gateway
    )
    drivers: Any = spark._jvm.io.penstock.spark.JobDrivers
    drivers.register(lake_id, Driver(lake_id, lake_of_id))


def register_when_made(builder: SparkSession.Builder, lake_id: str, lake_of_id: LakeOfId) -> None:
    """Do the same with the session that a builder makes, as soon as it does.

    There is no JVM before that which could be told.
    """
    for name in ("getOrCreate", "create"):
        make: Callable[[], SparkSession] | None = getattr(builder, name, None)
        if make is not None:
            setattr(builder, name, _register_sessions(make, lake_id, lake_of_id))


def _register_sessions(
    make: Callable[[], SparkSession], lake_id: str, lake_of_id: LakeOfId
) -> Callable[[], SparkSession]:
    def make_and_register() -> SparkSession:
        spark = make()
        register_driver(spark, lake_id, lake_of_id)
        return spark

    return make_and_register
