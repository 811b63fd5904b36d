"""The change data feed: which rows the versions of a table inserted, deleted and updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.keys import Key
from penstock.spark.arguments import check_version
from penstock.spark.format import ask_format
from penstock.spark.sessions import lake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake


def changes(
    spark: SparkSession,
    key: str | Key,
    from_version: int,
    to_version: int | None = None,
    *,
    ref: str | None = None,
    lake: Lake | None = None,
) -> DataFrame:
    """The changes of a table from one version to another, both included; to the latest if none is named.

    Rows have the columns that the table has at the last of these versions, and ``_change_type``,
    ``_commit_version`` and ``_commit_timestamp`` beside them. ``ref`` says on which branch, at which tag or
    commit the table is looked at.

    ``InvalidRequest`` if the table did not record its changes at one of the versions, or if its columns were
    others there that the last one cannot show; ``VersionNotFound`` if there is no such version, or if its
    commit or its data is there no more.
    """
    found_lake = lake_of(spark, lake)
    check_version(from_version, "from_version")
    check_version(to_version, "to_version")
    table = found_lake.at(ref).table(key)
    return ask_format(
        table, lambda spark_format: spark_format.changes(spark, table, from_version, to_version)
    )
