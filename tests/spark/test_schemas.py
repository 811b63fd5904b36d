"""Rows of DataFrames as rows of tables: what fits, what is made to fit, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.spark.writes.row_casts import fit_rows
from penstock.formats.delta.spark.writes.schemas import new_schema
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type
from penstock.lake.lake import Lake
from penstock.spark import write
from penstock.spark.schemas import from_spark_schema
from tests.spark.writing_cases import files_below, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def field(name: str, kind: Type, nullable: bool = True) -> Field:
    return Field(name=name, type=kind, nullable=nullable)


def test_a_new_table_has_the_types_of_the_data_and_may_be_null_everywhere(spark: SparkSession) -> None:
    df = spark.sql(
        "select 1 as a, array(struct(1L as x)) as b, map('k', cast(1 as decimal(5,2))) as c, 1Y as d,"
        " 'x' as e"
    )
    inside = StructType((field("x", "long"),))
    assert new_schema(df.schema).fields == (
        field("a", "integer"),
        field("b", ArrayType(element_type=inside, contains_null=True)),
        field("c", MapType(key_type="string", value_type="decimal(5,2)", value_contains_null=True)),
        field("d", "byte"),
        field("e", "string"),
    )


def test_notes_of_columns_stay_but_for_rules_of_other_tables(spark: SparkSession) -> None:
    noted = {
        "comment": "how many",
        "delta.generationExpression": "1",
        "__CHAR_VARCHAR_TYPE_STRING": "char(1)",
    }
    df = spark.range(1).withMetadata("id", noted)
    assert new_schema(df.schema).fields[0].metadata == {"comment": "how many"}


def test_types_that_no_table_has_are_all_named(spark: SparkSession) -> None:
    df = spark.sql(
        "select null as nothing, interval 1 day as days, parse_json('1') as any,"
        " array(interval 1 month) as months, 'x' collate UNICODE as sorted, 1 as fine"
    )
    with pytest.raises(InvalidRequest) as refused:
        new_schema(df.schema)
    for name in (
        "'nothing' has the type void",
        "'days'",
        "'months.element'",
        "'sorted'",
    ):
        assert name in refused.value.message
    assert not any(name in refused.value.message for name in ("fine", "'any'"))


def test_a_table_without_columns_is_none(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match="there are no columns"):
        write(spark.range(1).drop("id"), "demo.nothing")


def test_names_that_differ_in_case_alone_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidRequest, match="duplicate column 'ID'"):
        new_schema(spark.sql("select 1 as id, 2 as ID").schema)


def test_names_that_no_column_can_have_are_all_refused_before_a_job(spark: SparkSession, lake: Lake) -> None:
    df = spark.sql("select 1 as a, 2 as b, struct(3 as c, 4 as d) as s").toDF("", "x\ny", "s")
    with pytest.raises(InvalidRequest) as refused:
        write(df, "demo.rows")
    assert "a column without a name" in refused.value.message
    assert r"the column 'x\ny' contains a control character" in refused.value.message
    assert list(lake.at().entries()) == []
    assert not any(Path(lake.warehouse).rglob("*"))


def test_such_names_are_refused_before_a_job_runs(spark: SparkSession, lake: Lake) -> None:
    broken = ["cast(raise_error('a job runs') as long) as id", "true as __is_cdc"]
    with pytest.raises(InvalidRequest, match="the column name '__is_cdc' is reserved"):
        write(spark.range(1).selectExpr(*broken), "demo.new", partition_by="__is_cdc")
    properties = {"delta.enableChangeDataFeed": "true"}
    write(spark.range(1), "demo.fed", properties=properties)
    with pytest.raises(InvalidRequest, match="'_change_type' is reserved in a table"):
        write(spark.range(1).selectExpr("id", "'x' as _change_type"), "demo.fed", merge_schema=True)
    assert not lake.table("demo.new").exists
    assert lake.table("demo.fed").version == 0


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1Y", "short"), ("1S", "integer"), ("1", "long"), ("1", "double"), ("1S", "float"),
        ("float(1)", "double"), ("1", "decimal(10,0)"), ("1L", "decimal(22,2)"), ("null", "date"),
        ("cast(1 as decimal(5,2))", "decimal(7,3)"),
    ],
)  # fmt: skip
def test_wider_types_take_values_of_narrower_ones(spark: SparkSession, given: str, wanted: str) -> None:
    rows = fit_rows(spark.sql(f"select {given} as a"), StructType((field("a", wanted),)))
    assert from_spark_schema(rows.schema).fields[0].type == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("1L", "integer"), ("1", "float"), ("1L", "double"), ("1D", "float"), ("1", "string"),
        ("'1'", "integer"), ("1", "decimal(9,0)"), ("cast(1 as decimal(5,2))", "decimal(5,1)"),
        ("cast(1 as decimal(5,2))", "decimal(5,3)"), ("date'2024-01-01'", "timestamp"), ("true", "integer"),
        ("timestamp_ntz'2024-01-01 00:00:00'", "timestamp"), ("1.5BD", "double"), ("array(1)", "integer"),
        ("struct(1 as x)", ArrayType(element_type="long", contains_null=True)),
    ],
    ids=str,
)  # fmt: skip
def test_what_could_lose_something_is_refused(spark: SparkSession, given: str, wanted: Type) -> None:
    with pytest.raises(InvalidRequest, match="'a' has the type"):
        fit_rows(spark.sql(f"select {given} as a"), StructType((field("a", wanted),)))


def test_all_that_does_not_fit_is_told_at_once(spark: SparkSession) -> None:
    table = StructType((
        field("a", "integer"),
        field("b", StructType((field("x", "integer"), field("y", "string", False)))),
        field("c", "string", False),
    ))  # fmt: skip
    with pytest.raises(InvalidRequest) as refused:
        fit_rows(spark.sql("select 'x' as a, struct(1L as x, 2 as z) as b, 1 as d, 2 as D"), table)
    told = refused.value.message
    for problem in (
        "'a' has the type integer, but the data has string",
        "'b.x' has the type integer, but the data has long",
        "lacks the column 'b.y', which is not nullable",
        "no column 'b.z'",
        "lacks the column 'c', which is not nullable",
        "no column 'd'",
        "the column 'D' twice",
        "merge_schema=True",
    ):
        assert problem in told


def test_columns_are_found_by_name_and_missing_ones_are_null_at_every_depth(spark: SparkSession) -> None:
    inner = StructType((field("p", "long"), field("q", "string")))
    table = StructType((
        field("a", "long"),
        field("b", inner),
        field("c", ArrayType(element_type=inner, contains_null=True)),
        field("d", MapType(key_type="string", value_type=inner, value_contains_null=True)),
        field("e", "date"),
    ))  # fmt: skip
    df = spark.sql(
        "select map('k', struct('v' as Q), 'n', null) as D, array(struct(1 as p), null) as c,"
        " if(id = 0, null, struct('x' as q, 2 as p)) as b, id as A from range(2)"
    )
    found = [row.asDict(recursive=True) for row in fit_rows(df, table).orderBy("a").collect()]
    assert list(found[0]) == ["a", "b", "c", "d", "e"]
    assert found[0]["b"] is None
    assert found[1] == {
        "a": 1,
        "b": {"p": 2, "q": "x"},
        "c": [{"p": 1, "q": None}, None],
        "d": {"k": {"p": None, "q": "v"}, "n": None},
        "e": None,
    }


def test_case_counts_where_the_session_says_so(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    with pytest.raises(InvalidRequest, match="no column 'A'"):
        fit_rows(spark.sql("select 1 as A"), StructType((field("a", "integer"),)))


NOT_NULL: dict[str, tuple[Type, bool, str, str]] = {
    "column": ("long", False, "if(id = 1, null, id)", "'v'"),
    "part": (StructType((field("x", "long", False),)), True, "struct(if(id = 1, null, id) as x)", "'v.x'"),
    "element": (
        ArrayType(element_type="long", contains_null=False),
        True,
        "array(id, if(id = 1, null, id))",
        "'v.element'",
    ),
    "value": (
        MapType(key_type="string", value_type="long", value_contains_null=False),
        True,
        "map('k', if(id = 1, null, id))",
        "'v.value'",
    ),
}  # fmt: skip


@pytest.mark.verify
@pytest.mark.parametrize("case", NOT_NULL)
def test_a_null_where_none_may_be_ends_the_job_and_nothing_is_left(
    spark: SparkSession, lake: Lake, case: str
) -> None:
    kind, nullable, values, path = NOT_NULL[case]
    lake.delta.create_empty("demo.strict", StructType((field("id", "long"), field("v", kind, nullable))))
    df = spark.sql(f"select id, {values} as v from range(0, 4, 1, 1)")
    with pytest.raises(
        InvalidRequest, match=f"the column {path} is not nullable, but the data has nulls in it"
    ):
        write(df, "demo.strict")
    assert files_below(lake, "demo.strict") == set()
    write(df.where("id != 1"), "demo.strict")
    assert len(seen(lake, "demo.strict")) == 3


def test_a_null_struct_may_stand_above_a_part_that_must_not_be_null(spark: SparkSession, lake: Lake) -> None:
    kind: Any = StructType((field("x", "long", False),))
    lake.delta.create_empty("demo.strict", StructType((field("id", "long"), field("v", kind))))
    write(spark.sql("select id, if(id = 0, null, struct(id as x)) as v from range(2)"), "demo.strict")
    assert seen(lake, "demo.strict") == [{"id": 0, "v": None}, {"id": 1, "v": {"x": 1}}]
