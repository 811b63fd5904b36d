"""How calls travel: every one arrives as it was sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec
import pytest
from hypothesis import given, settings

from penstock.errors import InvalidRequest
from penstock.lake.calls import (
    CALLS,
    Call,
    CommitDescription,
    CommitOperations,
    GetContents,
    GetReference,
    ListCommits,
    Merge,
    WriteCall,
)
from penstock.model.content import Namespace
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.server.native import NATIVE, PREFIX
from penstock.server.route_matcher import RouteMatcher, list_parameters
from penstock.wire import json
from penstock.wire.requests import WireRequest, make_request_form, make_wire_request, read_call
from tests.chance import examples
from tests.wire.values import values

MATCHING = RouteMatcher([NATIVE])


def arrived(request: WireRequest, kind: type[Call[Any]]) -> Call[Any]:
    """The call that a server reads from a request."""
    path, _, query = (PREFIX + request.target).partition("?")
    found = MATCHING.find_route(request.method, path)
    assert found.route.path == kind.path
    form, rest = make_request_form(kind), None
    if form.rest is not None and form.is_query:
        several = list_parameters(form.rest)
        texts = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=1000)
        rest = json.convert({name: v if several[name] else v[0] for name, v in texts.items()}, form.rest)
    elif form.rest is not None:
        assert request.body is not None
        rest = json.decode(request.body, form.rest)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return read_call(kind, found.path, rest, headers)


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
def test_every_call_arrives_as_it_was_sent(kind: type[Call[Any]]) -> None:
    in_path = make_request_form(kind).in_path

    @given(values(kind))
    @settings(max_examples=examples(50))
    def check(call: Any) -> None:
        if isinstance(call, GetContents) and not call.key:
            return
        if any(not getattr(call, name) for name in in_path):
            with pytest.raises(InvalidRequest, match="empty"):
                make_wire_request(call)
            return
        if isinstance(call, WriteCall):
            call = msgspec.structs.replace(call, asked=None)  # whoever gets it makes it anew
        assert arrived(make_wire_request(call), kind) == call

    check()


@pytest.mark.parametrize(
    "name", [".", "..", "a/b", "a/../b", "%2F", "ü", "a?b#c", "a b+c", "main~3^2*2026-11-01"]
)
def test_whatever_is_in_a_path_arrives(name: str) -> None:
    request = make_wire_request(GetReference(name=name))
    assert arrived(request, GetReference) == GetReference(name=name)
    assert request.target.count("/") == 2
    assert not request.target.endswith(("/.", "/.."))


@pytest.mark.parametrize("key", ["k", "100%", "%41", "ü–—", " k ", "a b", '"k"', "k,k;k"])
def test_whatever_is_in_an_idempotency_key_arrives_in_a_header_of_plain_characters(key: str) -> None:
    call = CommitOperations(operations=(), idempotency_key=key)
    request = make_wire_request(call)
    assert arrived(request, CommitOperations) == call
    value = request.headers["Idempotency-Key"]
    assert value.isascii()
    assert value.isprintable()
    assert " " not in value
    assert unquote(value) == key


def test_what_has_its_default_is_not_sent() -> None:
    assert make_wire_request(ListCommits()).target == "/log"
    assert make_wire_request(ListCommits(all_parents=True, limit=5)).target == "/log?all_parents=true&limit=5"
    body = make_wire_request(Merge(source="dev", who="me")).body
    assert body is not None
    assert msgspec.json.decode(body) == {"source": "dev", "who": "me"}


@pytest.mark.parametrize(
    "call",
    [
        CommitOperations(operations=(object(),)),  # type: ignore[arg-type]
        CommitOperations(operations=(Delete(Key("a")),), incarnation="text"),  # type: ignore[arg-type]
        CommitOperations(operations=5),  # type: ignore[arg-type]
        CommitOperations(operations=(), branch="\ud800"),
        CommitOperations(operations=(), idempotency_key="\ud800"),
        GetReference(name="\ud800"),
        GetReference(name=5),  # type: ignore[arg-type]
        ListCommits(text=object()),  # type: ignore[arg-type]
    ],
    ids=[
        "an operation that is none",
        "an incarnation that is text",
        "operations that are a number",
        "a branch that is no Unicode",
        "a key that is no Unicode",
        "a name that is no Unicode",
        "a name that is a number",
        "a text that is none",
    ],
)
def test_what_cannot_be_sent_is_an_invalid_request(call: Any) -> None:
    with pytest.raises(InvalidRequest, match="cannot be encoded"):
        make_wire_request(call)


def test_an_older_server_is_told_of_a_commit_only_what_is_said() -> None:
    operations = (Put(Key("n"), Namespace()),)
    plain = make_wire_request(CommitOperations(operations=operations, said=CommitDescription(message="m")))
    assert msgspec.json.decode(plain.body or b"")["said"] == {"message": "m"}
    dated = CommitDescription(message="m", author_time=datetime(1970, 1, 1, tzinfo=UTC))
    told = msgspec.json.decode(
        make_wire_request(CommitOperations(operations=operations, said=dated)).body or b""
    )
    assert told["said"] == {"message": "m", "author_time": "1970-01-01T00:00:00Z"}
