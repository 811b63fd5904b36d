"""Lines: what they hold is found again, and a commit costs the same however long they are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Damaged
from penstock.formats.delta.branch_log.branch_log import (
    RUN_MAX,
    Blobs,
    BranchLog,
    BranchLogEntry,
    BranchLogTip,
    CommitRecord,
    CommitTerms,
    OwnershipPhase,
    TableDefinition,
    decode_branch_log,
    encode_object,
    read_commit_record,
    read_table_definition,
    replace_branch_log,
)
from penstock.model.encoding import ObjectId
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob, decode_object

DECLARED, _PACKED = encode_object(TableDefinition(b"p", b"m"))
EMPTY = BranchLog(phase=OwnershipPhase.OWNED, published=-1, latest=-1, timestamp_ms=-1, declared=DECLARED)


class Store:
    """Objects of the kernel, with those that nobody holds any more gone."""

    def __init__(self) -> None:
        self.blobs: Blobs = {DECLARED: _PACKED}

    def read(self, one: ObjectId) -> bytes:
        found = decode_object(self.blobs[one])
        assert isinstance(found, Blob)
        return found.data

    def sweep(self, line: BranchLog) -> None:
        kept: Blobs = {}
        waiting = list(line.held_objects)
        while waiting:
            one = waiting.pop()
            found = decode_object(self.blobs[one])
            assert isinstance(found, Blob)
            kept[one] = self.blobs[one]
            waiting += found.held
        self.blobs = kept


def entry(number: int, line: bytes = b"", held: ObjectId | None = None) -> BranchLogEntry:
    return BranchLogEntry(
        uuid=number.to_bytes(16, "big"), size=number, timestamp_ms=number, line=line, held=held
    )


def extended(store: Store, line: BranchLog, one: BranchLogEntry) -> BranchLog:
    after, blobs = line.append_entry(one)
    store.blobs |= blobs
    return after


@given(st.lists(st.one_of(st.integers(1, 40), st.tuples(st.floats(0, 1))), min_size=1, max_size=12))
def test_a_line_holds_what_a_plain_list_would(steps: list[int | tuple[float]]) -> None:
    store, line, all_entries = Store(), EMPTY, list[BranchLogEntry]()
    for step in steps:
        if isinstance(step, int):
            for _ in range(step):
                held, data = encode_object(CommitRecord(CommitTerms(), b"%d" % len(all_entries)))
                store.blobs[held] = data
                all_entries.append(entry(len(all_entries), held=held))
                line = extended(store, line, all_entries[-1])
        else:
            line = line.drop_published_entries(round(step[0] * line.latest))
        store.sweep(line)
        assert line == decode_branch_log(replace_branch_log(DeltaTable(), line))
        assert line.latest == line.fork_version == len(all_entries) - 1
        assert all(run.last > line.published for run in line.runs)
        for version in range(-2, len(all_entries) + 2):
            after = max(version, line.published)
            expected = list(enumerate(all_entries))[after + 1 :]
            assert list(line.read_entries_after(version, store.read)) == expected
            known = line.published < version <= line.latest
            assert line.find_entry(version, store.read) == (all_entries[version] if known else None)
        for version, one in line.read_entries_after(-1, store.read):
            assert read_commit_record(one, store.read).head == b"%d" % version


def test_publishing_stops_where_the_line_leaves_the_default_branch() -> None:
    store, line = Store(), EMPTY
    for number in range(20):
        line = extended(store, line, entry(number))
    main = line
    for number in range(20, 60):
        line = extended(store, line, entry(number, b"l" * 16))
    assert (main.tail, line.tail, line.fork_version) == (None, 20, 19)
    assert line.drop_published_entries(50).published == 19
    assert [
        version for version, _ in line.drop_published_entries(50).read_entries_after(-1, store.read)
    ] == list(range(20, 60))
    assert line.drop_published_entries(-1) is line


def test_a_line_goes_on_from_the_ends_it_had_and_from_no_other() -> None:
    store, line = Store(), EMPTY
    for number in range(5):
        line = extended(store, line, entry(number))
    main = extended(store, line, entry(5))
    branch = extended(store, line, entry(105, b"l" * 16))
    longer = extended(store, branch, entry(106, b"l" * 16))
    assert BranchLogTip.from_line(line).is_on(main, store.read)
    assert BranchLogTip.from_line(line).is_on(longer, store.read)
    assert BranchLogTip.from_line(branch).is_on(longer, store.read)
    assert not BranchLogTip.from_line(main).is_on(branch, store.read)
    assert not BranchLogTip.from_line(branch).is_on(main, store.read)
    assert not BranchLogTip.from_line(longer).is_on(branch, store.read)
    other = extended(store, line, entry(999, b"k" * 16))
    assert not BranchLogTip.from_line(branch).is_on(other, store.read)
    assert BranchLogTip.from_line(main).is_on(main.drop_published_entries(5), store.read)
    ends = [line, branch, longer]
    assert [BranchLogTip.from_line_version(longer, one.latest, store.read) for one in ends] == [
        BranchLogTip.from_line(one) for one in ends
    ]
    assert (
        BranchLogTip.from_line_version(main.drop_published_entries(5), 2, store.read)
        == BranchLogTip.from_line_version(longer, 2, store.read)
        == BranchLogTip(2, b"")
    )


def test_what_a_commit_costs_does_not_grow_with_the_line() -> None:
    store, line, held = Store(), EMPTY, DECLARED
    content = DeltaTable(location="/tables/orders")
    costs: list[int] = []
    for number in range(10_000):
        line, blobs = line.append_entry(entry(number, b"l" * 16, held))
        store.blobs |= blobs
        costs.append(len(replace_branch_log(content, line).state) + sum(map(len, blobs.values())))
    assert max(costs) < 16 * 1024
    early, late = costs[1000:2000], costs[9000:]
    assert sum(late) < 1.2 * sum(early)
    assert len(line.runs) < 3 * RUN_MAX
    assert [version for version, _ in line.read_entries_after(-1, store.read)] == list(range(10_000))
    reads: list[ObjectId] = []

    def counted(one: ObjectId) -> bytes:
        reads.append(one)
        return store.read(one)

    assert line.find_entry(4711, counted) == entry(4711, b"l" * 16, held)
    assert len(reads) <= 4


@given(st.lists(st.booleans(), max_size=700), st.integers(-1, 700), st.integers(-1, 700))
def test_a_line_knows_which_versions_may_have_repeated_files(
    repeats: list[bool], after: int, last: int
) -> None:
    store, line = Store(), EMPTY
    for number, one in enumerate(repeats):
        line, blobs = line.append_entry(entry(number), may_repeat_files=one)
        store.blobs |= blobs
    line = line.drop_published_entries(line.latest)
    store.sweep(line)
    last = min(last, line.latest)
    found = line.versions_with_repeats(after, last, store.read)
    assert found == {number for number, one in enumerate(repeats) if one and after < number <= last}


def test_of_versions_before_the_list_began_each_may_have_repeated_files() -> None:
    store, line = Store(), msgspec.structs.replace(EMPTY, published=4, latest=4)
    assert line.versions_with_repeats(1, 4, store.read) == {2, 3, 4}
    for number in (5, 6, 7):
        line, blobs = line.append_entry(entry(number), may_repeat_files=number == 6)
        store.blobs |= blobs
    assert line.versions_with_repeats(1, 7, store.read) == {2, 3, 4, 6}
    assert line.versions_with_repeats(1, 3, store.read) == {2, 3}
    assert line.versions_with_repeats(4, 7, store.read) == {6}


def test_a_line_of_an_earlier_release_has_no_list_and_one_of_this_is_read_by_it() -> None:
    line, _ = EMPTY.append_entry(entry(0))
    fields = msgspec.msgpack.decode(replace_branch_log(DeltaTable(), line).state)
    earlier = decode_branch_log(DeltaTable(state=msgspec.msgpack.encode(fields[:-3])))
    assert (earlier.changes, earlier.repeats, earlier.highest_row_id) == (None, None, None)
    assert (
        decode_branch_log(DeltaTable(state=msgspec.msgpack.encode([*fields, "of a later release"]))) == line
    )


def test_the_name_of_an_entrys_file_tells_whose_line_it_is() -> None:
    staged = "_delta_log/_commits/00000000000000000007.00000000-0000-0000-0000-000000000007.json"
    assert entry(7).get_staged_path(7) == staged
    assert entry(7, b"\xab" * 16).get_staged_path(7) == (
        f"_penstock/{'ab' * 16}/00000000000000000007.00000000-0000-0000-0000-000000000007.json"
    )


def test_a_table_of_very_many_columns_fits_into_an_object() -> None:
    metadata = b"".join(b'{"name":"column_%d","type":"string","nullable":true},' % n for n in range(10_000))
    one, data = encode_object(TableDefinition(b"p", metadata))
    store = Store()
    store.blobs[one] = data
    line = msgspec.structs.replace(EMPTY, declared=one)
    assert read_table_definition(line, store.read) == TableDefinition(b"p", metadata)
    assert len(data) < len(metadata) / 4


def test_a_state_that_is_none_is_told_as_damaged() -> None:
    with pytest.raises(Damaged, match="cannot be read"):
        decode_branch_log(DeltaTable(state=b"\x93\x01"))
