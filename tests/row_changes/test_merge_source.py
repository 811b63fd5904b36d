"""A source that is too large for memory is refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import row_merge
from penstock.lake.lake import Lake
from penstock.lake.table import Table


def upsert(table: Table, source: Any) -> None:
    table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all().commit()


def test_a_source_that_is_too_large_is_merged_in_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create_table("t", data={"id": [0, 1], "v": [0, 0]})
    source = {"id": list(range(1000)), "v": [1] * 1000}
    monkeypatch.setattr(row_merge, "SOURCE_MAX_BYTES", 10_000)
    with pytest.raises(InvalidRequest, match="Merge it in parts"):
        upsert(table, source)
    assert table.to_arrow().num_rows == 2
    for start in range(0, 1000, 500):
        part = {name: values[start : start + 500] for name, values in source.items()}
        upsert(table, part)
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(1000))
    assert set(table.to_arrow()["v"].to_pylist()) == {1}
