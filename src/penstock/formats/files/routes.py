"""Reads and writes of Spark drivers that have no Python: their JVM asks here what becomes of them.

What the driver's Python process would decide is decided in this one, with the rights of the caller: the steps
ask the lake by the same calls as anybody, and those are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.formats.files.lake.session_reads import READ, FilesToRead, SessionRead, read_files
from penstock.formats.files.lake.sessions import (
    STEPS,
    BegunSession,
    CheckedSession,
    EndedSession,
    SessionCaller,
    SessionWrite,
)
from penstock.server.routes import Route, RouteRequest

PATH: Final = "/spark-writes/"
READS: Final = "/spark-reads/"
_ANSWERS: Final[dict[str, Any]] = {
    "check": CheckedSession,
    "begin": BegunSession,
    "commit": EndedSession,
    "abort": EndedSession,
}
_SUMMARIES: Final = {
    "check": "Check whether a Spark write is to a table of the lake",
    "begin": "Begin a Spark write",
    "commit": "Commit the files that Spark has written",
    "abort": "Abort a Spark write",
}


def _make_handler(step: str) -> Callable[[RouteRequest], Any]:
    def handle_request(ask: RouteRequest) -> Any:
        return STEPS[step](SessionCaller(ask.catalogue.do), ask.body)

    return handle_request


def _answer_session_read(ask: RouteRequest) -> FilesToRead:
    return read_files(SessionCaller(ask.catalogue.do), ask.body)


_DESCRIPTION: Final = "For Penstock's classes in a Spark driver without Python. Repeating a request is safe."
_WRITES: Final = tuple(
    Route(
        method="POST",
        path=PATH + step,
        handle=_make_handler(step),
        summary=_SUMMARIES[step],
        description=_DESCRIPTION,
        body=SessionWrite,
        answer=answer,
        is_write=step != "check",
    )
    for step, answer in _ANSWERS.items()
)
ROUTES: Final = (
    *_WRITES,
    Route(
        method="POST",
        path=READS + READ,
        handle=_answer_session_read,
        summary="List the files of the table that a path of a Spark session is mapped to",
        description=_DESCRIPTION,
        body=SessionRead,
        answer=FilesToRead,
        is_write=False,
    ),
)
