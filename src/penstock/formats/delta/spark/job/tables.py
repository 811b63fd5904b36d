"""A Delta table that a job of Spark's works on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.actions import Add, Cdc, Metadata
from penstock.formats.delta.spark.job.files import write_files
from penstock.lake.query_pins import PinnedCommit
from penstock.model.keys import Key
from penstock.spark.schemas import to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType as SparkSchema

    from penstock.lake.lake import Lake


class JobTable(DeltaJob):
    """A table of a branch, and one job of Spark's that changes it."""

    def __init__(
        self,
        lake: Lake,
        key: str | Key,
        branch: str | None = None,
        options: Mapping[str, str] = {},
        *,
        at: PinnedCommit | None = None,
    ) -> None:
        """``options`` are for Spark's Parquet writer."""
        super().__init__(lake, key, branch, at=at)
        self._options = options

    @property
    def to_spark_schema(self) -> SparkSchema:
        return to_spark_schema(self.schema)

    def _open_job(self) -> Self:
        return type(self)(self.lake, self.key, self.branch, self._options)

    def write_rows(
        self, df: DataFrame, *, has_changes: bool = False, metadata: Metadata | None = None
    ) -> list[Add | Cdc]:
        """Write rows as files of the table, and return the actions that would make them part of it.

        The rows have exactly the table's columns: those of ``metadata``, if it is to get others. Rows of a
        table that tracks them may have materialized ids and versions, too. With changes
        they also have ``CHANGES``, and those for which it is true have ``_change_type``: these become
        files of the change data feed.

        ``InvalidRequest`` for rows that the table cannot have, and ``UnsupportedFeature`` if it asks for more
        than Penstock does; then no file is left, as far as possible. Else whatever Spark raises.
        """
        return write_files(
            df,
            self.lake,
            self.location,
            self.metadata if metadata is None else metadata,
            branch=self.branch,
            has_changes=has_changes,
            clustering=self.clustering,
            options=self._options,
        )
