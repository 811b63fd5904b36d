"""Schemas of tables: how they grow, and names that no column can have."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.rows.merged_schemas import check_names, merge_schemas
from penstock.formats.rows.schema import ArrayType, Field, StructType, Type, write_schema


def field(name: str, kind: Type, nullable: bool = True) -> Field:
    return Field(name=name, type=kind, nullable=nullable)


def test_names_inside_of_columns_are_looked_at_too() -> None:
    inside = StructType((field("", "long"), field("tab\t", "long")))
    table, data = StructType((field("id", "long"),)), StructType((field("s", inside),))
    with pytest.raises(InvalidRequest, match=r"without a name in 's'; .* 's\.tab\\t' contains a control"):
        merge_schemas(table, data)


def test_merging_adds_what_is_new_at_every_depth() -> None:
    table = StructType((field("id", "long", False), field("s", StructType((field("a", "integer", False),)))))
    data = StructType((
        field("S", StructType((field("b", "string"), field("A", "long")))),
        field("tags", ArrayType(element_type="string", contains_null=False), False),
    ))  # fmt: skip
    assert merge_schemas(table, data) == StructType((
        field("id", "long", False),
        field("s", StructType((field("a", "integer", False), field("b", "string")))),
        field("tags", ArrayType(element_type="string", contains_null=True)),
    ))  # fmt: skip


def test_a_new_column_that_differs_from_an_old_one_in_case_alone_is_refused_whatever_the_session_minds() -> (
    None
):
    inside = StructType((field("a", "integer"),))
    table = StructType((field("id", "long"), field("s", inside)))
    with pytest.raises(
        InvalidRequest, match="'ID' would be a new column that differs from 'id' only in case"
    ):
        merge_schemas(table, StructType((field("ID", "long"),)), case_sensitive=True)
    deep = StructType((field("s", StructType((field("A", "integer"),))),))
    with pytest.raises(InvalidRequest, match=r"'s\.A' would be a new column"):
        merge_schemas(table, deep, case_sensitive=True)
    assert merge_schemas(table, StructType((field("id", "long"),)), case_sensitive=True) == table


def metadata(*names: str, **properties: str) -> Metadata:
    schema = write_schema(StructType(tuple(field(name, "long") for name in names)))
    return Metadata(id="x", schema_string=schema, partition_columns=(), configuration=properties)


@pytest.mark.parametrize("name", ["__is_cdc", "__IS_CDC", "__penstock_file", "__penstock_row"])
def test_names_that_jobs_use_themselves_are_no_columns_of_a_table(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"the column name '{name}' is reserved"):
        check_names(metadata("id", name))


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_Commit_Timestamp"])
def test_names_of_the_change_data_feed_are_free_where_there_is_none(name: str) -> None:
    check_names(metadata("id", name))
    with pytest.raises(InvalidRequest, match=f"'{name}' is reserved in a table with a change data feed"):
        check_names(metadata("id", name, **{"delta.enableChangeDataFeed": "true"}))
