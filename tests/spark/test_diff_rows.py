"""Rows by which two commits differ, compared by Spark: those that a comparison of all rows finds."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.lake import Lake
from penstock.spark import diff_rows
from tests.rows.test_table_rows import delete_rows
from tests.spark.reading_tables import using

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = pa.schema(
    {"id": pa.int64(), "s": pa.string(), "f": pa.float64(), "l": pa.list_(pa.int64()), "part": pa.string()}
)
CASES = [
    ("delta", "jar"),
    *(
        pytest.param(*case, marks=pytest.mark.verify)
        for case in (("delta", "fallback"), ("lance", "jar"), ("parquet", "jar"), ("parquet", "fallback"))
    ),
]


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def find_changes(rows: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Rows without the column that says what became of them, by what it says."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows.collect():
        values = row.asDict(recursive=True)
        found.setdefault(values.pop("_change_type"), []).append(values)
    return found


def random_rows(chance: random.Random) -> Any:
    rows = [
        {
            "id": chance.randrange(6),
            "s": chance.choice([None, "a", "b"]),
            "f": chance.choice([None, float("nan"), 1.5]),
            "l": chance.choice([None, [], [1, None]]),
            "part": chance.choice(["x", "y", None]),
        }
        for _ in range(chance.randrange(1, 4))
    ]
    return pa.Table.from_pylist(rows, TYPES)


@pytest.mark.parametrize(("format_name", "engine"), CASES)
def test_rows_that_differ_are_those_of_a_comparison_of_all(
    spark: SparkSession, lake: Lake, format_name: str, engine: str
) -> None:
    using(spark, engine)
    chance = random.Random(f"rows of {format_name}")
    for n in range(3):
        key = f"t{n}"
        if format_name == "delta":
            lake.create_table(key, schema=TYPES, partition_by=["part"] if n else [])
        lake.table(key).write(random_rows(chance), format=format_name, mode="append")
        lake.branch(f"dev{n}").create()
        for branch in ("main", f"dev{n}"):
            for _ in range(chance.randrange(3)):
                mode = chance.choice(["append", "append", "overwrite"])
                lake.table(key, branch).write(random_rows(chance), format=format_name, mode=mode)
            if format_name == "delta" and chance.random() < 0.7:
                lake.table(key, branch).delete(f"id = {chance.randrange(6)}")
        old, new = (lake.table(key, branch).to_arrow().to_pylist() for branch in ("main", f"dev{n}"))
        found = find_changes(diff_rows(spark, key, "main", f"dev{n}"))
        assert bag(found.get("insert", [])) == bag(new) - bag(old)
        assert bag(found.get("delete", [])) == bag(old) - bag(new)
        in_process = lake.diff_rows(key, "main", f"dev{n}")
        assert bag(found.get("insert", [])) == bag(in_process.added.to_pylist())


@pytest.mark.parametrize("format_name", ["delta", pytest.param("lance", marks=pytest.mark.verify), "parquet"])
def test_only_files_that_differ_are_read(spark: SparkSession, lake: Lake, format_name: str) -> None:
    for n in range(3):
        lake.table("t").write({"id": [n, n + 10], "v": ["a", "b"]}, mode="append", format=format_name)
    lake.branch("dev").create()
    lake.table("t", "dev").write({"id": [7], "v": ["c"]}, mode="append")
    rows = diff_rows(spark, "t", "main", "dev")
    assert find_changes(rows) == {"insert": [{"id": 7, "v": "c"}]}
    if format_name != "lance":
        assert len(rows.inputFiles()) == 1
    assert find_changes(diff_rows(spark, "t", "dev", "main")) == {"delete": [{"id": 7, "v": "c"}]}
    same = diff_rows(spark, "t", "main", "main~0")
    assert same.collect() == []
    assert same.inputFiles() == []


def test_rows_that_a_deletion_vector_hides_are_deleted(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table(
        "t", data=pa.table({"id": [10]}), properties={"delta.enableDeletionVectors": "true"}
    )
    table.append(pa.table({"id": [*range(5)]}))
    before = lake.resolve("main")
    delete_rows(table, [0, 3])
    deleted = find_changes(diff_rows(spark, "t", before, "main"))["delete"]
    assert sorted(row["id"] for row in deleted) == [0, 3]


def test_columns_are_compared_by_what_they_are_bound_to(spark: SparkSession, lake: Lake) -> None:
    """A column that was renamed is another one; one of its old name that was added has other values."""
    table = lake.create_table(
        "t", data=pa.table({"id": [1], "v": ["a"]}), properties={"delta.columnMapping.mode": "name"}
    )
    before = lake.resolve("main")
    lake.delta.rename_column("t", "v", "w")
    assert diff_rows(spark, "t", before, "main").collect() == []
    lake.delta.add_columns("t", pa.schema({"v": pa.string()}))
    table.append(pa.table({"id": [2], "w": ["b"], "v": ["c"]}))
    found = find_changes(diff_rows(spark, "t", before, "main", on="id"))
    assert found == {
        "insert": [{"id": 2, "v": "c"}],
        "update_preimage": [{"id": 1, "v": "a"}],
        "update_postimage": [{"id": 1, "v": None}],
    }


def test_rows_with_the_same_key_have_changed(spark: SparkSession, lake: Lake) -> None:
    lake.table("t").write({"id": [1, 2, 3, None], "v": ["a", "b", "c", "n"], "odd `name`": [0, 0, 0, 0]})
    before = lake.resolve("main")
    lake.table("t").overwrite({"id": [1, 2, 4, None], "v": ["a", "B", "d", "N"], "odd `name`": [1, 0, 0, 0]})
    found = find_changes(diff_rows(spark, "t", before, "main", on="id", columns=["v"]))
    assert found.pop("insert") == [{"id": 4, "v": "d"}]
    assert found.pop("delete") == [{"id": 3, "v": "c"}]
    assert bag(found.pop("update_preimage")) == bag([{"id": 2, "v": "b"}, {"id": None, "v": "n"}])
    assert bag(found.pop("update_postimage")) == bag([{"id": 2, "v": "B"}, {"id": None, "v": "N"}])
    assert not found
    whole = diff_rows(spark, "t", before, "main", on=["v", "id"])
    assert whole.columns == ["v", "id", "odd `name`", "_change_type"]


def test_columns_that_identify_no_row_are_refused(spark: SparkSession, lake: Lake) -> None:
    """By the same error as without Spark, before any row is read by the caller."""
    lake.table("sales.t").write({"id": [1], "v": ["a"], "odd `name`": [1]})
    before = lake.resolve("main")
    lake.table("sales.t").append({"id": [7, 7], "v": ["b", "c"], "odd `name`": [2, 2]})
    message = (
        "id, odd `name` does not identify rows of 'sales.t': several have id = 7, odd `name` = 2\n"
        "  Name more columns in on=…, or leave it out to compare whole rows."
    )
    on = ["id", "odd `name`"]
    for first, second in ((before, "main"), ("main", before)):
        with pytest.raises(InvalidRequest) as by_spark:
            diff_rows(spark, "sales.t", first, second, on=on)
        with pytest.raises(InvalidRequest) as in_process:
            lake.diff_rows("sales.t", first, second, on=on)
        assert by_spark.value.message == in_process.value.message == message
        assert by_spark.value.details == in_process.value.details == {"table": "sales.t", "columns": on}
    assert diff_rows(spark, "sales.t", before, "main", on=["id", "v"]).count() == 2


def test_equal_rows_of_one_key_are_refused_too(spark: SparkSession, lake: Lake) -> None:
    lake.table("t").write({"id": [1], "v": ["a"]})
    before = lake.resolve("main")
    lake.table("t").append({"id": [None, 2, None], "v": ["b", "b", "b"]})
    with pytest.raises(InvalidRequest, match="id does not identify rows of 't': several have id = None"):
        diff_rows(spark, "t", before, "main", on="id")


def test_a_table_that_one_commit_has_not_is_added_or_removed(spark: SparkSession, lake: Lake) -> None:
    lake.table("other").write({"id": [1]})
    before = lake.resolve("main")
    lake.table("t").write({"id": [1, 1]})
    assert find_changes(diff_rows(spark, "t", before, "main")) == {"insert": [{"id": 1}, {"id": 1}]}
    assert find_changes(diff_rows(spark, "t", "main", before)) == {"delete": [{"id": 1}, {"id": 1}]}
    with pytest.raises(KeyNotFound, match=r"there is no 'no\.table'"):
        diff_rows(spark, "no.table", before, "main")


def test_what_cannot_be_compared_is_refused(spark: SparkSession, lake: Lake) -> None:
    lake.table("t").write({"id": [1], "v": ["a"]}, format="parquet")
    before = lake.resolve("main")
    lake.table("t").write({"id": [1.0], "v": [5]}, mode="overwrite")
    with pytest.raises(InvalidRequest, match="the column 'v' of 't' is string at one commit and bigint"):
        diff_rows(spark, "t", before, "main")
    assert diff_rows(spark, "t", before, "main", columns=["id"]).collect() == []
    with pytest.raises(InvalidRequest, match="has no column 'w' at both commits; there are id, v"):
        diff_rows(spark, "t", before, "main", on="w")
