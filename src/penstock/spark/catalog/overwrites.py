"""Overwrites of tables by their own rows, in formats that do not check what a write has read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import CommitConflict, MergeConflict
from penstock.kernel.format import READ_AND_CHANGED
from penstock.lake.own_reads import WAY_OUT
from penstock.lake.views import Snapshot
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.spark.requests import WriteOptions, WriteRequest
from penstock.spark.writer import write_request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.transactions.transaction import Transaction
    from penstock.spark.format import SparkFormat


def overwrite_read_table(
    rows: DataFrame, spark_format: SparkFormat, request: WriteRequest, more: WriteOptions
) -> None:
    """Overwrite a table by rows that are made of its own, in a transaction that has read it.

    ``CommitConflict`` if others changed the table after it was read: their rows would be lost.
    """
    lake, key = request.lake, request.key
    try:
        with lake.transaction(request.branch_name, message=request.message or "") as own:
            _check_unchanged(request, own)
            lake.table(key, own.branch).note_read()
            write_request(rows, spark_format, replace(request, branch=own.branch), more)
    except MergeConflict as conflict:
        raise CommitConflict(conflict.conflicts, f"{conflict.message}{WAY_OUT}") from None


def _check_unchanged(request: WriteRequest, own: Transaction) -> None:
    """Check that the table is as it was read where the transaction begins."""
    lake, key = request.lake, request.key
    now = lake.at(own.base).outside_read_set.get(key)
    for read in request.own_reads:
        snapshot = Snapshot(lake, read.pin.commit, read.pin.via)
        if snapshot.outside_read_set.get(key) != now:
            conflict = Conflict(ConflictKind.FORMAT, key, why=READ_AND_CHANGED)
            raise CommitConflict([conflict], f"cannot commit: {conflict}{WAY_OUT}")
