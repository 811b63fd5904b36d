"""Tables of files for engines of SQL that have no Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidRequest, TableExists
from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake.answers import FilesTableInfo
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.lake.session_reads import ReadFacts, read_table
from penstock.formats.files.lake.sessions import SessionCaller
from penstock.lake.scan_files import ScanColumn, ScanPiece, TableScan
from penstock.lake.session_settings import OPTION
from penstock.lake.sql_catalog.formats import WITH_PYTHON, SqlFormat
from penstock.lake.sql_catalog.requests import (
    CatalogRequest,
    EmptyTable,
    RowOrder,
    TableDescription,
    WritePlan,
)
from penstock.lake.write_jobs import SaveMode
from penstock.model.transactions import is_transaction_branch_name
from penstock.storage.hadoop import make_hadoop_address
from penstock.storage.places import SCRATCH

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


class FilesSql(SqlFormat):
    """Tables of files: read in any format that Spark has."""

    content_type = FilesTable.content_type
    described = "table of files"

    def describe_table(self, table: Table, version: int | None) -> TableDescription:
        _check_no_version(table, version)
        about = _get_table_info(table)
        return TableDescription(
            provider=about.layout.format,
            schema=about.layout.schema,
            partition_by=about.layout.partition_by or (),
        )

    def plan_scan(self, table: Table, request: CatalogRequest) -> TableScan:
        assert request.table is not None
        assert request.table.pin is not None
        _check_no_version(table, request.table.version)
        about = _get_table_info(table)
        if not about.layout.format:
            raise InvalidRequest(
                f"the format of the files of '{table.key}' is not known: read it by PySpark, as in "
                "penstock.spark.read(…, format='parquet')",
                table=str(table.key),
            )
        facts = ReadFacts(
            format=about.layout.format,
            pinned={"": request.table.pin},
            zone=request.zone,
            infers=request.infers,
            has_local_times=request.has_local_times,
            is_case_sensitive=request.is_case_sensitive,
        )
        files = read_table(SessionCaller(table.lake.do), table.key, facts)
        piece = ScanPiece(
            files=files.files, schema=files.schema, partition_schema=files.partition_schema, how=files.how
        )
        columns = None
        if about.layout.schema:
            names = [*_list_column_names(about.layout.schema), *_list_column_names(files.partition_schema)]
            columns = tuple(ScanColumn(name=name, source=name) for name in dict.fromkeys(names))
        return TableScan(pieces=(piece,), columns=columns)

    def create_table(self, lake: Lake, table: EmptyTable) -> WritePlan:
        if lake.table(table.key, table.branch).outside_read_set.exists:
            raise TableExists(f"the table '{table.key}' already exists", key=str(table.key))
        if table.cluster_by:
            raise InvalidRequest(f"a {self.described} cannot be clustered: leave out CLUSTER BY")
        order = RowOrder(
            key=table.key,
            branch=table.branch,
            source=table.source,
            mode=SaveMode.ERROR,
            schema=table.schema,
            partition_by=table.partition_by,
            properties=table.properties,
            is_new=True,
            message=f"CREATE TABLE {table.key}",
            author=lake.author,
        )
        return self.plan_write(lake, order)

    def truncate_table(self, lake: Lake, table: EmptyTable) -> WritePlan:
        order = RowOrder(
            key=table.key,
            branch=table.branch,
            source=table.source,
            mode=SaveMode.OVERWRITE,
            schema=table.schema,
            message=f"TRUNCATE TABLE {table.key}",
            author=lake.author,
        )
        return self.plan_write(lake, order)

    def plan_write(self, lake: Lake, order: RowOrder) -> WritePlan:
        key = order.key
        if order.replace_where is not None:
            raise InvalidRequest(
                f"'{key}' is a {self.described}, which does not support replacing rows by a condition: "
                "INSERT OVERWRITE replaces all rows, or whole partitions",
                table=str(key),
            )
        is_in_transaction = order.branch is not None and is_transaction_branch_name(order.branch)
        if order.own_reads and order.mode is SaveMode.OVERWRITE and not is_in_transaction:
            raise InvalidRequest(
                f"'{key}' is a {self.described}, which a Spark driver without Python overwrites by its own "
                "rows only in a transaction: put BEGIN TRANSACTION before the statement and COMMIT after it, "
                f"or {WITH_PYTHON}",
                table=str(key),
            )
        if order.properties:
            raise InvalidRequest(
                f"'{key}' is a {self.described}, which has no properties: leave out TBLPROPERTIES",
                table=str(key),
            )
        partition_by = order.partition_by
        if not order.is_new:
            partition_by = _get_table_info(lake.table(key, order.branch)).layout.partition_by or ()
        # The lake decides by what is there when the job commits; Spark is only to write files.
        mode = "overwrite" if order.mode is SaveMode.OVERWRITE else "append"
        options = {
            "table": str(key),
            "mode": order.mode.value,
            "branch": order.branch or lake.default_branch,
            "message": order.message,
            "partition_overwrite": "dynamic" if order.is_dynamic else "static",
            **({"author": order.author} if order.author else {}),
        }
        return WritePlan(
            format=order.source,
            path=make_hadoop_address(lake.warehouse.rstrip("/")) + f"/{SCRATCH}/unused",
            mode=mode,
            partition_by=partition_by,
            options={OPTION + name: value for name, value in options.items()},
        )


def _get_table_info(table: Table) -> FilesTableInfo:
    return table.lake.do(GetFilesTable(key=table.key, at=table.ref, via=table.via))


def _check_no_version(table: Table, version: int | None) -> None:
    if version is not None:
        raise InvalidRequest(
            f"'{table.key}' is a table of files, which has no versions of its own: name a revision of the "
            "lake, such as VERSION AS OF 'main~1'",
            table=str(table.key),
        )


def _list_column_names(schema: str) -> list[str]:
    return [str(field["name"]) for field in msgspec.json.decode(schema)["fields"]]
