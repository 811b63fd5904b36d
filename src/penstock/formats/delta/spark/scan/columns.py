"""The table's columns as Spark makes them of those that it reads from files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.rows.schema import Field, StructType
from penstock.lake.scan_files import ColumnGuard, ScanColumn
from penstock.spark.schemas import quote_name, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column


def show_column(shown: ScanColumn) -> Column:
    """A column of the table; Penstock's class in the JVM does the same (``ServerScan``)."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere with Spark

    if shown.source is None:
        return F.lit(None).alias(shown.name)
    column = F.col(quote_name(shown.source))
    if shown.cast is not None:
        field = Field(name=shown.name, type=shown.cast, nullable=True)
        column = column.cast(to_spark_schema(StructType((field,))).fields[0].dataType)
    if shown.guard is ColumnGuard.REAL:
        column = F.nanvl(column, column)
    elif shown.guard is ColumnGuard.STRUCT:
        column = F.when(column.isNotNull(), column)
    return column.alias(shown.name)
