"""A place that two tables have had, one after the other: what the ledger notes of it is no table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]

import penstock


def test_a_lake_is_sound_where_a_table_came_to_the_place_of_another_one(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("a.t", data=pa.table({"id": [1]}))
        place = table.location
        table.append(pa.table({"id": [2]}))
        lake.finish_background()
        lake.branch().drop("a.t")
        lake.delta.recover(place, "a.t", lost=lake.id)
        assert lake.fsck().damages == ()
        assert lake.sweep().removed == 0
