"""Undoing, merging and restoring where a writer has committed the same file twice, as a retry does that does
not know what became of the first try. Delta allows it, and the table has the file once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable as ForeignTable
from deltalake.transaction import AddAction, RemoveAction

import penstock
from penstock import Lake, errors
from penstock.formats.delta.branch_log import prepared_table, reversed_change
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.protocol.actions import Add
from tests.formats.delta.sides import KEY, Side, create, foreign_ids, rows

ALL = [1, 2, 3, 4, 5, 6]

Write = Callable[[Side, list[Add]], object]


def append_blindly(side: Side, files: list[Add]) -> None:
    side.table.append_actions(files)


def commit_as_version(side: Side, files: list[Add]) -> None:
    side.table.commit(side.now().version + 1, files)


def commit_what_was_read(side: Side, files: list[Add]) -> None:
    side._commit(side.now(), "WRITE", files, WriterReads(whole_table=True))


WRITES: dict[str, Write] = {
    "blind append": append_blindly,
    "given version": commit_as_version,
    "read the table": commit_what_was_read,
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


@pytest.fixture(params=["partitioned", pytest.param("plain", marks=pytest.mark.verify)])
def main(request: pytest.FixtureRequest, lake: Lake) -> Side:
    """A table with six rows in three files."""
    if request.param == "partitioned":
        return create(lake, "dev", "work")
    lake.create_table(KEY, schema=rows(0).schema)
    side = Side(lake, "main")
    for ids in ((1, 2), (3, 4), (5, 6)):
        side.append(*ids)
    for name in ("dev", "work"):
        lake.branch(name).create()
    return side


@pytest.fixture
def holds(lake: Lake, duckdb: Any) -> Callable[..., None]:
    """All readers find these rows in the table."""

    def check(*ids: int) -> None:
        expected = sorted(ids)
        assert Side(lake, "main").ids() == foreign_ids(lake) == expected
        location = lake.table(KEY).location
        found = duckdb.sql(f"SELECT id FROM delta_scan('{location}') ORDER BY id").fetchall()
        assert [one for (one,) in found] == expected

    return check


Holds = Callable[..., None]


def files_with(side: Side, *ids: int) -> list[Add]:
    """The files that have some rows, as they were added."""
    return [msgspec.structs.replace(one, data_change=True) for one in side._holding(side.now(), ids)]


def head(lake: Lake, branch: str = "main") -> str:
    return lake.branch(branch).head


# --- reverts and restores -----------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [(), (7,)], ids=["newest", "earlier"])
@pytest.mark.parametrize("few", [0, 64])
def test_a_revert_of_the_second_commit_keeps_the_file(
    lake: Lake,
    main: Side,
    write: Write,
    holds: Holds,
    later: tuple[int, ...],
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reversed_change, "FEW_LATER", few)
    write(main, files_with(main, 1))
    second = head(lake)
    for one in later:
        main.append(one)
    assert not any(one.change and one.change.files_removed for one in lake.revert(second, dry_run=True).keys)
    lake.revert(second)
    holds(*ALL, *later)


def test_a_revert_of_the_second_commit_removes_the_files_that_are_new(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    main.append(7)
    old, new = files_with(main, 1), files_with(main, 7)
    lake.revert(head(lake))
    holds(*ALL)
    write(main, [*old, *new])
    second = head(lake)
    main.append(8)
    holds(*ALL, 7, 8)
    lake.revert(second)
    holds(*ALL, 8)


def test_a_revert_of_the_first_commit_removes_the_file(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    main.append(7)
    first = head(lake)
    write(main, files_with(main, 7))
    second = head(lake)
    lake.revert(first)
    holds(*ALL)
    lake.revert(second)
    holds(*ALL)
    lake.transplant(first)
    holds(*ALL, 7)


def test_both_commits_are_reverted_in_the_other_order(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    main.append(7)
    first = head(lake)
    write(main, files_with(main, 7))
    lake.revert(head(lake))
    holds(*ALL, 7)
    lake.revert(first)
    holds(*ALL)


@pytest.mark.parametrize("near", [0, 64])
def test_a_restore_to_the_first_commit_keeps_the_file(
    lake: Lake, main: Side, write: Write, holds: Holds, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_table, "NEAR_VERSIONS", near)
    before = main.now().version
    write(main, files_with(main, 1))
    between = main.now().version
    main.append(7)
    lake.table(KEY).restore(version=between)
    holds(*ALL)
    lake.table(KEY).restore(version=before)
    holds(*ALL)


def test_a_restore_to_before_the_first_commit_removes_the_file(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    before = main.now().version
    main.append(7)
    write(main, files_with(main, 7))
    lake.table(KEY).restore(version=before)
    holds(*ALL)


def test_a_restore_brings_a_file_back_that_was_committed_twice_and_then_removed(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    before = main.now().version
    write(main, files_with(main, 1))
    main.remove_unread(1)
    holds(3, 4, 5, 6)
    lake.table(KEY).restore(version=before)
    holds(*ALL)


def test_a_restore_on_a_branch_keeps_the_file(lake: Lake, main: Side, write: Write) -> None:
    dev = Side(lake, "dev")
    before = dev.now().version
    write(dev, files_with(dev, 1))
    dev.append(7)
    dev.table.restore(version=before)
    assert dev.ids() == ALL


def test_a_file_that_was_committed_twice_with_vectors_is_kept(lake: Lake, write: Write, holds: Holds) -> None:
    main = create(lake, properties={"delta.enableDeletionVectors": "true"})
    before = main.now().version
    write(main, files_with(main, 1))
    second = head(lake)
    main.append(7)
    lake.revert(second)
    holds(*ALL, 7)
    lake.table(KEY).restore(version=before)
    holds(*ALL)


# --- merges and transplants ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "into", "moved"),
    [
        ("merge", "main", False),
        ("merge", "main", True),
        ("merge", "work", True),
        ("transplant", "main", True),
        ("transplant", "work", False),
    ],
)
def test_what_a_branch_committed_twice_comes_and_goes_once(
    lake: Lake, main: Side, write: Write, holds: Holds, into: str, how: str, moved: bool
) -> None:
    dev, target = Side(lake, "dev"), Side(lake, into)
    dev.append(7)
    write(dev, files_with(dev, 1, 7))
    more = [8] if moved else []
    if moved:
        target.append(8)
    if how == "merge":
        landed = lake.merge("dev", into)
    else:
        landed = lake.transplant([one.id for one in reversed(lake.log("dev", limit=2))], into)
    assert target.ids() == [*ALL, 7, *more]
    for one in reversed(landed.commits or (landed.head,)):
        lake.revert(one, into)
    assert target.ids() == [*ALL, *more]
    if into == "main":
        holds(*ALL, *more)


def test_a_revert_of_a_merge_keeps_a_file_that_its_branch_committed_again(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    dev = Side(lake, "dev")
    write(dev, files_with(dev, 1))
    dev.append(7)
    main.append(8)
    merged = dev.merge().head
    main.append(9)
    holds(*ALL, 7, 8, 9)
    lake.revert(merged)
    holds(*ALL, 8, 9)


def test_a_transplant_of_a_repetition_brings_nothing(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    dev = Side(lake, "dev")
    write(dev, files_with(dev, 1))
    main.append(7)
    lake.transplant(head(lake, "dev"))
    holds(*ALL, 7)
    lake.revert(head(lake))
    assert set(ALL) <= set(main.ids())


def test_a_merge_does_not_bring_a_file_back_that_its_branch_only_committed_again(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    """The target removed it, and on the branch nothing changed about it."""
    dev = Side(lake, "dev")
    append_blindly(dev, files_with(dev, 1))
    main.remove_unread(1)
    dev.merge()
    holds(3, 4, 5, 6)


def test_a_file_that_a_branch_committed_again_and_removed_goes_with_the_merge(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    dev = Side(lake, "dev")
    write(dev, files_with(dev, 1))
    dev.remove_unread(1)
    main.append(7)
    dev.merge()
    assert dev.ids() == [3, 4, 5, 6]
    holds(3, 4, 5, 6, 7)


def test_a_removal_that_the_target_made_of_a_repeated_file_is_a_conflict(
    lake: Lake, main: Side, write: Write, holds: Holds
) -> None:
    dev = Side(lake, "dev")
    dev.add_rows(7, whole_table=True)
    write(main, files_with(main, 1))
    main.remove_unread(1)
    with pytest.raises(errors.MergeConflict):
        dev.merge()
    holds(3, 4, 5, 6)


def test_a_table_whose_file_was_committed_again_and_removed_was_written_to(lake: Lake, write: Write) -> None:
    lake.create_table(KEY, data=rows(1, 2))
    created = head(lake)
    main = Side(lake, "main")
    write(main, files_with(main, 1))
    main.remove_unread(1)
    with pytest.raises(errors.MergeConflict, match="written to since"):
        lake.revert(created)
    assert main.ids() == []


@pytest.mark.parametrize("later", [(), (9,)], ids=["newest", "earlier"])
def test_a_transplant_of_a_revert_does_not_bring_what_is_there(
    lake: Lake, main: Side, holds: Holds, later: tuple[int, ...]
) -> None:
    """A revert adds files again that it did not write: where they are, they stay when it is undone."""
    dev = Side(lake, "dev")
    dev.remove_unread(1)
    lake.revert(head(lake, "dev"), "dev")
    main.append(7)
    lake.transplant(head(lake, "dev"))
    transplanted = head(lake)
    for one in later:
        main.append(one)
    lake.revert(transplanted)
    assert set(ALL) <= set(main.ids())


# --- other writers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [[], ["day"]], ids=["plain", "partitioned"])
def test_what_deltalake_committed_twice_before_the_table_was_adopted(
    tmp_path: Path, lake: Lake, holds: Holds, partitions: list[str]
) -> None:
    from deltalake import write_deltalake

    root = str(tmp_path / "foreign")
    write_deltalake(root, rows(1, 2), partition_by=partitions)
    write_deltalake(root, rows(3), mode="append")
    repeat_by_deltalake(root)
    lake.add_root(str(tmp_path))
    lake.delta.adopt(root, KEY)
    main = Side(lake, "main")
    main.append(7)
    assert len(list(main.now().files())) == 3
    main.table.restore(version=0)
    holds(1, 2)
    lake.revert(head(lake))
    holds(1, 2, 3, 7)
    main.table.restore(version=1)
    holds(1, 2, 3)


def repeat_by_deltalake(root: str) -> None:
    """Commit the files of a table once more, as deltalake does what it is told."""
    table = ForeignTable(root)
    known = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            one["path"],
            one["size_bytes"],
            dict(one.get("partition") or {}),
            1,
            True,
            json.dumps({"numRecords": one["num_records"]}),
        )
        for one in known
    ]
    partitions = table.metadata().partition_columns
    table.create_write_transaction(actions, "append", table.schema(), partition_by=partitions)
