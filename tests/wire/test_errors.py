"""Errors over the wire: the same class, message and details on the other side."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import msgspec
import pytest

from penstock import errors
from penstock.errors import (
    AdministratorError,
    CommitConflict,
    ConflictError,
    Denied,
    MergeConflict,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    RequestError,
    Throttled,
    TimedOut,
    Unauthenticated,
    Unavailable,
)
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.wire.errors import decode_error, encode_error

CONFLICTS = (
    Conflict(ConflictKind.VALUE_DIFFERS, Key("sales", "2026.11"), "v1", "v2"),
    Conflict(ConflictKind.FORMAT, Key("j"), why="has no line 3"),
    Conflict(ConflictKind.FORMAT, Key("t"), "version 3", "version 4", found_version=4),
)

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, PenstockError) and kind is not PenstockError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_the_same(kind: type[PenstockError]) -> None:
    error: Any = (
        kind(CONFLICTS)
        if issubclass(kind, CommitConflict)
        else kind("it went wrong: 'ü'", name="main", objects=["ab", "cd"], tries=3)
    )
    back = decode_error(error.http_status, encode_error(error, "r1"))
    assert type(back) is kind
    assert back is not None
    assert (back.message, back.details, str(back)) == (error.message, error.details, str(error))
    assert (error.request_id, back.request_id) == ("", "r1")


@pytest.mark.parametrize("kind", [CommitConflict, NotFound])
def test_an_error_keeps_its_request_where_it_is_passed_on_between_processes(
    kind: type[PenstockError],
) -> None:
    error: Any = kind(CONFLICTS) if issubclass(kind, CommitConflict) else kind("no", name="main")
    back = decode_error(error.http_status, encode_error(error, "r1"))
    copy = pickle.loads(pickle.dumps(back))
    assert type(copy) is kind
    assert (copy.message, copy.details, copy.request_id) == (error.message, error.details, "r1")


@pytest.mark.parametrize("kind", [CommitConflict, MergeConflict])
def test_conflicts_come_back_as_values(kind: type[CommitConflict]) -> None:
    back = decode_error(409, encode_error(kind(CONFLICTS), ""))
    assert isinstance(back, kind)
    assert back.conflicts == CONFLICTS
    assert isinstance(back.conflicts[0].key, Key)


def test_the_body_of_an_error_has_the_form_that_is_promised() -> None:
    told = msgspec.json.decode(encode_error(CommitConflict(CONFLICTS[:1]), "r7"))
    assert told["request_id"] == "r7"
    assert told["error"]["code"] == "commit_conflict"
    assert told["error"]["details"] == {
        "conflicts": [
            {
                "kind": "VALUE_DIFFERS",
                "key": 'sales."2026.11"',
                "expected": "v1",
                "found": "v2",
                "why": "",
                "path": "",
                "found_version": None,
            }
        ]
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestError),
        (401, Unauthenticated),
        (403, Denied),
        (404, NotFound),
        (408, TimedOut),
        (409, ConflictError),
        (418, RequestError),
        (429, Throttled),
        (500, AdministratorError),
        (502, Unavailable),
        (503, Unavailable),
        (504, OutcomeUnknown),
        (599, AdministratorError),
    ],
)
def test_an_error_of_a_newer_server_becomes_the_nearest_that_is_known(
    status: int, kind: type[PenstockError]
) -> None:
    body = b'{"error":{"code":"lake_frozen","message":"too cold","details":{"degrees":-3},"hint":1},"x":2}'
    back = decode_error(status, body)
    assert type(back) is kind
    assert back is not None
    assert (back.message, back.details) == ("too cold", {"degrees": -3})


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{}", b'{"error":"no"}', b'{"error":{"code":5}}', b"[]", b"\xff", b"[" * 10**5]
)
def test_what_penstock_did_not_write_is_not_taken_for_an_error_of_it(body: bytes) -> None:
    assert decode_error(404, body) is None


def test_a_conflict_of_release_0_1_has_no_version_for_programs() -> None:
    body = (
        b'{"error":{"code":"table_conflict","message":"no","details":{"conflicts":[{"kind":"FORMAT","key":"t",'
        b'"expected":"version 3","found":"version 4","why":"was changed","path":""}]}}}'
    )
    back = decode_error(409, body)
    assert isinstance(back, CommitConflict)
    assert back.conflicts == (
        Conflict(ConflictKind.FORMAT, Key("t"), "version 3", "version 4", "was changed"),
    )
    assert back.conflicts[0].found_version is None


@pytest.mark.parametrize("told", [b"5", b'[{"kind":"NEW_KIND","key":"a"}]', b'[{"key":5}]'])
def test_conflicts_of_a_newer_server_that_are_not_understood_are_left_out(told: bytes) -> None:
    body = b'{"error":{"code":"commit_conflict","message":"no","details":{"conflicts":' + told + b"}}}"
    back = decode_error(409, body)
    assert isinstance(back, CommitConflict)
    assert (back.message, back.conflicts) == ("no", ())
