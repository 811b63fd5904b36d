"""Actions and their lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.delta.errors import MalformedAction
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Sidecar,
    Txn,
    decode_path,
    parse_action,
    parse_commit,
    reconciliation_key,
    write_action,
    write_commit,
)
from tests.formats.delta.logs import add, metadata, protocol, remove

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
)
EACH: list[Action] = [
    protocol("appendOnly", reader=["deletionVectors"]),
    metadata(partitioned_by=["day"], delta_appendOnly="true"),
    CommitInfo({"inCommitTimestamp": 5, "operation": "WRITE", "anything": {"else": [1, None]}}),
    add("a", partition_values={"day": None, "hour": ""}, deletion_vector=VECTOR, tags={"x": "y"}, stats="{}"),
    remove("a", size=3, partition_values={}),
    Cdc(path="_change_data/c", partition_values={}, size=9, data_change=False),
    Txn(app_id="stream", version=4),
    DomainMetadata(domain="delta.clustering", configuration="{}", removed=True),
    CheckpointMetadata(version=7),
    Sidecar(path="s.parquet", size_in_bytes=8, modification_time=9),
]

texts = st.text(max_size=8)
maps = st.dictionaries(texts, st.none() | texts, max_size=3)
numbers = st.integers(-(2**63), 2**63 - 1)
adds = st.builds(
    add,
    texts,
    partition_values=maps,
    size=numbers,
    data_change=st.booleans(),
    tags=st.none() | maps,
    stats=st.none() | texts,
    base_row_id=st.none() | numbers,
)


def test_every_action_survives_being_written_and_read() -> None:
    data = write_commit(EACH)
    assert [line.action for line in parse_commit(data)] == EACH
    assert [line.raw + b"\n" for line in parse_commit(data)] == data.splitlines(keepends=True)


@given(adds)
def test_any_file_survives_being_written_and_read(file: Add) -> None:
    assert parse_action(write_action(file)) == file
    assert b"\n" not in write_action(file)


def test_fields_have_the_names_of_the_protocol() -> None:
    assert write_action(add("x", default_row_commit_version=2)) == (
        b'{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true,'
        b'"defaultRowCommitVersion":2}}'
    )


def test_what_the_protocol_requires_is_written_even_if_it_says_nothing() -> None:
    assert b'"configuration":{}' in write_action(metadata())
    assert b'"options":{}' in write_action(metadata())
    assert b'"dataChange":true' in write_action(remove("x"))


def test_unknown_actions_fields_and_empty_lines_are_passed_over_and_counted() -> None:
    data = b'\n{"novelty":{"a":1}}\r\n{"txn":{"appId":"a","version":1,"mood":"good"},"add":null}\r\n'
    assert [(line.number, line.action) for line in parse_commit(data)] == [(3, Txn(app_id="a", version=1))]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"add":{"path":"a"}}', "missing required field `partitionValues`"),
        (b'{"add":{"path":7}}', "$.add.path"),
        (b'{"txn":{"appId":"a","version":"1"}}', "$.txn.version"),
        (b'{"commitInfo":{"inCommitTimestamp":"now"}}', "inCommitTimestamp"),
        (b'{"txn":{"appId":"a","version":1},"commitInfo":{}}', "2 actions"),
        (b'{"txn":{"appId":"\xff","version":1}}', "utf-8"),
        (b'{"novelty":' + b"[" * 100_000, "recursion"),
    ],
)
def test_a_malformed_line_is_named_by_its_number_with_the_reason(raw: bytes, reason: str) -> None:
    commit = b'{"txn":{"appId":"a","version":1}}\n' + raw
    with pytest.raises(MalformedAction) as caught:
        list(parse_commit(commit))
    assert caught.value.details["line"] == 2
    assert reason.lower() in caught.value.details["reason"].lower()
    assert str(caught.value).startswith("line 2: ")


def test_a_vector_is_told_by_where_it_is() -> None:
    assert VECTOR.unique_id == "uab^-aqEH.-t@S}K{vb[*k^@4"
    inline = DeletionVector(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=1)
    assert inline.unique_id == "ix"


def test_the_same_file_with_another_vector_is_another_logical_file() -> None:
    assert add("a").key == remove("a").key == FileKey("a")
    assert add("a", deletion_vector=VECTOR).key != add("a").key
    assert add("a", deletion_vector=VECTOR).key == remove("a", deletion_vector=VECTOR).key


def test_actions_reconcile_by_file_application_or_domain_or_there_is_one_only() -> None:
    keys = [reconciliation_key(one) for one in EACH]
    assert keys == [
        ("protocol", "", None),
        ("metaData", "", None),
        None,
        ("file", "a", VECTOR.unique_id),
        ("file", "a", None),
        None,
        ("txn", "stream", None),
        ("domainMetadata", "delta.clustering", None),
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a/b.parquet", "a/b.parquet"),
        ("day=1%202/a%2525.parquet", "day=1 2/a%25.parquet"),
        ("file:/data/a", "/data/a"),
        ("file:///data/a", "/data/a"),
        ("/data/a", "/data/a"),
        ("s3://bucket/a%20b", "s3://bucket/a b"),
    ],
)
def test_an_address_is_decoded_once_whether_relative_or_absolute(written: str, meant: str) -> None:
    assert decode_path(written) == meant


def test_an_empty_partition_value_is_none() -> None:
    assert add("a", partition_values={"x": "", "y": None, "z": "0"}).partition == {
        "x": None,
        "y": None,
        "z": "0",
    }
