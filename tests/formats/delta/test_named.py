"""The data files that a log names."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest

from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.checkpoint_writer import write_checkpoint
from penstock.formats.delta.log.referenced_files import DeltaNamedFiles, LogCoverage, read_log
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.protocol.actions import Action, Cdc, DeletionVector, FileKey, write_commit
from penstock.formats.delta.protocol.names import LOG, CommitName
from tests.formats.delta.logs import Table, add, checkpoint_bytes, metadata, protocol, remove
from tests.formats.delta.rows import VECTOR_ID, z85

VECTOR_FILE = f"deletion_vector_{VECTOR_ID}.bin"


def named_by(*actions: Action) -> DeltaNamedFiles:
    found = DeltaNamedFiles()
    found.take_commit("table", "commit", write_commit(actions))
    return found


def vector(storage_type: str, text: str, offset: int | None = None) -> DeletionVector:
    return DeletionVector(
        storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=1, cardinality=1, offset=offset
    )


def first(*actions: Action) -> tuple[Action, ...]:
    return (protocol(), metadata(), *actions)


def read(table: Table) -> tuple[LogCoverage, DeltaNamedFiles]:
    named = DeltaNamedFiles()
    return read_log(table.place, named), named


def which(named: DeltaNamedFiles, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in named]


def test_added_removed_and_changed_files_are_named() -> None:
    cdc = Cdc(path="_change_data/cdc-1.parquet", partition_values={}, size=1, data_change=False)
    found = named_by(add("part-1.parquet"), remove("part-2.parquet"), cdc)
    names = ["part-1.parquet", "part-2.parquet", "_change_data/cdc-1.parquet", "part-3.parquet"]
    assert which(found, names) == names[:3]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("day=a%253Ab/part-1.parquet", "day=a%3Ab/part-1.parquet"),
        ("day=a%253Ab/part-1.parquet", "day=a:b/part-1.parquet"),
        ("day=a%20b/part-1.parquet", "day=a b/part-1.parquet"),
        ("day=%C3%BC/part-1.parquet", "day=ü/part-1.parquet"),
        ("day=a b/part-1.parquet", "day=a%20b/part-1.parquet"),
        ("./part-1.parquet", "part-1.parquet"),
        ("s3://bucket/tables/orders/day=1/part-1.parquet", "day=1/part-1.parquet"),
        ("s3a://bucket/tables/orders/part-1.parquet", "part-1.parquet"),
        ("file:///tables/orders/part-1.parquet", "part-1.parquet"),
        ("/tables/orders/part-1.parquet", "part-1.parquet"),
    ],
)
def test_a_file_is_named_however_its_address_is_written(path: str, name: str) -> None:
    assert name in named_by(add(path))
    assert name in named_by(remove(path))
    assert "part-2.parquet" not in named_by(add(path))


@pytest.mark.parametrize("offset", [None, 0, 17])
@pytest.mark.parametrize(
    ("one", "name"),
    [
        (vector("u", z85(VECTOR_ID.bytes)), VECTOR_FILE),
        (vector("u", "ab" + z85(VECTOR_ID.bytes)), f"ab/{VECTOR_FILE}"),
        (vector("p", f"s3://bucket/orders/{VECTOR_FILE}"), VECTOR_FILE),
    ],
    ids=["by-id", "by-id-in-a-folder", "by-address"],
)
def test_the_file_of_a_deletion_vector_is_named(one: DeletionVector, name: str, offset: int | None) -> None:
    stored = vector(one.storage_type, one.path_or_inline_dv, offset)
    found = named_by(add("part-1.parquet", deletion_vector=stored))
    assert which(found, [name, "part-1.parquet"]) == [name, "part-1.parquet"]
    assert name in named_by(remove("part-1.parquet", deletion_vector=stored))


def test_a_vector_whose_name_ends_like_an_offset_is_named_in_both_readings() -> None:
    found = DeltaNamedFiles()
    found.take_key(FileKey("part-1.parquet", "p/orders/vectors@1"))
    assert which(found, ["vectors@1", "vectors"]) == ["vectors@1", "vectors"]


def test_a_vector_within_the_log_has_no_file_and_one_that_names_none_is_an_error() -> None:
    assert "part-1.parquet" in named_by(add("part-1.parquet", deletion_vector=vector("i", z85(b"1234"))))
    for wrong in (vector("u", "short"), vector("x", "whatever")):
        with pytest.raises(InvalidLog, match="names no file"):
            named_by(add("part-1.parquet", deletion_vector=wrong))


def test_all_versions_of_a_log_count_from_the_first_that_can_be_read(table: Table) -> None:
    table.commit(0, *first(add("a")))
    table.commit(1, remove("a"), add("b"))
    write_checkpoint(table.place, load_snapshot(table.files), 10)
    table.commit(2, remove("b"), add("c"))
    log, named = read(table)
    assert (log.latest_version, log.covered) == (2, (range(3),))
    assert which(named, "abcd") == ["a", "b", "c"]
    (table.root / str(CommitName(0))).unlink()
    log, named = read(table)
    assert (log.latest_version, log.covered) == (2, (range(1, 3),))
    assert [log.covers_version(version) for version in range(4)] == [False, True, True, False]
    assert which(named, "bc") == ["b", "c"]
    (table.root / str(CommitName(1))).unlink()
    _, named = read(table)
    assert which(named, "bc") == ["b", "c"], "the checkpoint stands for it"


def test_what_a_checkpoint_remembers_as_removed_is_named(table: Table) -> None:
    state = first(add("live"), remove("gone", deletion_timestamp=2**50))
    table.write(f"{LOG}{3:020}.checkpoint.parquet", checkpoint_bytes(state))
    table.commit(3)
    log, named = read(table)
    assert log.covered == (range(3, 4),)
    assert which(named, ["live", "gone"]) == ["live", "gone"]


def test_versions_behind_a_gap_are_named_and_not_covered(table: Table) -> None:
    table.commit(0, *first(add("a")))
    table.commit(2, add("c"))
    log, named = read(table)
    assert (log.latest_version, log.covered) == (2, (range(1),))
    assert which(named, "ac") == ["a", "c"]


def test_a_log_that_cannot_be_understood_is_an_error(table: Table) -> None:
    table.commit(0, *first(add("a")))
    table.write(str(CommitName(1)), b"{nonsense")
    with pytest.raises(InvalidLog, match="00000000000000000001"):
        read(table)


def test_where_there_is_no_log_nothing_is_covered(table: Table) -> None:
    log, named = read(table)
    assert (log.latest_version, log.covered, len(named)) == (-1, (), 0)


def test_a_name_takes_few_bytes() -> None:
    count = 10_000
    named = DeltaNamedFiles()
    tracemalloc.start()
    for number in range(count):
        named.take_key(FileKey(f"day=2026-11-01/part-{number:05}-{VECTOR_ID}-c000.snappy.parquet"))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(named) == count
    assert held / count < 160
