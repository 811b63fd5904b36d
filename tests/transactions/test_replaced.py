"""A table that is dropped and made anew at its key is another one: the old one goes, the new one comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import MergeConflict
from penstock.lake.lake import Lake

FORMATS = {"delta": None, "lance": "lance", "files": "parquet"}
OLD, NEW, MORE = pa.table({"x": [1, 2]}), pa.table({"y": ["b"]}), pa.table({"x": [3]})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with penstock.open(tmp_path / "lake") as lake:
        yield lake


@pytest.mark.parametrize("then", FORMATS)
@pytest.mark.parametrize("first", FORMATS)
def test_a_table_of_any_format_takes_the_place_of_one_that_is_dropped_in_the_same_transaction(
    lake: Lake, first: str, then: str
) -> None:
    lake.table("a.t").write(OLD, format=FORMATS[first])
    with lake.transaction() as tx:
        tx.drop("a.t")
        tx.write(NEW, "a.t", format=FORMATS[then])
        assert lake.table("a.t").to_arrow() == OLD  # nobody outside has seen anything
    assert lake.table("a.t").to_arrow().to_pylist() == NEW.to_pylist()
    lake.table("a.t").write(NEW, format=FORMATS[then])
    assert lake.table("a.t").to_arrow().num_rows == 2
    assert not lake.fsck().damages
    assert lake.at("main~2").table("a.t").to_arrow() == OLD


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_that_others_changed_meanwhile_is_not_replaced(lake: Lake, name: str) -> None:
    lake.table("a.t").write(OLD, format=FORMATS[name])
    tx = lake.transaction()
    tx.drop("a.t")
    tx.write(NEW, "a.t", format=FORMATS[name])
    lake.table("a.t").write(MORE, format=FORMATS[name])
    with pytest.raises(MergeConflict, match=r"a\.t"):
        tx.land()
    assert sorted(lake.table("a.t").to_arrow()["x"].to_pylist()) == [1, 2, 3]


def test_readers_of_the_published_log_find_the_old_table_where_it_was_and_the_new_one_elsewhere(
    lake: Lake,
) -> None:
    lake.table("a.t").write(OLD)
    old = lake.table("a.t").location
    lake.finish_background()
    lake.branch("dev").create()
    lake.branch("dev").drop("a.t")
    lake.table("a.t", "dev").write(NEW)
    lake.merge("dev")
    lake.finish_background()
    new = lake.table("a.t").location
    assert deltalake.DeltaTable(old).to_pyarrow_table() == OLD
    assert deltalake.DeltaTable(new).to_pyarrow_table().to_pylist() == NEW.to_pylist()
