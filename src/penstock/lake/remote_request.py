"""Requests of a remote lake: a call with values of wrong types is refused here, in the lake's own words."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidRequest
from penstock.lake.calls import (
    AssignReference,
    Bring,
    Call,
    CommitOperations,
    CreateReference,
    DeleteReference,
    GetChanges,
    GetCommit,
    GetReference,
    GetReferenceLog,
    Resolve,
)
from penstock.model.content import encode_content
from penstock.model.names import check_name, parse_revision
from penstock.model.operations import Put
from penstock.wire.requests import Request, request_of


def sound_request(call: Call[Any]) -> Request:
    """The call as a request; ``InvalidName`` or ``InvalidContent`` if that is why it cannot be sent."""
    try:
        return request_of(call)
    except InvalidRequest:
        _check(call)
        raise


def _check(call: Call[Any]) -> None:
    """Raise what the lake itself would raise, where that is known."""
    if isinstance(call, GetReference | GetReferenceLog | CreateReference | AssignReference | DeleteReference):
        check_name(call.name)
    elif isinstance(call, GetCommit | GetChanges | Resolve) and call.revision is not None:
        parse_revision(call.revision)
    elif isinstance(call, CommitOperations):
        for operation in call.operations:
            if isinstance(operation, Put):
                encode_content(operation.content)
    elif isinstance(call, Bring):
        for how in call.keys.values():
            if how.content is not None:
                encode_content(how.content)
