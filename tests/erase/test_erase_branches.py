"""Branches after an erase: one from before it takes no write, one from where history begins takes all."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from time import sleep

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import HistoryExpired
from penstock.formats.delta.lake.calls import CommitTables, TableCommit
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from tests.erase.tables import alone, people
from tests.erase.test_erase_delta import LEFT, rows_of, without_marker

NEW = pa.table({"id": [9], "name": ["new"]})


def commit_blindly(lake: Lake, branch: str) -> None:
    """Append a file as a client does that has read nothing."""
    info = {"operation": "WRITE", "operationParameters": {}, "isBlindAppend": True}
    add = {
        "path": "part-00000-11111111-1111-1111-1111-111111111111-c000.snappy.parquet",
        "partitionValues": {},
        "size": 10,
        "modificationTime": 1,
        "dataChange": True,
    }
    lines = "".join(json.dumps(one) + "\n" for one in ({"commitInfo": info}, {"add": add}))
    commit = TableCommit(key=Key.parse("t"), actions=lines)
    lake.do(CommitTables(tables=(commit,), branch=branch, who="writer"))


def erase_beside(lake: Lake, path: Path) -> None:
    """Erase a table until now while a branch has it as it was before, and makes no claim to it."""
    table = lake.create_table("t", data=people())
    lake.branch("old").create()
    without_marker(table)
    lake.finish_background()
    with alone(path) as other:
        assert other.erase("t", all_references=True).finished


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_commit_that_reads_nothing_is_refused_on_a_branch_from_before_the_erase(
    lake: Lake, path: Path, is_reopened: bool
) -> None:
    erase_beside(lake, path)
    writer = penstock.open(path) if is_reopened else lake
    before = writer.branch("old").head
    with pytest.raises(HistoryExpired, match="was erased by privacy"):
        commit_blindly(writer, "old")
    assert writer.branch("old").head == before, "nothing was acknowledged that nobody can read"
    writer.rebase("old")
    writer.branch("old").table("t").append(NEW)
    assert rows_of(writer.branch("old").table("t")) == [*LEFT, *NEW.to_pylist()]
    writer.close()
    with alone(path) as other:
        other.sweep()
        assert other.fsck().damages == ()
        assert rows_of(other.branch("old").table("t")) == [*LEFT, *NEW.to_pylist()]


@pytest.mark.parametrize("way", ["overwrite", "append", "transaction"])
def test_a_branch_that_is_created_where_history_begins_takes_any_first_write(
    lake: Lake, path: Path, way: str
) -> None:
    table = lake.create_table("t", data=people())
    without_marker(table)
    at = lake.branch().head
    sleep(0.003)
    when = datetime.now(UTC)
    sleep(0.003)
    table.append(NEW)
    lake.finish_background()
    lake.close()
    with alone(path) as other:
        assert other.erase("t", older_than=when).finished
    with penstock.open(path) as other:
        branch = other.branch("again").create(at=at)
        if way == "append":
            branch.table("t").append(NEW)
        elif way == "overwrite":
            branch.table("t").overwrite(NEW)
        else:
            with other.transaction("again") as transaction:
                transaction.table("t").overwrite(NEW)
    expected = [*LEFT, *NEW.to_pylist()] if way == "append" else NEW.to_pylist()
    with alone(path) as other:
        other.sweep()
        assert [one.problem for one in other.sweep_tables(remove_data=True)] == [""]
        assert rows_of(other.branch("again").table("t")) == expected
        assert other.fsck().damages == ()


def test_a_lance_table_of_a_branch_from_before_the_erase_is_not_written_to(lake: Lake, path: Path) -> None:
    lance = pytest.importorskip("lance")
    lance.write_dataset(people(), namespace_client=lake.lance(), table_id=["t"])
    lake.branch("old").create()
    early = lance.dataset(namespace_client=lake.lance("old"), table_id=["t"])
    dataset = lance.dataset(namespace_client=lake.lance(), table_id=["t"])
    dataset.delete("id = 2")
    lake.finish_background()
    with alone(path) as other:
        assert other.erase("t", all_references=True).finished
    before = lake.branch("old").head
    with pytest.raises(Exception, match="was erased by privacy"):
        lance.write_dataset(NEW, namespace_client=lake.lance("old"), table_id=["t"], mode="append")
    with pytest.raises(OSError, match="the commit may or may not have been applied"):
        early.insert(NEW)  # of a client that had the table open before; what it was answered is in its log
    with pytest.raises(HistoryExpired, match="was erased by privacy"):
        lake.branch("old").table("t").append(NEW)
    assert lake.branch("old").head == before
