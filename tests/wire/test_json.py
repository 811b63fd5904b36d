"""The JSON of values: read back as they were, in the form that is promised, refused where they cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from penstock.errors import InvalidKey, InvalidRequest, UnsupportedFormat
from penstock.lake.answers import CatalogEntry
from penstock.lake.calls import CALLS, Call, CommitOperations, ListCommits, ListEntries
from penstock.model.commits import Commit
from penstock.model.content import AnyContent, Namespace, Unknown, load_content_types
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable
from penstock.model.operations import Change, Delete, Operation, Put, Unchanged
from penstock.model.references import Kind, Reference
from penstock.model.tokens import Grant, Role, Token
from penstock.wire import json
from tests.chance import examples
from tests.wire.values import values

ANSWERS = list({str(kind.answer): kind.answer for kind in CALLS if kind.answer is not None}.values())


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_every_answer_is_read_back_as_it_was(answer: Any) -> None:
    @given(values(answer))
    @settings(max_examples=examples(50))
    def check(value: Any) -> None:
        assert json.read_answer_json(json.encode(value, answer), answer) == value

    check()


@pytest.mark.parametrize("kind", CALLS, ids=lambda kind: kind.__name__)
def test_every_call_is_read_back_as_it_was(kind: type[Call[Any]]) -> None:
    @given(values(kind))
    @settings(max_examples=examples(50))
    def check(value: Any) -> None:
        assert json.decode(json.encode(value, kind), kind) == value

    check()


def test_a_content_that_was_read_back_is_stored_as_the_same_bytes() -> None:
    table = DeltaTable(id=UUID(int=7), location="s3://b/t", state=b"\x00\xff", held=(b"\xab" * 32,))
    back = json.read_answer_json(json.encode(table, AnyContent), AnyContent)
    assert msgspec.msgpack.encode(back) == msgspec.msgpack.encode(table)
    assert [type(one) for one in (back.state, *back.held)] == [bytes, bytes]


_ICEBERG = (
    '{"type":"ICEBERG_TABLE","id":"00000000-0000-0000-0000-000000000001","metadata_location":"m",'
    '"snapshot_id":-1,"schema_id":0,"spec_id":0,"sort_order_id":0}'
)
_TOKEN = (
    '{"id":"0a","name":"ci","secret_hash":"ff","grants":[{"role":"write","references":"dev/*","keys":"*"}],'
    '"created":"2026-11-01T00:00:00Z","expires":null}'
)
FORMS: list[tuple[Any, Any, str]] = [
    (Key("sales", "2026.11"), Key, '"sales.\\"2026.11\\""'),
    (Delete(Key("a")), Operation, '{"operation":"delete","key":"a"}'),
    (Unchanged(Key("a")), Operation, '{"operation":"unchanged","key":"a"}'),
    (
        Change(Key("a"), "files", b"\x00\x01"),
        Operation,
        '{"operation":"change","key":"a","format":"files","intent":"AAE="}',
    ),
    (
        Put(Key("a"), Namespace(properties={"x": "y"})),
        Operation,
        '{"operation":"put","key":"a","content":{"type":"NAMESPACE","id":null,"properties":{"x":"y"}}}',
    ),
    (
        Unknown(type_name="JOURNAL", payload=b"hi", held=(b"\xab" * 2,)),
        AnyContent,
        '{"type":"UNKNOWN","id":null,"type_name":"JOURNAL","payload":"aGk=","held":["abab"]}',
    ),
    (IcebergTable(id=UUID(int=1), metadata_location="m"), AnyContent, _ICEBERG),
    (
        Reference(
            kind=Kind.TAG,
            name="v1",
            head=b"\x01" * 2,
            incarnation=b"\x02",
            log=b"\x03",
            position=4,
            created_us=5,
        ),
        Reference,
        '{"kind":"tag","name":"v1","head":"0101",',
    ),
    (
        Token(
            id="0a",
            name="ci",
            secret_hash=b"\xff",
            grants=(Grant(Role.WRITE, "dev/*"),),
            created=datetime(2026, 11, 1, tzinfo=UTC),
        ),
        Token,
        _TOKEN,
    ),
]


@pytest.mark.parametrize(("value", "kind", "text"), FORMS, ids=lambda one: type(one).__name__)
def test_values_have_the_form_that_is_promised(value: Any, kind: Any, text: str) -> None:
    assert json.encode(value, kind).decode().startswith(text)


def test_every_content_says_its_type_by_the_name_that_people_know() -> None:
    for name, kind in load_content_types().items():
        needed: dict[str, Any] = {field.name: "" for field in msgspec.structs.fields(kind) if field.required}
        content: Any = kind(**needed)
        assert msgspec.json.decode(json.encode(content, AnyContent))["type"] == name


REFUSED: list[tuple[bytes, str]] = [
    (b"", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b'{"branch":"\xff"}', "not valid JSON"),
    (b'{"x":' + b"[" * 100_000, "cannot be read"),
    (b"[]", "Expected `object`"),
    (b"{}", "missing required field `operations`"),
    (b'{"operations":[],"colour":"red"}', "unknown field `colour`"),
    (b'{"operations":[{"operation":"move","key":"a"}]}', "operations\\[0\\].operation"),
    (b'{"operations":[{"operation":"delete","key":"a","x":1}]}', "operations\\[0\\].*unknown field `x`"),
    (b'{"operations":[{"key":"a"}]}', "operations\\[0\\].*`operation`"),
    (b'{"operations":[],"said":{"author_time_us":1e3}}', "said.author_time_us"),
    (b'{"operations":[],"said":{"author_time_us":9223372036854775808}}', "said.author_time_us"),
    (b'{"operations":[],"incarnation":"0g"}', "incarnation"),
    (b'{"operations":[],"incarnation":"abc"}', "incarnation"),
    (
        b'{"operations":[{"operation":"put","key":"a","content":{"type":"CSV"}}]}',
        "operations\\[0\\].content.type",
    ),
]


@pytest.mark.parametrize(("data", "told"), REFUSED, ids=lambda one: str(one)[:50])
def test_what_cannot_be_a_request_is_refused_by_naming_the_field(data: bytes, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        json.decode(data, CommitOperations)


@pytest.mark.parametrize("key", [b'"a..b"', b'""', b"5", b"null", b'["a"]', b'"a\\u0000"'])
def test_a_key_that_cannot_be_is_an_invalid_key(key: bytes) -> None:
    with pytest.raises(InvalidKey):
        json.decode(b'{"operations":[{"operation":"delete","key":' + key + b"}]}", CommitOperations)


@given(some.binary(max_size=60))
def test_no_bytes_make_reading_a_request_fail_otherwise(data: bytes) -> None:
    with pytest.raises((InvalidRequest, InvalidKey)):
        json.decode(b'{"operations": [' + data, CommitOperations)


def test_the_fields_of_a_query_are_read_from_text() -> None:
    found = json.convert(
        {
            "table": "a.b",
            "since": "2026-11-01T00:00:00Z",
            "all_parents": "true",
            "limit": "7",
            "text": "null",
        },
        ListCommits,
    )
    since = datetime(2026, 11, 1, tzinfo=UTC)
    assert found == ListCommits(table=Key("a", "b"), since=since, all_parents=True, limit=7, text="null")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("limit", "many"),
        ("limit", "9" * 30),
        ("since", "yesterday"),
        ("since", "2026-11-01T00:00:00"),
        ("all_parents", "perhaps"),
    ],
)
def test_a_query_that_cannot_be_is_refused_by_naming_the_field(field: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'{field}'"):
        json.convert({field: text}, ListCommits)


def test_a_field_that_no_query_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="colour"):
        json.convert({"colour": "red"}, ListEntries)


def test_a_newer_servers_answer_is_read_without_what_is_new() -> None:
    data = b'[{"key":"a","content":{"type":"ICEBERG_TABLE","metadata_location":"m","novelty":{"x":1}},"y":2}]'
    found = json.read_answer_json(data, tuple[CatalogEntry, ...])
    assert found == (CatalogEntry(Key("a"), IcebergTable(metadata_location="m")),)


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff", b"[]", b'{"id":7}', b"[" * 100_000])
def test_an_answer_that_cannot_be_understood_is_an_error_that_says_so(data: bytes) -> None:
    with pytest.raises(UnsupportedFormat, match="the response cannot be parsed"):
        json.read_answer_json(data, Commit)


def test_the_schema_describes_fields_by_their_docstrings() -> None:
    [reference], components = json.schema([CommitOperations])
    assert reference == {"$ref": "#/components/schemas/CommitOperations"}
    base = components["CommitOperations"]["properties"]["base"]
    assert base["description"] == "The commit that was read: every key must still hold what it held there."
    assert components["Put"]["description"].startswith("Put `content` at `key`.")
    assert components["Put"]["properties"]["operation"] == {"enum": ["put"]}


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_values_fit_the_schema_of_their_type(answer: Any) -> None:
    [schema], components = json.schema([answer])
    validator: Any = Draft202012Validator({**schema, "components": {"schemas": components}})

    @given(values(answer))
    @settings(max_examples=10)
    def check(value: Any) -> None:
        validator.validate(msgspec.json.decode(json.encode(value, answer)))

    check()
