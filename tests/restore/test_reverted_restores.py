"""A restore is undone after another one went back further: no row is there twice."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import MergeConflict
from penstock.lake.table import Table


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids_in(table: Table) -> list[int]:
    return sorted(table.to_arrow(columns=["id"])["id"].to_pylist())


@pytest.mark.parametrize("kind", ["delta", "lance", "parquet"])
def test_rows_that_were_written_anew_do_not_come_back_beside_what_they_replaced(
    tmp_path: Path, kind: str
) -> None:
    with penstock.init(tmp_path / "lake") as lake:
        with lake.transaction() as transaction:
            transaction.write(rows(1, 2), "t", format=kind)
        table, first = lake.table("t"), lake.branch().head
        table.write(rows(3), mode="append")
        second = lake.branch().head
        table.write(rows(1, 2, 3, 4), mode="overwrite")
        lake.restore("t", to=first)
        undone = lake.branch().head
        lake.restore("t", to=second)
        table.write(rows(5), mode="append")
        with pytest.raises(MergeConflict):
            lake.revert(undone)
        assert ids_in(lake.table("t")) == [1, 2, 3, 5]
