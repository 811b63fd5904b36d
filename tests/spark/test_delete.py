"""Rows are deleted by a condition, and only files that hold such rows are written anew."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.protocol.actions import Cdc, parse_commit
from penstock.formats.rows.arrow_types import make_schema
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.reader import read
from penstock.spark.row_changes import delete, update
from penstock.spark.writer import write
from tests.formats.delta.logs import protocol
from tests.formats.delta.rows import inline_vector, metadata_for, vector_data
from tests.spark.reading_tables import adopted, in_each_engine, put_file, using, with_vectors, written
from tests.spark.writing_cases import delta_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.orders"
DAYS = (date(2026, 11, 1), date(2026, 11, 2), None)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("note", pa.string())])


def orders(numbers: range, day: date | None) -> pa.Table:
    """Every third note is null."""
    rows = [{"id": one, "day": day, "note": f"n{one}" if one % 3 else None} for one in numbers]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def create(lake: Lake) -> Callable[..., Table]:
    """Makes the table of three files, one for each day: 0 to 9, 10 to 19, 20 to 29."""

    def made(**wanted: Any) -> Table:
        lake.delta.create(KEY, schema=SCHEMA, **{"partition_by": ["day"], **wanted})
        table = lake.table(KEY)
        for number, day in enumerate(DAYS):
            table.append(orders(range(number * 10, number * 10 + 10), day))
        return table

    return made


def ids(table: Table) -> list[int]:
    """By the lake's own reader and by deltalake's, which agree."""
    table.backfill_to_version()
    found = sorted(delta_table(table.location).to_pyarrow_table()["id"].to_pylist())
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == found
    return found


def paths(table: Table) -> set[str]:
    return {one.path for one in table.snapshot().files()}


def left(*gone: int) -> list[int]:
    return [one for one in range(30) if one not in gone]


@in_each_engine
def test_only_files_with_such_rows_are_written_anew(
    spark: SparkSession, create: Callable[..., Table], engine: str
) -> None:
    table = create()
    before = paths(table)
    done = delete(using(spark, engine), KEY, "id in (3, 4, 15)", message="gone")
    assert done is not None
    assert done.commit is not None
    assert done.commit.message == "gone"
    assert ids(table) == left(3, 4, 15)
    assert len(before & paths(table)) == 1
    (last,) = table.history(1)
    assert last.operation == "DELETE"
    assert last.info["operationParameters"] == {"predicate": "id in (3, 4, 15)"}
    assert last.info["readVersion"] == 3


def test_a_condition_on_partition_columns_removes_files_without_writing_any(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    before = paths(table)
    # Functions of Spark are Spark's to evaluate, for partition values too.
    assert delete(spark, KEY, "day is null or dayofmonth(day) = 2") is not None
    assert ids(table) == list(range(10))
    assert paths(table) < before


def test_rows_that_a_deletion_vector_names_do_not_come_back(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    data, root = pa.table({"id": range(10)}), tmp_path / "t"
    begin = with_vectors(data)
    cut = replace(written(lake, root, begin[1], data), deletion_vector=inline_vector(vector_data({0, 5}), 2))
    other = written(lake, root, begin[1], pa.table({"id": range(10, 20)}))
    table = adopted(lake, root, [[*begin, cut, other]], KEY)
    assert delete(spark, KEY, "id = 5") is None
    assert delete(spark, KEY, "id = 6") is not None
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 7, 8, 9, *range(10, 20)]
    vectors = [one.deletion_vector for one in table.snapshot().files()]
    assert [None if one is None else one.cardinality for one in vectors] == [3, None]
    lake.delta.unset_properties(KEY, ["delta.enableDeletionVectors"])
    assert delete(spark, KEY, "id = 7") is not None
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 8, 9, *range(10, 20)]
    assert [one.deletion_vector for one in table.snapshot().files()] == [None, None]
    assert delete(spark, KEY) is not None
    assert table.to_arrow().num_rows == 0


def test_a_row_for_which_the_condition_is_null_stays(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    delete(spark, KEY, "note like 'n%'")
    assert ids(table) == [one for one in range(30) if one % 3 == 0]
    delete(spark, KEY, "day <> '2026-11-01'")
    assert ids(table) == [0, 3, 6, 9, 21, 24, 27]


@pytest.mark.parametrize("where", ["id > 1000", "day = '2020-01-01'", "upper(note) = 'X'", "1 = 0", "null"])
def test_nothing_is_committed_where_no_row_is_meant(
    spark: SparkSession, create: Callable[..., Table], where: str
) -> None:
    table = create()
    assert delete(spark, KEY, where) is None
    assert table.version == 3


def test_without_a_condition_all_rows_go(spark: SparkSession, create: Callable[..., Table]) -> None:
    table = create(partition_by=())
    assert delete(spark, KEY) is not None
    assert ids(table) == []
    assert delete(spark, KEY) is None


def test_a_condition_may_be_a_column(spark: SparkSession, create: Callable[..., Table]) -> None:
    from pyspark.sql import functions as f

    table = create()
    delete(spark, KEY, (f.col("id") % 10 == 7) & f.col("day").isNotNull())
    assert ids(table) == left(7, 17)


def test_a_function_of_python_s_is_refused_without_spark_s_notes_on_it(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    from pyspark.sql import functions as f

    create()
    by_chance = f.udf(lambda number: number > 3, "boolean").asNondeterministic()
    with pytest.raises(InvalidRequest, match="is not deterministic") as caught:
        delete(spark, KEY, by_chance("id"))
    assert "Origin" not in caught.value.message


@pytest.mark.verify
def test_conditions_that_spark_reads_otherwise_than_the_lake_lose_no_row(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create(partition_by=())
    # To the lake's own parser this compares two columns; to Spark it names a text.
    assert delete(spark, KEY, 'note = "n5"') is not None
    assert delete(spark, KEY, "id = 7 or id = 8 and note = 'n8'") is not None
    assert delete(spark, KEY, "id between 10 and 12 and note is not null") is not None
    assert ids(table) == left(5, 7, 8, 10, 11)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("rand() < 0.5", "is not deterministic"),
        ("nobody = 1", "nobody"),
        ("id = = 1", "Spark does not accept it"),
        ("id + 1", "Spark does not accept it"),
        ("row_number() over (order by id) > 1", "computed from one row each"),
        ("max(id) > 1", "computed from one row each"),
    ],
)
def test_what_is_no_condition_is_refused_before_a_job(
    spark: SparkSession, create: Callable[..., Table], where: str, said: str
) -> None:
    table = create()
    with pytest.raises(InvalidRequest, match=said) as caught:
        delete(spark, KEY, where)
    assert "\n" not in caught.value.message
    assert table.version == 3


def test_rows_of_an_append_only_table_stay(spark: SparkSession, create: Callable[..., Table]) -> None:
    create(properties={"delta.appendOnly": "true"})
    with pytest.raises(InvalidRequest, match="appendOnly"):
        delete(spark, KEY, "id = 1")


def test_deleted_rows_are_told_in_the_change_data_feed(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create(properties={"delta.enableChangeDataFeed": "true"})
    done = delete(spark, KEY, "id in (3, 15)")
    assert done is not None
    assert ids(table) == left(3, 15)
    feed = pa.table(delta_table(table.location).load_cdf(starting_version=done.version))
    told = feed.select(["id", "day", "note", "_change_type"]).to_pylist()
    assert sorted(told, key=lambda one: one["id"]) == [
        {"id": 3, "day": DAYS[0], "note": None, "_change_type": "delete"},
        {"id": 15, "day": DAYS[1], "note": None, "_change_type": "delete"},
    ]
    # Of whole files the feed needs no files of its own.
    done = delete(spark, KEY, "day is null")
    assert done is not None
    table.backfill_to_version()
    (data,) = lake.places.open_place(table.location).read([f"_delta_log/{done.version:020}.json"])
    assert data is not None
    assert not [line for line in parse_commit(data) if isinstance(line.action, Cdc)]


def test_rows_are_deleted_on_a_branch_alone(
    spark: SparkSession, create: Callable[..., Table], lake: Lake
) -> None:
    table = create()
    lake.branch("work").create()
    delete(spark, KEY, "id < 5", branch="work")
    assert ids(table) == left()
    assert sorted(lake.table(KEY, "work").to_arrow()["id"].to_pylist()) == list(range(5, 30))


def test_a_deletion_that_was_done_under_its_key_is_not_done_again(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    first = delete(spark, KEY, "id = 1", idempotency_key="once")
    table.append(orders(range(1, 2), None))
    again = delete(spark, KEY, "id = 1", idempotency_key="once")
    assert first is not None
    assert again is not None
    assert again.version == first.version
    assert ids(table) == left()


@pytest.mark.verify
def test_a_struct_column_may_be_called_target_or_source(spark: SparkSession, lake: Lake) -> None:
    """What the statistics say of the column beside it leaves out no file."""
    rows = [
        {"x": 5, "target": {"x": 1}, "source": {"x": 2}},
        {"x": 5, "target": {"x": 2}, "source": {"x": 1}},
    ]
    table = lake.create_table("t", data=pa.Table.from_pylist(rows))
    assert delete(spark, "t", "target.x = 1") is not None
    assert table.to_arrow()["target"].to_pylist() == [{"x": 2}]
    assert delete(spark, "t", "source.x = 1") is not None
    assert table.to_arrow().num_rows == 0


def test_a_partition_value_of_another_type_is_told_as_a_fault_of_the_log(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    metadata = metadata_for(make_schema(SCHEMA), ["day"])
    file = put_file(tmp_path / "t", "a.parquet", pa.table({"id": [1]}), partition_values={"day": "soon"})
    adopted(lake, tmp_path / "t", [[protocol("appendOnly", "invariants"), metadata, file]])
    with pytest.raises(InvalidLog, match="match the type of their column: 'soon'"):
        delete(spark, "t", "day = '2026-11-01'")


def test_rows_are_looked_for_only_by_columns_that_the_table_has(spark: SparkSession, lake: Lake) -> None:
    """As where rows are to be replaced by a condition on a column that the same write adds."""
    table = lake.create_table("t", data=pa.table({"id": [1]}))
    added = spark.sql("select 2L as id, 1 as added")
    with pytest.raises(InvalidRequest, match="Spark does not accept it") as refused:
        write(added, "t", mode="overwrite", replace_where="added = 1 and id > 0", merge_schema=True)
    assert "\n" not in refused.value.message
    assert (table.version, len(list(Path(table.location).rglob("*.parquet")))) == (0, 1)


@pytest.mark.verify
def test_rows_are_chosen_by_nested_columns_that_are_null(spark: SparkSession, lake: Lake) -> None:
    inner = pa.struct([("a", pa.int64())])
    data = {
        "id": [1, 2, 3],
        "s": pa.array([{"a": 1}, None, {"a": None}], inner),
        "of_structs": pa.array([[{"a": 1}], [], None], pa.list_(inner)),
    }
    table = lake.create_table(KEY, data=pa.table(data))
    assert [row.id for row in read(spark, KEY, where="s IS NULL").collect()] == [2]
    assert [row.id for row in read(spark, KEY, where="of_structs IS NULL").collect()] == [3]
    update(spark, KEY, {"id": "id + 10"}, "s IS NULL")
    assert ids(table) == [1, 3, 12]
    write(
        spark.sql("SELECT 22 id, NULL s, NULL of_structs"), KEY, mode="overwrite", replace_where="s IS NULL"
    )
    assert ids(table) == [1, 3, 22]
    delete(spark, KEY, "of_structs IS NULL")
    assert ids(table) == [1]
