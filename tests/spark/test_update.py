"""Columns get new values in the rows for which a condition is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.spark.merge_builder import merge
from penstock.spark.row_changes import update
from tests.spark.reading_tables import in_each_engine, using
from tests.spark.writing_cases import delta_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "shop.stock"
PLACE = pa.struct([("town", pa.string()), ("shelf", pa.int32())])
SCHEMA = StructType(
    (
        Field(name="id", type="long", nullable=False),
        Field(name="kind", type="string", nullable=True),
        Field(name="count", type="integer", nullable=True),
        Field(
            name="place",
            type=StructType(
                (
                    Field(name="town", type="string", nullable=True),
                    Field(name="shelf", type="integer", nullable=True),
                )
            ),
            nullable=True,
        ),
    )
)
ARROW = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("count", pa.int32()), ("place", PLACE)])
ROWS: list[dict[str, Any]] = [
    {"id": 1, "kind": "a", "count": 10, "place": {"town": "Ulm", "shelf": 1}},
    {"id": 2, "kind": "a", "count": None, "place": None},
    {"id": 3, "kind": "b", "count": 30, "place": {"town": "Ulm", "shelf": 3}},
    {"id": 4, "kind": None, "count": 40, "place": {"town": None, "shelf": 4}},
]


@pytest.fixture
def create(lake: Lake) -> Callable[..., Table]:
    """Makes a table with a file for each kind, and one for none."""

    def made(**wanted: Any) -> Table:
        lake.delta.create(KEY, schema=SCHEMA, partition_by=["kind"], **wanted)
        table = lake.table(KEY)
        table.append(pa.Table.from_pylist(ROWS, schema=ARROW))
        return table

    return made


def found(table: Table) -> list[dict[str, Any]]:
    """The rows by id, as the lake and deltalake both read them."""
    rows = sorted(table.to_arrow().to_pylist(), key=lambda one: one["id"])
    table.backfill_to_version()
    others = delta_table(table.location).to_pyarrow_table().to_pylist()
    assert sorted(others, key=lambda one: one["id"]) == rows
    return rows


def changed(**by_id: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, **by_id.get(f"_{one['id']}", {})} for one in ROWS]


def test_only_files_with_such_rows_are_written_anew(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    before = {one.path for one in table.snapshot().files()}
    done = update(spark, KEY, {"count": "count + id"}, "id >= 3 and kind is not null", author="ada")
    assert done is not None
    assert done.commit is not None
    assert done.commit.author == "ada"
    assert found(table) == changed(_3={"count": 33})
    assert len(before & {one.path for one in table.snapshot().files()}) == 2
    assert table.history(1)[0].operation == "UPDATE"


def test_values_are_sql_columns_or_values_of_python(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    from pyspark.sql import functions as f

    table = create()
    update(spark, KEY, {"COUNT": 7, "kind": f.concat(f.col("kind"), f.lit("x"))}, f.col("id") == 1)
    update(spark, KEY, {"count": None}, "id = 3")
    assert found(table) == changed(_1={"count": 7, "kind": "ax"}, _3={"count": None})


def test_rows_whose_partition_columns_change_move(spark: SparkSession, create: Callable[..., Table]) -> None:
    table = create()
    update(spark, KEY, {"kind": "nullif('b', kind)"})
    assert found(table) == changed(_1={"kind": "b"}, _2={"kind": "b"}, _3={"kind": None}, _4={"kind": "b"})
    by_file = {tuple(one.partition_values.values()) for one in table.snapshot().files()}
    assert by_file == {("b",), (None,)}


def test_a_part_of_a_struct_gets_a_value_and_the_others_stay(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    update(spark, KEY, {"place.shelf": "id * 100"}, "id < 3")
    assert found(table) == changed(
        _1={"place": {"town": "Ulm", "shelf": 100}}, _2={"place": {"town": None, "shelf": 200}}
    )


def test_a_row_for_which_the_condition_is_null_stays(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create()
    update(spark, KEY, {"count": "0"}, "kind <> 'zzz'")
    assert found(table) == changed(_1={"count": 0}, _2={"count": 0}, _3={"count": 0})
    assert update(spark, KEY, {"count": "0"}, "kind = 'zzz'") is None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nobody": "1"}, "no column 'nobody'"),
        ({"place.nobody": "1"}, "no column 'place.nobody'"),
        ({"count": "'7'"}, "'count' has the type int"),
        ({"count": "true"}, "'count' has the type int"),
        ({"count": "1", "COUNT": "2"}, "assigned twice"),
        ({"place": "null", "place.town": "'Ulm'"}, "as a whole and in part"),
        ({"count": "nobody + 1"}, "nobody"),
        ({"count": "max(count)"}, "computed from one row each"),
        ({"count": "max(count) over ()"}, "computed from one row each"),
        ({"count": "explode(array(1, 2))"}, "computed from one row each"),
        ({}, "nothing is assigned"),
    ],
)
def test_values_that_no_column_can_take_are_refused_before_a_job(
    spark: SparkSession, create: Callable[..., Table], values: dict[str, Any], said: str
) -> None:
    table = create()
    with pytest.raises(InvalidRequest, match=said):
        update(spark, KEY, values)
    assert table.version == 1


@pytest.mark.verify
@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize(
    ("values", "said"), [({"count": "id * 10000000000"}, "cannot store"), ({"id": "null"}, "null")]
)
def test_a_value_that_does_not_fit_ends_the_job_and_changes_nothing(
    spark: SparkSession, create: Callable[..., Table], values: dict[str, str], said: str, ansi: str
) -> None:
    table = create()
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    with pytest.raises(InvalidRequest, match=said):
        update(spark, KEY, values)
    assert found(table) == ROWS


@in_each_engine
def test_rows_are_told_before_and_after_in_the_change_data_feed(
    spark: SparkSession, create: Callable[..., Table], engine: str
) -> None:
    table = create(properties={"delta.enableChangeDataFeed": "true"})
    done = update(using(spark, engine), KEY, {"count": "count + 1", "kind": "'c'"}, "id in (1, 4)")
    assert done is not None
    assert found(table) == changed(_1={"count": 11, "kind": "c"}, _4={"count": 41, "kind": "c"})
    feed = pa.table(delta_table(table.location).load_cdf(starting_version=done.version)).to_pylist()
    told = sorted((one["id"], one["_change_type"], one["kind"], one["count"]) for one in feed)
    assert told == [
        (1, "update_postimage", "c", 11),
        (1, "update_preimage", "a", 10),
        (4, "update_postimage", "c", 41),
        (4, "update_preimage", None, 40),
    ]


def test_a_value_that_differs_each_time_is_the_same_in_the_table_and_in_the_feed(
    spark: SparkSession, create: Callable[..., Table]
) -> None:
    table = create(properties={"delta.enableChangeDataFeed": "true"})
    done = update(spark, KEY, {"place.town": "uuid()", "count": "cast(rand() * 1e9 as int)"}, "id = 1")
    assert done is not None
    (row,) = [one for one in found(table) if one["id"] == 1]
    feed = pa.table(delta_table(table.location).load_cdf(starting_version=done.version)).to_pylist()
    (after,) = [one for one in feed if one["_change_type"] == "update_postimage"]
    assert (after["place"], after["count"]) == (row["place"], row["count"])


@pytest.mark.verify
def test_columns_may_have_names_that_sql_has_to_quote(spark: SparkSession, lake: Lake) -> None:
    lake.delta.create("odd", data=pa.table({"x.y": [1, 2, 3], "select": [1, 2, 3]}))
    update(spark, "odd", {"x.y": "`x.y` * 10"}, "`select` = 2")
    news = spark.createDataFrame([(7, 3), (8, 4)], "`x.y` long, `select` long")
    upsert = merge(news, "odd", "target.`select` = source.`select`")
    upsert.when_matched_update_all().when_not_matched_insert_all().commit()
    rows = lake.table("odd").to_arrow().to_pylist()
    assert sorted((one["select"], one["x.y"]) for one in rows) == [(1, 1), (2, 20), (3, 7), (4, 8)]


STRICT = StructType(
    (
        Field(name="id", type="long", nullable=False),
        Field(
            name="place",
            type=StructType(
                (
                    Field(name="town", type="string", nullable=False),
                    Field(name="shelf", type="integer", nullable=True),
                )
            ),
            nullable=True,
        ),
        Field(name="sizes", type=ArrayType(element_type="long", contains_null=False), nullable=True),
        Field(
            name="notes",
            type=MapType(key_type="string", value_type="long", value_contains_null=False),
            nullable=True,
        ),
    )
)
STRICT_ROWS = [
    {"id": 1, "place": {"town": "Ulm", "shelf": 1}, "sizes": [1], "notes": [("a", 1)]},
    {"id": 2, "place": None, "sizes": None, "notes": None},
]


@pytest.fixture
def strict(lake: Lake) -> Table:
    """A table with columns that may be null, and whose parts may not."""
    lake.delta.create(KEY, schema=STRICT)
    table = lake.table(KEY)
    kinds = {"id": pa.int64(), "place": PLACE, "sizes": pa.list_(pa.int64())}
    schema = pa.schema({**kinds, "notes": pa.map_(pa.string(), pa.int64())})
    table.append(pa.Table.from_pylist(STRICT_ROWS, schema=schema))
    return table


def rows_of(table: Table) -> list[dict[str, Any]]:
    """By id, as the lake reads them: deltalake makes no Arrow of a null whose parts cannot be null."""
    return sorted(table.to_arrow().to_pylist(), key=lambda one: one["id"])


@pytest.mark.verify
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"place.shelf": "7"}, "'place' is null in a row, but 'place.town' is not nullable"),
        ({"place": "named_struct('town', nullif(id, 2), 'shelf', 1)"}, "'place.town' is not nullable"),
        ({"sizes": "array(1, nullif(id, 2))"}, "'sizes.element' is not nullable"),
        ({"notes": "map('a', nullif(id, 2))"}, "'notes.value' is not nullable"),
    ],
    ids=["a part of a null", "in a struct", "in an array", "in a map"],
)
def test_no_null_gets_inside_of_a_value_where_none_may_be(
    spark: SparkSession, strict: Table, values: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        update(spark, KEY, values)
    assert rows_of(strict) == STRICT_ROWS


@pytest.mark.verify
def test_values_whose_types_allow_nulls_are_taken_where_they_have_none(
    spark: SparkSession, strict: Table
) -> None:
    news = {
        "place": "named_struct('town', nullif('Bonn', ''), 'shelf', 2L)",
        "sizes": "array(1, nullif(2, 3))",
        "notes": "map('b', nullif(2L, 3L))",
    }
    update(spark, KEY, {**news, "id": "id"}, "id = 2")
    second = {"id": 2, "place": {"town": "Bonn", "shelf": 2}, "sizes": [1, 2], "notes": [("b", 2)]}
    assert rows_of(strict) == [STRICT_ROWS[0], second]
    # A source hardly ever says that parts cannot be null.
    columns = "id long, place struct<town: string, shelf: int>, sizes array<long>, notes map<string, long>"
    source = spark.createDataFrame([(1, None, [5], {"c": 3}), (3, ("Hof", None), None, None)], columns)
    upsert = merge(source, KEY, "target.id = source.id")
    upsert.when_matched_update_all().when_not_matched_insert_all().commit()
    assert rows_of(strict) == [
        {"id": 1, "place": None, "sizes": [5], "notes": [("c", 3)]},
        second,
        {"id": 3, "place": {"town": "Hof", "shelf": None}, "sizes": None, "notes": None},
    ]


def test_a_row_is_not_inserted_with_a_part_missing_that_it_needs(spark: SparkSession, strict: Table) -> None:
    source = spark.range(7, 8)
    upsert = merge(source, KEY, "target.id = source.id")
    with pytest.raises(InvalidRequest, match=r"'place\.town' of 'shop.stock' is not nullable; give it"):
        upsert.when_not_matched_insert({"id": "source.id", "place.shelf": "1"}).commit()
    assert strict.version == 1
