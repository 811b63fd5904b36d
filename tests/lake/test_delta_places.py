"""Delta tables that share a place with what other branches keep, or that a place was taken from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock import Lake
from penstock.errors import LocationRefused
from penstock.formats.delta.ownership.status import PublicationOverview
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.lake.embedded import Embedded
from penstock.model.nessie import DeltaTable
from tests.plugins import plugin_of

DAY_S = 86400
WAIT_S = 20.0
FILE = '{"add":{"path":"z.parquet","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake, key: str, branch: str) -> list[int]:
    found: list[int] = sorted(lake.table(key, branch).to_arrow()["id"].to_pylist())
    return found


def grow_old(folder: Path) -> None:
    long_ago = time.time() - 90 * DAY_S
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "warehouse" / "ext"


def come_back(lake: Lake, place: Path, how: str) -> None:
    """The same table again, under another id."""
    if how == "released and adopted":
        lake.delta.release("t")
        lake.delta.adopt(str(place), "t")
    else:
        lake.branch().drop("t")
        lake.delta.recover(str(place), "t", lost=lake.about.id)


@pytest.mark.parametrize("how", ["released and adopted", "dropped and recovered"])
def test_cleaning_leaves_what_a_branch_needs_of_the_same_table_under_its_former_id(
    tmp_path: Path, lake: Lake, place: Path, how: str
) -> None:
    lake.create_table("t", data=rows(1), location=str(place))
    for number in (10, 11):
        lake.table("t").append(rows(number))
        lake.delta.publish("t")
    lake.branch("dev").create()
    lake.table("t", "dev").append(rows(100))
    lake.table("t").append(rows(20))
    lake.delta.publish("t")
    lake.delta.checkpoint("t")
    come_back(lake, place, how)
    lake.finish_background()
    grow_old(place)
    lake.table("t").append(rows(30))
    lake.delta.publish("t")
    lake.delta.clean_log("t")
    lake.close()
    with penstock.open(tmp_path / "lake") as anew:
        assert ids(anew, "t", "dev") == [1, 10, 11, 100]


@pytest.mark.parametrize("how", ["released and adopted", "dropped and recovered"])
def test_cleaning_leaves_a_branchs_own_files_of_the_same_table_under_its_former_id(
    lake: Lake, place: Path, how: str
) -> None:
    lake.create_table("t", data=rows(1), location=str(place))
    lake.delta.publish("t")
    lake.branch("dev").create()
    table = lake.table("t", "dev")
    name = table.commit(table.version + 1, FILE).tables[0].name
    come_back(lake, place, how)
    lake.finish_background()
    grow_old(place)
    assert lake.delta.clean_log("t").names == ()
    assert (place / name).exists()


@pytest.mark.parametrize("near", ["above/place/below", "above/place/far/below", "above"])
def test_a_table_does_not_come_near_one_that_only_another_branch_has(
    lake: Lake, place: Path, near: str
) -> None:
    lake.create_table("t", data=rows(1), location=str(place / "above/place"))
    lake.branch("dev").create()
    lake.branch().drop("t")
    with pytest.raises(LocationRefused, match="inside or above the folder of another table"):
        lake.create_table("u", data=rows(2), location=str(place / near))
    lake.branch("dev").delete()
    with pytest.raises(LocationRefused, match="inside or above the folder of another table"):
        lake.create_table("u", data=rows(2), location=str(place / near))  # history still reads the table


def test_a_lake_that_is_closed_looks_at_no_further_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        for number in range(4):
            lake.create_table(f"t{number}", data=rows(1))
            lake.branch().drop(f"t{number}")
    looking, go_on, looked = Event(), Event(), list[str]()
    whether = PublicationOverview._is_unfinished

    def slowly(overview: PublicationOverview, content: DeltaTable) -> bool:
        looked.append(content.location)
        looking.set()
        assert go_on.wait(WAIT_S)
        return whether(overview, content)

    monkeypatch.setattr(PublicationOverview, "_is_unfinished", slowly)
    monkeypatch.setattr("penstock.formats.publisher.CATCH_UP_END_S", 0.01)
    lake = penstock.open(tmp_path / "lake")
    assert lake.delta.status() == ()
    assert looking.wait(WAIT_S)
    assert isinstance(lake.catalogue, Embedded)
    publisher = plugin_of(lake.catalogue, DeltaPlugin).parts.publisher
    lake.close()
    go_on.set()
    assert publisher.await_catch_up(WAIT_S)
    assert len(looked) == 1
    assert not caplog.records
