"""What Spark does with tables of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.formats.files.content import FilesTable
from penstock.formats.files.lake.calls import GetFilesTable
from penstock.formats.files.spark import reader, writer
from penstock.formats.files.spark.session_steps import answer_step
from penstock.lake.sql_catalog.requests import TableDescription
from penstock.spark.format import ScannedTable, SparkFormat
from penstock.spark.requests import ReadRequest, WriteRequest, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake
    from penstock.lake.table import Table


class FilesSpark(SparkFormat):
    """Tables of files: written and read in any format that Spark has, also by code that knows only its
    session."""

    content_type = FilesTable.content_type
    described = "table of files"
    write_hint = "give the format of its files, as in format='parquet'"
    write_options = frozenset({
        "partition_by", "partition_overwrite", "job_id", "job_branch", "success_file", "timeout_s",
    })  # fmt: skip
    read_options = frozenset({"schema", "options", "folder"})
    others_options = "applies to Delta and Lance tables only, not to format='{}'"

    def write_rows(self, df: DataFrame, request: WriteRequest) -> WriteResult | None:
        return writer.write_files(df, request)

    def read_table(self, spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
        return reader.read_rows(spark, table, request)

    def scan_table(self, spark: SparkSession, table: Table) -> ScannedTable:
        return reader.scan_table(spark, table)

    def describe_table(self, spark: SparkSession, table: Table, version: int | None) -> TableDescription:
        about = table.lake.do(GetFilesTable(key=table.key, at=table.ref, via=table.via))
        rows = self.read_table(spark, table.outside_read_set, ReadRequest(version=version))
        return TableDescription(
            provider=about.layout.format,
            schema=rows.schema.json(),
            partition_by=about.layout.partition_by or (),
        )

    def answer_session(self, lake: Lake, step: str, request: str) -> Any:
        return answer_step(lake, step, request)
