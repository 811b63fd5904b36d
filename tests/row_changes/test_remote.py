"""Rows are changed in this process where a server answers for the lake, with the same results."""

from __future__ import annotations

import pytest

import penstock
from penstock.lake.lake import Lake
from tests.remote.serving import serving


@pytest.mark.parametrize("kind", ["delta", "lance"])
def test_rows_are_changed_behind_a_server(lake: Lake, kind: str) -> None:
    lake.table("t").write({"id": [1, 2, 3], "v": [1.0, 2.0, 3.0]}, format=kind)
    with serving(lake.catalogue) as served, penstock.open(served.url, author="remote") as remote:
        table = remote.table("t")
        assert table.delete("id = 1").deleted == 1
        assert table.update({"v": "v + 1"}, "id = 2").updated == 1
        source = {"id": [3, 4], "v": [9.0, 9.0]}
        merge = table.merge(source, on=["id"])
        merge.when_matched_update_all().when_not_matched_insert_all().commit()
        table.optimize()
    rows = {row["id"]: row["v"] for row in lake.table("t").to_arrow().to_pylist()}
    assert rows == {2: 3.0, 3: 9.0, 4: 9.0}
    assert lake.log(limit=1)[0].author == "remote"
