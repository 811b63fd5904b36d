"""Errors on the way: a client raises what the server raised, with the same class, message and details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from penstock.errors import (
    AdministratorError,
    CommitConflict,
    ConflictError,
    Denied,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    RequestError,
    Throttled,
    TimedOut,
    Unauthenticated,
    Unavailable,
    UnsupportedFormat,
)
from penstock.model.conflicts import Conflict
from penstock.model.decoders import get_json_decoder
from penstock.model.keys import Key
from penstock.wire import json

ERROR_MARK: Final = "PENSTOCK-ERROR "
"""Before a whole error in a text that goes through Spark."""


class ErrorDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    code: str
    """Stable, and meant for programs."""
    message: str
    """For people."""
    details: dict[str, Any] = {}
    """The facts of the error, such as `conflicts`."""


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that says that something went wrong."""

    error: ErrorDetails
    request_id: str = ""
    """As in the server's log; empty if no server answered."""

    @classmethod
    def from_error(
        cls, code: str, message: str, details: Mapping[str, Any] | None = None, request_id: str = ""
    ) -> ErrorBody:
        error = ErrorDetails(code=code, message=_make_valid_text(message), details=dict(details or {}))
        return cls(error=error, request_id=_make_valid_text(request_id))


_BY_STATUS: Final[Mapping[int, type[PenstockError]]] = {
    401: Unauthenticated,
    403: Denied,
    404: NotFound,
    408: TimedOut,
    409: ConflictError,
    429: Throttled,
    502: Unavailable,
    503: Unavailable,
    504: OutcomeUnknown,
}


def encode_error(error: PenstockError, request_id: str) -> bytes:
    """An error as the body of an answer."""
    return json.encode(make_error_body(error, request_id), ErrorBody)


def make_error_body(error: PenstockError, request_id: str) -> ErrorBody:
    """An error as JSON can hold it."""
    details = {name: _encode_detail(value) for name, value in error.details.items()}
    return ErrorBody.from_error(error.code, error.message, details, request_id)


def decode_error(status: int, body: bytes) -> PenstockError | None:
    """The error behind an answer; ``None`` if Penstock did not write it.

    A newer server's error of a kind that is not known here becomes the nearest one that is.
    """
    try:
        failure = get_json_decoder(ErrorBody).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return rebuild_error(failure, status)


def rebuild_error(failure: ErrorBody, status: int) -> PenstockError:
    """An error as it was raised on the other side, with the id of the request that met it."""
    sent = failure.error
    kind = _list_error_classes().get(sent.code) or find_error_class(status)
    details = dict(sent.details)
    if issubclass(kind, CommitConflict):
        details["conflicts"] = _decode_conflicts(details.get("conflicts", ()))
    error = kind.__new__(kind)
    PenstockError.__init__(error, sent.message, **details)
    error.request_id = failure.request_id
    return error


def find_error_class(status: int) -> type[PenstockError]:
    """The nearest kind of error for an HTTP status."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return RequestError if 400 <= status < 500 else AdministratorError


def _decode_conflicts(details: Any) -> tuple[Conflict, ...]:
    """Conflicts as values; none if some are of a kind that is not known here. The message names them too."""
    try:
        conflicts: tuple[Conflict, ...] = json.read_answer_json(
            msgspec.json.encode(details), tuple[Conflict, ...]
        )
    except UnsupportedFormat:
        return ()
    return conflicts


def _list_error_classes() -> dict[str, type[PenstockError]]:
    return {kind.code: kind for kind in _list_subclasses(PenstockError)}


def _list_subclasses(kind: type[PenstockError]) -> Iterator[type[PenstockError]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _list_subclasses(subclass)


def _encode_detail(value: Any) -> Any:
    """A detail of an error as JSON can hold it."""
    if isinstance(value, str | Key):
        return _make_valid_text(str(value))
    if isinstance(value, msgspec.Struct):
        return json.to_json_value(value, type(value))
    if isinstance(value, Mapping):
        return {_make_valid_text(str(name)): _encode_detail(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_encode_detail(item) for item in value]
    return value if isinstance(value, int | float | bytes | datetime | None) else _make_valid_text(str(value))


def _make_valid_text(text: str) -> str:
    """Text without what JSON cannot carry: bytes in a path or an argument that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()
