"""What Spark does with Lance tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.lance_requirement import require_lance
from penstock.formats.lance.spark.lance_write_options import LANCE, parse_write_options
from penstock.spark.format import ScannedTable, SparkFormat
from penstock.spark.requests import ReadRequest, WriteRequest, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.table import Table


class LanceSpark(SparkFormat):
    """Lance tables: written and read. Not everybody has Lance: it is imported for such tables alone."""

    content_type = LanceTable.content_type
    described = "Lance table"
    source_name = LANCE
    write_hint = "write to it with format='lance'"
    write_options = frozenset({"overwrite_schema", "job_id"})

    def write_rows(self, df: DataFrame, request: WriteRequest) -> WriteResult | None:
        order = parse_write_options(request)
        require_lance()
        from penstock.formats.lance.spark import writer

        return writer.write_rows(df, request.lake, request.key, request.branch, order)

    def read_table(self, spark: SparkSession, table: Table, request: ReadRequest) -> DataFrame:
        require_lance()
        from penstock.formats.lance.spark import reader

        return reader.read_rows(spark, table, request)

    def scan_table(self, spark: SparkSession, table: Table) -> ScannedTable:
        require_lance()
        from penstock.formats.lance.spark import reader

        return reader.scan_table(spark, table)
