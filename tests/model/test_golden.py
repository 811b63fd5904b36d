"""Golden vectors: the bytes on disk, written out, so that they cannot drift unnoticed.

A vector that fails means that lakes written before can no longer be read, or that equal content no longer
has an equal id. Do not renew one without a new format version and a way to read the old.
"""

from __future__ import annotations

import hashlib

import pytest

from penstock.kernel.commit import CommitRequest
from penstock.kernel.description import FORMAT_VERSION
from penstock.kernel.format import Formats
from penstock.kernel.history import History
from penstock.kernel.objects import Objects
from penstock.kernel.reflog import make_receipt_id
from penstock.kernel.request import RequestTerms
from penstock.model.commits import EMPTY_COMMIT_ID, CommitMeta
from penstock.model.content import decode_content, encode_content
from penstock.model.encoding import NO_COMMIT, encode, hash_object, make_decoder
from penstock.model.keys import Key
from penstock.model.objects import EMPTY_ROOT, decode_intents, decode_object
from penstock.model.operations import Delete, Put, Unchanged
from penstock.stores.memory import MemoryStore
from tests.kernel.trees import Forest
from tests.model import golden

CONTENTS = {
    "namespace": "9304c41000112233445566778899aabbccddeeff82a161a131a162a132",
    "iceberg table": "9701c41000112233445566778899aabbccddeeffa873333a2f2f622f74fb01cd012cce00011170",
    "iceberg view": (
        "9703c41000112233445566778899aabbccddeeffa873333a2f2f622f760203a853454c4543542031a5737061726b"
    ),
    "udf": "9705c41000112233445566778899aabbccddeeffa16da176a173a131a164",
    "delta table": (
        "9802c41000112233445566778899aabbccddeeffa873333a2f2f622f64c40200ff91c420111111111111111111111111"
        "111111111111111111111111111111111111111191a16d91a163a16c"
    ),
    "lance table": (
        "9506c41000112233445566778899aabbccddeeffa873333a2f2f622f6cc4017391c42011111111111111111111111111"
        "11111111111111111111111111111111111111"
    ),
    "files table": (
        "9507c41000112233445566778899aabbccddeeffa873333a2f2f622f66c4017391c42011111111111111111111111111"
        "11111111111111111111111111111111111111"
    ),
    "view": (
        "9c08c41000112233445566778899aabbccddeeffa853454c4543542031a5737061726ba27b7d91a131a16391a16e82a1"
        "61a131a162a132ac434f4d50454e534154494f4ea2c3bc81a170a171"
    ),
    "unknown": (
        "9500c41000112233445566778899aabbccddeeffac5041494d4f4e5f5441424c45c402010291c4201111111111111111"
        "111111111111111111111111111111111111111111111111"
    ),
    "without id": "9701c0a0ff000000",
}

OBJECTS = {
    "blob": "92a4626c6f62c4056279746573",
    "holder": (
        "93a6686f6c646572c405627974657392c420111111111111111111111111111111111111111111111111111111111111"
        "1111c4202222222222222222222222222222222222222222222222222222222222222222"
    ),
    "empty leaf": "94a46c656166c4009090",
    "leaf": (
        "94a46c656166c40673616c65730092c40161c4016292c4017692ce000493e092c4201111111111111111111111111111"
        "111111111111111111111111111111111111c42022222222222222222222222222222222222222222222222222222222"
        "22222222"
    ),
    "node": (
        "95a46e6f646501c40673616c65730092c4016dc4017a92c4201111111111111111111111111111111111111111111111"
        "111111111111111111c4202222222222222222222222222222222222222222222222222222222222222222"
    ),
    "segment": (
        "93a77365676d656e7493c4016bc404676f6e65c4016c93c40176c092cd07d091c4201111111111111111111111111111"
        "111111111111111111111111111111111111"
    ),
    "commit": (
        "dc0012a6636f6d6d6974c420111111111111111111111111111111111111111111111111111111111111111191c42022"
        "22222222222222222222222222222222222222222222222222222222222222c420111111111111111111111111111111"
        "1111111111111111111111111111111111070901c4202222222222222222222222222222222222222222222222222222"
        "2222222222229292c42011111111111111111111111111111111111111111111111111111111111111110392c4202222"
        "22222222222222222222222222222222222222222222222222222222222201cf00065f2bb5e24000a2636992a3616e6e"
        "a3626f62cf00065f2bafec5f0091a46361726ca76c6f616420c3a482a16192a131a133a16291a132a772657175657374"
        "c407696e74656e7473"
    ),
    "log entry": (
        "9da36c6f67c4201111111111111111111111111111111111111111111111111111111111111111c42022222222222222"
        "22222222222222222222222222222222222222222222222222cd012ccf00065f2bb5e24000a6636f6d6d6974a46d6169"
        "6ec41033333333333333333333333333333333c420111111111111111111111111111111111111111111111111111111"
        "1111111111c4202222222222222222222222222222222222222222222222222222222222222222a3616e6ea09195a663"
        "6f6d6d6974a772657175657374a3616e6ec4202222222222222222222222222222222222222222222222222222222222"
        "22222202"
    ),
    "receipt": (
        "94a772656365697074c4201111111111111111111111111111111111111111111111111111111111111111cd012ccf00"
        "065f2bb5e24000"
    ),
}

IDS = {
    "blob": "a8d8fbd63414bb9602444a8b9feff62bd4690a0c98afc91a091f9b3d7c59cf02",
    "holder": "6b29290b9113c91e507a86003b9a237d1d04484e0db758da93d9e05d8a15192d",
    "empty leaf": "a6cbec7e9bf08bd095de8ae7d3ee078f3959e0a989ec84273ed6fd07e8841916",
    "leaf": "169ea9d4e6d2c01f184a53cfab50b83b12d9bc00c37f261a4dfc5698062be32c",
    "node": "342a2aa43ad97c9fa7cd8c8ea4556800d9a81d5bb56a8d25c731499826267d1f",
    "segment": "fff8487323f720144f36cdc3eb196012c10404b7a62172f50200df1ef9fe087b",
    "commit": "654c426d7111afbe897c6cd189a0f525029bdef8c0213deea4ee46df73000aa6",
    "log entry": "1542c1cfc9c4ff50db56c42c0f367cd220341bfc1473a91f3ce524414ef3c80d",
    "receipt": "92bc6977e6bc856804515368c5fb3592790ec3eb8fcc12fa547ffc6bae3f7c47",
}

ROWS = {
    "branch": (
        "99a66272616e6368a46d61696ec4201111111111111111111111111111111111111111111111111111111111111111c4"
        "1033333333333333333333333333333333c4202222222222222222222222222222222222222222222222222222222222"
        "222222cd012ccf00065f2bb5e24000c4016ec0"
    ),
    "deleted tag": (
        "99a764656c65746564a27631c4201111111111111111111111111111111111111111111111111111111111111111c410"
        "33333333333333333333333333333333c420222222222222222222222222222222222222222222222222222222222222"
        "22220201c400a3746167"
    ),
    "lake": (
        "dc001101d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea22f"
        "7791a673333a2f2f6291c42011111111111111111111111111111111111111111111111111111111111111119295a56a"
        "6f622f2a64c007c095a12ac0cb403e80000000000008c0c0c0a081a161a16290c0c29090"
    ),
    "lake with graces": (
        "dc001102d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea090"
        "9090c0c0a0809293cb40f5180000000000cb401c0000000000000093cb40ac200000000000cb403e00000000000009c0c29090"
    ),
    "lake with many expired commits": (
        "dc001103d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea090"
        "9090c0c0a0809092cd258091c4201111111111111111111111111111111111111111111111111111111111111111c29090"
    ),
    "lake with moved roots": (
        "dc001107d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea090"
        "9090c0c0a08090c0c2909293a673333a2f2f61a673333a2f2f629093a22f61a22f6191a22f62"
    ),
}

OLDER_ROWS = {
    "lake": (
        "9d01d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea22f"
        "7791a673333a2f2f6291c42011111111111111111111111111111111111111111111111111111111111111119295a56a"
        "6f622f2a64c007c095a12ac0cb403e80000000000008c0c0c0a081a161a16290"
    ),
    "lake with graces": (
        "9d02d92430303131323233332d343435352d363637372d383839392d61616262636364646565666601a46d61696ea090"
        "9090c0c0a0809293cb40f5180000000000cb401c0000000000000093cb40ac200000000000cb403e00000000000009"
    ),
}
"""As they were written before expired commits could be in blobs."""

INTENTS = "9294c4016ba564656c7461c406617070656e64c294c4016ca56c616e6365c400c3"

LINE = [
    "6218b14bc3b472cae00e4b78b1f1ff65165f190099b459a168d7825ca7ab440b",
    "d1f3ffd6390829ebd70b15af9ea78c374d2e1bb113245a06a2c1a200e5259ddd",
    "c1ca8c567b5b28279516844f4f32eda24430b89e45471fd1e1eb7676a82e7ef2",
    "9d87a627d200a7421922f937376e89e45933782aa0d68c452e40934a74bd362c",
]

ROOTS = {
    1: "7b565b50e83d5ee770e0d02dbf0ac9e2dec401b9e35af0a1c0bfb043a989f575",
    10: "1ad548705adeb94f99e2e54045bc948b0c022df0301960910f430fb88c5e66b4",
    1000: "96f9c3378500200086b26094ad0cce18fc386821681e66b06b424d158095215d",
    20000: "8ab7f3e426faf405525f73c91eefd1a88e00ce5dd76bd5184308d6c2f016b2fc",
}

RECEIPTS = [
    "d556f2552503320c414c6d47cdb59cf9c56a4591c14c42e3f3e47c4b7840908a",
    "b08cb4174e32e862e080ca109fb3ab6202183dc53a8eedffb205e71d9936ee2f",
]

REQUEST = "f49e1825a099365965cf6a2afd4e5fe561b2d2f8ef10a3eec4634031450401a2"


def test_the_empty_lake_has_the_id_that_nessies_clients_expect() -> None:
    assert EMPTY_COMMIT_ID == "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
    assert NO_COMMIT.hex() == EMPTY_COMMIT_ID == hashlib.sha256(b"empty").hexdigest()
    assert EMPTY_ROOT.hex() == IDS["empty leaf"]
    assert FORMAT_VERSION == 8


@pytest.mark.parametrize("name", golden.CONTENTS)
def test_a_content_has_its_bytes(name: str) -> None:
    content = golden.CONTENTS[name]
    assert encode_content(content).hex() == CONTENTS[name]
    assert decode_content(bytes.fromhex(CONTENTS[name])) == content


@pytest.mark.parametrize("name", golden.OBJECTS)
def test_an_object_has_its_bytes_and_its_id(name: str) -> None:
    value = golden.OBJECTS[name]
    data = bytes.fromhex(OBJECTS[name])
    assert encode(value) == data
    assert decode_object(data) == value
    assert hash_object(data).hex() == IDS[name] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", golden.ROWS)
def test_a_row_has_its_bytes(name: str) -> None:
    value = golden.ROWS[name]
    assert encode(value).hex() == ROWS[name]
    assert make_decoder(type(value)).decode(bytes.fromhex(ROWS[name])) == value


@pytest.mark.parametrize("name", OLDER_ROWS)
def test_a_row_of_an_older_release_is_read(name: str) -> None:
    value = golden.ROWS[name]
    assert make_decoder(type(value)).decode(bytes.fromhex(OLDER_ROWS[name])) == value


def test_intents_have_their_bytes() -> None:
    assert encode(golden.INTENTS).hex() == INTENTS
    assert decode_intents(bytes.fromhex(INTENTS)) == golden.INTENTS


def test_every_kind_of_object_and_content_has_a_vector() -> None:
    assert set(CONTENTS) == set(golden.CONTENTS)
    assert set(OBJECTS) == set(IDS) == set(golden.OBJECTS)
    kinds = {type(value).__name__ for value in golden.OBJECTS.values()}
    assert kinds == {"Blob", "Holder", "Leaf", "Node", "Segment", "CommitObject", "LogEntry", "Receipt"}


def test_commits_at_a_fixed_time_have_their_ids() -> None:
    made = golden.line()
    assert [one.hex() for one, _ in made] == LINE
    assert [bool(commit.recent) for _, commit in made] == [True, True, True, False]


@pytest.mark.parametrize("size", ROOTS)
def test_a_tree_has_its_root(size: int) -> None:
    entries = {b"sales\0orders-%05d" % number: b"v%d" % (number % 7) for number in range(size)}
    assert Forest().grow(entries).hex() == ROOTS[size]


def test_receipts_are_where_they_were() -> None:
    """Else the requests of the last days could be repeated under their keys without being recognised."""
    assert [make_receipt_id(b"\x33" * 16, "request", number).hex() for number in (0, 1)] == RECEIPTS


def test_a_request_is_told_by_the_same_digest_as_before() -> None:
    request = CommitRequest(
        History(Objects(MemoryStore()), tuple),
        Formats(),
        [Put(Key("a", "t"), golden.CONTENTS["iceberg table"]), Delete(Key("b")), Unchanged(Key("c"))],
        CommitMeta(message="load", authors=("ann",), properties={"p": ("1",)}),
        RequestTerms(key="request"),
        base=golden.ONE,
        create_namespaces=True,
    )
    assert request.digest.hex() == REQUEST


def test_key_bytes_are_utf8_joined_by_zero() -> None:
    assert Key("sales", "\u00e4", "\U0001f600").encode().hex() == "73616c657300c3a400f09f9880"
