"""Tables of a catalog: how Spark describes, reads, creates and alters them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from msgspec.structs import replace

from penstock.errors import CommitConflict, NotManaged, TableExists
from penstock.formats.rows.schema import parse_schema
from penstock.lake.sql_catalog import tables as catalog_tables
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    EmptyTable,
    TableDescription,
    TableFacts,
    open_table_at_facts,
)
from penstock.lake.sql_catalog.views import find_view
from penstock.model.content import SqlView
from penstock.model.keys import Key
from penstock.model.operations import Delete, Put
from penstock.spark.format import ask_format, default_format, find_format, get_named_format
from penstock.spark.requests import ReadRequest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake
    from penstock.lake.scan_files import TableScan
    from penstock.lake.table import Table

SessionOf: TypeAlias = "Callable[[], SparkSession]"
"""The session that asks. To make it one of Python's takes questions to the JVM: not every answer needs it."""


def describe_table(spark: SessionOf, lake: Lake, request: CatalogRequest) -> TableFacts:
    """A table or view as a name stands for it. ``NotManaged`` for one that Spark cannot read here."""

    def describe_with_spark(table: Table, version: int | None) -> TableDescription | SqlView:
        spark_format = find_format(table)
        if spark_format is None and (view := find_view(table)) is not None:
            return view
        if spark_format is None:
            kind = table.outside_read_set.content.type_in_words
            raise NotManaged(
                f"'{table.key}' is {kind}, which this catalog cannot read; use the catalog of its own format",
                key=str(table.key),
            )
        stored = spark_format.describe_stored(table.outside_read_set, version)
        return (
            spark_format.describe_table(spark(), table.outside_read_set, version)
            if stored is None
            else stored
        )

    return catalog_tables.describe_table(lake, request, describe_with_spark)


def plan_read(spark: SessionOf, lake: Lake, request: CatalogRequest) -> DataFrame | TableScan:
    """The rows of a table at the commit that its query reads, or what they are made of."""
    facts = request.known_table
    table = open_table_at_facts(lake, facts)
    spark_format = find_format(table)
    assert spark_format is not None
    read_request = ReadRequest(version=facts.version, where=request.where)
    planned = spark_format.plan_read(table, read_request, request.zone)
    return planned(spark()) if callable(planned) else planned


def read_changes(spark: SessionOf, lake: Lake, request: CatalogRequest) -> DataFrame:
    """The changes of a table from one version to another, at the commit that its query reads."""
    table = open_table_at_facts(lake, request.known_table)
    first, last = request.first_version, request.last_version
    return ask_format(table, lambda spark_format: spark_format.read_changes(spark(), table, first, last))


def widen_table(spark: SessionOf, lake: Lake, request: CatalogRequest) -> TableFacts:
    """The table as it is to be with the columns of rows that a statement writes to it. Nothing is changed."""
    table = open_table_at_facts(lake, request.known_table).outside_read_set
    column_names = {field.name.lower() for field in parse_schema(request.known_table.schema).fields}
    catalog_tables.check_columns(table.key, request.schema, column_names)
    spark_format = find_format(table)
    assert spark_format is not None
    return replace(request.known_table, schema=spark_format.widen_schema(spark(), table, request.schema))


def create_table(spark: SessionOf, lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Create a table without rows."""
    table = catalog_tables.parse_new_table(request)
    chosen = get_named_format(table.source) if table.source else default_format()
    catalog_tables.check_column_values(table, is_default=chosen.is_default)
    try:
        if request.is_replace and catalog_tables.find_replaced(lake, request):
            _replace_table(lake, request, table, lambda new: chosen.create_table(spark(), lake, new))
        else:
            chosen.create_table(spark(), lake, table)
    except (TableExists, CommitConflict) as problem:
        if catalog_tables.is_taken(lake, table, problem):
            return {"is_there": True}
        raise
    return {}


def _replace_table(
    lake: Lake, request: CatalogRequest, table: EmptyTable, create: Callable[[EmptyTable], None]
) -> None:
    """Create a table in the place of another one: both at once, or nothing."""
    if not request.transaction:
        message = f"REPLACE TABLE {table.key}"
        with lake.transaction(table.branch, message=message) as own:
            lake.branch(own.branch).drop(table.key)
            create(replace(table, branch=own.branch))
        return
    # What fails must leave the session's transaction as it was: the other one goes when the new one is there.
    *namespace, name = table.key.elements
    made = Key(*namespace, f"{name}__{uuid4().hex}")
    create(replace(table, key=made))
    branch = lake.branch(table.branch)
    content = lake.at(table.branch).get(made)
    assert content is not None
    branch.drop(table.key)
    branch.commit([Delete(made), Put(table.key, content)], message=f"REPLACE TABLE {table.key}")


def alter_table(spark: SessionOf, lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Change columns and properties of a table."""
    key, branch = request.written_key
    changes = catalog_tables.check_changes(key, request.changes)
    spark_format = find_format(lake.table(key, branch).outside_read_set)
    if spark_format is None:
        raise NotManaged(f"'{key}' is a table that this catalog cannot change", key=str(key))
    spark_format.alter_table(spark(), lake, key, branch, changes)
    return {}
