"""Steps of reads and writes by code that knows only its session, as Spark's JVM asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.formats.files.lake.session_reads import READ, SessionRead, read_files
from penstock.formats.files.lake.sessions import (
    STEPS,
    BegunSession,
    SessionCaller,
    SessionWrite,
    abort_session_job,
)
from penstock.model.decoders import get_json_decoder
from penstock.spark.job.concurrent_jobs import ConcurrentJobsWarning, warn_of_others

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

_REQUEST: Final = get_json_decoder(SessionWrite)
_READ: Final = get_json_decoder(SessionRead)


def answer_step(lake: Lake, step: str, request: str) -> Any:
    """The answer to a step, as JSON has it."""
    if step == "begin":
        lake.begin_write()
    by = SessionCaller(lake.do, lake.places, lake.author)
    if step == READ:
        return read_files(by, _READ.decode(request))
    session_write = _REQUEST.decode(request)
    checked_session = STEPS[step](by, session_write)
    return (
        _warn_of_other_jobs(by, session_write, checked_session)
        if isinstance(checked_session, BegunSession)
        else checked_session
    )


def _warn_of_other_jobs(by: SessionCaller, session_write: SessionWrite, begun: BegunSession) -> BegunSession:
    """Warn of other jobs that write the same table. If warnings are errors, abort the job and raise."""
    try:
        warn_of_others(begun.others)
    except ConcurrentJobsWarning:
        abort_session_job(by, msgspec.structs.replace(session_write, begun=begun))
        raise
    return msgspec.structs.replace(begun, others="")
