"""Golden vectors of tables of files and of jobs: the bytes on disk, written out (see ``tests/model``)."""

from __future__ import annotations

import msgspec
import pytest

from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import (
    File,
    FilesLayout,
    FilesState,
    decode_file,
    decode_state,
    encode_state_into_table,
)
from penstock.formats.files.intents import WriteCondition, WriteIntent, decode_write
from penstock.model.encoding import encode
from penstock.model.jobs import Job, JobState, decode_job

FILE = File(f"20261115-{'0' * 12}/{'1' * 32}/", 300, 1_763_200_000_000_000, "etag:x")
STATE = FilesState(
    b"\x11" * 32,
    2,
    600,
    FilesLayout(format="csv", partition_by=("day",), schema="{}", options={"header": "true"}),
)
WRITE = WriteIntent(replaced=("day=1/",), when=WriteCondition.EMPTY)
JOB = Job(
    id="1" * 32,
    fence="2" * 32,
    state=JobState.RUNNING,
    key="raw.events",
    branch="main",
    incarnation=b"\x33" * 32,
    began_us=1,
    expires_us=2,
    changed_us=3,
)

VECTORS = {
    "file": (
        FILE,
        (
            "95a466696c65d93732303236313131352d3030303030303030303030302f313131313131313131313131313131313131"
            "31313131313131313131313131312fcd012ccf0006439efdab0000a6657461673a78"
        ),
    ),
    "state": (
        STATE,
        (
            "94c420111111111111111111111111111111111111111111111111111111111111111102cd025894a363737691a36461"
            "79a27b7d81a6686561646572a474727565"
        ),
    ),
    "write": (WRITE, "99a5777269746591a66461793d312f909090a5656d70747990c0c2"),
    "job": (
        JOB,
        (
            "dc0015d9203131313131313131313131313131313131313131313131313131313131313131d920323232323232323232"
            "3232323232323232323232323232323232323232323232a772756e6e696e67aa7261772e6576656e7473a46d61696ec4"
            "203333333333333333333333333333333333333333333333333333333333333333c4202e1cfa82b035c26cbbbdae632c"
            "ea070514eb8b773f616aaeaf668e2f0be8f10da0a0a0a0010203c4202e1cfa82b035c26cbbbdae632cea070514eb8b77"
            "3f616aaeaf668e2f0be8f10da00190000000"
        ),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_value_has_the_bytes_that_it_always_had(name: str) -> None:
    value, stored = VECTORS[name]
    data = (
        encode_state_into_table(FilesTable(), value).state if isinstance(value, FilesState) else encode(value)
    )
    assert data.hex() == stored


def test_the_state_of_a_table_that_was_erased_has_one_field_more() -> None:
    marked = msgspec.structs.replace(STATE, mark=3)
    data = encode_state_into_table(FilesTable(), marked).state
    assert data.hex() == "95" + VECTORS["state"][1][2:] + "03"
    assert decode_state(FilesTable(state=data)) == marked


def test_stored_bytes_are_read_as_what_was_written() -> None:
    def stored(name: str) -> bytes:
        return bytes.fromhex(VECTORS[name][1])

    assert decode_file(stored("file")) == FILE
    assert msgspec.msgpack.decode(stored("state"), type=FilesState) == STATE
    assert decode_write(stored("write")) == WRITE
    assert decode_job(stored("job")) == JOB
