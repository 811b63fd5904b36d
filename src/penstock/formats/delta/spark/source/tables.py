"""A Delta table as ``format("penstock")`` reads and writes it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from pyspark.sql.types import StructType as SparkSchema

from penstock.errors import InvalidRequest
from penstock.formats.delta.spark.source.file_groups import readable_schema
from penstock.formats.delta.spark.source.reader import PinnedTable, TableReader, pin_table
from penstock.formats.delta.spark.source.streams import TableStream
from penstock.formats.delta.spark.source.target import plan_target
from penstock.formats.delta.spark.source.writer import TableSink, TableWriter
from penstock.formats.rows.schema import write_schema
from penstock.spark.schemas import from_spark_schema
from penstock.spark.source.options import SourceOptions


class DeltaSource:
    """A Delta table, as options name it.

    A DataFrame shows the version that there was when it was made: ``load()`` asks for the schema, and what is
    found then is kept.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def schema(self) -> SparkSchema:
        schema = write_schema(readable_schema(self._pinned_table.metadata))
        return SparkSchema.fromJson(json.loads(schema, object_hook=_without_metadata))

    def reader(self, schema: SparkSchema) -> TableReader:
        return TableReader(self._options, self._pinned_table, from_spark_schema(schema))

    def writer(self, schema: SparkSchema, *, is_overwrite: bool) -> TableWriter:
        if (self._options.app_id is None) != (self._options.batch is None):
            raise InvalidRequest(
                "'app_id' and 'batch' must be given together: they name a batch of an application"
            )
        return TableWriter(plan_target(self._options, from_spark_schema(schema), is_overwrite=is_overwrite))

    def stream_reader(self, schema: SparkSchema) -> TableStream:
        return TableStream(self._options, from_spark_schema(schema))

    def stream_writer(self, schema: SparkSchema, *, is_overwrite: bool) -> TableSink:
        return TableSink(plan_target(self._options, from_spark_schema(schema), is_overwrite=is_overwrite))

    @cached_property
    def _pinned_table(self) -> PinnedTable:
        return pin_table(self._options)


def _without_metadata(found: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without what Delta keeps in the metadata of columns: it is nothing to users."""
    return {**found, "metadata": {}} if "metadata" in found else found
