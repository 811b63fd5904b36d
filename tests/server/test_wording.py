"""What is wrong with a request is said in words that need no knowledge of the server's insides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.lake.opener import open_lake
from penstock.model.content import load_content_types
from penstock.server.run import load_apis
from tests.server.running import Local, local

NATIVE = "/api/penstock/v1"
TYPES = sorted(load_content_types())
COMMIT = "/api/v2/trees/main@0000000000000000/history/commit"


@pytest.fixture(scope="module")
def server() -> Iterator[Local]:
    with open_lake("memory:") as lake, local(lake.catalogue, load_apis()) as started:
        yield started


def put(content: Any, **more: Any) -> dict[str, Any]:
    return {"operations": [{"operation": "put", "key": "a", "content": content, **more}]}


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        (
            put({"type": "ICEBERG"}),
            "operations[0].content.type",
            f"'operations[0].content.type' is 'ICEBERG', but must be one of {', '.join(TYPES)}",
        ),
        (
            {"operations": [{"operation": "drop", "key": "a"}]},
            "operations[0].operation",
            "'operations[0].operation' is 'drop', but must be one of change, delete, put, unchanged",
        ),
        (
            {"operations": [{"operation": "delete"}]},
            "operations[0]",
            "'operations[0]' needs the field 'key'",
        ),
        ({}, "operations", "the request needs the field 'operations'"),
        ({"operations": [], "brunch": "x"}, "brunch", "the request has no field 'brunch'"),
        ({"operations": "x"}, "operations", "'operations' must be a list, got text"),
        (
            put({"type": "LANCE_TABLE"}, content_id=1),
            "operations[0]",
            "'operations[0]' has no field 'content_id'",
        ),
    ],
)
def test_a_body_that_cannot_be_read_says_which_field_and_why(
    server: Local, body: Any, field: str, said: str
) -> None:
    reply = server.ask("POST", f"{NATIVE}/commits", body)
    assert reply.status == 400
    assert reply.message == said
    assert reply.json["error"]["details"]["field"] == field


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=x", "'limit' must be a whole number or null, got text"),
        ("kind=twig", "'kind' is 'twig', but must be one of "),
    ],
)
def test_a_query_that_cannot_be_read_says_which_parameter_and_why(
    server: Local, query: str, said: str
) -> None:
    reply = server.get(f"{NATIVE}/references?{query}")
    assert reply.status == 400
    assert reply.message.startswith(said)
    assert "`" not in reply.message


def test_nessies_api_says_it_in_the_same_words(server: Local) -> None:
    reply = server.ask("POST", COMMIT, {"commitMeta": {"message": 1}, "operations": []})
    assert reply.status == 400
    assert reply.json["message"] == "'commitMeta.message' must be text, got a whole number"


@pytest.mark.parametrize("body", [b'{"x":' * 100_000, b'{"message": "\xff"}', b"\xff", b"[[["])
@pytest.mark.parametrize("path", [COMMIT, f"{NATIVE}/commits"])
def test_a_body_that_is_no_json_is_the_fault_of_who_sent_it(server: Local, path: str, body: bytes) -> None:
    assert server.ask("POST", path, body, {"content-type": "application/json"}).status == 400
