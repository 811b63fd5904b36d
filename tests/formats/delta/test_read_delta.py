"""Any Delta table is read by its location, without a lake, and nothing is written there."""

from __future__ import annotations

import gc
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.errors import (
    InvalidRequest,
    LocationRefused,
    TableNotFound,
    UnsupportedFeature,
    VersionNotFound,
)
from penstock.formats.delta.protocol.actions import DeletionVector
from tests.formats.delta.logs import Table, add, metadata, protocol, remove
from tests.formats.delta.rows import as_rows, vector_data, z85
from tests.interop.delta.homes import home_on


def ids(found: Any) -> list[int]:
    return sorted(found["id"].to_pylist())


def files_below(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in root.rglob("*")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table of deltalake's with three versions, a second apart by the times of their files."""
    root = tmp_path / "orders"
    for number in range(3):
        write_deltalake(root, pa.table({"id": [number], "day": ["mon"]}), mode="append", partition_by=["day"])
    for number in range(3):
        at_s = 1_800_000_000 + number
        os.utime(root / f"_delta_log/{number:020}.json", (at_s, at_s))
    return root


@pytest.mark.parametrize("kind", ["disk", pytest.param("bucket", marks=pytest.mark.verify)])
def test_a_table_of_deltalake_is_read_as_deltalake_reads_it(
    kind: str, request: pytest.FixtureRequest
) -> None:
    home = home_on(kind, request)
    location = f"{home.tables}/orders"
    if kind == "disk":
        Path(location).mkdir(parents=True)
    data = pa.table({"id": range(100), "day": [f"d{number % 3}" for number in range(100)]})
    write_deltalake(location, data, partition_by=["day"], storage_options=home.options)
    theirs = DeltaTable(location, storage_options=home.options)
    theirs.delete("id < 10")
    read = penstock.read_delta(location)
    assert (read.version, read.location, read.partition_columns) == (1, location, ("day",))
    assert as_rows(read.to_arrow()) == as_rows(pa.table(theirs.scan()))
    assert ids(read.to_arrow(["id"], "day = 'd1' AND id < 20")) == [10, 13, 16, 19]
    assert ids(penstock.read_delta(location, version=0).to_arrow()) == list(range(100))
    assert [past.operation for past in read.history()] == ["DELETE", "WRITE"]


def test_reading_writes_nothing_also_where_nobody_may_write(root: Path) -> None:
    before = files_below(root)
    read = penstock.read_delta(root)
    assert ids(read.to_arrow()) == [0, 1, 2]
    assert len(read.history()) == 3
    assert files_below(root) == before
    assert sorted(path.name for path in root.parent.iterdir()) == ["orders"]


def test_a_version_is_named_by_its_number_or_by_a_time(root: Path) -> None:
    assert penstock.read_delta(str(root), version=1).version == 1
    moment = datetime.fromtimestamp(1_800_000_001.5, UTC)
    assert penstock.read_delta(root, timestamp=moment).version == 1
    assert penstock.read_delta(root, timestamp="2027-01-15T08:00:00Z").version == 0
    with pytest.raises(VersionNotFound, match="before the first version"):
        penstock.read_delta(root, timestamp="2020-01-01T00:00:00Z")
    with pytest.raises(VersionNotFound):
        penstock.read_delta(root, version=3)
    with pytest.raises(InvalidRequest, match="not both"):
        penstock.read_delta(root, version=1, timestamp=moment)


def test_a_relative_path_is_one_of_this_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert penstock.read_delta(".").version == penstock.read_delta("../orders").version == 2


def test_the_rows_of_a_table_become_a_table_of_a_lake(root: Path, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        copy = lake.create_table("shop.orders", data=penstock.read_delta(root))
        assert as_rows(copy.to_arrow()) == as_rows(penstock.read_delta(root).to_arrow())


def test_a_table_that_a_lake_owns_is_read_as_far_as_it_is_published(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("shop.orders", data=pa.table({"id": [1]}))
        table.append(pa.table({"id": [2]}))
        table.backfill_to_version()
        lake.branch("dev").create()
        lake.table("shop.orders", "dev").append(pa.table({"id": [3]}))
        assert ids(penstock.read_delta(table.location).to_arrow()) == [1, 2]


def test_deleted_rows_stay_deleted(table: Table) -> None:
    write_deltalake(table.root, pa.table({"id": list(range(6))}))
    (file,) = penstock.read_delta(table.root).files()
    data = vector_data([0, 5])
    vector = DeletionVector(
        storage_type="i", path_or_inline_dv=z85(data), size_in_bytes=len(data), cardinality=2
    )
    deleted = msgspec.structs.replace(file, deletion_vector=vector)
    table.commit(1, protocol(reader=("deletionVectors",)), remove(file.path), deleted)
    assert ids(penstock.read_delta(table.root).to_arrow()) == [1, 2, 3, 4]


@pytest.mark.parametrize("feature", ["catalogManaged", "tomorrow"])
def test_what_reading_takes_more_is_refused_by_name(table: Table, feature: str) -> None:
    table.commit(0, protocol(reader=(feature,)), metadata(), add("a.parquet"))
    with pytest.raises(UnsupportedFeature, match=feature) as caught:
        penstock.read_delta(table.root)
    assert caught.value.details["feature"] == feature


def test_where_there_is_no_table_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        penstock.read_delta(tmp_path / "nothing")
    with pytest.raises(LocationRefused):
        penstock.read_delta("s3://someone@bucket/table")
    with pytest.raises(InvalidRequest, match="cannot be opened"):
        penstock.read_delta("ftp://host/table")


def test_a_stream_outlives_its_snapshot_and_nothing_stays_open_behind_it(root: Path) -> None:
    def threads() -> set[threading.Thread]:
        for closing in (one for one in threading.enumerate() if one.name == "penstock-close"):
            closing.join()
        return {one for one in threading.enumerate() if one.name.startswith("penstock-")}

    gc.collect()
    before = threads()
    stream = penstock.read_delta(root).to_batches()
    gc.collect()
    assert threads() - before
    assert ids(pa.Table.from_batches(list(stream))) == [0, 1, 2]
    del stream
    gc.collect()
    assert threads() <= before
    with pytest.raises(TableNotFound):
        penstock.read_delta(root / "nothing")
    gc.collect()
    assert threads() <= before
