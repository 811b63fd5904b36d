"""The four modes of a single writer, what becomes of types, and what is refused beforehand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import CommitConflict, InvalidRequest, KeyNotFound, NotManaged
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.spark import delete, merge, read, update, write
from tests.spark.lance_tables.cases import ITEMS, data_files, dataset, head, ids, rows, save

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_is_created_with_its_rows_in_one_commit(spark: SparkSession, lake: Lake) -> None:
    done = save(rows(spark, 0, 6, tasks=2), options={"vector.v": 2}, message="first", author="ada")
    assert done is not None
    assert done.commit is not None
    assert (done.version, done.rows) == (1, 6)
    (commit,) = lake.log()
    assert (commit.id, commit.message, commit.authors) == (done.commit.id, "first", ("ada",))
    told = {name: values[0] for name, values in commit.properties.items()}
    assert (told["penstock.job"], told["mode"], told["rows"], told["files"]) == (done.job, "append", "6", "2")
    found = dataset(lake)
    assert str(found.schema.field("v").type) == "fixed_size_list<item: float>[2]"
    assert found.read_transaction(1).transaction_properties["penstock.job"] == done.job
    assert ids(lake) == [0, 1, 2, 3, 4, 5]


def test_append_keeps_what_is_there_and_overwrite_does_not(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    appended = save(rows(spark, 10))
    assert ids(lake) == [0, 1, 2, 10, 11, 12]
    replaced = save(rows(spark, 20), mode="overwrite")
    assert ids(lake) == [20, 21, 22]
    assert appended is not None
    assert replaced is not None
    assert (appended.version, replaced.version) == (2, 3)
    assert read(spark, ITEMS, ref="main~1").count() == 6
    assert read(spark, ITEMS, ref="main~2").count() == 3


@pytest.mark.parametrize("mode", ["error", "ignore"])
@pytest.mark.verify
def test_error_and_ignore_only_create(spark: SparkSession, lake: Lake, mode: str) -> None:
    assert save(rows(spark, 0), mode=mode) is not None
    before, files = head(lake), data_files(lake)
    if mode == "ignore":
        assert save(rows(spark, 10), mode=mode) is None
    else:
        with pytest.raises(CommitConflict, match=r"already has rows, in version 1; nothing was written"):
            save(rows(spark, 10), mode=mode)
    assert (head(lake), data_files(lake), ids(lake)) == (before, files, [0, 1, 2])


@pytest.mark.verify
def test_a_table_that_is_only_declared_gets_its_first_version(spark: SparkSession, lake: Lake) -> None:
    lake.do(CommitLance(operations=(DeclareLance(key=Key.parse(ITEMS)),)))
    done = save(rows(spark, 0), mode="error")
    assert done is not None
    assert done.version == 1
    assert ids(lake) == [0, 1, 2]


@pytest.mark.verify
def test_without_rows_a_new_table_has_columns_and_only_an_overwrite_changes_another(
    spark: SparkSession, lake: Lake
) -> None:
    nothing = rows(spark, 0).where("id < 0")
    assert save(nothing) is not None
    assert read(spark, ITEMS).columns == ["id", "v"]
    save(rows(spark, 0))
    before = head(lake)
    assert save(nothing) is None
    assert head(lake) == before
    assert save(nothing, mode="overwrite") is not None
    assert ids(lake) == []


@pytest.mark.verify
def test_overwrite_keeps_the_columns_unless_they_are_to_be_others(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    other = rows(spark, 5).selectExpr("id", "'x' AS s")
    with pytest.raises(InvalidRequest, match="'s' is not a column of the table"):
        save(other, mode="overwrite")
    save(other, mode="overwrite", overwrite_schema=True)
    assert read(spark, ITEMS).columns == ["id", "s"]
    assert ids(lake) == [5, 6, 7]


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ("string(id) AS id", "'id' is string, but int64 in the table"),
        ("id, array(double(1), double(1)) AS v", r"'v' is list<.*double.*>, but .*\[2\] in the table"),
        ("id, 1 AS w", "'w' is not a column of the table"),
    ],
)
@pytest.mark.verify
def test_rows_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, lake: Lake, select: str, why: str
) -> None:
    save(rows(spark, 0), options={"vector.v": 2})
    before, files = head(lake), data_files(lake)
    with pytest.raises(InvalidRequest, match=why):
        save(spark.range(3).selectExpr(*_split(select)))
    assert (head(lake), data_files(lake)) == (before, files)


def _split(select: str) -> list[str]:
    first, comma, rest = select.partition(", ")
    return [first, rest] if comma else [first]


@pytest.mark.verify
def test_a_vector_of_another_length_ends_the_job_and_nothing_is_left(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0), options={"vector.v": 2})
    before, files = head(lake), data_files(lake)
    one_is_short = spark.range(0, 40, numPartitions=1).selectExpr(
        "id", "IF(id = 39, array(float(1)), array(float(id), float(1))) AS v"
    )
    with pytest.raises(InvalidRequest, match="a vector of 'v' does not have 2 numbers"):
        save(one_is_short)
    assert (head(lake), data_files(lake)) == (before, files)


def test_columns_are_found_by_name_and_those_that_are_missing_are_null(
    spark: SparkSession, lake: Lake
) -> None:
    save(rows(spark, 0).selectExpr("id", "v", "decimal(1.5) AS d", "named_struct('a', 1) AS s"))
    save(spark.range(7, 8).selectExpr("array(float(1)) AS V", "int(id) AS ID"))
    (last,) = read(spark, ITEMS, where="id = 7").collect()
    assert last.asDict() == {"id": 7, "v": [1.0], "d": None, "s": None}


def test_values_of_every_type_come_back_as_they_were(spark: SparkSession, lake: Lake) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        given = spark.range(1, 3).selectExpr(
            "tinyint(id) AS b", "smallint(id) AS sh", "int(id) AS i", "id", "float(id) AS f",
            "double(id) AS do", "CAST(id AS DECIMAL(38, 3)) AS de", "string(id) AS s",
            "binary('x') AS bi", "id = 1 AS bo",
            "DATE '2026-11-15' AS da", "TIMESTAMP '2026-11-15 12:00:00' AS t",
            "TIMESTAMP_NTZ '2026-11-15 12:00:00' AS n", "INTERVAL '1 00:00:00' DAY TO SECOND AS iv",
            "array(id, NULL) AS a",
            "map('k', id) AS m", "named_struct('x', id, 'y', array('z')) AS st", "IF(id = 1, 'q', NULL) AS o",
        )  # fmt: skip
        save(given)
        found = read(spark, ITEMS)
        assert found.select(*given.columns).schema.simpleString() == given.schema.simpleString()
        assert sorted(found.collect()) == sorted(given.collect())
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    (first, _) = dataset(lake).to_table().sort_by("id").to_pylist()
    assert first["t"] == datetime(2026, 11, 15, 11, tzinfo=UTC)
    assert first["de"] == Decimal("1.000")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"partition_by": "id"}, "'partition_by' cannot be used with format='lance'"),
        ({"merge_schema": True}, "'merge_schema' cannot be used with"),
        ({"job_branch": True}, "'job_branch' cannot be used with"),
        ({"overwrite_schema": True}, "'overwrite_schema' can only be used with mode='overwrite'"),
        ({"options": {"compression": "zstd"}}, "'compression' is not an option of a write to a Lance table"),
        ({"options": {"vector.v": "two"}}, "'vector.v' must be a whole number above zero"),
        ({"options": {"vector.w": 2}}, "a vector column 'w', which the data does not have"),
        ({"options": {"vector.id": 2}}, "'id' cannot be a vector column"),
        ({"properties": {"penstock.job": "x"}}, "reserved for the job itself"),
    ],
)
def test_what_means_nothing_is_refused(
    spark: SparkSession, lake: Lake, more: dict[str, Any], why: str
) -> None:
    before = head(lake)
    with pytest.raises(InvalidRequest, match=why):
        save(rows(spark, 0), **more)
    assert head(lake) == before


@pytest.mark.parametrize(
    ("select", "more", "why"),
    [
        ("SELECT 1L AS `a.b`", {}, "do not support these column names.*'a.b'"),
        ("SELECT 1L AS `a``b`", {}, "do not support these column names.*'a`b'"),
        ("SELECT 1L AS ``", {}, "do not support these column names.*''"),
        ("SELECT 1L AS _rowid", {}, "do not support these column names.*'_rowid'"),
        ("SELECT 1L AS id, 2L AS id", {}, "duplicate columns.*'id'"),
        ("SELECT 1L AS id", {"options": {"data_storage_version": "9.9"}}, "'9.9', which Lance"),
    ],
)
def test_what_lance_would_refuse_in_a_task_is_refused_before(
    spark: SparkSession, lake: Lake, select: str, more: dict[str, Any], why: str
) -> None:
    before = head(lake)
    with pytest.raises(InvalidRequest, match=why):
        save(spark.sql(select), **more)
    assert head(lake) == before
    if "twice" in why:
        save(spark.sql("SELECT 1L AS id"))
        with pytest.raises(InvalidRequest, match=why):
            save(spark.sql(select))


@pytest.mark.verify
def test_what_is_for_delta_tables_says_what_a_lance_table_is_read_by(spark: SparkSession, lake: Lake) -> None:
    save(rows(spark, 0))
    asked: list[Callable[[], Any]] = [
        lambda: delete(spark, ITEMS, where="id = 1"),
        lambda: update(spark, ITEMS, set={"id": "1"}, where="id = 1"),
        lambda: merge(rows(spark, 0), ITEMS, on="target.id = source.id").when_matched_delete().commit(),
        lambda: spark.read.format("penstock").option("lake", lake.url).load(ITEMS),
    ]
    for ask in asked:
        with pytest.raises(Exception, match=r"'vectors\.items' is a Lance table.*format='lance'") as refused:
            ask()
        assert "adopt" not in str(refused.value)


@pytest.mark.verify
def test_types_that_lance_has_not_are_named(spark: SparkSession, lake: Lake) -> None:
    before = head(lake)
    with pytest.raises(InvalidRequest, match="'y' has the type interval year"):
        save(spark.range(1).selectExpr("id", "INTERVAL '1' YEAR AS y"))
    assert head(lake) == before


@pytest.mark.verify
def test_tables_of_another_kind_are_not_written_to(spark: SparkSession, lake: Lake) -> None:
    write(rows(spark, 0), "delta.items")
    save(rows(spark, 0))
    before = head(lake)
    with pytest.raises(NotManaged, match=r"'delta\.items' is a Delta table, not a Lance table"):
        save(rows(spark, 0), "delta.items")
    with pytest.raises(NotManaged, match="is a Lance table: write to it with format='lance'"):
        write(rows(spark, 0), ITEMS)
    with pytest.raises(NotManaged):
        write(rows(spark, 0), ITEMS, format="parquet")
    with pytest.raises(KeyNotFound, match="create is False"):
        save(rows(spark, 0), "vectors.others", create=False)
    assert head(lake) == before
