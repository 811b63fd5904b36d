"""Rows by which two commits differ."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.errors import InvalidRequest, KeyNotFound, PenstockError
from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake
from penstock.lake.sql.row_diff import RowDiff
from tests.formats.delta.sides import create
from tests.rows.conftest import KEYS
from tests.rows.test_table_rows import delete_rows

every_format = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
TYPES = pa.schema({"id": pa.int64(), "s": pa.string(), "f": pa.float64()})
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "s": st.none() | st.sampled_from(["a", "b"]),
        "f": st.none() | st.sampled_from([float("nan"), 1.5]),
    }
)
WRITE = st.tuples(st.sampled_from(["append", "append", "overwrite"]), st.lists(ROW, min_size=1, max_size=3))


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def check_bags(diff: RowDiff, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    assert bag(diff.added.to_pylist()) == bag(after) - bag(before)
    assert bag(diff.removed.to_pylist()) == bag(before) - bag(after)


@pytest.mark.parametrize(
    "format_name",
    [
        "delta",
        pytest.param("lance", marks=pytest.mark.verify),
        pytest.param("parquet", marks=pytest.mark.verify),
    ],
)
@given(st.lists(WRITE, min_size=1, max_size=3), st.lists(WRITE, max_size=3), st.lists(WRITE, max_size=2))
def test_rows_that_differ_are_those_of_a_comparison_of_all(
    tmp_path_factory: pytest.TempPathFactory, format_name: str, base: Any, here: Any, there: Any
) -> None:
    with penstock.open(tmp_path_factory.mktemp("lake") / "lake", create=True) as lake:

        def write(writes: Any, branch: str) -> None:
            for mode, rows in writes:
                lake.table("t", branch).write(
                    pa.Table.from_pylist(rows, TYPES), mode=mode, format=format_name
                )

        write(base, "main")
        lake.branch("dev").create()
        write(here, "main")
        write(there, "dev")
        old, new = (lake.table("t", branch).to_arrow().to_pylist() for branch in ("main", "dev"))
        check_bags(lake.diff_rows("t", "main", "dev"), old, new)
        _check_by_key(lake, old, new)


def _check_by_key(lake: Lake, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    sides = [{row["id"]: row for row in rows} for rows in (old, new)]
    if len(sides[0]) < len(old) or len(sides[1]) < len(new):
        return
    diff = lake.diff_rows("t", "main", "dev", on="id")
    assert sorted(diff.added.column("id").to_pylist()) == sorted(sides[1].keys() - sides[0].keys())
    assert sorted(diff.removed.column("id").to_pylist()) == sorted(sides[0].keys() - sides[1].keys())
    changed = [i for i in sides[0].keys() & sides[1].keys() if repr(sides[0][i]) != repr(sides[1][i])]
    assert [row["id"] for row in diff.changed.to_pylist()] == sorted(changed)
    for row in diff.changed.to_pylist():
        assert repr({"id": row["id"], **row["before"]}) == repr(sides[0][row["id"]])
        assert repr({"id": row["id"], **row["after"]}) == repr(sides[1][row["id"]])


@every_format
def test_files_that_both_commits_have_are_not_read(lake: Lake, key: str) -> None:
    lake.branch("dev").create()
    lake.table(key, "dev").write({"id": [5], "day": ["c"], "amount": [0.5]}, mode="append")
    diff = lake.diff_rows(key, "main", "dev")
    assert (diff.read_before, diff.read_after) == ((0, 2), (1, 3))
    assert diff.added.to_pylist() == [{"id": 5, "day": "c", "amount": 0.5}]
    assert diff.to_arrow().to_pylist() == [{"id": 5, "day": "c", "amount": 0.5, "_change_type": "insert"}]
    assert (diff.num_added, diff.num_removed, diff.num_changed) == (1, 0, 0)
    back = lake.diff_rows(key, "dev", "main", on="id")
    assert back.removed.to_pylist() == diff.added.to_pylist()
    assert lake.diff_rows(key, "main", "main~0").is_empty


@every_format
def test_a_table_that_one_commit_has_not_is_added_or_removed(lake: Lake, key: str) -> None:
    first = lake.log()[-1].id
    assert lake.diff_rows(key, first, "main").num_added in (2, 4)
    lake.branch("dev").create()
    lake.branch("dev").drop(key)
    assert lake.diff_rows(key, "main", "dev", on="id").num_removed == 4
    with pytest.raises(KeyNotFound, match=r"there is no 'no\.table'"):
        lake.diff_rows("no.table", "main", "dev")


def test_rows_that_a_deletion_vector_hides_are_removed(lake: Lake) -> None:
    table = lake.create_table(
        "sales.vectored",
        data=pa.table({"id": [*range(10)]}),
        properties={"delta.enableDeletionVectors": "true"},
    )
    table.append(pa.table({"id": [10]}))
    before = lake.resolve("main")
    delete_rows(table, [0])
    diff = lake.diff_rows("sales.vectored", before, "main")
    assert diff.num_removed == 1
    assert diff.num_added == 0
    assert (diff.read_before.files, diff.read_after.files) == (1, 1)
    assert lake.diff_rows("sales.vectored", "main", before, on=["id"]).num_added == 1


def test_columns_that_one_commit_has_not_are_named_and_not_compared(lake: Lake) -> None:
    lake.table("t").write({"id": [1], "a": ["x"]}, format="parquet")
    before = lake.resolve("main")
    lake.table("t").write({"id": [1], "b": ["y"]}, mode="overwrite")
    diff = lake.diff_rows("t", before, "main")
    assert (diff.added_columns, diff.removed_columns) == (("b",), ("a",))
    assert diff.is_empty
    with pytest.raises(InvalidRequest, match="has no column 'a' at both commits; there are id"):
        lake.diff_rows("t", before, "main", on="a")


def test_only_some_columns_are_compared(lake: Lake) -> None:
    before = lake.resolve("main")
    lake.table("sales.orders").overwrite(
        {"id": [1, 2, 3, 4], "day": ["z", "a", "b", None], "amount": [0.0, None, 3.5, 4.5]}
    )
    diff = lake.diff_rows("sales.orders", before, "main", on="id", columns=["day"])
    assert diff.changed.to_pylist() == [{"id": 1, "before": {"day": "a"}, "after": {"day": "z"}}]


def test_columns_that_identify_no_row_are_refused(lake: Lake) -> None:
    lake.branch("dev").create()
    lake.table("sales.orders", "dev").append({"id": [7, 7], "day": ["c", "d"], "amount": [1.0, 1.0]})
    with pytest.raises(InvalidRequest, match=r"id does not identify rows of 'sales\.orders': .*id = 7"):
        lake.diff_rows("sales.orders", "main", "dev", on="id")
    assert lake.diff_rows("sales.orders", "main", "dev", on=["id", "day"]).num_added == 2


def test_a_file_that_is_gone_is_told(lake: Lake) -> None:
    before = lake.resolve("main")
    table = lake.table("sales.orders")
    table.append({"id": [7], "day": ["c"], "amount": [1.0]})
    (add,) = table.snapshot().files("id = 7")
    Path(table.location, add.path).unlink()
    with pytest.raises(PenstockError, match="there is no such file") as told:
        lake.diff_rows("sales.orders", before, "main")
    assert not isinstance(told.value, InvalidRequest)


def test_after_merge_revert_and_restore_rows_are_as_they_were(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "lake", create=True) as lake:
        main = create(lake)
        before = lake.resolve("main")
        main.append(7, 8)
        lake.revert(lake.resolve("main"))
        key = main.table.key
        assert lake.diff_rows(key, before, "main").is_empty
        main.delete(1)
        assert lake.diff_rows(key, before, "main", on="id").num_removed == 1
        lake.restore(key, to=before)
        assert lake.diff_rows(key, before, "main").is_empty
