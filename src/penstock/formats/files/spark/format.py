"""What Spark does with tables of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.formats.files.content import FilesTable
from penstock.formats.files.spark import reading, writing
from penstock.formats.files.spark.session_steps import answer_step
from penstock.spark.format import SparkFormat
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
    write_hint = "say in which format to write, as in format='parquet'"
    write_options = frozenset({
        "partition_by", "partition_overwrite", "job_id", "job_branch", "success_file", "timeout_s",
    })  # fmt: skip
    read_options = frozenset({"schema", "options", "folder"})
    others_options = "is for tables of rows, and does not go with format='{}'"

    def write(self, df: DataFrame, request: WriteRequest) -> WriteResult | None:
        return writing.write(df, request)

    def read(self, spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
        return reading.rows(spark, table, request)

    def answer_session(self, lake: Lake, step: str, request: str) -> Any:
        return answer_step(lake, step, request)
