"""What messages about transactions and expectations advise is done, and no row is lost."""

from __future__ import annotations

import pytest

from penstock import IcebergTable, Lake
from penstock.errors import MergeConflict, PenstockError
from tests.advice.rows import numbers, rows


def test_a_transaction_that_was_aborted_is_run_again(lake: Lake) -> None:
    lake.create_table("a.t", data=rows(1))
    lake.branch().put("a.pointer", IcebergTable(metadata_location="s3://lake/v1.json"))

    def work(tx: object, version: str) -> None:
        lake.table("a.t", tx.branch).append(rows(2))  # type: ignore[attr-defined]
        found = lake.at("main").get("a.pointer")
        assert found is not None
        pointer = IcebergTable(id=found.id, metadata_location=f"s3://lake/{version}.json")
        lake.branch(tx.branch).put("a.pointer", pointer)  # type: ignore[attr-defined]

    tx = lake.transaction()
    work(tx, "v2")
    found = lake.at("main").get("a.pointer")
    assert found is not None
    lake.branch().put("a.pointer", IcebergTable(id=found.id, metadata_location="s3://lake/theirs.json"))
    with pytest.raises(MergeConflict):
        tx.land()
    assert numbers(lake) == [1], "nothing of it has landed"
    again = lake.transaction()
    work(again, "v3")
    again.land()
    assert numbers(lake) == [1, 2]


def test_an_expectation_that_is_removed_takes_no_row_along(lake: Lake) -> None:
    for key in ("a.t", "a.known"):
        lake.create_table(key, data=rows(1))
    lake.expect("known", "select * from a.t where id not in (select id from a.known)")
    with pytest.raises(PenstockError, match="remove the expectation first"):
        lake.branch().drop("a.known")
    lake.unexpect("known")
    lake.branch().drop("a.known")
    lake.table("a.t").append(rows(2))
    assert numbers(lake) == [1, 2]
