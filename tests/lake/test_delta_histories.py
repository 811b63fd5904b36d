"""Which version was read, and not just its number, told to programs and told back by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.lake.calls import CommitTables, GetTableVersions, TableCommit
from penstock.lake.lake import Lake
from penstock.lake.remote import RemoteCatalogue
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.server.native import NATIVE
from tests.server.running import local

KEY = Key.parse("orders")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        yield lake


@pytest.fixture(params=["here", "behind a server"])
def lake(request: pytest.FixtureRequest, own: Lake) -> Iterator[Lake]:
    if request.param == "here":
        yield own
        return
    with local(own.catalogue, [NATIVE]) as server, Lake(RemoteCatalogue(server.url), author="tester") as lake:
        yield lake


@pytest.fixture
def dev(lake: Lake) -> Table:
    """A table of a branch, of which the versions 1 and 2 are the branch's own."""
    lake.create_table(KEY, data=numbers(0))
    lake.branch("dev").create()
    table = lake.table(KEY, "dev")
    table.append(numbers(1))
    table.append(numbers(2))
    return table


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def meanwhile(work: Callable[[], None], *ids: int) -> pa.RecordBatchReader:
    """Rows, and something that happens while they are written."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from numbers(*ids).to_batches()
        work()

    return pa.RecordBatchReader.from_batches(numbers().schema, batches())


def created_anew(lake: Lake) -> None:
    lake.branch("dev").delete()
    for number in (10, 11, 12):
        lake.table(KEY).append(numbers(number))
    lake.branch("dev").create()


def merged_into(lake: Lake) -> None:
    for number in (10, 11):
        lake.table(KEY).append(numbers(number))
    lake.branch("main").merge_into("dev")


def ids(table: Table) -> list[int]:
    return sorted(table.to_arrow()["id"].to_pylist())


def versions(lake: Lake, at: str = "dev", *, end: int | None = None, tip: str | None = None) -> TableVersions:
    return lake.do(GetTableVersions(key=KEY, at=at, end=end, limit=0, tip=tip))


@pytest.mark.parametrize("way", [created_anew, merged_into])
def test_a_version_is_told_from_another_of_its_number(
    lake: Lake, dev: Table, way: Callable[[Lake], None]
) -> None:
    tips = [versions(lake, end=version).tip for version in range(3)]
    assert tips[-1] == versions(lake).tip == versions(lake, end=99).tip
    assert len({*tips}) == 3
    assert all(versions(lake, tip=tip).goes_on for tip in tips)
    assert [versions(lake, "main", tip=tip).goes_on for tip in tips] == [True, False, False]
    way(lake)
    assert [versions(lake, tip=tip).goes_on for tip in tips] == [True, False, False]
    assert versions(lake, end=2).tip != tips[2]


@pytest.mark.parametrize("write", [Table.append, Table.overwrite])
@pytest.mark.parametrize("way", [created_anew, merged_into])
def test_rows_that_were_written_for_another_history_are_not_put_into_this_one(
    lake: Lake, dev: Table, way: Callable[[Lake], None], write: Callable[[Table, Any], object]
) -> None:
    with pytest.raises(
        TableConflict, match=r"'orders' has a different history on 'dev'(.|\n)*run the job again"
    ):
        write(dev, meanwhile(lambda: way(lake), 7))
    assert 7 not in ids(dev)
    write(dev, numbers(7))
    assert 7 in ids(dev)


def test_rows_are_added_where_the_branch_only_went_on(lake: Lake, dev: Table) -> None:
    def work() -> None:
        dev.append(numbers(3))
        dev.lake.branch("dev").merge_into("main")

    dev.append(meanwhile(work, 7))
    assert ids(dev) == [0, 1, 2, 3, 7]
    main = lake.table(KEY)
    main.append(meanwhile(lambda: merged_into(lake), 8))
    assert {8, 10, 11} < {*ids(main)}


def test_what_landed_is_answered_as_before_in_whatever_history(lake: Lake, dev: Table) -> None:
    one = TableCommit(key=KEY, actions="", replaces=(), read_version=2, read_tip=versions(lake).tip)
    call = CommitTables(tables=(one,), branch="dev", idempotency_key="once")
    first = lake.do(call)
    merged_into(lake)
    again = lake.do(call)
    assert again.commit == first.commit
    assert again.tables[0].repeated
    with pytest.raises(TableConflict, match="a different history"):
        lake.do(CommitTables(tables=(one,), branch="dev"))


@pytest.mark.parametrize("text", ["", "2-x", "99999999999999999999", "9999999999999999999"])
def test_what_is_no_tip_is_a_mistake_of_the_caller(lake: Lake, dev: Table, text: str) -> None:
    one = TableCommit(key=KEY, actions="", replaces=(), read_version=2, read_tip=text)
    with pytest.raises(InvalidRequest):
        lake.do(CommitTables(tables=(one,), branch="dev"))


def test_what_is_no_tip_is_not_looked_for(lake: Lake, dev: Table) -> None:
    with pytest.raises(InvalidRequest, match="is not a tip of the table"):
        versions(lake, tip="2-x")
