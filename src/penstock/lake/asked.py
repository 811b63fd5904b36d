"""A request as it was asked: what tells a repetition from another request under the same idempotency key."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.calls import Rebase, Said, Write
from penstock.lake.files_calls import NewFile, WriteFiles
from penstock.model.encoding import encode, object_id

AFTER_DOUBT: Final = "after_doubt"
"""In an error's ``details``: it is of a later try, and nobody heard what came of the one before."""


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
        unimportant["said"] = Said(message=said.message, properties=said.properties)
    if isinstance(call, WriteFiles):
        unimportant |= _where(call)
    plain = msgspec.structs.replace(call, **unimportant)
    try:
        return object_id(encode((type(call).__name__, plain)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as problem:
        raise InvalidRequest(f"this cannot be asked: {problem}") from None


def _where(call: WriteFiles) -> dict[str, Any]:
    """Where new files lie, and since when: a writer who asks again has put the same bytes somewhere else.

    It matters if not all of them are known by a hash of their bytes.
    """
    added, put = call.added, call.put
    if not isinstance(added, tuple) or not isinstance(put, tuple):
        return {}
    if not all(one.checksum.startswith("sha256:") for one in (*added, *put)):
        return {}
    return {"folder": "", "added": tuple(map(_plain, added)), "put": tuple(map(_plain, put))}


def _plain(new: NewFile) -> NewFile:
    return NewFile(path=new.path, size=new.size, checksum=new.checksum)
