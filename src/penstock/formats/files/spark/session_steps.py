"""Steps of reads and writes by code that knows only its session, as Spark's JVM asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.formats.files.lake.session_reads import READ, SessionRead, read_files
from penstock.formats.files.lake.sessions import STEPS, Begun, Deciding, SessionWrite, abort
from penstock.model.decoders import json_decoder
from penstock.spark.job.concurrent_jobs import JobsMeet, warn_of_others

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

STACK: Final = 1
"""The code that writes cannot be found from here: Spark is in between."""
_REQUEST: Final = json_decoder(SessionWrite)
_READ: Final = json_decoder(SessionRead)


def answer_step(lake: Lake, step: str, request: str) -> Any:
    """The answer to a step, as JSON has it."""
    if step == "begin":
        lake.begin_write()
    by = Deciding(lake.do, lake.places, lake.author)
    if step == READ:
        return read_files(by, _READ.decode(request))
    asked = _REQUEST.decode(request)
    told = STEPS[step](by, asked)
    return _warned(by, asked, told) if isinstance(told, Begun) else told


def _warned(by: Deciding, asked: SessionWrite, begun: Begun) -> Begun:
    """Warn of other jobs. Where the user has made an error of that, the job is over."""
    try:
        warn_of_others(begun.others, STACK)
    except JobsMeet:
        abort(by, msgspec.structs.replace(asked, begun=begun))
        raise
    return msgspec.structs.replace(begun, others="")
