"""The change data feed: which rows the versions of a table inserted, deleted and updated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.keys import Key
from penstock.spark.arguments import check_version
from penstock.spark.format import ask_format
from penstock.spark.session_lakes import get_lake

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

    Rows have the columns of the table at the last of these versions, and also ``_change_type``,
    ``_commit_version`` and ``_commit_timestamp``. ``ref`` is the branch, tag or commit at which the table is
    read.

    ``InvalidRequest`` if the table did not record its changes at one of the versions, or had columns then
    that cannot be read with the last schema; ``VersionNotFound`` if a version, its commit or its data does
    not exist.
    """
    found_lake = get_lake(spark, lake)
    check_version(from_version, "from_version")
    check_version(to_version, "to_version")
    table = found_lake.at(ref).table(key)
    return ask_format(
        table, lambda spark_format: spark_format.read_changes(spark, table, from_version, to_version)
    )
