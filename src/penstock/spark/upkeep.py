"""``optimize``: rewrite files of a table with the same rows, by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.lake.upkeep import OptimizedTable, OptimizeOrder, OptimizeProgress, ignore_progress
from penstock.model.keys import Key
from penstock.spark.change_requests import build_request
from penstock.spark.format import ask_format

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
    progress: OptimizeProgress = ignore_progress,
) -> OptimizedTable:
    """Compact files: rewrite small files, and files with deleted rows, into larger ones.

    Like ``Table.optimize``, on the executors of a session: the rows of a partition are sorted together, up to
    16 GiB of files at a time. Lance tables and tables of files are rewritten in this process.
    """
    change = build_request(spark, key, lake, branch, message, author)
    order = OptimizeOrder.from_arguments(target_file_bytes, where, zorder_by, progress)
    return ask_format(change.table, lambda spark_format: spark_format.optimize_table(change, order))
