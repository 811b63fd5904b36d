"""Going back to an older copy of the lake's database: what the messages advise then loses no row."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from lance_namespace import DeregisterTableRequest, RegisterTableRequest

import penstock
from penstock.errors import CommitConflict, ForeignCommit, InvalidRequest
from penstock.lake.lake import Lake

LOG = "_delta_log"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids})


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


@pytest.fixture
def restored(tmp_path: Path) -> Callable[..., Lake]:
    """A lake with row 1 in a table, and a lost commit: row 2 was acknowledged after the copy was taken."""

    def make(write: Callable[[Lake, int], object]) -> Lake:
        place = tmp_path / "lake"
        with penstock.open(place) as lake:
            write(lake, 1)
            lake.finish_background()
            with sqlite3.connect(place / "penstock.db") as database:
                database.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
            database.close()
            write(lake, 2)
            lake.finish_background()
        for part in place.glob("penstock.db*"):
            part.unlink()
        shutil.copy(tmp_path / "copy.db", place / "penstock.db")
        return penstock.open(place)

    return make


def write_delta(lake: Lake, number: int) -> None:
    if number == 1:
        lake.create_table("a.t", data=rows(1))
    else:
        lake.table("a.t").append(rows(number))


def write_lance(lake: Lake, number: int) -> None:
    lake.table("a.v").write(rows(number), format="lance")


def test_a_commit_of_the_log_that_the_lake_does_not_know_is_put_aside_without_losing_rows(
    restored: Callable[..., Lake], tmp_path: Path
) -> None:
    with restored(write_delta) as lake:
        table = lake.table("a.t")
        table.append(rows(3))
        with pytest.raises(ForeignCommit, match="Do not delete the file") as refused:
            table.backfill_to_version()
        version = refused.value.details["version"]
        log = Path(table.location) / LOG
        # as the message advises
        there = ids(DeltaTable(table.location).to_pyarrow_table())
        before = ids(DeltaTable(table.location, version=version - 1).to_pyarrow_table())
        kept = [one for one in there if one not in before]
        for file in [one for one in log.glob("*.json") if one.name >= f"{version:020}"]:
            shutil.move(file, tmp_path)
        table.backfill_to_version()
        table.append(rows(*kept))
        lake.finish_background()
        assert kept == [2]
        assert ids(table.to_arrow()) == ids(DeltaTable(table.location).to_pyarrow_table()) == [1, 2, 3]
        assert lake.fsck().damages == ()


def test_a_delta_table_is_taken_over_with_what_its_log_has(restored: Callable[..., Lake]) -> None:
    with restored(write_delta) as lake:
        table = lake.table("a.t")
        location = table.location
        since = lake.branch().head
        table.append(rows(3))
        with pytest.raises(InvalidRequest, match="is not lost") as refused:
            lake.delta.recover(location, "a.t", lost=lake.id)
        assert "penstock delete a.t" in str(refused.value)
        # as the message advises
        written = lake.table("a.t").to_arrow()
        kept = [one for one in ids(written) if one not in ids(lake.at(since).table("a.t").to_arrow())]
        lake.branch().drop("a.t")
        lake.delta.recover(location, "a.t", lost=lake.id)
        lake.table("a.t").append(rows(*kept))
        lake.table("a.t").backfill_to_version()
        assert ids(lake.table("a.t").to_arrow()) == [1, 2, 3]
        assert ids(DeltaTable(location).to_pyarrow_table()) == [1, 2, 3]
        assert lake.fsck().damages == ()


def test_a_lance_table_is_taken_over_with_what_its_folder_has(restored: Callable[..., Lake]) -> None:
    with restored(write_lance) as lake:
        location = lake.table("a.v").to_lance().uri
        with pytest.raises(CommitConflict, match="deregister the table and register its folder"):
            lake.table("a.v").append(rows(3))
        # as the message advises
        namespace = lake.lance()
        namespace.deregister_table(DeregisterTableRequest(id=["a", "v"]))
        namespace.register_table(RegisterTableRequest(id=["a", "v"], location=location))
        lake.table("a.v").append(rows(3))
        lake.finish_background()
        assert ids(lake.table("a.v").to_lance().to_table()) == [1, 2, 3]
        assert ids(lance.dataset(location).to_table()) == [1, 2, 3]
        assert lake.fsck().damages == ()
