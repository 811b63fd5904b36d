"""Undoing what came after a file was added that the table had already, as a commit of statistics does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock import Lake
from penstock.formats.delta.branch_log import prepared_table
from penstock.formats.delta.lake.calls import WriterReads
from penstock.lake.answers import TableCommitResult
from tests.formats.delta.sides import KEY, Side, create, foreign_ids

VECTORS = {"delta.enableDeletionVectors": "true"}
ALL = [1, 2, 3, 4, 5, 6]
CHANGES = ("removed", "masked")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.init("memory:", warehouse=str(tmp_path)) as lake:
        yield lake


def add_again(side: Side, number: int) -> TableCommitResult:
    """Add the file that has a row once more, without new rows."""
    now = side.now()
    files = [msgspec.structs.replace(one, data_change=False) for one in side._holding(now, [number])]
    return side._commit(now, "COMPUTE STATS", files, WriterReads())


def change(side: Side, how: str) -> TableCommitResult:
    return side.remove_unread(1) if how == "removed" else side.mask(1)


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("near", [0, 64])
def test_a_restore_brings_a_file_back_that_was_added_again_and_then_changed(
    lake: Lake, near: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_table, "NEAR_VERSIONS", near)
    main = create(lake, properties=VECTORS)
    before = main.now().version
    add_again(main, 1)
    change(main, how)
    assert main.ids() != ALL
    lake.table(KEY).restore(version=before)
    assert main.ids() == foreign_ids(lake) == ALL


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("into", ["main", "dev"])
@pytest.mark.parametrize("later", [(), (9,)], ids=["newest", "earlier"])
def test_a_revert_of_a_merge_brings_a_file_back_that_was_added_again_and_then_changed(
    lake: Lake, how: str, into: str, later: tuple[int, ...]
) -> None:
    create(lake, "dev", "work", properties=VECTORS)
    side, work = Side(lake, into), Side(lake, "work")
    add_again(work, 1)
    change(work, how)
    work.merge(into)
    merged = lake.branch(into).head
    for one in later:
        side.append(one)
    lake.revert(merged, into)
    assert side.ids() == [*ALL, *later]


def test_a_restore_keeps_a_file_that_was_only_added_again(lake: Lake) -> None:
    main = create(lake)
    before = main.now().version
    add_again(main, 1)
    main.append(9)
    lake.table(KEY).restore(version=before)
    assert main.ids() == foreign_ids(lake) == ALL
