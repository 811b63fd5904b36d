"""Rows as programs write them: with the table that they begin, on branches, and in place of others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    CommitConflict,
    IdempotencyKeyReused,
    InvalidContent,
    InvalidRequest,
    KeyNotFound,
    LocationRefused,
    TableConflict,
)
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.calls import (
    ActionsFile,
    CommitTables,
    CreateTable,
    TableCommit,
    TablePart,
    WriterReads,
)
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.protocol.actions import Add, write_commit
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.row_input import write_schema_text
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.server.native import NATIVE
from tests.formats.delta.lakes import Died
from tests.server.running import local


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"))
        yield lake


@pytest.fixture(params=["here", "behind a server"])
def lake(request: pytest.FixtureRequest, own: Lake) -> Iterator[Lake]:
    if request.param == "here":
        yield own
        return
    with local(own.catalogue, [NATIVE]) as server, Lake(RemoteCatalogue(server.url), author="tester") as lake:
        yield lake


def days(*days: str | None) -> pa.Table:
    return pa.table({"day": pa.array(days, pa.string()), "amount": pa.array(range(len(days)), pa.int64())})


def read_days(table: Table) -> list[str | None]:
    found: list[str | None] = table.to_arrow(columns=["day"])["day"].to_pylist()
    return sorted(found, key=str)


def data_files(place: str | Path) -> list[str]:
    return sorted(str(one.relative_to(place)) for one in Path(place).rglob("*.parquet"))


def breaking(data: pa.Table) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from data.to_batches()
        raise OSError("the rows end here")

    return pa.RecordBatchReader.from_batches(data.schema, batches())


# --- a table and its first rows ---------------------------------------------------------------------------


def test_a_table_and_its_first_rows_are_one_version_and_one_commit(lake: Lake) -> None:
    before = lake.resolve()
    table = lake.create_table("t", data=days("1", "2"), partition_by="day", message="begin")
    assert [one.message for one in lake.log(limit=1)] == ["begin"]
    assert lake.resolve("main~1") == before
    assert (table.version, read_days(table)) == (0, ["1", "2"])
    assert [one.operation for one in table.history()] == ["CREATE TABLE AS SELECT"]
    table.backfill_to_version()
    assert deltalake.DeltaTable(table.location).to_pyarrow_table().num_rows == 2


def test_no_rows_make_an_empty_table(lake: Lake) -> None:
    assert read_days(lake.create_table("t", data=days())) == []


def test_very_many_files_go_by_way_of_the_storage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "SENT_MAX_BYTES", 10)
    table = lake.create_table("t", data=days("1", "2", "3"), partition_by="day")
    assert (table.version, read_days(table)) == (0, ["1", "2", "3"])


@pytest.mark.parametrize("place", [None, "tables/t"], ids=["a place of its own", "a named place"])
def test_rows_that_cannot_be_had_leave_neither_table_nor_files(
    lake: Lake, tmp_path: Path, place: str | None
) -> None:
    before, location = lake.resolve(), None if place is None else tmp_path / place
    with pytest.raises(OSError, match="end here"):
        lake.create_table("t", data=breaking(days("1")), location=location)
    assert (lake.resolve(), data_files(tmp_path)) == (before, [])


def test_a_table_at_a_named_place_begins_with_its_rows_too(lake: Lake, tmp_path: Path) -> None:
    table = lake.create_table("t", data=days("1"), location=tmp_path / "tables" / "t")
    assert deltalake.DeltaTable(tmp_path / "tables" / "t").version() == 0
    assert read_days(table) == ["1"]
    with pytest.raises((TableConflict, InvalidRequest, LocationRefused)):
        lake.create_table("other", data=days("2"), location=tmp_path / "tables" / "t")
    assert len(data_files(tmp_path / "tables")) == 1


def test_who_creates_a_table_that_somebody_else_creates_meanwhile_leaves_no_files(
    lake: Lake, own: Lake, tmp_path: Path
) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        own.create_table("t", data=days("theirs"))
        yield from days("mine").to_batches()

    with pytest.raises(CommitConflict, match="already exists"):
        lake.create_table("t", data=pa.RecordBatchReader.from_batches(days("1").schema, slow()))
    assert read_days(lake.table("t")) == ["theirs"]
    assert len(data_files(tmp_path)) == 1


def test_a_table_that_exists_is_told_before_anything_is_written(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("t", schema=days().schema)
    with pytest.raises(CommitConflict, match="already exists"):
        lake.create_table("t", data=breaking(days("1")))


def test_the_same_under_the_same_key_is_done_once(lake: Lake, tmp_path: Path) -> None:
    for _ in range(2):
        table = lake.create_table("t", data=days("1"), idempotency_key="make t")
        assert (table.version, read_days(table)) == (0, ["1"])
    assert len(data_files(tmp_path)) == 1
    with pytest.raises(IdempotencyKeyReused):
        lake.create_table("other", data=days("1"), idempotency_key="make t")
    assert len(data_files(tmp_path)) == 1


@pytest.mark.parametrize("is_taken", [False, True])
def test_who_died_over_a_named_place_finds_out_what_became_of_it(
    own: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    place = tmp_path / "tables" / "t"

    def die(*_: object) -> bool:
        raise Died("before the table's first file was put")

    def create() -> Table:
        return own.create_table("t", data=days("1"), location=place, idempotency_key="make t")

    with monkeypatch.context() as patched:
        patched.setattr(Handover, "_put_conversion", die)
        with pytest.raises(Died):
            create()
    if is_taken:
        deltalake.write_deltalake(place, days("theirs"))
        with pytest.raises(KeyNotFound):
            create()
        assert not own.table("t").exists
    else:
        assert read_days(create()) == ["1"]
    assert deltalake.DeltaTable(place).to_pyarrow_table()["day"].to_pylist() == [
        "theirs" if is_taken else "1"
    ]


# --- the call itself --------------------------------------------------------------------------------------


def add(path: str, values: dict[str, str | None]) -> Add:
    return Add(path=path, partition_values=values, size=1, modification_time=0, data_change=True)


def creation(*paths: str, **more: Any) -> CreateTable:
    adds = [
        Add(path=one, partition_values={}, size=1, modification_time=0, data_change=True) for one in paths
    ]
    schema = write_schema_text(days("1"))
    return CreateTable(key=Key("t"), schema=schema, actions=write_commit(adds).decode(), **more)


def test_the_place_of_a_table_is_known_before_the_table(lake: Lake) -> None:
    identity = uuid4()
    call = creation("a", "b", id=identity, idempotency_key="once")
    made = lake.do(call)
    assert (made.id, made.location, made.version) == (identity, lake.delta.place_of(identity), 0)
    assert made == lake.do(call)
    assert len(list(lake.table("t").snapshot().files())) == 2
    with pytest.raises(InvalidRequest, match="another id"):
        lake.do(creation("c", id=identity))


def test_what_would_break_the_table_is_told_by_its_line(lake: Lake) -> None:
    with pytest.raises(InvalidContent, match="line 2, add"):
        lake.do(creation("a", "a"))
    with pytest.raises(InvalidRequest, match=r"(invalid commit to 't'|cannot be encoded): .*surrogates"):
        lake.catalogue.do(CreateTable(key=Key("t"), schema=write_schema_text(days()), actions="\ud800"))
    body = ActionsFile(name="_penstock/bodies/none.json", size=1, sha256=hashlib.sha256(b"").digest())
    with pytest.raises(InvalidRequest, match=r"none\.json, which does not exist"):
        lake.do(CreateTable(key=Key("t"), schema=write_schema_text(days()), actions=body))
    assert not lake.table("t").exists


def test_a_lake_without_a_warehouse_knows_no_place() -> None:
    with penstock.open("memory:") as lake, pytest.raises(InvalidRequest, match="warehouse"):
        lake.delta.place_of(uuid4())


# --- on branches ------------------------------------------------------------------------------------------


def test_what_a_branch_writes_lies_where_nobody_cleans_up_and_a_merge_leaves_it_there(
    lake: Lake,
) -> None:
    table = lake.create_table("t", data=days("1"), partition_by="day")
    lake.branch("dev").create()
    lake.table("t", "dev").append(days("2"))
    lake.table("t", "dev").overwrite(days("3"), partitions={"day": ["1", "3"]})
    lake.delta.append({"t": days("4")}, branch="dev")
    written = data_files(table.location)
    assert [one.startswith("_penstock/data/day=") for one in written] == [True, True, True, False]
    assert read_days(lake.table("t", "dev")) == ["2", "3", "4"]
    lake.merge("dev")
    table.append(days("5"))
    assert data_files(table.location)[:3] == written[:3]
    table.backfill_to_version()
    other = deltalake.DeltaTable(table.location)
    assert sorted(other.to_pyarrow_table()["day"].to_pylist()) == ["2", "3", "4", "5"]
    assert read_days(table) == ["2", "3", "4", "5"]
    assert len(list(table.snapshot().files("day = '2'"))) == 1


def test_so_does_a_table_that_a_branch_creates(lake: Lake) -> None:
    lake.branch("dev").create()
    table = lake.create_table("t", data=days("1"), branch="dev")
    (name,) = data_files(table.location)
    assert name.startswith("_penstock/data/")
    lake.merge("dev")
    table = lake.table("t")
    assert (table.version, read_days(table), data_files(table.location)) == (0, ["1"], [name])
    table.backfill_to_version()
    assert deltalake.DeltaTable(table.location).to_pyarrow_table().num_rows == 1


# --- in place of others -----------------------------------------------------------------------------------


@pytest.fixture
def orders(lake: Lake) -> Table:
    data = days("2026-10-31", "2026-11-01", "2026-11-02", None)
    return lake.create_table("orders", data=data, partition_by="day")


def test_rows_replace_those_for_which_a_condition_is_true(orders: Table) -> None:
    made = orders.overwrite(days("2026-11-05"), where="day >= '2026-11-01'")
    assert made.version == 1
    assert read_days(orders) == ["2026-10-31", "2026-11-05", None]
    orders.overwrite(days(), where="day is null")
    assert read_days(orders) == ["2026-10-31", "2026-11-05"]
    orders.overwrite(
        days("2026-11-05"), partitions={"day": ["2026-11-05", "2026-10-31"]}, where="day > '2026-11'"
    )
    assert read_days(orders) == ["2026-10-31", "2026-11-05"]


@pytest.mark.parametrize("outside", ["2026-10-31", None])
def test_rows_outside_of_the_condition_are_refused_and_leave_no_files(
    orders: Table, outside: str | None
) -> None:
    before = data_files(orders.location)
    with pytest.raises(InvalidRequest, match="not one of the partitions"):
        orders.overwrite(days("2026-11-05", outside), where="day >= '2026-11-01'")
    assert (data_files(orders.location), orders.version) == (before, 0)


@pytest.mark.parametrize("where", ["amount > 'x'", "nothing = 1", "day >="])
def test_what_is_no_condition_is_refused_before_anything_is_written(orders: Table, where: str) -> None:
    before = data_files(orders.location)
    with pytest.raises(InvalidRequest):
        orders.overwrite(breaking(days("2026-11-05")), where=where)
    assert data_files(orders.location) == before


def test_a_condition_goes_with_a_call_too(lake: Lake, orders: Table) -> None:
    looked = WriterReads(parts=(TablePart(where="day >= '2026-11-01'"),))

    def commit(path: str, day: str) -> int:
        actions = write_commit([add(path, {"day": day})]).decode()
        one = TableCommit(key=Key("orders"), actions=actions, read_version=0, reads=looked)
        return lake.do(CommitTables(tables=(one,))).version

    replaces = (TablePart(where="day < '2026-11-01'"),)
    lake.do(CommitTables(tables=(TableCommit(key=Key("orders"), actions="", replaces=replaces),)))
    assert commit("a", "2026-11-07") == 2
    with pytest.raises(TableConflict, match="'orders'"):
        commit("b", "2026-11-08")
