"""``format("penstock")`` as Spark sees it.

Spark imports this to learn that there is such a format, whichever one it looks for, and finds none of them if
that fails. So this imports the rest only when the format is used, and what is missing for it is told then.
"""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType as SparkSchema

from penstock.errors import InvalidRequest
from penstock.spark.failures import telling

if TYPE_CHECKING:
    from penstock.formats.delta.spark.source.reading import Pinned


class PenstockSource(DataSource):
    """A table of a lake, as the options name it.

    A DataFrame shows the version that there was when it was made: ``load()`` asks for the schema, and what is
    found then is kept.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with telling():
            from penstock.spark.source.options import options_of

            self._options = options_of(options)
        self._pin: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> SparkSchema:
        with telling():
            from penstock.formats.delta.spark.source.file_groups import readable_schema
            from penstock.formats.rows.schema import write_schema

            schema = write_schema(readable_schema(self._pinned().metadata))
            return SparkSchema.fromJson(json.loads(schema, object_hook=_without_metadata))

    def reader(self, schema: SparkSchema) -> DataSourceReader:
        with telling():
            from penstock.formats.delta.spark.source.reading import TableReader
            from penstock.spark.schemas import described

            return TableReader(self._options, self._pinned(), described(schema))

    def writer(self, schema: SparkSchema, overwrite: bool) -> DataSourceWriter:
        with telling():
            from penstock.formats.delta.spark.source.target import target_of
            from penstock.formats.delta.spark.source.writing import TableWriter
            from penstock.spark.schemas import described

            options = self._options
            if (options.app_id is None) != (options.batch is None):
                raise InvalidRequest("'app_id' and 'batch' go together: a batch of an application")
            return TableWriter(target_of(options, described(schema), is_overwrite=overwrite))

    def streamReader(self, schema: SparkSchema) -> DataSourceStreamReader:  # noqa: N802
        with telling():
            from penstock.formats.delta.spark.source.streams import TableStream
            from penstock.spark.schemas import described

            return TableStream(self._options, described(schema))

    def streamWriter(self, schema: SparkSchema, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        with telling():
            from penstock.formats.delta.spark.source.target import target_of
            from penstock.formats.delta.spark.source.writing import TableSink
            from penstock.spark.schemas import described

            return TableSink(target_of(self._options, described(schema), is_overwrite=overwrite))

    def _pinned(self) -> Pinned:
        if self._pin is None:
            from penstock.formats.delta.spark.source.reading import pinned

            self._pin = pinned(self._options)
        return self._pin


def _without_metadata(found: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without what Delta keeps in the metadata of columns: it is nothing to users."""
    return {**found, "metadata": {}} if "metadata" in found else found
