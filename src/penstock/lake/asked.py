"""A request as it was asked: what tells a repetition from another request under the same idempotency key."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.calls import Rebase, Said, Write
from penstock.lake.files.calls import ListOfFiles, NewFile, WriteFiles, hash_of_files
from penstock.model.encoding import encode, object_id

AFTER_DOUBT: Final = "after_doubt"
"""In an error's ``details``: it is of a later try, and nobody heard what came of the one before."""


class _FirstSaid(msgspec.Struct, frozen=True, kw_only=True):
    """A description with the fields that it had in the first release, so that a request keeps its hash."""

    message: str | None
    authors: None = None
    signed_off_by: tuple[()] = ()
    author_time_us: int = 0
    properties: dict[str, tuple[str, ...]]


def asked(call: Write[Any]) -> bytes:
    """A hash of a request as its writer put it, with the names that it had, wherever they lead by now.

    Neither who sends it matters, nor which branch it is for: each has keys of its own.
    """
    if call.asked is not None:
        return call.asked
    unimportant: dict[str, Any] = {"who": "", "idempotency_key": None}
    if not isinstance(call, Rebase):
        unimportant |= {field: None for field in ("branch", "into", "onto", "on") if hasattr(call, field)}
    if isinstance(said := getattr(call, "said", None), Said):
        unimportant["said"] = _FirstSaid(message=said.message, properties=said.properties)
    try:
        if isinstance(call, WriteFiles):
            unimportant |= _where(call)
        plain = msgspec.structs.replace(call, **unimportant)
        return object_id(encode((type(call).__name__, plain)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as problem:
        raise InvalidRequest(f"this cannot be asked: {problem}") from None


def _where(call: WriteFiles) -> dict[str, Any]:
    """Where new files lie, and since when: a writer who asks again has put the same bytes somewhere else.

    It matters if not all of them are known by a hash of their bytes.
    """
    files = {"added": _known(call.added), "put": _known(call.put)}
    return {} if None in files.values() else {"folder": "", **files}


def _known(told: tuple[NewFile, ...] | ListOfFiles) -> bytes | None:
    return told.files if isinstance(told, ListOfFiles) else hash_of_files(told)
