"""The history of a table as users of Delta know it: what was done, how, by whom, and what it came to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

import penstock
from penstock.formats.delta.branch_log.composed_commit import operation_metrics
from penstock.formats.delta.branch_log.past_operations import (
    TEXT_MAX_CHARS,
    PastOperation,
    read_operations,
    write_operations,
)
from penstock.formats.delta.protocol.actions import Add, CommitInfo, DeletionVector, Remove
from penstock.lake.lake import Lake
from tests.formats.delta.logs import add, remove


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="ann") as lake:
        yield lake


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def their_history(lake: Lake, key: str) -> list[dict[str, Any]]:
    """What deltalake tells of the versions, newest first."""
    lake.table(key).backfill_to_version()
    return DeltaTable(lake.table(key).location).history()


def test_writes_tell_who_did_what_and_how_much(lake: Lake) -> None:
    table = lake.create_table("t", data=rows(1, 2, 3))
    table.append(rows(4, 5))
    table.overwrite(rows(6))
    overwritten, appended, created = table.history()
    assert [past.operation for past in (created, appended, overwritten)] == [
        "CREATE TABLE AS SELECT",
        "WRITE",
        "WRITE",
    ]
    assert [past.metrics["numOutputRows"] for past in (created, appended, overwritten)] == ["3", "2", "1"]
    assert [past.metrics["numFiles"] for past in (created, appended)] == ["1", "1"]
    assert (appended.parameters, overwritten.parameters["mode"]) == ({"mode": "Append"}, "Overwrite")
    assert {past.user for past in (appended, overwritten)} == {"ann"}
    assert all(past.engine.startswith("Penstock/") for past in (created, appended, overwritten))
    theirs = their_history(lake, "t")
    assert [past["operation"] for past in theirs] == ["WRITE", "WRITE", "CREATE TABLE AS SELECT"]
    assert theirs[1]["operationMetrics"]["numOutputRows"] in ("2", 2)
    assert (theirs[1]["userName"], theirs[1]["operationParameters"]) == ("ann", {"mode": "Append"})


def test_a_merged_branch_tells_what_was_done_there(lake: Lake) -> None:
    table = lake.create_table("t", data=rows(1))
    dev = lake.branch("dev").create()
    lake.table("t", "dev").append(rows(2))
    lake.table("t", "dev").append(rows(3, 4))
    table.append(rows(5))
    dev.merge_into("main")
    merged = [past for past in table.history() if past.operation == "MERGE BRANCH"]
    told = [operation for past in merged for operation in past.operations]
    assert {operation.operation for operation in told} == {"WRITE"}
    assert len(told) == 2
    assert {operation.user_name for operation in told} == {"ann"}
    assert all(operation.timestamp for operation in told)
    assert sum(int(past.metrics["numAddedFiles"]) for past in merged) == 2
    (newest, *_) = their_history(lake, "t")
    assert newest["operation"] == "MERGE BRANCH"
    assert "WRITE" in newest["operationParameters"]["operations"]
    again = lake.branch("again").create()
    table.append(rows(6))
    lake.table("t", "again").append(rows(7))
    again.merge_into("main")
    assert [one.operation for one in table.history(1)[0].operations] == ["WRITE"]


def test_a_transaction_tells_what_was_done_in_it(lake: Lake) -> None:
    lake.create_table("t", data=rows(1))
    with lake.transaction() as tx:
        tx.table("t").append(rows(2))
        lake.table("t").append(rows(9))
    (newest, *_) = lake.table("t").history()
    assert "WRITE" in [one.operation for one in newest.operations]


# -- figures -----------------------------------------------------------------------------------------------


def file(path: str, count: int, deleted: int = 0, **more: Any) -> Add:
    vector = None
    if deleted:
        vector = DeletionVector(storage_type="i", path_or_inline_dv="x", size_in_bytes=1, cardinality=deleted)
    stats = json.dumps({"numRecords": count})
    return msgspec.structs.replace(add(path), size=10, stats=stats, deletion_vector=vector, **more)


def gone(path: str, count: int) -> Remove:
    return msgspec.structs.replace(remove(path), size=10, stats=json.dumps({"numRecords": count}))


def test_figures_are_counted_from_files() -> None:
    assert operation_metrics("WRITE", [file("a", 3), file("b", 4)]) == {
        "numFiles": "2",
        "numOutputBytes": "20",
        "numOutputRows": "7",
    }
    deleted = operation_metrics("DELETE", [gone("a", 3), file("a", 3, deleted=2)])
    assert (deleted["numDeletedRows"], deleted["numRemovedFiles"]) == ("2", "1")
    assert operation_metrics("MERGE", [gone("a", 3), file("b", 4)])["numTargetFilesAdded"] == "1"
    assert operation_metrics("SET TBLPROPERTIES", []) == {}
    unknown = operation_metrics("WRITE", [file("a", 3), add("b")])
    assert "numOutputRows" not in unknown
    assert unknown["numFiles"] == "2"


def test_many_operations_are_told_as_far_as_they_fit() -> None:
    long = tuple(PastOperation("WRITE", {"predicate": "x" * 1000}, "ann", number) for number in range(300))
    text = write_operations(long)
    assert len(text) <= TEXT_MAX_CHARS
    told = read_operations(
        CommitInfo({"operation": "MERGE BRANCH", "operationParameters": {"operations": text}})
    )
    assert told[-1].timestamp == 299
    assert {one.operation for one in told} == {"WRITE"}
    assert (
        read_operations(CommitInfo({"operation": "MERGE BRANCH", "operationParameters": {"operations": "["}}))
        == ()
    )
    assert read_operations(None) == ()
