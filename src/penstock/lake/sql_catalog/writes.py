"""Rows that an engine without Python writes: how it is to write them, and their commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.lake.own_reads import own_reads
from penstock.lake.sql_catalog.formats import (
    SqlFormat,
    find_sql_format,
    find_sql_format_by_name,
    make_needs_python_error,
)
from penstock.lake.sql_catalog.requests import CatalogRequest, RowOrder, WritePlan
from penstock.lake.sql_catalog.tables import (
    check_columns,
    find_replaced,
    parse_clustering_columns,
    parse_partition_columns,
    select_table_properties,
    write_plain_types,
)
from penstock.lake.sql_catalog.writer_options import WriterOptions
from penstock.lake.write_jobs import SaveMode
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


def plan_write(lake: Lake, request: CatalogRequest) -> WritePlan:
    """How the engine is to write the rows of INSERT, or of CREATE or REPLACE TABLE AS SELECT."""
    sql_format, order = _parse_order(lake, request)
    return sql_format.plan_write(lake, order)


def commit_write(lake: Lake, request: CatalogRequest) -> dict[str, Any]:
    """Commit the files that the engine has written. Asked again, it is done once."""
    if request.written is None:
        raise InvalidRequest("the request lacks the list of written files")
    sql_format, order = _parse_order(lake, request)
    sql_format.commit_write(lake, order, request.written)
    return {}


def find_written_table(request: CatalogRequest) -> tuple[Key, str | None]:
    """The key and the branch that rows are written to."""
    return request.written_key if request.table is None else request.written_table


def _parse_order(lake: Lake, request: CatalogRequest) -> tuple[SqlFormat, RowOrder]:
    options = WriterOptions.parse_options(request)
    if others := options.beside_replacing:
        raise make_needs_python_error(f"the option '{others[0]}' cannot be used for a write")
    if options.is_partial:
        if request.table is None:
            raise make_needs_python_error(
                "'replaceWhere' and 'partitionOverwriteMode' cannot be used by saveAsTable"
            )
        request = replace(
            request,
            replace_where=options.replace_where or request.replace_where,
            dynamic=options.is_dynamic and not options.replace_where,
        )
    return _make_order(lake, request) if request.table is None else _make_insert_order(lake, request)


def _make_insert_order(lake: Lake, request: CatalogRequest) -> tuple[SqlFormat, RowOrder]:
    facts = request.known_table
    key, branch = request.written_table
    verb = "INSERT INTO" if request.save_mode is SaveMode.APPEND else "INSERT OVERWRITE"
    order = RowOrder(
        key=key,
        branch=branch,
        source=facts.provider,
        mode=request.save_mode,
        schema=request.schema,
        is_dynamic=request.dynamic,
        replace_where=request.replace_where,
        own_reads=own_reads(lake, request, key, branch),
        zone=request.zone,
        message=f"{verb} {key}",
        author=request.user,
    )
    return find_sql_format(lake.table(key, branch).outside_read_set), order


def _make_order(lake: Lake, request: CatalogRequest) -> tuple[SqlFormat, RowOrder]:
    key, branch = request.written_key
    if request.location is not None:
        raise InvalidRequest(
            f"LOCATION is not supported, because the lake chooses the location of '{key}': leave it out"
        )
    schema = write_plain_types(request.schema)
    check_columns(key, schema)
    if parse_clustering_columns(request.partitioning):
        raise InvalidRequest(f"create '{key}' with CLUSTER BY first, and then INSERT INTO it")
    if request.is_replace:
        find_replaced(lake, request)
    provider = (request.provider or "").lower()
    sql_format = find_sql_format_by_name(provider)
    verb = "REPLACE" if request.is_replace else "CREATE"
    order = RowOrder(
        key=key,
        branch=branch,
        source=provider,
        mode=request.save_mode,
        schema=schema,
        partition_by=parse_partition_columns(request.partitioning),
        properties=select_table_properties(request.properties),
        description=request.comment or "",
        is_new=True,
        own_reads=own_reads(lake, request, key, branch),
        message=f"{verb} TABLE {key} AS SELECT",
        author=request.user,
    )
    return sql_format, order
