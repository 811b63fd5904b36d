"""What a log comes to: times, features, addresses, damage."""

from __future__ import annotations

import pytest

from penstock.formats.delta.errors import InvalidLog, UnsupportedFeature
from penstock.formats.delta.log import snapshot
from penstock.formats.delta.log.packed_lines import PACK_BYTES
from penstock.formats.delta.log.segments import find_segment
from penstock.formats.delta.log.snapshot import load_snapshot, replay_segment
from penstock.formats.delta.protocol.actions import Action, Add, CommitInfo, Txn, write_commit
from penstock.formats.delta.protocol.names import LOG, SIDECARS, ClassicName, CommitName, CompactionName
from penstock.storage.places import READ_AHEAD
from tests.formats.delta.logs import (
    UUIDS,
    Table,
    add,
    checkpoint_bytes,
    commit_info,
    metadata,
    protocol,
    remove,
)


def paths(table: Table, version: int | None = None) -> list[str]:
    return sorted(one.path for one in load_snapshot(table.files, version).read_files())


def test_a_version_is_what_its_commits_come_to(table: Table) -> None:
    table.create(add("a"), add("b"))
    table.commit(1, remove("a"), Txn(app_id="stream", version=9))
    table.commit(2, add("c"), metadata(delta_appendOnly="true"))
    assert paths(table, 0) == ["a", "b"]
    assert paths(table, 1) == ["b"]
    newest = load_snapshot(table.files)
    assert (newest.version, newest.table) == (2, table.files.url)
    assert sorted(one.path for one in newest.read_files()) == ["b", "c"]
    assert [one.path for one in newest.read_tombstones()] == ["a"]
    assert newest.transactions == {"stream": Txn(app_id="stream", version=9)}
    assert newest.properties == {"delta.appendOnly": "true"}
    assert [field.name for field in newest.schema.fields] == ["id"]


def test_a_file_that_comes_back_is_no_tombstone(table: Table) -> None:
    table.create(add("a", size=1))
    table.commit(1, remove("a"))
    table.commit(2, add("a", size=2))
    newest = load_snapshot(table.files)
    assert [one.size for one in newest.read_files()] == [2]
    assert list(newest.read_tombstones()) == []


def test_two_spellings_of_one_address_are_one_file(table: Table) -> None:
    table.create(add("a%20b"), add("file:///data/c"), add("%64"))
    table.commit(1, remove("a%20b"), remove("/data/c"), remove("d"))
    assert paths(table) == []
    table.write(str(ClassicName(0)), checkpoint_bytes([protocol(), metadata(), add("%64"), add("a%2520b")]))
    assert paths(table) == ["a%2520b"]


def test_fields_of_a_file_survive_in_the_tail_and_in_the_checkpoint(table: Table) -> None:
    file = add("a", tags={"k": "v"}, stats='{"numRecords":3}', partition_values={"p": "x y", "q": ""})
    table.create(file)
    assert list(load_snapshot(table.files).read_files()) == [file]
    table.write(str(ClassicName(0)), checkpoint_bytes([protocol(), metadata(), file]))
    assert list(load_snapshot(table.files).read_files()) == [file]


@pytest.mark.parametrize("stand_in", ["none", "checkpoint", "compaction"])
def test_the_time_is_that_of_the_versions_own_commit(table: Table, stand_in: str) -> None:
    timed = metadata(delta_enableInCommitTimestamps="true")
    table.commit(0, commit_info(10), protocol("inCommitTimestamp"), timed)
    table.commit(1, commit_info(20), add("a"))
    actions: list[Action] = [protocol("inCommitTimestamp"), timed, add("a")]
    if stand_in == "checkpoint":
        table.write(str(ClassicName(1)), checkpoint_bytes(actions))
    elif stand_in == "compaction":
        table.write(str(CompactionName(0, 1)), write_commit(actions))
    assert load_snapshot(table.files, 0).in_commit_timestamp == 10
    assert load_snapshot(table.files, 1).in_commit_timestamp == 20


def test_without_its_commit_a_version_has_no_time_and_is_read_all_the_same(table: Table) -> None:
    timed = metadata(delta_enableInCommitTimestamps="true")
    table.write(str(ClassicName(4)), checkpoint_bytes([protocol("inCommitTimestamp"), timed]))
    found = load_snapshot(table.files)
    assert (found.version, found.in_commit_timestamp) == (4, None)


def test_r15_commits_that_are_not_published_are_read_by_their_names_only(table: Table) -> None:
    table.create(add("a"))
    table.commit(1, add("of another line"))
    table.write(LOG + "own.json", write_commit([CommitInfo({}), remove("a"), add("own")]))
    segment = find_segment(table.files, 0).append_commits([LOG + "own.json"])
    found = replay_segment(table.files, segment)
    assert (found.version, [one.path for one in found.read_files()]) == (1, ["own"])


def test_a_table_with_an_unknown_reader_feature_is_refused_by_its_name(table: Table) -> None:
    table.commit(0, protocol(reader=["deletionVectors", "timeMachine"]), metadata())
    with pytest.raises(UnsupportedFeature, match="timeMachine") as caught:
        load_snapshot(table.files)
    assert caught.value.details["feature"] == "timeMachine"
    assert caught.value.details["table"] == table.files.url
    assert table.files.url in str(caught.value)


def test_an_unknown_writer_feature_does_not_keep_readers_out(table: Table) -> None:
    table.commit(0, protocol("timeMachine"), metadata(), add("a"))
    assert paths(table) == ["a"]


def test_a_newer_protocol_than_any_is_refused(table: Table) -> None:
    table.write(
        str(CommitName(0)),
        b'{"protocol":{"minReaderVersion":4,"minWriterVersion":8}}\n' + write_commit([metadata()]),
    )
    with pytest.raises(UnsupportedFeature, match="reader version 4"):
        load_snapshot(table.files)


@pytest.mark.parametrize("taken_bytes", [1, 200, snapshot.TAKEN_BYTES])
@pytest.mark.parametrize("broken", [b'{"add":{}}', b'{"add":{"path":7}}', write_commit([add("c")])[:-2]])
def test_a_line_that_is_no_action_is_named_among_many(
    table: Table, monkeypatch: pytest.MonkeyPatch, taken_bytes: int, broken: bytes
) -> None:
    monkeypatch.setattr(snapshot, "TAKEN_BYTES", taken_bytes)
    table.create()
    good = [write_commit([add(f"a{number}")]) for number in range(5)]
    table.write(str(CommitName(1)), b"".join([*good[:3], broken, b"\n", *good[3:]]))
    with pytest.raises(InvalidLog, match=r"line 4 of _delta_log/0+1\.json"):
        load_snapshot(table.files)
    two = good[4].replace(b'{"add"', b'{"txn":{"appId":"a","version":1},"add"')
    table.write(str(CommitName(1)), b"".join([*good[:3], two, good[3]]))
    with pytest.raises(InvalidLog, match="2 actions"):
        load_snapshot(table.files)


def test_a_line_that_is_no_action_is_named_with_table_file_and_line(table: Table) -> None:
    table.create()
    table.write(str(CommitName(1)), write_commit([add("a")]) + b'\n{"add":{}}\n' + write_commit([add("b")]))
    with pytest.raises(InvalidLog, match=r"line 3 of _delta_log/0+1\.json of the table /") as caught:
        load_snapshot(table.files)
    assert (caught.value.details["version"], caught.value.details["line"]) == (1, 3)


@pytest.mark.parametrize("missing", ["protocol", "metadata"])
def test_a_log_without_protocol_or_metadata_is_invalid(table: Table, missing: str) -> None:
    table.commit(0, metadata() if missing == "protocol" else protocol())
    with pytest.raises(InvalidLog, match=f"has no {missing}"):
        load_snapshot(table.files)


@pytest.mark.parametrize("data", [b"PAR1", b"x" * 100, checkpoint_bytes([protocol()])[:-20]])
def test_a_damaged_checkpoint_is_named_with_a_way_out(table: Table, data: bytes) -> None:
    table.create()
    table.write(str(ClassicName(0)), data)
    with pytest.raises(InvalidLog, match=r"0\.checkpoint\.parquet of the table .* cannot be read") as caught:
        load_snapshot(table.files)
    assert caught.value.details["file"] == str(ClassicName(0))


def test_a_checkpoint_that_breaks_the_protocol_is_named(table: Table) -> None:
    table.create()
    table.write(f"{LOG}{0:020}.checkpoint.{UUIDS[0]}.json", b'{"protocol":{"minReaderVersion":"one"}}\n')
    with pytest.raises(InvalidLog, match="minReaderVersion"):
        load_snapshot(table.files)


def test_a_sidecar_that_is_missing_is_named_when_files_are_asked_for(table: Table) -> None:
    table.create()
    top = b'{"sidecar":{"path":"gone.parquet","sizeInBytes":1,"modificationTime":1}}\n'
    table.write(f"{LOG}{0:020}.checkpoint.{UUIDS[0]}.json", write_commit([protocol(), metadata()]) + top)
    found = load_snapshot(table.files)
    with pytest.raises(InvalidLog, match=SIDECARS + "gone.parquet"):
        list(found.read_files())


def test_a_file_that_vanishes_between_listing_and_reading_is_named(table: Table) -> None:
    table.create()
    segment = find_segment(table.files)
    table.delete(CommitName(0))
    with pytest.raises(InvalidLog, match="is missing"):
        replay_segment(table.files, segment)


def test_more_files_than_fit_into_one_pack_all_come_back(table: Table) -> None:
    stats = '{"numRecords":1,"minValues":{"id":%d}}'
    adds: list[Add] = [add(f"part-{number:06}.parquet", stats=stats % number) for number in range(20_000)]
    assert len(write_commit(adds)) > 2 * PACK_BYTES
    table.create(*adds)
    table.commit(1, *[remove(one.path) for one in adds[::2]])
    found = load_snapshot(table.files)
    assert sorted(found.read_files(), key=lambda one: one.path) == adds[1::2]
    assert len(list(found.read_tombstones())) == 10_000


def test_commits_are_replayed_in_order_however_many_are_read_at_once(table: Table) -> None:
    table.create(add("0"))
    last = 3 * READ_AHEAD + 1
    for version in range(1, last + 1):
        table.commit(version, remove(str(version - 1)), add(str(version)), Txn(app_id="a", version=version))
    found = load_snapshot(table.files)
    assert [one.path for one in found.read_files()] == [str(last)]
    assert found.transactions["a"].version == last
