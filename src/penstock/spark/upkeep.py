"""``optimize``: rewrite files of a table with the same rows, by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.lake.upkeep import OptimizedTable, OptimizeProgress, no_progress
from penstock.model.keys import Key
from penstock.spark.format import ask_format
from penstock.spark.requests import ChangeRequest, OptimizeRequest
from penstock.spark.sessions import lake_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake


def optimize(
    spark: SparkSession,
    key: str | Key,
    *,
    target_file_bytes: int | None = None,
    where: str | None = None,
    zorder_by: str | Sequence[str] = (),
    branch: str | None = None,
    lake: Lake | None = None,
    message: str | None = None,
    author: str | None = None,
    progress: OptimizeProgress = no_progress,
) -> OptimizedTable:
    """Rewrite files with the same rows: small ones together, without the rows that are deleted.

    As ``Table.optimize``, on the executors of a session: rows of a partition are sorted as a whole, up to 16
    GiB of files at a time. Lance tables and tables of files are rewritten in this process.
    """
    change = ChangeRequest(
        spark=spark,
        lake=lake_of(spark, lake),
        key=Key.parse(key),
        branch=branch,
        message=message,
        author=author,
        idempotency_key=None,
    )
    columns = (zorder_by,) if isinstance(zorder_by, str) else tuple(zorder_by)
    request = OptimizeRequest(target_file_bytes, where, columns, progress)
    return ask_format(change.table, lambda spark_format: spark_format.optimize(change, request))
