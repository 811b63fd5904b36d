"""``sink`` and ``stream``: Spark streams into tables of a lake, and out of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Unpack, cast

from penstock.errors import InvalidRequest
from penstock.model.keys import Key
from penstock.spark import jar
from penstock.spark.format import check_known, default_format
from penstock.spark.requests import TableOptions, WriteOptions, WriteResult
from penstock.spark.session_lakes import get_lake
from penstock.spark.spark_errors import mark_errors
from penstock.spark.writer import check_write_options, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake

QUERY_ID: Final = "sql.streaming.queryId"
"""Where Spark tells which streaming query a batch is of. The checkpoint keeps it across restarts."""
MODES: Final = {"append": "append", "overwrite": "overwrite", "complete": "overwrite"}
_SKIPPED: Final = (
    "batch %d of '%s' is in '%s' already and was skipped. After a crash this is normal. If the query's "
    "checkpoint was deleted, its rows are missing: choose another app_id"
)

logger = logging.getLogger("penstock")


def sink(
    key: str | Key,
    *,
    branch: str | None = None,
    lake: Lake | None = None,
    app_id: str | None = None,
    mode: str = "append",
    message: str | None = None,
    author: str | None = None,
    **more: Unpack[TableOptions],
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that writes each batch of a stream to a table once.

    >>> rows.writeStream.foreachBatch(sink("sales.orders")).option("checkpointLocation", …)  # doctest: +SKIP

    The table stores the number of the last batch, in the same commit as its rows. So a batch that Spark
    repeats after a crash is recognized before anything is written. With the mode ``overwrite``, or
    ``complete``, each batch replaces the one before, whatever the session's partition overwrite mode is. The
    further arguments are those of ``write``; batch numbers take the place of idempotency keys.

    An append of a batch without rows makes no version.

    Batches are identified by the id of the query, which its checkpoint holds: a query with a new checkpoint
    is a new query. ``app_id`` replaces that id. Change it whenever the checkpoint is deleted: otherwise
    batches count from 0 again, and those whose numbers the table already has are skipped.
    """
    parsed = Key.parse(key)
    if (chosen := MODES.get(str(mode).lower())) is None:
        raise InvalidRequest(f"the mode of a stream must be one of {', '.join(MODES)}, got {mode!r}")
    options = cast("WriteOptions", {"partition_overwrite": "static", **more})
    check_known(more, TableOptions.__optional_keys__, "a stream into a table")
    check_write_options(default_format(), "", options)

    def write_batch(rows: DataFrame, batch: int) -> None:
        with mark_errors():
            query = app_id if app_id is not None else _query_id(rows.sparkSession)
            numbered = cast("WriteOptions", {**options, "app_id": query, "batch": batch})
            result = write(
                rows,
                parsed,
                mode=chosen,
                branch=branch,
                lake=lake,
                message=message,
                author=author,
                **numbered,
            )
            if app_id is not None and _is_skipped(rows, result):
                logger.warning(_SKIPPED, batch, app_id, parsed)

    return write_batch


def stream(
    spark: SparkSession,
    key: str | Key,
    *,
    ref: str | None = None,
    lake: Lake | None = None,
    where: str | None = None,
    starting_version: int | str | None = None,
    starting_timestamp: str | None = None,
    max_files_per_trigger: int | None = None,
    skip_change_commits: bool = False,
) -> DataFrame:
    """The rows of a table as a stream: those that it has now, and then those that each new version adds.

    With ``starting_version`` (a number, or ``"latest"``) or ``starting_timestamp``, only rows that are added
    from there on are read. Versions that only rewrite files add no rows. A version that removes or replaces
    rows ends the query with an error, unless ``skip_change_commits`` skips such versions.

    Spark reads it by ``format("penstock")``, in processes of its own: they open the lake by its address, so
    it cannot be one in memory.
    """
    options = {
        "lake": get_lake(spark, lake).url,
        "table": str(Key.parse(key)),
        "ref": ref,
        "where": where,
        "startingVersion": starting_version,
        "startingTimestamp": starting_timestamp,
        "maxFilesPerTrigger": max_files_per_trigger,
        "skipChangeCommits": "true" if skip_change_commits else None,
    }
    option_texts = {name: str(value) for name, value in options.items() if value is not None}
    return spark.readStream.format("penstock").options(**option_texts).load()


def _query_id(spark: SparkSession) -> str:
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID) if jar.is_classic(spark) else None
    if not query_id:
        raise InvalidRequest(
            "Spark does not say which streaming query this batch belongs to; name the query, as in sink(…, "
            "app_id='orders-from-kafka'), and use another name when you delete the checkpoint"
        )
    return str(query_id)


def _is_skipped(rows: DataFrame, result: WriteResult | None) -> bool:
    """Whether a batch was left out since the table has it, and not since there is nothing in it."""
    return not rows.isEmpty() if result is None else result.is_repeated
