"""What a write in a transaction rests on holds still where it lands; and what it has only looked past."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import CommitConflict, MergeConflict
from penstock.formats.delta.protocol.actions import CommitInfo
from penstock.formats.files.lake.calls import CopiedFile
from penstock.lake.lake import Lake
from penstock.lake.transactions.transaction import Transaction
from penstock.model.keys import Key
from penstock.model.operations import Delete, Unchanged
from penstock.model.reads import PARTS_MAX, Read
from tests.transactions.pipelines import FORMATS, ids, opened, reads, rows

Deed = Callable[[Lake, Transaction], Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with opened("embedded", tmp_path / "lake") as found:
        found.table("a").files.put("f", b"old")
        found.table("b").files.put("g", b"1")
        found.table("t").write(rows(1))
        yield found


def kept(tx: Transaction, mode: str) -> None:
    if mode == "ignore":
        assert tx.write(rows(2), "t", mode=mode) is None
    else:
        with pytest.raises(CommitConflict, match="already exists"):
            tx.write(rows(2), "t", mode=mode)
    tx.table("b").files.put("h", b"1")


RESTS: dict[str, tuple[Deed, Deed]] = {
    "a file of another table that it copied": (
        lambda _, tx: tx.table("b").files.copy("f", "f", key="a"),
        lambda lake, _: lake.table("a").files.put("f", b"new"),
    ),
    "a file of the same table that it copied": (
        lambda _, tx: tx.table("a").files.copy("f", "h"),
        lambda lake, _: lake.table("a").files.put("f", b"new"),
    ),
    "a path that was free": (
        lambda _, tx: tx.table("b").files.write({"x": b"1"}, absent=["y"]),
        lambda lake, _: lake.table("b").files.put("y", b"1"),
    ),
    "a file that was matched": (
        lambda lake, tx: tx.table("b").files.write({"x": b"1"}, matching=[lake.table("b").files.stat("g")]),
        lambda lake, _: lake.table("b").files.put("g", b"2"),
    ),
    "a key that was said to be unchanged": (
        lambda _, tx: tx.writes.commit([Unchanged(Key("t")), Delete(Key("a"))], base=tx.writes.head),
        lambda lake, _: lake.table("t").append(rows(2)),
    ),
    "a key that was said to be unchanged at a head": (
        lambda _, tx: tx.writes.commit(
            [Unchanged(Key("t")), Delete(Key("a"))], base=tx.writes.head, if_head=tx.writes.head
        ),
        lambda lake, _: lake.table("t").append(rows(2)),
    ),
    "a table that was there, and so ignored": (
        lambda _, tx: kept(tx, "ignore"),
        lambda lake, _: lake.branch().drop("t"),
    ),
    "a table that was there, and so an error": (
        lambda _, tx: kept(tx, "error"),
        lambda lake, _: lake.branch().drop("t"),
    ),
}


@pytest.mark.parametrize("rest", RESTS)
def test_what_a_write_rests_on_holds_where_it_lands(lake: Lake, rest: str) -> None:
    write, meanwhile = RESTS[rest]
    alone = lake.transaction(isolation="serializable")
    write(lake, alone)
    alone.abort()
    tx = lake.transaction(isolation="serializable")
    write(lake, tx)
    meanwhile(lake, tx)
    with pytest.raises(MergeConflict, match="this transaction"):
        tx.land()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_is_there_keeps_its_place_in_every_format(lake: Lake, kind: str) -> None:
    lake.table("k").write(rows(1), format=kind)
    tx = lake.transaction(isolation="serializable")
    assert tx.write(rows(2), "k", mode="ignore") is None
    assert reads(tx, lake) == [Read(key=Key("k"), is_listing=True)]


def test_many_files_that_are_copied_are_remembered_at_once(lake: Lake) -> None:
    lake.table("a").files.write({str(number): b"1" for number in range(PARTS_MAX + 1)})
    tx = lake.transaction()
    copied = [CopiedFile(path=str(n), source=str(n), key=Key("a")) for n in range(PARTS_MAX + 1)]
    tx.table("b").files.write(copy=copied)
    assert reads(tx, lake) == [Read(key=Key("a"))]
    assert len(lake.log(tx.branch)) == len(lake.log("main")) + 2


# -- what is said of a table as a whole --------------------------------------------------------------------


@pytest.mark.parametrize("look", ["schema", "properties", "type"])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_who_looks_at_columns_and_appends_is_not_in_the_way_of_appends(
    lake: Lake, look: str, isolation: str
) -> None:
    tx = lake.transaction(isolation=isolation)
    getattr(tx.table("t"), look)
    tx.write(rows(2), "t")
    lake.table("t").append(rows(3))
    tx.land()
    assert ids(lake, "t") == [1, 2, 3]


def test_columns_that_were_looked_at_must_be_the_same_still(lake: Lake) -> None:
    tx = lake.transaction(isolation="serializable")
    assert [one.name for one in tx.table("t").schema.fields] == ["id"]
    tx.table("b").files.put("h", b"1")
    metadata = lake.table("t").snapshot().metadata
    told = {**metadata.configuration, "owner": "ann"}
    now = CommitInfo({"operation": "SET TBLPROPERTIES", "inCommitTimestamp": time.time_ns() // 1_000_000})
    lake.table("t").commit(1, [now, msgspec.structs.replace(metadata, configuration=told)])
    with pytest.raises(MergeConflict, match="changed by another writer since: its properties changed"):
        tx.land()


def test_a_file_that_was_read_and_came_again_before_it_went_is_gone(lake: Lake) -> None:
    lake.table("t").append(rows(2))
    tx = lake.transaction(isolation="serializable")
    assert ids(lake, "t", tx.branch) == [1, 2]
    tx.table("b").files.put("h", b"1")
    (file, _) = lake.table("t").snapshot().files()
    told = {"path": file.path, "partitionValues": {}, "size": file.size, "dataChange": True}
    lake.table("t").append_actions([{"add": {**told, "modificationTime": 1, "stats": file.stats}}])
    lake.table("t").append_actions(
        [{"remove": {**told, "deletionTimestamp": 1, "extendedFileMetadata": True}}]
    )
    assert len(ids(lake, "t")) == 1
    with pytest.raises(MergeConflict, match="was read"):
        tx.land()


def test_a_file_that_came_and_went_was_never_there(lake: Lake) -> None:
    tx = lake.transaction(isolation="serializable")
    ids(lake, "t", tx.branch)
    tx.table("b").files.put("h", b"1")
    lake.table("t").append(rows(2))
    new = max(lake.table("t").snapshot().files(), key=lambda one: one.modification_time)
    told = {"path": new.path, "partitionValues": {}, "size": new.size, "dataChange": True}
    lake.table("t").append_actions(
        [{"remove": {**told, "deletionTimestamp": 1, "extendedFileMetadata": True}}]
    )
    assert ids(lake, "t") == [1]
    assert tx.land().commit is not None
