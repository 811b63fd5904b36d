"""Views: tables of a lake for SQL, several of them as they were at one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from penstock.errors import InvalidRequest, KeyNotFound
from penstock.lake.lake import Lake
from penstock.spark.reader import view
from tests.spark.reading_tables import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_views_show_several_tables_at_one_commit(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
    lake.create_table("sales.customers", data=pa.table({"id": [1]}))
    joined = "select count(*) from orders join customers using (id)"
    commit = view(spark, "sales.orders", "sales.customers")
    assert commit == lake.resolve("main")
    lake.delta.append({"sales.orders": pa.table({"id": [3]}), "sales.customers": pa.table({"id": [3]})})
    assert shown(spark.sql(joined)) == [(1,)]
    assert view(spark, "sales.orders", "sales.customers", ref="main") == lake.resolve("main") != commit
    assert shown(spark.sql(joined)) == [(2,)]
    view(spark, "sales.orders", "sales.customers", ref=commit)
    assert shown(spark.sql(joined)) == [(1,)]


def test_a_view_may_be_given_a_name(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("sales.orders", data=pa.table({"id": [1, 2]}))
    view(spark, "sales.orders", name="odd name")
    assert shown(spark.sql("select * from `odd name`")) == [(1,), (2,)]
    with pytest.raises(InvalidRequest):
        view(spark, "sales.orders", "sales.orders", name="both")
    with pytest.raises(InvalidRequest):
        view(spark)


def test_tables_whose_views_would_have_one_name_are_refused(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("north.orders", data=pa.table({"id": [1]}))
    lake.create_table("south.Orders", data=pa.table({"id": [2]}))
    with pytest.raises(InvalidRequest, match="views of the same name"):
        view(spark, "north.orders", "south.Orders")


def test_no_view_is_made_if_one_of_the_tables_is_missing(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("sales.known", data=pa.table({"id": [1]}))
    with pytest.raises(KeyNotFound):
        view(spark, "sales.known", "sales.unknown")
    assert not spark.catalog.tableExists("known")
