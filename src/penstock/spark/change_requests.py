"""What a program gives with every change of rows by Spark, as a request to the table's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.keys import Key
from penstock.spark.requests import ChangeRequest
from penstock.spark.session_lakes import get_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake


def build_request(
    spark: SparkSession,
    key: str | Key,
    lake: Lake | None,
    branch: str | None,
    message: str | None,
    author: str | None,
    idempotency_key: str | None = None,
) -> ChangeRequest:
    """The request. Without a lake, the session's is meant."""
    return ChangeRequest(
        spark=spark,
        lake=get_lake(spark, lake),
        key=Key.parse(key),
        branch=branch,
        message=message,
        author=author,
        idempotency_key=idempotency_key,
    )
