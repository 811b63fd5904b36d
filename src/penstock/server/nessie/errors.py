"""Errors: what Penstock raises, said as Nessie says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from penstock.errors import (
    CommitConflict,
    CommitNotFound,
    ConflictError,
    Denied,
    HistoryExpired,
    KeyNotFound,
    PenstockError,
    ReferenceChanged,
    ReferenceExists,
    ReferenceNotFound,
    RequestError,
    RetriesExhausted,
    Throttled,
    TransactionNotFound,
    TransactionOver,
    TryAgainError,
    UnsupportedMediaType,
)
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX, TransactionState
from penstock.server.nessie import json_types
from penstock.server.nessie.keys import quote_key
from penstock.server.routes import HttpAnswer

_CODES: Final = {
    "REFERENCE_NOT_FOUND": 404,
    "CONTENT_NOT_FOUND": 404,
    "NAMESPACE_NOT_FOUND": 404,
    "REFERENCE_ALREADY_EXISTS": 409,
    "REFERENCE_CONFLICT": 409,
    "NAMESPACE_ALREADY_EXISTS": 409,
    "NAMESPACE_NOT_EMPTY": 409,
    "BAD_REQUEST": 400,
    "FORBIDDEN": 403,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "TOO_MANY_REQUESTS": 429,
    "SERVICE_UNAVAILABLE": 503,
}
"""Nessie's codes, and the status that each has. Others have the code UNKNOWN."""

_ABOUT_NAMESPACES: Final = frozenset(
    (ConflictKind.NAMESPACE_ABSENT, ConflictKind.NOT_A_NAMESPACE, ConflictKind.NAMESPACE_NOT_EMPTY)
)
_TEXTS: Final = {
    ConflictKind.KEY_EXISTS: "key '{}' already exists",
    ConflictKind.KEY_DOES_NOT_EXIST: "key '{}' does not exist",
    ConflictKind.PAYLOAD_DIFFERS: "payload of existing and expected content for key '{}' are different",
    ConflictKind.CONTENT_ID_DIFFERS: (
        "content IDs of existing and expected content for key '{}' are different"
    ),
    ConflictKind.VALUE_DIFFERS: "values of existing and expected content for key '{}' are different",
    ConflictKind.NAMESPACE_ABSENT: "namespace '{}' must exist",
    ConflictKind.NOT_A_NAMESPACE: (
        "expecting the key '{}' to be a namespace, but is not a namespace "
        "(using a content object that is not a namespace as a namespace is forbidden)"
    ),
    ConflictKind.NAMESPACE_NOT_EMPTY: "namespace '{}' is not empty",
}

_ENDED: Final = frozenset((TransactionState.COMMITTED.value, TransactionState.ABORTED.value))

_encoder = msgspec.json.Encoder()


class NessieRefusal(ConflictError):
    """Something that Nessie refuses with a code, a text, and conflicts or a key of its own."""

    code = "nessie_refusal"

    def __init__(
        self,
        nessie_code: str,
        message: str,
        conflicts: Iterable[json_types.NessieConflict] = (),
        missing: Key | None = None,
    ) -> None:
        super().__init__(message, nessie_code=nessie_code, shown=tuple(conflicts), missing=missing)


def make_error_answer(error: PenstockError, headers: Mapping[str, str]) -> HttpAnswer:
    """An error as the answer to a request with these headers."""
    code, message, details = _describe_error(error)
    status = _CODES.get(code, error.http_status)
    body = json_types.NessieError(
        status=status,
        reason=HTTPStatus(status).phrase,
        message=message,
        error_code=code,
        error_details=details if details is not None and _reads_details(headers) else msgspec.UNSET,
    )
    return HttpAnswer(status=status, body=_encoder.encode(body))


def make_nessie_conflict(conflict: Conflict) -> json_types.NessieConflict:
    """A conflict in Nessie's words; one that only Penstock knows keeps its own."""
    text = _TEXTS.get(conflict.kind)
    return json_types.NessieConflict(
        conflict_type=conflict.kind.value if text else "UNKNOWN",
        key=json_types.ContentKey(elements=tuple(conflict.key)),
        message=text.format(quote_key(conflict.key)) if text else str(conflict),
    )


def select_namespace_conflicts(conflicts: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """Those about namespaces, innermost first: Nessie checks them before anything else."""
    about = [conflict for conflict in conflicts if conflict.kind in _ABOUT_NAMESPACES]
    return tuple(sorted(about, key=lambda conflict: (conflict.key[0], -len(conflict.key), conflict.key)))


def _describe_error(
    error: PenstockError,
) -> tuple[str, str, json_types.ReferenceConflicts | json_types.ContentKeyErrorDetails | None]:
    """The code, the message and the details of an error."""
    message, details = error.message, error.details
    if isinstance(error, NessieRefusal):
        shown: tuple[json_types.NessieConflict, ...] = details["shown"]
        if details["missing"] is not None:
            return details["nessie_code"], message, _make_key_details(details["missing"])
        return (
            details["nessie_code"],
            message,
            json_types.ReferenceConflicts(conflicts=shown) if shown else None,
        )
    if isinstance(error, CommitConflict):
        conflicts = select_namespace_conflicts(error.conflicts) or error.conflicts
        # A key that is deleted and created anew meets the same conflict twice.
        return _describe_conflicts(
            list(
                {
                    (conflict.kind, conflict.key): make_nessie_conflict(conflict) for conflict in conflicts
                }.values()
            )
        )
    if isinstance(error, ReferenceChanged) and "expected" in details:
        return _describe_conflicts(
            [_reference_moved_conflict(details["name"], details["expected"], details["found"])]
        )
    if isinstance(error, ReferenceNotFound):
        name = details.get("name")
        return "REFERENCE_NOT_FOUND", f"Named reference '{name}' not found" if name else message, None
    if isinstance(error, CommitNotFound):
        return "REFERENCE_NOT_FOUND", _commit_missing(error), None
    if isinstance(error, TransactionNotFound):
        return (
            "REFERENCE_NOT_FOUND",
            f"Named reference '{PREFIX}{details.get('transaction')}' not found",
            None,
        )
    if isinstance(error, KeyNotFound) and isinstance(details.get("key"), Key):
        return "CONTENT_NOT_FOUND", message, _make_key_details(details["key"])
    if isinstance(error, ReferenceExists):
        return "REFERENCE_ALREADY_EXISTS", f"Named reference '{details.get('name')}' already exists.", None
    if isinstance(error, UnsupportedMediaType):
        message = "The content-type header value did not match the value in @Consumes"
    return _find_error_code(error), message, None


def _make_key_details(key: Key) -> json_types.ContentKeyErrorDetails:
    return json_types.ContentKeyErrorDetails(content_key=json_types.ContentKey(elements=tuple(key)))


def _find_error_code(error: PenstockError) -> str:
    if isinstance(error, HistoryExpired):
        return "REFERENCE_NOT_FOUND"
    if isinstance(error, TransactionOver) and error.details.get("state") in _ENDED:
        return "REFERENCE_NOT_FOUND"  # its branch ended with it; the message tells how
    if isinstance(error, ConflictError | RetriesExhausted):
        return "REFERENCE_CONFLICT"
    if isinstance(error, Denied):
        return "FORBIDDEN"
    if isinstance(error, UnsupportedMediaType):
        return "UNSUPPORTED_MEDIA_TYPE"
    if isinstance(error, Throttled):
        return "TOO_MANY_REQUESTS"
    if isinstance(error, TryAgainError) and error.http_status == 503:
        return "SERVICE_UNAVAILABLE"
    if isinstance(error, RequestError) and error.http_status == 400:
        return "BAD_REQUEST"
    return "UNKNOWN"


def _commit_missing(error: CommitNotFound) -> str:
    commit, name = error.details.get("commit"), error.details.get("name")
    if commit is None:
        return error.message
    return (
        f"Could not find commit '{commit}' in reference '{name}'." if name else f"Commit '{commit}' not found"
    )


def _reference_moved_conflict(name: str, expected: str, found: str) -> json_types.NessieConflict:
    text = f"named-reference '{name}' is not at expected hash '{expected}', but at '{found}'"
    return json_types.NessieConflict(conflict_type="UNEXPECTED_HASH", key=None, message=text)


def _describe_conflicts(
    conflicts: list[json_types.NessieConflict],
) -> tuple[str, str, json_types.ReferenceConflicts]:
    if len(conflicts) == 1:
        text = conflicts[0].message
        message = f"{text[:1].upper()}{text[1:]}."
    else:
        texts = ", ".join(conflict.message for conflict in conflicts)
        message = f"There are multiple conflicts that prevent committing the provided operations: {texts}."
    return "REFERENCE_CONFLICT", message, json_types.ReferenceConflicts(conflicts=tuple(conflicts))


def _reads_details(headers: Mapping[str, str]) -> bool:
    """Whether the client is of a version that reads details."""
    major = headers.get("nessie-client-spec", "").partition(".")[0]
    return major.isascii() and major.isdecimal() and int(major[:9]) >= 2
