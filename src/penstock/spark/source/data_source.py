"""``format("penstock")`` as Spark sees it.

Spark imports this to learn that there is such a format, whichever one it looks for, and finds none of them if
that fails. So this imports the rest only when the format is used, and what is missing for it is told then.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType as SparkSchema

from penstock.spark.spark_errors import mark_errors


class PenstockSource(DataSource):
    """A table of a lake, as the options name it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with mark_errors():
            from penstock.spark.format import default_format
            from penstock.spark.source.options import parse_options

            self._table = default_format().open_source(parse_options(options))

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> SparkSchema:
        with mark_errors():
            return self._table.schema()

    def reader(self, schema: SparkSchema) -> DataSourceReader:
        with mark_errors():
            return self._table.reader(schema)

    def writer(self, schema: SparkSchema, overwrite: bool) -> DataSourceWriter:
        with mark_errors():
            return self._table.writer(schema, is_overwrite=overwrite)

    def streamReader(self, schema: SparkSchema) -> DataSourceStreamReader:  # noqa: N802
        with mark_errors():
            return self._table.stream_reader(schema)

    def streamWriter(self, schema: SparkSchema, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        with mark_errors():
            return self._table.stream_writer(schema, is_overwrite=overwrite)
