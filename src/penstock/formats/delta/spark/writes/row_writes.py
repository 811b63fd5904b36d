"""Writing rows to a Delta table: into the one that is there, or into a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import CommitConflict, IdempotencyKeyReused, KeyNotFound
from penstock.formats.delta.lake import own_reads
from penstock.formats.delta.lake.table import find_earlier_result
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.writes import table_creation, table_fill
from penstock.formats.delta.spark.writes.delta_write_options import DeltaWriteOptions
from penstock.lake.answers import TableCommitResult
from penstock.lake.table_writer import EXISTS
from penstock.lake.write_jobs import SaveMode
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

TRIES_MAX: Final = 5
"""How often a job is run because somebody else created the table while it ran."""


def write_rows(
    df: DataFrame, lake: Lake, key: Key, branch: str | None, order: DeltaWriteOptions, *, create: bool
) -> TableCommitResult | None:
    """Write rows to a table, which is created if it is not there; ``None`` if there is nothing to do."""
    lake.begin_write(makes_lake=create)
    where = branch if branch is not None else lake.default_branch
    try:
        return _write_with_retries(df, lake, key, where, order, create=create)
    except IdempotencyKeyReused:
        # Under that key the same may have been written by somebody else while this job ran.
        earlier_result = find_earlier_result(lake, [key], where, order.idempotency_key)
        if earlier_result is None:
            raise
        return earlier_result


def _write_with_retries(
    df: DataFrame, lake: Lake, key: Key, branch: str, order: DeltaWriteOptions, *, create: bool
) -> TableCommitResult | None:
    if (earlier_result := find_earlier_result(lake, [key], branch, order.idempotency_key)) is not None:
        return earlier_result
    table = _find_table(lake, key, branch, order)
    for tries_left in reversed(range(TRIES_MAX)):
        if table is not None and order.mode is SaveMode.IGNORE:
            return None
        if table is not None and order.mode is SaveMode.ERROR:
            raise CommitConflict(
                [Conflict(ConflictKind.FORMAT, key, why="exists already")], EXISTS.format(key=key)
            )
        if table is not None:
            return table_fill.fill_table(df, table, order)
        if not create:
            raise KeyNotFound(
                f"there is no '{key}' on '{branch}', and create is False", key=str(key), ref=branch
            )
        try:
            return table_creation.create_table(df, lake, key, branch, order)
        except CommitConflict:
            if order.mode is SaveMode.ERROR or not tries_left:
                raise
            # If somebody else has created it, what that means for this job is decided by what is there now.
            # Nothing else would become better by another job.
            table = _find_table(lake, key, branch, order)
            if table is None:
                raise
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


def _find_table(lake: Lake, key: Key, branch: str, order: DeltaWriteOptions) -> JobTable | None:
    try:
        pin = own_reads.oldest_read(lake, key, order.own_reads)
        return JobTable(lake, key, branch, order.options, at=pin)
    except KeyNotFound:
        return None
