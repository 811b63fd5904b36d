"""Tables with deletion vectors under Spark: rows that change are marked as deleted, and their files stay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import PenstockError, TableConflict
from penstock.formats.delta.lake.row_rewrite import RowRewrite
from penstock.formats.delta.rows import deletion_words, vectors
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import row_marks
from penstock.formats.delta.spark.rewrites.change_plans import plan_delete, plan_update
from penstock.lake.call import CommitDescription
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.change_feed import changes
from penstock.spark.merge_builder import merge
from penstock.spark.reader import read
from penstock.spark.row_changes import delete, update
from penstock.spark.writer import write
from tests.spark.counted_work import counted_work
from tests.spark.reading_tables import adopted, put_file, with_vectors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = {"delta.enableDeletionVectors": "true"}
FULL = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
    "delta.columnMapping.mode": "name",
}
COUNT = 150
"""Rows of a file: more than two words of them."""


def rows(first: int, count: int = COUNT) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([0] * count, pa.int64())})


def two_files(lake: Lake, key: str, properties: dict[str, str]) -> tuple[Table, str, str]:
    """A table of two files, and their names."""
    table = lake.delta.create(key, data=rows(0), properties=properties)
    (first,) = marked(table)
    table.append(rows(COUNT))
    (second,) = marked(table).keys() - {first}
    return table, first, second


def found(table: Table) -> dict[int, int]:
    """Values by id; no id is there twice."""
    there = table.to_arrow().to_pylist()
    assert len({one["id"] for one in there}) == len(there)
    return {one["id"]: one["v"] for one in there}


def marked(table: Table) -> dict[str, int]:
    """How many rows are marked as deleted, by the files of the table."""
    return {
        one.path: 0 if one.deletion_vector is None else one.deletion_vector.cardinality
        for one in table.snapshot().files()
    }


def land(change: RowRewrite | None) -> int:
    assert change is not None
    return change.commit_rewrite(CommitDescription(), None).version


# -- the same rows as without --------------------------------------------------------------------------------


def run_statements(spark: SparkSession, key: str) -> None:
    """Statements of every kind, some on rows of files that have deletion vectors by then."""
    delete(spark, key, "id in (0, 63, 64, 127, 149, 151)")
    update(spark, key, {"v": "v + 1"}, "id % 10 = 3")
    source = spark.createDataFrame([(1, 7), (64, 7), (65, 8), (900, 9), (901, None)], "id long, v long")
    pairs = merge(source, key, "source.id = target.id")
    pairs = pairs.when_matched_delete("source.v = 8").when_matched_update({"v": "source.v"}, "target.id < 60")
    pairs = pairs.when_not_matched_insert_all("source.v is not null")
    pairs.when_not_matched_by_source_update({"v": "-1"}, "target.id = 299").commit()
    several = spark.createDataFrame([(2,), (2,), (70,)], "id long")
    merge(several, key, "source.id = target.id").when_matched_delete().commit()
    replaced = spark.createDataFrame([(n, 5) for n in range(100, 103)], "id long, v long")
    write(replaced, key, mode="overwrite", replace_where="id between 100 and 110")
    update(spark, key, {"v": "2"}, "id >= 150 and id < 400")  # no row is left of the second file


def row_ids(table: Table) -> dict[int, tuple[int, int]]:
    there = table.to_arrow(columns=["id", "_row_id", "_row_commit_version"]).to_pylist()
    return {one["id"]: (one["_row_id"], one["_row_commit_version"]) for one in there}


def feed_of(spark: SparkSession, table: Table) -> Counter[tuple[Any, ...]]:
    there = changes(spark, table.key, 2).drop("_commit_timestamp").collect()
    return Counter(map(tuple, there))


@pytest.mark.verify
def test_statements_leave_what_they_would_leave_without_vectors(spark: SparkSession, lake: Lake) -> None:
    tables = []
    for key, properties in (("plain", FULL), ("marking", {**FULL, **VECTORS})):
        table, first, second = two_files(lake, key, properties)
        run_statements(spark, key)
        assert second not in marked(table)
        assert marked(table).get(first) == (None if key == "plain" else 33)
        tables.append(table)
    plain, marking = tables
    assert found(marking) == found(plain)
    old, new = row_ids(plain), row_ids(marking)
    assert {one: version for one, (_, version) in new.items()} == {
        k: version for k, (_, version) in old.items()
    }
    # Not those that were deleted and came again: ids of new rows depend on what was written.
    there = [one for one in old if one < 300 and one != 64 and not 100 <= one <= 110]
    assert {one: new[one] for one in there} == {one: old[one] for one in there}
    assert len({number for number, _ in new.values()}) == len(new)
    assert feed_of(spark, marking) == feed_of(spark, plain)
    shown = read(spark, "marking", columns=["id", "v", "_row_id"]).collect()
    assert {one[0]: (one[1], one[2]) for one in shown} == {k: (found(plain)[k], new[k][0]) for k in new}


def test_only_changed_rows_are_written(spark: SparkSession, lake: Lake) -> None:
    table = lake.delta.create("t", data=rows(0), properties=VECTORS)
    (file,) = marked(table)
    delete(spark, "t", "id < 3")
    assert marked(table) == {file: 3}
    assert table.snapshot().history(1)[0].info["operationMetrics"] == {"numDeletedRows": "3"}
    update(spark, "t", {"v": 1}, "id = 5")
    merge(
        spark.createDataFrame([(6, 2)], "id long, v long"), "t", "source.id = target.id"
    ).when_matched_update_all().commit()
    adds = list(table.snapshot().files())
    assert (
        sum(int(one.stats.split('"numRecords":')[1].split(",")[0]) for one in adds if one.stats) == COUNT + 2
    )
    assert marked(table)[file] == 5
    assert found(table) == {n: {5: 1, 6: 2}.get(n, 0) for n in range(3, COUNT)}


def test_files_are_read_once_to_find_rows_and_once_to_write_them(spark: SparkSession, lake: Lake) -> None:
    """Nothing but words of rows that are meant goes from one task to another, and nothing else is written."""
    lake.delta.create("t", data=rows(0, 1000), properties=VECTORS)
    for number in range(3):  # the first time without vectors; later, deleted rows leave the reader no more
        with counted_work(spark) as work:
            delete(spark, "t", f"id % 500 = {number}")
        assert (work.read_rows, work.shuffled_rows, work.written_rows) == (1000 - 2 * number, 2, 0)
        assert work.jobs <= 3
    with counted_work(spark) as work:
        update(spark, "t", {"v": 1}, "id % 500 = 10")
    assert (work.read_rows, work.shuffled_rows, work.written_rows) == (994 + 2, 2, 2)
    source = spark.range(0, 1010, 505).selectExpr("id + 20 AS id", "5L AS v")
    with counted_work(spark) as work:
        merge(source, "t", "source.id = target.id").when_matched_update_all().commit()
    # The rows that are found and the source's are joined once more.
    assert work.read_rows <= 2 * 1000 + 2 + 4 * 2
    assert work.shuffled_rows <= 2 + 2 * 2
    assert work.written_rows == 2


# -- what could go wrong -------------------------------------------------------------------------------------


def test_a_condition_that_depends_on_the_time_chooses_rows_once(spark: SparkSession, lake: Lake) -> None:
    """Rows become old while the statement runs: those that were not chosen at first stay as they are."""
    from pyspark.sql import functions as f

    soon = spark.range(4000).select(
        "id", f.expr("0L AS v"), f.expr("current_timestamp() + id * interval '0.002' second AS t")
    )
    soon = spark.createDataFrame(soon.toArrow())
    lake.delta.create("t", schema=soon.toArrow().schema, properties=VECTORS)
    write(soon.coalesce(1), "t")
    update(spark, "t", {"v": "1"}, "t < current_timestamp()")
    table = lake.table("t")
    first = found(table)
    assert len(first) == 4000
    assert sum(first.values()) > 0
    pairs = merge(soon.select("id"), "t", "source.id = target.id")
    pairs.when_matched_update({"v": "2"}, "target.t < current_timestamp()").commit()
    after = found(table)
    assert after.keys() == first.keys()
    assert {after[one] for one, value in first.items() if value} == {2}


def test_of_two_changes_of_a_file_one_is_refused_and_leaves_nothing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "INLINE_MAX_BYTES", 0)
    table = lake.delta.create("t", data=rows(0), properties=VECTORS)
    first = plan_delete(spark, JobTable(lake, "t"), "id = 1")
    second = plan_update(spark, JobTable(lake, "t"), {"v": "1"}, "id = 2")
    assert second is not None
    land(first)
    there = set(Path(table.location).rglob("*.bin"))
    assert len(there) == 2
    with pytest.raises(TableConflict):
        land(second)
    assert len(set(Path(table.location).rglob("*.bin"))) == 1
    assert len(set(Path(table.location).glob("*.parquet"))) == 1
    assert found(table) == {n: 0 for n in range(COUNT) if n != 1}


def test_files_are_removed_if_their_vectors_cannot_be_written(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "INLINE_MAX_BYTES", 0)
    table = lake.delta.create("t", data=rows(0), properties=VECTORS)
    lake.branch("dev").create()
    folder = JobTable(lake, "t", "dev").data_folder
    in_the_way = Path(table.location) / folder / "vectors"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    with pytest.raises(PenstockError):
        update(spark, "t", {"v": "1"}, "id = 2", branch="dev")
    assert list(Path(table.location, folder).rglob("*.parquet")) == []
    in_the_way.unlink()
    update(spark, "t", {"v": "1"}, "id = 2", branch="dev")
    assert found(lake.table("t", "dev"))[2] == 1


def test_a_file_whose_statistics_lack_the_number_of_rows_gets_it(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    data, root = rows(0), tmp_path / "t"
    file = put_file(root, "a.parquet", data, stats=None)
    table = adopted(lake, root, [[*with_vectors(data), file]])
    delete(spark, "t", "id >= 100")
    (after,) = table.snapshot().files()
    assert (after.path, after.stats) == ("a.parquet", f'{{"numRecords":{COUNT},"tightBounds":false}}')
    assert found(table) == dict.fromkeys(range(100), 0)


def test_more_words_than_can_be_held_have_files_rewritten(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_words, "WORDS_MAX", 2)
    monkeypatch.setattr(row_marks, "ROWS_AT_ONCE", COUNT)
    table, first, second = two_files(lake, "t", VECTORS)
    delete(spark, "t", "id = 0 or id = 299")
    assert marked(table) == {first: 1, second: 1}
    delete(spark, "t", "id in (1, 100)")
    delete(spark, "t", "id in (151, 152, 220, 290)")
    assert first in marked(table)
    assert second not in marked(table)
    assert len(found(table)) == 2 * COUNT - 8


def test_marks_of_a_branch_are_merged_reverted_and_restored(spark: SparkSession, lake: Lake) -> None:
    table = lake.delta.create("t", data=rows(0), properties={**VECTORS, "delta.enableRowTracking": "true"})
    before, ids = found(table), row_ids(table)
    dev = lake.branch("dev").create()
    delete(spark, "t", "id < 70", branch="dev")
    update(spark, "t", {"v": "1"}, "id = 140", branch="dev")
    table.append(rows(1000, 2))
    dev.merge_into("main")
    merged = {**{n: before[n] for n in range(70, COUNT)}, 140: 1, 1000: 0, 1001: 0}
    assert found(table) == merged
    assert row_ids(table)[140][0] == ids[140][0]
    delete(spark, "t", "id = 75")
    lake.revert(lake.branch("main").head)
    assert found(table) == merged
    table.restore(version=0)
    assert (found(table), row_ids(table)) == (before, ids)
