"""A restore is undone after others have written: no row is there twice, and none that was deleted."""

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


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_row_that_was_deleted_after_a_restore_does_not_come_back_by_its_revert(
    tmp_path: Path, vectors: str
) -> None:
    """The restore took back an update; what that had written holds the deleted row, too."""
    with penstock.init(tmp_path / "lake") as lake:
        properties = {"delta.enableDeletionVectors": vectors}
        table = lake.delta.create("t", data=rows(1, 2, 3), properties=properties)
        table.update({"id": "id + 10"}, "id = 3")
        table.restore(version=0)
        restored = lake.branch().head
        table.delete("id = 3")
        with pytest.raises(MergeConflict):
            lake.revert(restored)
        assert ids_in(table) == [1, 2]
        lake.revert(lake.branch().head)
        lake.revert(restored)
        assert ids_in(table) == [1, 2, 13]
