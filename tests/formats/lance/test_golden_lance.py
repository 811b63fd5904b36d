"""Golden vectors of Lance tables: the bytes that a lake keeps, written out (see ``tests/model``)."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.intents import CreateStep, DeclareStep, NumberedStep, Steps, decode_steps
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import make_chain_folder, make_head_id
from penstock.formats.lance.state import (
    LanceState,
    LanceTableVersion,
    MergeArrivals,
    OwnBranch,
    OwnTag,
    RecentVersion,
    RowTrace,
    VersionPointer,
    decode_entry,
    decode_state,
    encode_state_into_table,
    encode_tag_key,
    encode_version_key,
    parse_version_key,
)
from penstock.model.encoding import encode

VECTORS = {
    "state": LanceState(
        root=b"\x11" * 32,
        chain="_penstock/0123/",
        owner=b"\x22" * 32,
        is_private=True,
        properties={"a": "b"},
        newest=7,
        recent=(
            RecentVersion(
                "", 7, LanceTableVersion(staged="_versions/7.manifest-8", size=9, sha256=b"\x66" * 32)
            ),
        ),
    ),
    "version": LanceTableVersion(
        chain="",
        staged="_versions/1.manifest-2",
        size=300,
        sha256=b"\x33" * 32,
        time_us=1_763_200_000_000_000,
        operation=ManifestOperation.APPEND,
        e_tag="x",
        metadata={"m": "n"},
        arrived=MergeArrivals(
            number=4,
            id=b"\x44" * 32,
            operations=(ManifestOperation.APPEND, ManifestOperation.DELETE),
            taken=(b"\x77" * 12,),
            trace=RowTrace(
                rewrites=(VersionPointer(3, "_penstock/0123/", "_versions/3.manifest-4", 5, b"\x88" * 32),),
                deletes=((VersionPointer(1, "", "a", 2, b""), VersionPointer(2, "", "b", 3, b"")),),
                has_inserts=True,
            ),
        ),
        copied=b"\x55" * 32,
    ),
    "branch": OwnBranch(parent="exp", version=3, created_us=1, metadata={}),
    "tag": OwnTag(branch="", version=3, created_us=1, updated_us=2),
    "steps": Steps(
        (
            NumberedStep(0, DeclareStep(id=UUID(int=7), location="/w/t")),
            NumberedStep(1, CreateStep(version=1, path="_versions/1.manifest-2", size=300)),
        )
    ),
}
STORED = {
    "state": (
        "98c4201111111111111111111111111111111111111111111111111111111111111111af5f70656e73746f636b2f"
        "303132332fc4202222222222222222222222222222222222222222222222222222222222222222c3c281a161a162"
        "079193a0079cad6c616e63652d76657273696f6ea0b65f76657273696f6e732f372e6d616e69666573742d3809c4"
        "20666666666666666666666666666666666666666666666666666666666666666600a56f74686572c2a080c0c400"
    ),
    "version": (
        "9cad6c616e63652d76657273696f6ea0b65f76657273696f6e732f312e6d616e69666573742d32cd012cc4203333"
        "333333333333333333333333333333333333333333333333333333333333cf0006439efdab0000a6617070656e64"
        "c2a17881a16da16e9504c420444444444444444444444444444444444444444444444444444444444444444492a6"
        "617070656e64a664656c65746591c40c77777777777777777777777794919603af5f70656e73746f636b2f303132"
        "332fb65f76657273696f6e732f332e6d616e69666573742d3405c420888888888888888888888888888888888888"
        "8888888888888888888888888888c29091929601a0a16102c400c29602a0a16203c400c2c3c42055555555555555"
        "55555555555555555555555555555555555555555555555555"
    ),
    "branch": ("95ac6c616e63652d6272616e6368a3657870030180"),
    "tag": ("96a96c616e63652d746167a003010280"),
    "steps": (
        "92a5737465707392920095a76465636c617265c41000000000000000000000000000000007a42f772f74c2809201"
        "98a6637265617465a001b65f76657273696f6e732f312e6d616e69666573742d32cd012cc2a080"
    ),
}
LINES = ["_penstock/615f745f1cb0deb806c5661007cf6d4f/", "_penstock/960af7b9056717bdc6b44b34dcb02a31/"]
HEAD = "a8f2156afd33cd2bd9aa28ba2d067afad5802e570b5bc3b12862a5dd3d343392"


@pytest.mark.parametrize("name", VECTORS)
def test_a_value_has_the_bytes_that_it_always_had(name: str) -> None:
    value = VECTORS[name]
    if isinstance(value, LanceState):
        assert encode_state_into_table(LanceTable(location="/w/t"), value).state.hex() == STORED[name]
    else:
        assert encode(value).hex() == STORED[name]


def test_a_state_of_a_table_that_was_erased_has_one_field_more() -> None:
    erased = msgspec.structs.replace(VECTORS["state"], first=5)
    assert isinstance(erased, LanceState)
    stored = encode_state_into_table(LanceTable(location="/w/t"), erased).state
    assert stored.hex() == "99" + STORED["state"][2:] + "05"
    assert decode_state(LanceTable(location="/w/t", state=stored)) == erased


def test_stored_bytes_are_read_as_what_was_written() -> None:
    stored = {name: bytes.fromhex(data) for name, data in STORED.items()}
    assert msgspec.msgpack.decode(stored["state"], type=LanceState) == VECTORS["state"]
    assert [decode_entry(stored[name]) for name in ("version", "branch", "tag")] == [
        VECTORS[name] for name in ("version", "branch", "tag")
    ]
    assert decode_steps(stored["steps"]) == VECTORS["steps"]


def test_a_version_from_before_merges_were_noted_is_read() -> None:
    old = encode(VECTORS["version"])
    short = msgspec.msgpack.encode(msgspec.msgpack.decode(old)[:10])
    found = decode_entry(short)
    assert isinstance(found, LanceTableVersion)
    assert (found.arrived, found.copied, found.metadata) == (None, b"", {"m": "n"})


@pytest.mark.parametrize(("length", "taken"), [(3, ()), (4, (b"\x77" * 12,))])
def test_what_came_before_more_was_noted_of_it_is_read(length: int, taken: tuple[bytes, ...]) -> None:
    fields = msgspec.msgpack.decode(encode(VECTORS["version"].arrived))  # type: ignore[attr-defined]
    found = msgspec.msgpack.decode(encode(fields[:length]), type=MergeArrivals)
    assert (found.number, found.taken, found.trace) == (4, taken, None)


def test_a_state_from_before_versions_were_beside_the_tree_is_read() -> None:
    old = msgspec.msgpack.encode(msgspec.msgpack.decode(encode(VECTORS["state"]))[:7])
    found = msgspec.msgpack.decode(old, type=LanceState)
    assert (found.root, found.newest, found.recent) == (b"\x11" * 32, 7, ())


def test_keys_of_the_tree_stay_as_they_are() -> None:
    assert encode_version_key("exp", 3).hex() == "76657870007ffffffffffffffc"
    assert parse_version_key(encode_version_key("exp", 3)) == ("exp", 3)
    assert encode_tag_key("v1") == b"tv1"


def test_names_that_all_writers_must_agree_on_stay_as_they_are() -> None:
    assert [make_chain_folder(b"i" * 32, b"t" * 16, b"h" * 32, turn) for turn in (0, 1)] == LINES
    assert make_head_id("staged", b"s" * 32, 3).hex() == HEAD
