"""Files that are rewritten with the same rows: what becomes of them, beside writers, and after a death."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import deltalake
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import file_upkeep
from penstock.formats.delta.lake.bin_rewrites import curve_positions
from penstock.formats.delta.lake.file_upkeep import target_size
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.rows.pruning import read_stats
from penstock.formats.delta.rows.stats import INDEXED
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.row_changes.statements import SCHEMA, Program, as_table, counted

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def make(lake: Lake, properties: Mapping[str, str] = MappingProxyType({})) -> tuple[Table, Program]:
    lake.delta.create("t", schema=SCHEMA, partition_by=["day"], properties=dict(properties))
    table, program = lake.table("t"), Program(Random(5))
    for _ in range(6):
        program.append(table)
    return table, program


def check_rows(table: Table, program: Program) -> None:
    assert counted(table.to_arrow().to_pylist()) == counted(program.rows)


def test_small_files_of_a_partition_become_one(lake: Lake) -> None:
    table, program = make(lake)
    before = len(list(table.snapshot().files()))
    seen: list[tuple[int, int]] = []
    done = table.optimize(progress=lambda part, whole: seen.append((part, whole)))
    assert (done.files_removed, done.files_added, done.version) == (before, 3, table.version)
    assert seen[-1][0] == seen[-1][1] == done.bytes_removed
    assert len(list(table.snapshot().files())) == 3
    check_rows(table, program)
    assert table.history(1)[0].operation == "OPTIMIZE"
    again = table.optimize()
    assert (again.version, again.files_removed) == (None, 0)
    table.backfill_to_version()
    theirs = pa.table(deltalake.DeltaTable(table.location).scan())
    assert counted(theirs.to_pylist()) == counted(program.rows)


def test_files_that_come_of_a_partition_are_of_about_one_size(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine writes several at once, and waits for the largest."""
    table = lake.delta.create("t", data={"id": [0]})
    for number in range(1, 15):
        table.append({"id": [number]})
    opened, begin = [], DeltaJob.__init__

    def count_opened(self: DeltaJob, *given: Any, **named: Any) -> None:
        opened.append(self)
        begin(self, *given, **named)

    monkeypatch.setattr(DeltaJob, "__init__", count_opened)
    sizes = [file.size for file in table.snapshot().files()]
    table.optimize(target_file_bytes=10 * max(sizes))  # not ten of them and five
    assert sorted(read_stats(file)["numRecords"] for file in table.snapshot().files()) == [7, 8]
    assert sorted(table.to_arrow()["id"].to_pylist()) == [*range(15)]
    assert len(opened) == 1, "the table was read again after the last commit"


@pytest.mark.parametrize(
    ("sizes", "evened"),
    [
        ([], []),
        ([[1, 1, 1]], [[1, 1, 1]]),
        ([[1, 1, 1, 1, 2, 2], [2, 2]], [[1, 1, 2, 2], [1, 1, 2, 2]]),
        ([[9], [1, 1, 1, 1, 2], [2, 2]], [[1, 2, 2], [1, 1, 1, 2], [9]]),
        ([[3, 3, 3], [4, 5]], [[3, 3, 3], [4, 5]]),  # one would be beyond the limit
        ([[1, 1, 1], [2, 7]], [[1, 1, 1], [2, 7]]),  # one would be of one file
    ],
)
def test_groups_of_files_are_evened_out_within_the_limit(
    sizes: list[list[int]], evened: list[list[int]]
) -> None:
    def file_of(size: int) -> Add:
        return Add(path="x", partition_values={}, size=size, modification_time=0, data_change=True)

    groups = file_upkeep.even_out([[file_of(size) for size in group] for group in sizes], 9)
    assert [sorted(file.size for file in group) for group in groups] == evened


def test_a_condition_keeps_it_to_some_partitions(lake: Lake) -> None:
    table, program = make(lake)
    table.optimize(where="day = 'a'")
    by_day = [file.partition_values["day"] for file in table.snapshot().files()]
    assert by_day.count("a") == 1
    assert by_day.count("b") > 1
    check_rows(table, program)
    with pytest.raises(InvalidRequest, match="not a partition column"):
        table.optimize(where="id = 1")


def test_deleted_rows_are_purged(lake: Lake) -> None:
    table, program = make(lake, VECTORS)
    table.delete("id % 2 = 0")
    program.rows = [row for row in program.rows if row["id"] % 2]
    assert any(file.deletion_vector for file in table.snapshot().files())
    table.optimize()
    assert not any(file.deletion_vector for file in table.snapshot().files())
    check_rows(table, program)


def test_rows_are_sorted_along_a_curve(lake: Lake) -> None:
    lake.table("t").write({"x": list(range(4000)), "y": [(7 * at) % 4000 for at in range(4000)]})
    table = lake.table("t")
    for _ in range(3):
        table.append({"x": list(range(4000)), "y": [(7 * at) % 4000 for at in range(4000)]})
    before = counted_pairs(table)
    table.optimize(zorder_by=["x", "y"], target_file_bytes=8000)
    assert counted_pairs(table) == before
    files = list(table.snapshot().files())
    read = list(table.snapshot().files("x < 200 and y < 200"))
    assert len(read) < len(files) / 2
    with pytest.raises(InvalidRequest, match="no such column"):
        table.optimize(zorder_by="z")


def counted_pairs(table: Table) -> list[tuple[int, int]]:
    rows = table.to_arrow()
    return sorted(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True))


def test_a_clustered_table_is_sorted_by_its_own_columns_once(lake: Lake) -> None:
    lake.delta.create("c", schema=SCHEMA, cluster_by=["id"])
    table = lake.table("c")
    program = Program(Random(1))
    for _ in range(4):
        program.append(table)
    assert table.optimize().files_removed == 4
    assert all(file.clustering_provider == "liquid" for file in table.snapshot().files())
    assert table.optimize().files_removed == 0
    program.append(table)
    assert table.optimize().files_removed == 1
    check_rows(table, program)


def test_a_curve_keeps_neighbours_together() -> None:
    places = curve_positions([pa.array([0, 0, 1, 1, None]), pa.array(["a", "b", "a", "b", "b"])])
    # Bits of the ranks take turns, those of the first column being the lower ones; a null comes first.
    assert places.to_pylist() == [3, 9, 6, 12, 8]


@pytest.mark.parametrize(("text", "size"), [("1mb", 1 << 20), ("100", 100), ("2 g", 2 << 30)])
def test_the_target_size_is_a_property(text: str, size: int) -> None:
    assert target_size({"delta.targetFileSize": text}) == size
    with pytest.raises(InvalidRequest, match="such as '128mb'"):
        target_size({"delta.targetFileSize": "much"})


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Any) -> list[str]:
    """Have something happen right before each commit of a compaction."""
    commit, seen = DeltaJob.commit_actions, []

    def wrapped(self: DeltaJob, actions: Any, **how: Any) -> Any:
        if how["operation"] == "OPTIMIZE":
            seen.append("optimize")
            act(len(seen))
        return commit(self, actions, **how)

    monkeypatch.setattr(DeltaJob, "commit_actions", wrapped)
    return seen


def test_appends_meanwhile_are_no_conflict(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, program = make(lake)
    tries = before_commit(monkeypatch, lambda _: program.append(table))
    table.optimize()
    assert tries == ["optimize"] * len(tries)
    check_rows(table, program)
    assert table.history(2)[0].operation == "OPTIMIZE"


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["rewritten", "deletion vectors"])
def test_files_that_a_delete_changed_first_are_taken_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    table, program = make(lake, properties)

    def act(number: int) -> None:
        if number == 1:
            assert table.delete("id = 3").deleted == 1
            program.rows = [row for row in program.rows if row["id"] != 3]

    tries = before_commit(monkeypatch, act)
    done = table.optimize()
    assert len(tries) == 2
    assert done.files_skipped == 0
    check_rows(table, program)
    assert len(list(table.snapshot().files())) == 3


def test_files_that_others_keep_changing_are_left_to_the_next_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, program = make(lake)

    def act(_: int) -> None:
        table.update({"amount": 1.0}, "id = 0")
        program.rows = [{**row, "amount": 1.0} if row["id"] == 0 else row for row in program.rows]

    with monkeypatch.context() as patch:
        tries = before_commit(patch, act)
        done = table.optimize()
    assert done.files_skipped > 0
    assert len(tries) >= file_upkeep.TRIES_MAX
    check_rows(table, program)
    # What was refused has left nothing: every file is one of a version.
    versions = [table.snapshot(version) for version in range(table.version + 1)]
    assert data_files(table) == {file.path for snapshot in versions for file in snapshot.files()}
    assert table.optimize().files_skipped == 0
    check_rows(table, program)


def test_parts_that_nobody_changes_are_rewritten_beside_those_that_others_keep_changing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.delta.create("t", data={"id": [0]})
    for number in range(1, 40):
        table.append({"id": [number]})

    def act(number: int) -> None:  # a file goes and another comes, at every try
        table.update({"id": 1000 + number}, "id = 0" if number == 1 else f"id = {999 + number}")

    with monkeypatch.context() as patch:
        tries = before_commit(patch, act)
        done = table.optimize()
    assert done.files_removed >= 38
    assert len(list(table.snapshot().files())) < 15
    assert sorted(table.to_arrow()["id"].to_pylist()) == [*range(1, 40), 1000 + len(tries)]


def test_files_that_come_meanwhile_are_left_to_the_next_run(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, program = make(lake)

    def act(_: int) -> None:
        program.append(table)
        program.append(table)

    with monkeypatch.context() as patch:
        tries = before_commit(patch, act)
        table.optimize()
    assert len(tries) == 1
    check_rows(table, program)


def data_files(table: Table) -> set[str]:
    root = Path(table.location)
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "and others deleted rows"])
@pytest.mark.parametrize("statement", ["delete", "update", "upsert"])
def test_a_change_whose_files_were_compacted_first_is_made_anew(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, statement: str, others: int
) -> None:
    table, program = make(lake)
    table.append(as_table([{"id": 7000, "day": "z", "amount": 0.0, "name": "z"}] * others))
    commit = DeltaJob.commit_actions
    seen: list[str] = []

    def wrapped(self: DeltaJob, actions: Any, **how: Any) -> Any:
        if how["operation"] != "OPTIMIZE" and not seen:
            seen.append(how["operation"])
            assert table.optimize().files_removed
            assert table.delete("day = 'z'").deleted == others
        return commit(self, actions, **how)

    monkeypatch.setattr(DeltaJob, "commit_actions", wrapped)
    if statement == "upsert":
        program.upsert(table)
    elif statement == "delete":
        assert table.delete("id >= 3").deleted == sum(row["id"] >= 3 for row in program.rows)
        program.rows = [row for row in program.rows if row["id"] < 3]
    else:
        table.update({"name": "'x'"})
        program.rows = [{**row, "name": "x"} for row in program.rows]
    assert seen
    check_rows(table, program)


def test_a_change_feed_passes_over_it(lake: Lake) -> None:
    table, _ = make(lake, FEED)
    version = table.version
    table.optimize()
    table.backfill_to_version()
    feed = deltalake.DeltaTable(table.location).load_cdf(starting_version=version + 1)
    assert pa.RecordBatchReader.from_stream(feed).read_all().num_rows == 0


def test_branch_merge_revert_and_restore_of_an_optimisation(lake: Lake) -> None:
    table, program = make(lake)
    lake.branch("b").create()
    lake.table("t", "b").optimize()
    program.append(table)
    assert lake.merge("b").commit is not None
    check_rows(table, program)
    version = table.version
    done = table.optimize()
    assert done.version is not None
    lake.revert(table.log(limit=1)[0].id)
    check_rows(table, program)
    table.restore(version=version)
    check_rows(table, program)


def test_statistics_are_completed(lake: Lake) -> None:
    table, program = make(lake, {INDEXED: "0"})
    metadata = table.snapshot().metadata
    properties = {**metadata.configuration, INDEXED: "4"}
    table.commit(table.version + 1, [msgspec.structs.replace(metadata, configuration=properties)])
    files = len(list(table.snapshot().files()))
    assert len(list(table.snapshot().files("id < 2"))) == files
    done = table.analyze()
    assert (done.files, done.version) == (files, table.version)
    assert len(list(table.snapshot().files("id < 2"))) < files
    assert table.analyze().files == 0
    check_rows(table, program)


def test_checkpoint_and_vacuum_of_one_table(lake: Lake) -> None:
    table, program = make(lake)
    table.optimize()
    table.backfill_to_version()
    assert table.checkpoint() == table.version
    assert [swept.key for swept in table.vacuum(dry_run=True)]
    check_rows(table, program)
