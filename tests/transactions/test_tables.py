"""Tables of formats in a transaction: they are as on any branch, and nothing of them is published before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import MergeConflict
from penstock.formats.files.lake.calls import BeginJob
from penstock.kernel.edit import Edit, EditContext
from penstock.kernel.lake_state import open_state
from penstock.lake.lake import Lake
from penstock.model.keys import Key


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="ann") as lake:
        yield lake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def published(lake: Lake, key: str) -> set[str]:
    lake.finish_background()
    log = Path(lake.table(key).get_commits().location) / "_delta_log"
    return {file.name for file in log.glob("*.json")}


def test_a_delta_table_is_published_when_it_lands(lake: Lake) -> None:
    lake.create_table("a", data=rows(1))
    lake.create_table("b", data=rows(10))
    before = published(lake, "a"), published(lake, "b")
    with lake.transaction() as tx:
        tx.table("a").append(rows(2))
        tx.table("a").append(rows(3))
        tx.table("b").append(rows(11))
        assert sorted(tx.table("a").to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert lake.table("a").to_arrow()["id"].to_pylist() == [1]
        assert (published(lake, "a"), published(lake, "b")) == before
    assert sorted(lake.table("a").to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert sorted(lake.table("b").to_arrow()["id"].to_pylist()) == [10, 11]
    lake.table("a").backfill_to_version()
    assert len(published(lake, "a")) == len(before[0]) + 1  # one version, whatever was written


def test_an_aborted_one_leaves_a_delta_table_as_it_was(lake: Lake) -> None:
    lake.create_table("a", data=rows(1))
    before = published(lake, "a")
    tx = lake.transaction()
    tx.table("a").append(rows(2))
    tx.abort()
    assert lake.table("a").to_arrow()["id"].to_pylist() == [1]
    lake.table("a").append(rows(3))
    assert sorted(lake.table("a").to_arrow()["id"].to_pylist()) == [1, 3]
    lake.table("a").backfill_to_version()
    assert len(published(lake, "a")) == len(before) + 1


@pytest.mark.parametrize("policy", ["snapshot", "rebase"])
def test_two_appends_meet_by_the_policy(lake: Lake, policy: str) -> None:
    lake.create_table("a", data=rows(1))
    tx = lake.transaction(policy=policy)
    tx.table("a").append(rows(2))
    lake.table("a").append(rows(3))
    if policy == "snapshot":
        with pytest.raises(MergeConflict, match="'a'"):
            tx.land()
    else:
        tx.land()
    found = sorted(lake.table("a").to_arrow()["id"].to_pylist())
    assert found == ([1, 3] if policy == "snapshot" else [1, 2, 3])


def test_files_are_seen_when_they_land(lake: Lake) -> None:
    lake.table("raw").files.put("x", b"1")
    with lake.transaction() as tx:
        tx.table("raw").files.put("y", b"2")
        assert [entry.path for entry in tx.table("raw").files.list()] == ["x", "y"]
        assert [entry.path for entry in lake.table("raw").files.list()] == ["x"]
    assert lake.table("raw").files.read("y") == b"2"


def test_a_job_in_a_transaction_forks_nothing_from_it(lake: Lake) -> None:
    with lake.transaction() as tx:
        begun = lake.do(
            BeginJob(id=uuid4().hex, fence=uuid4().hex, key=Key("raw"), branch=tx.branch, own_branch=True)
        )
        assert (begun.job.branch, begun.job.own_branch) == (tx.branch, "")
        assert [branch.name for branch in lake.branches()] == ["main"]


def test_a_format_is_told_of_the_transaction(lake: Lake) -> None:
    tx, kernel = lake.transaction(), lake.kernel
    for name in (tx.branch, "main"):
        reference = kernel.references.get_reference(name)
        view = open_state(kernel.objects, kernel.history.read_commit(reference.head))
        edit = Edit(kernel.objects, view, kernel.formats, EditContext(reference, {}, may_read=False))
        told = edit.open_table(Key("a"), None).transaction
        if name == "main":
            assert told is None
        else:
            assert told is not None
            assert (told.id, told.target, told.is_default) == (tx.id, "main", True)
            assert told.incarnation == kernel.references.get_reference("main").incarnation
    tx.abort()
