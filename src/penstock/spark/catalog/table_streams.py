"""Streams by name: ``readStream.table`` and ``writeStream.toTable``, as ``stream`` and ``sink`` do them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidRequest, NotManaged
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.model.keys import Key
from penstock.spark.format import find_format
from penstock.spark.streams import MODES, sink, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.lake.lake import Lake

_OPTIONS: Final = {
    name.lower(): name
    for name in ("startingVersion", "startingTimestamp", "maxFilesPerTrigger", "skipChangeCommits")
}


def follow_table(spark: SparkSession, lake: Lake, request: CatalogRequest) -> DataFrame:
    """The rows of a table as a stream, from the branch that its name stands for when this is called."""
    key, branch = _streamed_table(lake, request)
    if request.known_table.is_past:
        raise InvalidRequest(f"a stream follows a branch, so '{key}' cannot be read at an earlier version")
    options = {name.lower(): value for name, value in request.options.items()}
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise InvalidRequest(
            f"a stream from '{key}' has no option '{unknown[0]}'; the options are "
            f"{', '.join(sorted(_OPTIONS.values()))}"
        )
    limit = options.get("maxfilespertrigger")
    if limit is not None and not (limit.isascii() and limit.isdigit()):
        raise InvalidRequest(f"'maxFilesPerTrigger' must be a whole number, got {limit!r}")
    return stream(
        spark,
        key,
        ref=branch,
        lake=lake,
        starting_version=options.get("startingversion"),
        starting_timestamp=options.get("startingtimestamp"),
        max_files_per_trigger=None if limit is None else int(limit),
        skip_change_commits=options.get("skipchangecommits", "").lower() == "true",
    )


def begin_stream(spark: SparkSession, lake: Lake, request: CatalogRequest) -> dict[str, Any]:  # noqa: ARG001
    """Check that a stream can write to a table. ``InvalidRequest`` says why not."""
    key, _ = _streamed_table(lake, request)
    if request.known_table.is_past:
        raise InvalidRequest(f"'{key}' is read at an earlier version, which cannot be changed")
    if request.mode not in MODES:
        raise InvalidRequest(
            f"a stream into '{key}' has the output mode 'append' or 'complete', not '{request.mode}'; "
            "foreachBatch with penstock.spark.merge takes rows of mode 'update'"
        )
    return {}


def write_batch(
    spark: SparkSession, lake: Lake, request: CatalogRequest, parts: Sequence[Any]
) -> dict[str, Any]:
    """Write a batch of a stream, once however often Spark repeats it."""
    from pyspark.sql import DataFrame

    key, branch = request.written_table
    write = sink(key, branch=branch, lake=lake, app_id=request.query, mode=request.mode, create=False)
    write(DataFrame(parts[0], spark), request.batch)
    return {}


def _streamed_table(lake: Lake, request: CatalogRequest) -> tuple[Key, str | None]:
    facts = request.known_table
    key, branch = Key(*facts.key), facts.branch or None
    if request.transaction:
        raise InvalidRequest(
            f"a stream of '{key}' cannot be part of the transaction that is open in this session: COMMIT or "
            "ROLLBACK first"
        )
    spark_format = find_format(lake.table(key, branch).outside_read_set)
    if spark_format is None or not spark_format.is_default:
        described = "table of another format" if spark_format is None else spark_format.described
        raise NotManaged(
            f"'{key}' is a {described}, which cannot be streamed: streams are for Delta tables", key=str(key)
        )
    return key, branch
