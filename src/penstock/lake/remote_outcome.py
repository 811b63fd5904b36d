"""Doubt: whether a refusal tells of earlier tries too, and what to raise if nothing does.

A repetition under the same key is answered like the first try, if the lake still has what it names. If not,
such as when the branch that was merged is gone, the lake is asked about the key.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from penstock.errors import (
    ConflictError,
    InvalidKey,
    InvalidName,
    JobOver,
    MethodNotAllowed,
    OutcomeUnknown,
    PenstockError,
    TooLarge,
    UnsupportedMediaType,
)
from penstock.lake.answers import LandedRequest
from penstock.lake.call import Ask, Call, WriteCall

R = TypeVar("R")

_HOLDS_FOR_EVERY_TRY: Final = (InvalidKey, InvalidName, MethodNotAllowed, TooLarge, UnsupportedMediaType)
"""Refusals that say what is wrong with the request itself."""

_COMMIT: Final = re.compile("[0-9a-f]{64}")


def is_same_for_every_try(call: WriteCall[Any], error: PenstockError) -> bool:
    """Whether no earlier try of a call can escape what a later one was refused for, wherever it is by now.

    A conflict was decided by the branch's queue, which would decide an earlier try alike, unless that began
    with other commits: a name may have led elsewhere when it was looked up.
    """
    if isinstance(error, JobOver):
        return False  # the job's row says so: an earlier try may have been past it, on its way to the queue
    if isinstance(error, ConflictError):
        return all(_COMMIT.fullmatch(revision) for revision in call.list_named_revisions())
    return isinstance(error, _HOLDS_FOR_EVERY_TRY)


def recover_answer(ask: Ask, call: WriteCall[R], landing: LandedRequest) -> R:
    """The answer of a write that is known to have landed.

    Who may read only some keys, and only its branch, cannot read what it made once that is gone or elsewhere.
    Nothing is made up then, and the error of the read is not taken for a refusal of the write:
    ``OutcomeUnknown`` says that it was applied, and its ``details["commit"]`` is the commit.
    """
    try:
        return call.recover(ask, landing)
    except PenstockError as problem:
        raise OutcomeUnknown(
            f"the request was applied as commit {landing.head}, which cannot be read now: {problem.message}",
            commit=landing.head,
            **_describe_request(call),
        ) from problem


def unknown_outcome_error(call: Call[Any], why: PenstockError) -> OutcomeUnknown:
    """What to raise if it cannot be found out. Its details are what `penstock outcome` asks for."""
    reason = why.message.partition("\n")[0].partition("; ")[0].rstrip(".")
    if (
        isinstance(call, WriteCall)
        and isinstance(why, OutcomeUnknown)
        and str(call.idempotency_key) in why.message
    ):
        # The server has said it already.
        error = OutcomeUnknown(why.message, **_describe_request(call))
    elif isinstance(call, WriteCall):
        doubt = f"whether request {call.idempotency_key} was applied; repeating it with that key is safe"
        error = OutcomeUnknown(f"{reason}, so it is not known {doubt}", **_describe_request(call))
    else:
        doubt = "whether it was done; repeating it is safe"
        error = OutcomeUnknown(f"{reason}, so it is not known {doubt}", key="")
    error.request_id = why.request_id
    return error


def _describe_request(call: WriteCall[Any]) -> dict[str, str | None]:
    """How errors name a request: by its key, and the reference that it is about."""
    name = call.target_name
    return {"key": call.idempotency_key, **({"name": name} if name is not None else {})}
