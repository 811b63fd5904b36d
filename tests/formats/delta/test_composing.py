"""Composing: bytes with a time, a name made of them, and a body in storage where they are too many."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from penstock.errors import InvalidContent, InvalidRequest, Unavailable
from penstock.formats.delta.branch_log.branch_log import BranchLog, CommitTerms, Read, read_commit_record
from penstock.formats.delta.branch_log.composed_commit import (
    HELD_MAX_BYTES,
    TERMS_MAX_BYTES,
    ComposedCommit,
    compose_commit,
    encode_commit_info_line,
    stage_body,
    write_staged_file,
)
from penstock.formats.delta.protocol.actions import CommitInfo, parse_commit, write_commit
from penstock.formats.delta.protocol.transaction import DeltaReads
from penstock.kernel.format import PrepareAgain, Table
from penstock.model.encoding import ObjectId
from penstock.model.objects import Blob, decode_object
from penstock.storage.buckets import UnansweredWrite
from penstock.storage.local import LocalBucket
from penstock.storage.places import Places
from penstock.stores.memory import MemoryStore
from tests.formats.delta.managed import Owner, add, days

SMALL = write_commit([add("a")])
LARGE = write_commit([add(f"{number}-{'x' * 100}") for number in range(1000)])
INFO = CommitInfo({"operation": "WRITE", "txnId": "t"})


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(MemoryStore(), tmp_path)
    owner.create()
    yield owner
    owner.close()


def composed(
    owner: Owner,
    lines: bytes,
    *,
    table: Table | None = None,
    line: BranchLog | None = None,
    terms: CommitTerms = CommitTerms(),
    now_ms: int = 0,
) -> ComposedCommit:
    known = owner.table() if table is None else table
    at = owner.line() if line is None else line
    return compose_commit(known, owner.commits, owner.content(), at, lines, terms, INFO, now_ms)


def reading(one: ComposedCommit) -> Read:
    def read(wanted: ObjectId) -> bytes:
        found = decode_object(one.blobs[wanted])
        assert isinstance(found, Blob)
        return found.data

    return read


def test_the_time_is_now_or_later_than_the_version_before(owner: Owner) -> None:
    before = owner.line().timestamp_ms
    assert composed(owner, SMALL, now_ms=before + 50).entry.timestamp_ms == before + 50
    assert composed(owner, SMALL, now_ms=before).entry.timestamp_ms == before + 1
    assert composed(owner, SMALL, now_ms=5).entry.timestamp_ms == before + 1
    one = composed(owner, SMALL, now_ms=5)
    assert one.data == encode_commit_info_line(INFO, before + 1) + SMALL
    info = next(parse_commit(one.data or b"")).action
    assert isinstance(info, CommitInfo)
    assert info.in_commit_timestamp == before + 1


def test_a_time_that_the_writer_gave_is_replaced() -> None:
    told = CommitInfo({"inCommitTimestamp": 1, "timestamp": 2, "operation": "WRITE"})
    line = encode_commit_info_line(told, 99)
    assert line == b'{"commitInfo":{"inCommitTimestamp":99,"timestamp":99,"operation":"WRITE"}}\n'


def test_the_name_follows_from_version_and_bytes(owner: Owner) -> None:
    line = owner.line()
    now = line.timestamp_ms + 100
    one = composed(owner, SMALL, now_ms=now).entry
    assert composed(owner, SMALL, now_ms=now).entry == one
    assert composed(owner, SMALL, now_ms=now + 1).entry.uuid != one.uuid
    longer, _ = line.append_entry(one)
    other = composed(owner, SMALL, line=longer, now_ms=now + 1)
    assert other.entry.uuid != composed(owner, SMALL, now_ms=now + 1).entry.uuid


def test_each_branch_has_a_folder_of_its_own_and_a_new_branch_of_the_same_name_another(owner: Owner) -> None:
    lines = {
        composed(
            owner, SMALL, table=msgspec.structs.replace(owner.table(), is_default=False, incarnation=name)
        ).entry.line
        for name in (b"one", b"two")
    }
    assert len(lines) == 2
    assert all(len(one) == 16 for one in lines)
    assert composed(owner, SMALL).entry.line == b""


def test_few_bytes_are_held_by_the_kernel_and_remembered(owner: Owner) -> None:
    terms = CommitTerms(DeltaReads(files=frozenset({"a"})))
    one = composed(owner, SMALL, terms=terms)
    held = read_commit_record(one.entry, reading(one))
    assert (held.terms, held.head) == (terms, one.data)
    assert one.entry.size == len(one.data or b"")
    table = owner.table(may_read=False)
    assert owner.commits.read_commit_bytes(table, owner.content().location, 1, one.entry) == one.data


def test_many_bytes_are_a_body_that_was_put_before_the_turn(owner: Owner) -> None:
    table = owner.table()
    turn = msgspec.structs.replace(table, may_read=False)
    with pytest.raises(PrepareAgain):
        composed(owner, LARGE, table=turn)
    staged = stage_body(table, owner.commits, owner.content().location, LARGE)
    one = composed(owner, LARGE, table=turn)
    assert one.data is None
    assert one.entry.body == staged.name == f"_penstock/bodies/{hashlib.sha256(LARGE).hexdigest()}.json"
    assert one.entry.size == len(LARGE) + len(read_commit_record(one.entry, reading(one)).head or b"")
    with pytest.raises(PrepareAgain):
        composed(owner, LARGE + SMALL, table=turn)


def test_a_body_that_is_there_already_is_the_same_and_one_that_is_not_what_it_says_is_told(
    owner: Owner,
) -> None:
    content = owner.content()
    staged = stage_body(owner.table(), owner.commits, content.location, LARGE)
    assert stage_body(owner.table(), owner.commits, content.location, LARGE) == staged
    file = Path(content.location) / staged.name
    file.write_bytes(b"something else")
    with pytest.raises(
        InvalidContent,
        match=r"does not have the content that its name stands for\n  Move it away, and write again",
    ):
        stage_body(owner.table(), owner.commits, content.location, LARGE)
    file.rename(file.with_suffix(".damaged"))
    assert stage_body(owner.table(), owner.commits, content.location, LARGE) == staged
    assert file.read_bytes() == LARGE


@pytest.mark.parametrize("extra", range(-90, 90, 15))
def test_a_commit_around_the_limit_is_ratified_at_its_first_turn(owner: Owner, extra: int) -> None:
    head = len(encode_commit_info_line(CommitInfo(owner.info(0).fields), 1_800_000_000_000))
    file = msgspec.structs.replace(add("a"), tags={"fill": ""})
    room = HELD_MAX_BYTES - head - len(write_commit([file])) + extra
    assert owner.commit([msgspec.structs.replace(file, tags={"fill": "x" * room})]) == 1
    assert len(owner.data(1)) > HELD_MAX_BYTES - 1000


def test_a_commit_info_that_is_too_long_is_refused(owner: Owner) -> None:
    with pytest.raises(InvalidRequest, match="commitInfo"):
        owner.commit([CommitInfo({"why": "x" * HELD_MAX_BYTES}), add("a")])


MANY = tuple(f"{number}" for number in range(TERMS_MAX_BYTES))


@pytest.mark.parametrize(
    "terms",
    [
        CommitTerms(DeltaReads(files=frozenset(MANY), applications=frozenset({"a"}))),
        CommitTerms(DeltaReads(partitions=(days(*MANY),)), changes_data=False),
        CommitTerms(DeltaReads(), (days(*MANY),)),
    ],
    ids=["files", "partitions", "replaced"],
)
def test_whoever_read_too_much_to_be_held_has_read_the_whole_table(owner: Owner, terms: CommitTerms) -> None:
    one = composed(owner, SMALL, terms=terms)
    expected = CommitTerms(DeltaReads(whole_table=True), changes_data=terms.changes_data)
    assert read_commit_record(one.entry, reading(one)).terms == expected


def test_a_few_hundred_files_are_held_as_they_were_read(owner: Owner) -> None:
    terms = CommitTerms(DeltaReads(files=frozenset(MANY[:500]), applications=frozenset({"a"})))
    one = composed(owner, SMALL, terms=terms)
    assert read_commit_record(one.entry, reading(one)).terms == terms


class Unsure(LocalBucket):
    """A bucket that does not say what became of a write, which it does or does not do."""

    writes = True

    async def put_all(self, items: Sequence[tuple[str, bytes]]) -> int:
        if self.writes:
            await super().put_all(items)
        raise UnansweredWrite("no answer")


class UnsurePlaces(Places):
    def open_disk(self, root: Path) -> LocalBucket:
        return Unsure(root)


def test_a_file_whose_writing_was_not_answered_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = UnsurePlaces()
    place = places.open_place(str(tmp_path / "table"))
    assert write_staged_file(place, "_penstock/a.json", b"data")
    monkeypatch.setattr(Unsure, "writes", False)
    assert write_staged_file(place, "_penstock/a.json", b"data")
    assert not write_staged_file(place, "_penstock/a.json", b"other")
    with pytest.raises(Unavailable, match="nothing was committed"):
        write_staged_file(place, "_penstock/b.json", b"data")
    places.close()
