"""A request as it was asked: what tells a repetition from another request under the same idempotency key."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.lake.call import Said, Write
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


def request_digest(call: Write[Any]) -> bytes:
    """A hash of a request as its writer put it, with the names that it had, wherever they lead by now.

    Neither who sends it matters, nor which branch it is for: each has keys of its own.
    """
    if call.asked is not None:
        return call.asked
    try:
        replaced = call.unhashed_values()
        if isinstance(said := getattr(call, "said", None), Said):
            replaced["said"] = _FirstSaid(message=said.message, properties=said.properties)
        plain = msgspec.structs.replace(call, **replaced)
        return object_id(encode((type(call).__name__, plain)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as problem:
        raise InvalidRequest(f"invalid request: {problem}") from None
