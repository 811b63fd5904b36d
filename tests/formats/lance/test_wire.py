"""Messages and manifests pass through unchanged, whatever is in them, and what is none is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.lance.manifests import FileBase, Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.protobuf import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    FieldNumber,
    MalformedMessage,
    ProtobufMessage,
)

NUMBERS = st.integers(1, 2**29 - 1)
FIELDS = st.one_of(
    st.builds(FieldNumber, NUMBERS, st.just(VARINT), st.integers(0, 2**64 - 1)),
    st.builds(FieldNumber, NUMBERS, st.just(BYTES), st.binary(max_size=40)),
    st.builds(FieldNumber, NUMBERS, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.builds(FieldNumber, NUMBERS, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
)
MESSAGES = st.lists(FIELDS, max_size=12).map(ProtobufMessage)


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: ProtobufMessage) -> None:
    assert ProtobufMessage.decode(message.encode()) == message


@given(st.binary(max_size=60))
def test_bytes_are_a_message_or_are_said_to_be_none(data: bytes) -> None:
    try:
        message = ProtobufMessage.decode(data)
    except MalformedMessage:
        return
    assert ProtobufMessage.decode(message.encode()) == message


@given(MESSAGES, st.integers(1, 40), st.lists(st.binary(max_size=8), max_size=3))
def test_a_field_is_replaced_and_all_others_stay(
    message: ProtobufMessage, number: int, values: list[bytes]
) -> None:
    changed = message.replace_field(number, *values)
    assert changed.get_values(number) == values
    assert [one for one in changed if one.number != number] == [
        one for one in message if one.number != number
    ]


@given(st.integers(1, 2**63), st.lists(MESSAGES, max_size=3), st.none() | MESSAGES)
def test_a_manifest_is_read_as_it_was_written(
    version: int, indexes: list[ProtobufMessage], made: ProtobufMessage | None
) -> None:
    manifest = Manifest(
        ProtobufMessage.from_fields((3, version), (99, b"of a later Lance")), tuple(indexes), made
    )
    found = Manifest.decode(manifest.encode())
    assert (found.version, found.indexes, found.transaction) == (version, tuple(indexes), made)
    assert found.body.get_values(99) == [b"of a later Lance"]
    assert found.encode() == manifest.encode()


@given(st.binary(max_size=80), st.integers(0, 80))
def test_a_file_that_is_cut_or_is_something_else_is_no_manifest(junk: bytes, cut: int) -> None:
    whole = Manifest(ProtobufMessage.from_fields((3, 1))).encode()
    for data in (junk, whole[: min(cut, len(whole) - 1)], junk + whole[-8:]):
        with pytest.raises(MalformedMessage):
            Manifest.decode(data)


def test_a_number_that_does_not_end_is_told() -> None:
    with pytest.raises(MalformedMessage):
        ProtobufMessage.decode(b"\x08" + b"\xff" * 11)
    with pytest.raises(MalformedMessage, match="UTF-8"):
        ProtobufMessage.from_fields((1, b"\xff")).get_text(1)


def test_a_transaction_says_what_was_done() -> None:
    made = make_transaction(
        ManifestOperation.APPEND, 4, "a uuid", ProtobufMessage.from_fields((1, b"x")), {"b": "2", "a": "1"}
    )
    manifest = Manifest(ProtobufMessage.from_fields((3, 5)), (), made)
    assert manifest.operation is ManifestOperation.APPEND
    assert (
        Manifest(ProtobufMessage.from_fields((3, 5)), (), ProtobufMessage.from_fields((999, b""))).operation
        is ManifestOperation.OTHER
    )
    assert Manifest(ProtobufMessage.from_fields((3, 5))).operation is ManifestOperation.OTHER


@given(
    st.builds(
        FileBase, st.integers(0, 9), st.text(max_size=9), st.booleans(), st.none() | st.text(min_size=1)
    )
)
def test_a_base_is_read_as_it_was_written(base: FileBase) -> None:
    assert FileBase.decode(base.encode()) == base
