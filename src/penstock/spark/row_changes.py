"""``delete`` and ``update``: change the rows of a table for which a condition is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.keys import Key
from penstock.spark.arguments import check_values
from penstock.spark.change_requests import build_request
from penstock.spark.format import ask_format
from penstock.spark.requests import Values, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from penstock.lake.lake import Lake


def delete(
    spark: SparkSession,
    key: str | Key,
    where: str | Column | None = None,
    *,
    branch: str | None = None,
    lake: Lake | None = None,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> WriteResult | None:
    """Delete the rows for which a condition is true, or all rows. Returns ``None`` if no row matched.

    The condition is SQL text or a ``Column``, and must be deterministic. A condition on partition columns
    alone removes whole files without reading them. ``TableConflict`` if another writer meanwhile changed the
    same files, or added rows that may match other than by an append.
    """
    change = build_request(spark, key, lake, branch, message, author, idempotency_key)
    return ask_format(change.table, lambda spark_format: spark_format.delete_rows(change, where))


def update(
    spark: SparkSession,
    key: str | Key,
    set: Values,  # noqa: A002 - SQL's word
    where: str | Column | None = None,
    *,
    branch: str | None = None,
    lake: Lake | None = None,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
) -> WriteResult | None:
    """Update columns in the rows for which a condition is true. Returns ``None`` if no row matched.

    ``set`` has the values by column, or by part of a struct (``address.city``): text is SQL over the row as
    it was, anything else is itself. They become values of the column's type as in Spark's ``INSERT``. Rows
    whose partition columns change move. Conditions and conflicts are as in ``delete``.
    """
    check_values(set)
    change = build_request(spark, key, lake, branch, message, author, idempotency_key)
    return ask_format(change.table, lambda spark_format: spark_format.update_rows(change, set, where))
