"""Rows of Lance tables by the same methods; what Lance cannot do is refused by name."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest, NotManaged
from penstock.lake.lake import Lake
from penstock.lake.table import Table


@pytest.fixture
def table(lake: Lake) -> Table:
    table = lake.table("l")
    for number in range(3):
        table.write({"id": [2 * number, 2 * number + 1], "v": [1.0, 2.0]}, format="lance")
    return table


def rows(table: Table) -> dict[int, float]:
    return {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}


def test_rows_of_lance_tables_are_deleted_and_updated(lake: Lake, table: Table) -> None:
    changed = table.delete("id > 3", message="too many", idempotency_key="once")
    assert (changed.deleted, changed.version) == (2, table.version)
    assert changed.commit is not None
    assert changed.commit.message == "too many"
    again = table.delete("id > 3", message="too many", idempotency_key="once")
    assert (again.is_repeated, again.version) == (True, changed.version)
    assert table.update({"v": "v + 1"}, "id = 1").updated == 1
    assert table.update({"v": 9.5}, "id = 0").updated == 1
    assert rows(table) == {0: 9.5, 1: 3.0, 2: 1.0, 3: 2.0}
    assert table.delete("id > 30").commit is None
    lake.revert("main")
    assert rows(table)[0] == 1.0


def test_rows_are_merged_into_a_lance_table(table: Table) -> None:
    merge = table.merge({"id": [1, 7], "v": [5.0, 6.0]}, on=["id"])
    changed = merge.when_matched_update_all().when_not_matched_insert_all().commit()
    assert (changed.updated, changed.inserted) == (1, 1)
    assert rows(table) == {0: 1.0, 1: 5.0, 2: 1.0, 3: 2.0, 4: 1.0, 5: 2.0, 7: 6.0}
    with pytest.raises(NotManaged, match="by equal columns"):
        table.merge({"id": [1], "v": [5.0]}, on="target.id = source.id").when_matched_update_all().commit()
    with pytest.raises(NotManaged, match="it cannot delete rows that are matched"):
        table.merge({"id": [1], "v": [5.0]}, on=["id"]).when_matched_delete().commit()


def test_fragments_are_compacted(table: Table) -> None:
    before = rows(table)
    done = table.optimize()
    assert done.version == table.version
    assert done.files_removed == 3
    assert len(table.to_lance().get_fragments()) == 1
    assert rows(table) == before
    assert table.optimize().version is None
    with pytest.raises(InvalidRequest, match="leave out target_file_bytes"):
        table.optimize(zorder_by="id")


def test_what_tables_of_files_cannot_do_is_refused_by_name(lake: Lake) -> None:
    lake.table("f").write({"id": [1]}, format="parquet")
    for change in (
        lambda: lake.table("f").delete("id = 1"),
        lambda: lake.table("f").update({"id": "2"}),
        lambda: lake.table("f").merge({"id": [1]}, on=["id"]).when_matched_update_all().commit(),
        lambda: lake.table("f").analyze(),
    ):
        with pytest.raises(NotManaged, match="In that format"):
            change()
    with pytest.raises(InvalidRequest, match="no clause"):
        lake.table("f").merge({"id": [1]}, on=["id"]).commit()
