"""Errors as Lance's API says them: a number that tells what happened, and words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from penstock import errors
from penstock.errors import PenstockError, RequestError
from penstock.server.routes import HttpAnswer

if TYPE_CHECKING:
    from lance_namespace import LanceNamespaceError

STATUSES: Final = (
    *(406, 404, 409, 409),  # unsupported; namespace not found, exists, not empty
    *(404, 409, 404, 409, 404, 409),  # table, index and tag: not found, exists
    *(404, 404, 404),  # transaction, version and column not found
    *(400, 409, 403, 401),  # invalid input, concurrent modification, denied, unauthenticated
    *(503, 500, 409, 400, 429),  # unavailable, internal, state of a table, schema, throttled
    *(404, 409),  # branch not found, exists
)
"""The status that each of Lance's codes has, from 0 on."""

UNSUPPORTED, INVALID, DENIED, UNAUTHENTICATED, UNAVAILABLE, INTERNAL, THROTTLED = 0, 13, 15, 16, 17, 18, 21

_OF_SERVER: Final[dict[type[PenstockError], tuple[int, int]]] = {
    errors.RouteNotFound: (404, UNSUPPORTED),
    errors.MethodNotAllowed: (405, UNSUPPORTED),
    errors.TooLarge: (413, INVALID),
    errors.WorkTooLarge: (422, INVALID),
    errors.UnsupportedMediaType: (400, INVALID),
    errors.UnsupportedFeature: (406, UNSUPPORTED),
    errors.TransactionNotFound: (404, 10),
    errors.NotFound: (404, 1),
    errors.RequestError: (400, INVALID),
    errors.ConflictError: (409, 14),
    errors.Throttled: (429, THROTTLED),
    errors.TryAgainError: (503, UNAVAILABLE),
    errors.OutcomeUnknown: (504, UNAVAILABLE),
    errors.Unauthenticated: (401, UNAUTHENTICATED),
    errors.Denied: (403, DENIED),
    errors.PenstockError: (500, INTERNAL),
}
"""Status and code of errors that no operation of the namespace raises: it was not asked."""

_encoder = msgspec.json.Encoder()


class ErrorResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong."""

    error: str
    """In words."""
    code: int
    """Which of the errors that Lance's namespaces know."""
    detail: str = ""
    """Which of Penstock's errors it is."""
    instance: str = ""
    """The request, as the server's log names it."""


class LanceRefusal(RequestError):
    """What an operation of the namespace refused."""

    code = "lance_refusal"

    def __init__(self, error: LanceNamespaceError) -> None:
        super().__init__(str(error), lance_code=int(error.code), cause=_find_cause_code(error))


def make_error_answer(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    """An error as the answer to a request."""
    if isinstance(error, LanceRefusal):
        code, detail = error.details["lance_code"], error.details["cause"]
        status = STATUSES[code] if 0 <= code < len(STATUSES) else 500
    else:
        status, code = next(
            _OF_SERVER[error_type] for error_type in type(error).__mro__ if error_type in _OF_SERVER
        )
        detail = error.code
    instance = headers.get("x-request-id", "")
    body = ErrorResponse(error=error.message, code=code, detail=detail, instance=instance)
    return HttpAnswer(status=status, body=_encoder.encode(body))


def _find_cause_code(error: LanceNamespaceError) -> str:
    """The code of Penstock's own error that stands behind one of Lance's."""
    cause = error.__cause__
    return cause.code if isinstance(cause, PenstockError) else ""
