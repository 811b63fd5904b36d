"""Delta tables for programs: the same whether the lake is in this process or behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import (
    AdministratorError,
    CommitConflict,
    IdempotencyKeyReused,
    InvalidRequest,
    KeyNotFound,
    LocationRefused,
    NotManaged,
    PenstockError,
    TableConflict,
    TableNotFound,
    VersionNotFound,
)
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.calls import CommitTables, GetTableStatus, TableCommit
from penstock.formats.delta.protocol.actions import Add
from penstock.lake.calls import GetOutcome
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable, IcebergTable
from penstock.server.native import NATIVE
from penstock.testing.threads import at_once
from tests.server.running import local

ICE = IcebergTable(metadata_location="s3://b/1.json")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        lake.add_root(str(tmp_path / "tables"), "s3://b")
        yield lake


@pytest.fixture(params=["here", "behind a server"])
def lake(request: pytest.FixtureRequest, own: Lake) -> Iterator[Lake]:
    if request.param == "here":
        yield own
        return
    with local(own.catalogue, [NATIVE]) as server, Lake(RemoteCatalogue(server.url), author="tester") as lake:
        yield lake


def rows(**columns: list[object]) -> pa.Table:
    return pa.table(columns)


def days(*days: str) -> pa.Table:
    return rows(day=list(days), amount=list(range(len(days))))


def read_days(table: Table) -> list[str]:
    return sorted(table.to_arrow(columns=["day"])["day"].to_pylist())


@pytest.fixture
def orders(lake: Lake) -> Table:
    return filled(lake, "sales.orders", days("1", "2"), partition_by="day")


def filled(lake: Lake, key: str, data: pa.Table, **how: Any) -> Table:
    """A table that is created, and at version 1 has some rows."""
    table = lake.create_table(key, schema=data.schema, **how)
    table.append(data)
    return table


def add(path: str, day: str = "1") -> Add:
    return Add(path=path, partition_values={"day": day}, size=1, modification_time=0, data_change=True)


def published(table: Table) -> deltalake.DeltaTable:
    table.backfill_to_version()
    return deltalake.DeltaTable(table.get_commits().location)


def test_what_is_appended_is_read_here_and_by_readers_that_know_nothing_of_the_lake(orders: Table) -> None:
    made = orders.append(days("3"), message="more")
    assert (made.version, made.tables[0].repeated) == (2, False)
    assert read_days(orders) == ["1", "2", "3"]
    assert orders.log(limit=1)[0].message == "more"
    other = published(orders)
    assert other.version() == 2
    assert sorted(other.to_pyarrow_table()["day"].to_pylist()) == ["1", "2", "3"]


def test_a_snapshot_tells_what_the_table_is(orders: Table) -> None:
    found = orders.snapshot()
    assert (found.version, found.partition_columns) == (1, ("day",))
    assert [field.name for field in found.schema.fields] == ["day", "amount"]
    assert found.properties["delta.managedCommitOwnerName"] == "penstock"
    assert found.timestamp is not None
    assert len(list(found.files("day = '1'"))) == 1
    assert [(one.version, one.operation) for one in found.history()] == [(1, "WRITE"), (0, "CREATE TABLE")]
    assert pa.RecordBatchReader.from_stream(found).read_all().num_rows == 2


def test_older_versions_and_times_and_commits_of_the_lake_stay_readable(lake: Lake, orders: Table) -> None:
    before = lake.resolve()
    time = orders.snapshot().timestamp
    orders.overwrite(days("9"))
    assert read_days(orders) == ["9"]
    assert orders.snapshot(version=1).to_arrow().num_rows == 2
    assert orders.snapshot(timestamp=time).version == 1
    assert read_days(lake.at(before).table("sales.orders")) == ["1", "2"]
    with pytest.raises(VersionNotFound, match="has no version 7"):
        orders.snapshot(version=7)
    with pytest.raises(InvalidRequest, match="not both"):
        orders.snapshot(version=1, timestamp=time)


def test_overwriting_partitions_leaves_the_others(lake: Lake, orders: Table) -> None:
    orders.overwrite(rows(day=["2"], amount=[22]), partitions={"day": "2"})
    assert sorted(orders.to_arrow()["amount"].to_pylist()) == [0, 22]
    with pytest.raises(InvalidRequest, match="rows of day=3"):
        orders.overwrite(days("3"), partitions={"day": "2"})
    assert not lake.places.open_place(orders.get_commits().location).list("day=3")
    with pytest.raises(InvalidRequest, match="not a partition column"):
        orders.overwrite(days("3"), partitions={"amount": 2})
    choices: list[Any] = [{}, [], [{}]]
    for nothing in choices:
        with pytest.raises(InvalidRequest, match="'partitions' is empty"):
            orders.overwrite(days("3"), partitions=nothing)
    assert read_days(orders) == ["1", "2"]


def test_under_a_key_rows_are_written_once(lake: Lake, orders: Table) -> None:
    first = orders.append(days("3"), idempotency_key="load-3")
    again = orders.append(days("3"), idempotency_key="load-3")
    assert (again.version, again.commit.id, again.tables[0].repeated) == (2, first.commit.id, True)
    assert read_days(orders) == ["1", "2", "3"]
    lake.branch().put("ice", ICE, idempotency_key="other")
    with pytest.raises(IdempotencyKeyReused):
        orders.append(days("4"), idempotency_key="other")
    landing = lake.do(GetOutcome(key="load-3"))
    assert landing is not None
    assert landing.head == first.commit.id


def test_a_version_is_ratified_once_and_its_attempt_may_be_repeated(orders: Table) -> None:
    attempt = uuid4()
    first = orders.commit(2, [add("a")], attempt=attempt)
    again = orders.commit(2, [add("a")], attempt=attempt)
    assert (first.version, again.version) == (2, 2)
    assert (first.tables[0].repeated, again.tables[0].repeated) == (False, True)
    assert first.tables[0].name == f"_delta_log/_commits/{2:020}.{attempt}.json"


def test_who_comes_second_with_a_version_is_told_what_came_first(orders: Table) -> None:
    orders.commit(2, [add("a")])
    with pytest.raises(TableConflict, match="changed while you were writing") as caught:
        orders.commit(2, [add("b")])
    winners = caught.value.details["winners"]["sales.orders"]
    assert winners["latest_version"] == 2
    assert [one["version"] for one in winners["commits"]] == [2]
    assert '"path":"a"' in winners["commits"][0]["actions"]
    assert caught.value.http_status == 409
    with pytest.raises(InvalidRequest, match="the next one is 3"):
        orders.commit(9, [add("b")])


def test_blind_appends_of_actions_get_the_next_version(orders: Table) -> None:
    assert orders.append_actions([add("a")]).version == 2
    line = (
        '{"add":{"path":"b","partitionValues":{"day":"1"},"size":1,"modificationTime":0,"dataChange":true}}'
    )
    assert orders.append_actions(line).version == 3
    assert orders.append_actions([line.replace('"b"', '"c"')]).version == 4
    assert {one.path for one in orders.snapshot().files()} >= {"a", "b", "c"}


def test_actions_that_are_too_many_to_be_sent_go_by_way_of_the_storage(
    orders: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "SENT_MAX_BYTES", 1000)
    made = orders.append_actions([add(f"file-{number}") for number in range(20)])
    assert made.version == 2
    assert len(list(orders.snapshot().files())) == 22
    made = orders.append(days("7"))
    assert read_days_of(orders, made.version, "7")


def test_a_key_that_only_points_at_a_table_says_how_it_comes_to_be_adopted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "SENT_MAX_BYTES", 1000)
    lake.branch().put("pointer", DeltaTable(location="s3://b/pointer"))
    lake.branch().put("ice", ICE)
    many = [add(f"file-{number}") for number in range(20)]
    with pytest.raises(NotManaged, match=r"(?s)only a reference to a table.*Delete the key, then adopt"):
        lake.table("pointer").append_actions(many)
    with pytest.raises(NotManaged, match="'ice' is of type ICEBERG_TABLE"):
        lake.table("ice").append_actions(many)


def read_days_of(table: Table, version: int, day: str) -> bool:
    return any(one.partition_values["day"] == day for one in table.snapshot(version).files())


def test_a_branch_has_versions_of_its_own_until_it_is_merged(lake: Lake, orders: Table) -> None:
    lake.branch("dev").create()
    there = lake.table("sales.orders", "dev")
    there.append(days("3"))
    orders.append(days("4"))
    assert (read_days(there), read_days(orders)) == (["1", "2", "3"], ["1", "2", "4"])
    mine = there.get_commits(start=2)
    (only,) = mine.commits
    assert (mine.latest_version, only.version) == (2, 2)
    assert only.name.startswith("_penstock/")
    assert lake.places.open_place(mine.location).size(only.name) == only.size
    lake.merge("dev")
    assert read_days(orders) == ["1", "2", "3", "4"]
    assert sorted(published(orders).to_pyarrow_table()["day"].to_pylist()) == ["1", "2", "3", "4"]


def test_a_table_can_be_created_on_a_branch(lake: Lake) -> None:
    lake.branch("dev").create()
    made = lake.create_table("sales.new", data=days("1"), branch="dev")
    assert read_days(made) == ["1"]
    assert not lake.table("sales.new").exists
    lake.merge("dev")
    assert read_days(lake.table("sales.new")) == ["1"]
    assert sorted(published(lake.table("sales.new")).to_pyarrow_table()["day"].to_pylist()) == ["1"]


def test_several_tables_get_their_versions_together_or_not_at_all(lake: Lake, orders: Table) -> None:
    returns = filled(lake, "sales.returns", days("1"), partition_by="day")
    line = delta.encode_actions([add("a")]).decode()
    both = [TableCommit(key=one.key, actions=line, version=2) for one in (orders, returns)]
    done = lake.delta.commit(both, message="both")
    assert [(str(one.key), one.version) for one in done.tables] == [("sales.orders", 2), ("sales.returns", 2)]
    orders.append_actions([add("b")])
    again = [
        TableCommit(key=one.key, actions=line.replace('"a"', '"c"'), version=3) for one in (orders, returns)
    ]
    with pytest.raises(TableConflict):
        lake.delta.commit(again)
    assert (orders.get_commits().latest_version, returns.get_commits().latest_version) == (3, 2)


def test_the_same_request_under_the_same_key_is_answered_alike(lake: Lake, orders: Table) -> None:
    one = TableCommit(key=orders.key, actions=delta.encode_actions([add("a")]).decode())
    call = CommitTables(tables=(one,), idempotency_key="once")
    first, again = lake.do(call), lake.do(call)
    assert (first.version, again.version, first.commit) == (2, 2, again.commit)
    assert orders.get_commits().latest_version == 2


def test_a_created_table_is_not_created_twice_under_a_key(lake: Lake) -> None:
    for _ in range(2):
        table = lake.create_table("t", data=days("1"), idempotency_key="make t")
        assert read_days(table) == ["1"]
    with pytest.raises(CommitConflict):
        lake.create_table("t", schema=days("1").schema)


def test_a_table_of_the_file_system_is_adopted_and_handed_back(lake: Lake, tmp_path: Path) -> None:
    place = tmp_path / "tables" / "orders"
    deltalake.write_deltalake(place, days("1"))
    made = lake.delta.adopt(str(place), "sales.orders", idempotency_key="adopt")
    assert (str(made.key), made.version) == ("sales.orders", 1)
    assert lake.delta.adopt(str(place), "sales.orders", idempotency_key="adopt") == made
    table = lake.table("sales.orders")
    table.append(days("2"))
    assert read_days(table) == ["1", "2"]
    with pytest.raises(Exception, match=r"managedCommits|writer feature|[Uu]nsupported"):
        deltalake.write_deltalake(place, days("3"), mode="append")
    released = lake.delta.release("sales.orders", idempotency_key="release")
    assert released.version == 3
    assert lake.delta.release("sales.orders", idempotency_key="release") == released
    assert not table.exists
    free = deltalake.DeltaTable(place)
    assert (free.version(), free.to_pyarrow_table().num_rows) == (3, 2)
    assert "managedCommits" not in (free.protocol().writer_features or ())
    assert lake.delta.adopt(str(place), "sales.orders").version == 4


def test_only_tables_below_a_root_are_adopted_or_created(lake: Lake, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "elsewhere", days("1"))
    with pytest.raises(LocationRefused):
        lake.delta.adopt(str(tmp_path / "elsewhere"))
    with pytest.raises(LocationRefused):
        lake.create_table("t", schema=days("1").schema, location=str(tmp_path / "new"))
    with pytest.raises(TableNotFound):
        lake.delta.adopt(str(tmp_path / "tables" / "none"))


def test_a_table_is_found_by_its_place(lake: Lake, orders: Table, tmp_path: Path) -> None:
    orders.backfill_to_version()
    place = orders.get_commits().location
    found = penstock.open_table(place, lake=lake)
    assert (found.key, found.ref) == (orders.key, "main")
    own = penstock.open_table(place)
    with own.lake:
        assert read_days(own) == ["1", "2"]
    deltalake.write_deltalake(tmp_path / "tables" / "free", days("1"))
    with pytest.raises(NotManaged, match="penstock --lake LAKE delta adopt"):
        penstock.open_table(tmp_path / "tables" / "free")


def test_other_tables_and_commits_that_stay_are_refused_by_name(lake: Lake, orders: Table) -> None:
    lake.branch().put("ice", ICE)
    with pytest.raises(NotManaged, match="'ice'"):
        lake.table("ice").snapshot()
    with pytest.raises(KeyNotFound):
        lake.table("sales.none").to_arrow()
    with pytest.raises(InvalidRequest, match="which cannot change"):
        lake.at().table("sales.orders").append(days("3"))


def test_no_rows_are_a_commit_that_changes_no_rows(orders: Table) -> None:
    orders.append(days().cast(orders.to_arrow().schema))
    assert read_days(orders) == ["1", "2"]


def test_rows_that_do_not_fit_are_refused(orders: Table) -> None:
    with pytest.raises(InvalidRequest, match="extra"):
        orders.append(rows(day=["1"], extra=[1]))
    assert orders.get_commits().latest_version == 1


def test_the_status_tells_how_far_tables_are_published(lake: Lake, orders: Table) -> None:
    orders.append(days("3"))
    assert orders.backfill_to_version(1) >= 1
    assert orders.backfill_to_version() == 2
    (status,) = lake.delta.status()
    assert (str(status.key), status.phase, status.latest_version, status.published, status.backlog) == (
        "sales.orders", "owned", 2, 2, 0,
    )  # fmt: skip
    with pytest.raises(InvalidRequest, match="cannot be published"):
        orders.backfill_to_version(99)


def test_the_log_is_looked_after(lake: Lake, orders: Table) -> None:
    for number in range(4):
        orders.append_actions([add(f"f{number}")])
    orders.backfill_to_version()
    assert lake.delta.compact_log("sales.orders").name.endswith(".compacted.json")
    assert lake.delta.checkpoint("sales.orders").name.endswith(".checkpoint.parquet")
    assert lake.delta.checkpoint("sales.orders").name == ""
    assert lake.delta.clean_log("sales.orders", dry_run=True).names == ()
    assert len(list(orders.snapshot().files())) == 6


def test_commits_come_in_pages_of_one_commit_of_the_lake(lake: Lake, orders: Table) -> None:
    lake.branch("dev").create()
    there = lake.table("sales.orders", "dev")
    for number in range(5):
        there.append_actions([add(f"f{number}")])
    lake.catalogue.page_max = 2
    assert [one.version for one in there.get_commits(start=2).commits] == [2, 3, 4, 5, 6]
    assert [one.version for one in there.get_commits(3, 4).commits] == [3, 4]
    assert there.snapshot().version == 6


def test_appends_of_many_writers_all_land_each_once(lake: Lake, orders: Table) -> None:
    def append(writer: int) -> list[int]:
        mine = lake.table("sales.orders")
        return [mine.append(days(f"{writer}-{number}")).version for number in range(3)]

    made = [
        version for found in at_once(*(partial(append, writer) for writer in range(6))) for version in found
    ]
    assert sorted(made) == list(range(2, 20))
    rows = {f"{writer}-{number}" for writer in range(6) for number in range(3)}
    assert read_days(orders) == sorted(rows | {"1", "2"})
    assert published(orders).to_pyarrow_table().num_rows == 20


def test_of_many_who_commit_one_version_one_does_and_the_others_are_told(lake: Lake, orders: Table) -> None:
    def commit(writer: int) -> str:
        try:
            lake.table("sales.orders").commit(2, [add(f"by-{writer}")])
        except TableConflict as conflict:
            return str(conflict.details["winners"]["sales.orders"]["commits"][0]["actions"])
        return f"by-{writer}"

    told = at_once(*(partial(commit, writer) for writer in range(6)))
    (winner,) = {one.path for one in orders.snapshot().files() if one.path.startswith("by-")}
    assert told.count(winner) == 1
    assert all(winner in one for one in told)


def test_a_table_tells_what_it_is(lake: Lake, orders: Table) -> None:
    assert orders.version == 1
    assert Path(orders.location).is_dir()
    assert [field.name for field in orders.schema.fields] == ["day", "amount"]
    assert orders.properties["delta.managedCommitOwnerName"] == "penstock"
    assert [one.version for one in orders.history()] == [1, 0]
    orders.append(days("3"))
    pinned = lake.at("main~1").table("sales.orders")
    assert (orders.version, pinned.version) == (2, 1)


def test_several_tables_get_their_rows_in_one_commit(lake: Lake, orders: Table) -> None:
    returns = filled(lake, "sales.returns", days("1"))
    both = {"sales.orders": days("3"), "sales.returns": days("4")}
    done = lake.delta.append(both, message="both", idempotency_key="once")
    assert [(str(one.key), one.version) for one in done.tables] == [("sales.orders", 2), ("sales.returns", 2)]
    assert lake.delta.append(both, idempotency_key="once").commit == done.commit
    assert (read_days(orders), read_days(returns)) == (["1", "2", "3"], ["1", "4"])
    with pytest.raises(InvalidRequest):
        lake.delta.append({"sales.orders": days("5"), "sales.returns": rows(other=[1])})
    assert (orders.version, returns.version) == (2, 2)


def test_actions_of_several_tables_are_given_by_key(lake: Lake, orders: Table) -> None:
    returns = filled(lake, "sales.returns", days("1"), partition_by="day")
    done = lake.delta.commit(
        {"sales.orders": [add("a")], "sales.returns": [add("a")]}, versions={"sales.orders": 2}
    )
    assert [one.version for one in done.tables] == [2, 2]
    with pytest.raises(TableConflict):
        lake.delta.commit(
            {"sales.orders": [add("b")], "sales.returns": [add("b")]}, versions={"sales.orders": 2}
        )
    assert (orders.version, returns.version) == (2, 2)


def test_first_rows_that_cannot_be_had_leave_no_table_in_the_way_of_the_next_try(lake: Lake) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from days("1").to_batches()
        raise OSError("the rows end here")

    with pytest.raises(OSError, match="end here"):
        lake.create_table("sales.new", data=pa.RecordBatchReader.from_batches(days("1").schema, broken()))
    assert not lake.table("sales.new").exists
    assert read_days(lake.create_table("sales.new", data=days("1"))) == ["1"]


def test_rows_that_do_not_fit_a_schema_are_refused_before_anything_is_created(lake: Lake) -> None:
    before = lake.resolve()
    with pytest.raises(InvalidRequest, match="extra"):
        lake.create_table("sales.new", schema=days("1").schema, data=rows(day=["1"], extra=[1]))
    with pytest.raises(InvalidRequest, match="a list"):
        lake.create_table("sales.new", schema=days("1").schema, data=["1"])
    assert lake.resolve() == before


def test_a_table_that_exists_names_what_to_do_instead(lake: Lake, orders: Table) -> None:
    with pytest.raises(CommitConflict, match=r"(?s)already exists.*'append' adds.*'overwrite' replaces"):
        lake.create_table("sales.orders", data=days("1"))
    assert read_days(orders) == ["1", "2"]


def test_an_index_of_pandas_is_a_column_if_it_has_a_name(lake: Lake) -> None:
    told = b'{"index_columns": ["__index_level_0__", "store"]}'
    frame = pa.table({"day": ["1"], "__index_level_0__": [7], "store": ["Delft"]})
    table = lake.create_table("t", data=frame.replace_schema_metadata({b"pandas": told}))
    table.append(frame.replace_schema_metadata({b"pandas": told}))
    assert table.to_arrow().to_pylist() == [{"day": "1", "store": "Delft"}] * 2
    with pytest.raises(InvalidRequest, match="__index_level_0__"):
        table.append(frame)  # by nobody's word an index


@pytest.mark.parametrize(
    "inside",
    ["", "a", "a/sub", "a/_delta_log", "a/_penstock/x", "b/_delta_log/00000000000000000000.json/x", "above"],
)
def test_no_table_is_created_where_it_gets_in_the_way_of_another(
    own: Lake, lake: Lake, tmp_path: Path, inside: str
) -> None:
    tables = tmp_path / "tables"
    own.create_table("hr.pay", schema=days("1").schema, location=str(tables / "a"))
    own.create_table("hr.bonus", schema=days("1").schema, location=str(tables / "above" / "one"))
    before = lake.resolve()
    with pytest.raises(LocationRefused) as refused:
        lake.create_table("sales.new", schema=days("1").schema, location=str(tables / inside))
    assert "hr." not in refused.value.message
    assert lake.resolve() == before
    lake.create_table("sales.new", schema=days("1").schema, location=str(tables / "apart"))


def test_no_table_is_created_in_the_place_that_another_was_given(lake: Lake) -> None:
    lake.branch("dev").create()
    there = lake.create_table("hr.pay", data=days("1"), branch="dev")  # main does not know of it
    for place in (there.location, f"{there.location}/x", lake.warehouse):
        with pytest.raises(LocationRefused):
            lake.create_table("sales.new", schema=days("1").schema, location=place)


def test_a_table_inside_another_is_not_adopted(lake: Lake, orders: Table) -> None:
    place = f"{orders.location}/sub"
    deltalake.write_deltalake(place, days("1"))
    with pytest.raises(LocationRefused):
        lake.delta.adopt(place, "sub")


def test_a_place_that_takes_no_files_is_not_promised_anything(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "file").touch()
    before = lake.resolve()
    with pytest.raises(PenstockError):
        lake.create_table("t", schema=days("1").schema, location=str(tmp_path / "tables" / "file" / "t"))
    assert lake.resolve() == before


def test_a_relative_path_is_adopted_and_once_it_is_that_is_said(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake.write_deltalake(tmp_path / "tables" / "free", days("1"))
    monkeypatch.chdir(tmp_path)
    first = lake.delta.adopt(Path("tables/free"))
    again = lake.delta.adopt("tables/free")
    assert (first.repeated, again.repeated, again.version) == (False, True, 1)


def test_what_stands_against_one_table_keeps_no_other_from_being_published(lake: Lake) -> None:
    made = [filled(lake, key, days("1"), partition_by="day") for key in ("a", "b", "c")]
    places = [Path(table.location) for table in made]
    assert [one.published for one in lake.delta.publish()] == [1, 1, 1]
    foreign = places[0] / "_delta_log" / f"{2:020}.json"
    foreign.write_text("{}")
    for table in made:
        table.append_actions([add("x")])
    with pytest.raises(AdministratorError, match=foreign.name):
        lake.delta.publish()
    assert [deltalake.DeltaTable(place).version() for place in places[1:]] == [2, 2]
    assert [str(key) for key, one in lake.delta.publish_each() if isinstance(one, PenstockError)] == ["a"]


def test_the_status_comes_in_pages(lake: Lake) -> None:
    for key in ("a", "b.c", "d"):
        lake.create_table(key, data=days("1"))
    lake.catalogue.page_max = 1
    assert [str(one.key) for one in lake.delta.status()] == ["a", "b.c", "d"]
    found = lake.do(GetTableStatus(after=Key("a"), limit=1))
    assert [str(one.key) for one in found] == ["b.c"]
    with pytest.raises(InvalidRequest, match="limit"):
        lake.do(GetTableStatus(limit=-1))


def test_a_recovered_table_is_called_as_in_the_lost_lake(lake: Lake, tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lost") as lost:
        table = lost.create_table("sales.eu.orders", data=days("1"))
        table.backfill_to_version()
        place = table.location
        deltalake.write_deltalake(tmp_path / "lost" / "warehouse" / "free", days("1"))
        lost.delta.adopt(tmp_path / "lost" / "warehouse" / "free", "x.y")
    lake.add_root(str(tmp_path / "lost" / "warehouse"))
    assert str(lake.delta.recover(place, lost=lost.id).key) == "sales.eu.orders"
    with pytest.raises(InvalidRequest, match="give the lake that was lost"):
        lake.delta.recover(tmp_path / "lost" / "warehouse" / "free")
    assert str(lake.delta.recover(tmp_path / "lost" / "warehouse" / "free", any_lake=True).key) == "free"
