"""Overwrites of tables by their own rows, in formats that do not check what a write has read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import CommitConflict, MergeConflict
from penstock.kernel.format import READ_AND_CHANGED
from penstock.lake.own_reads import WAY_OUT
from penstock.lake.views import Snapshot
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.transactions import is_transaction_branch_name
from penstock.spark.requests import WriteOptions, WriteRequest
from penstock.spark.writer import write_request

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.format import SparkFormat


def overwrite_read_table(
    rows: DataFrame, spark_format: SparkFormat, request: WriteRequest, more: WriteOptions
) -> None:
    """Overwrite a table by rows that are made of its own, in a transaction that has read it.

    ``CommitConflict`` if the table was changed after it was read: those rows would be lost.
    """
    lake, key = request.lake, request.key
    if is_transaction_branch_name(request.branch_name):
        _check_unchanged(request, request.branch_name)
        write_request(rows, spark_format, request, more)
        return
    try:
        with lake.transaction(request.branch_name, message=request.message or "") as own:
            _check_unchanged(request, own.branch)
            lake.table(key, own.branch).note_read()
            write_request(rows, spark_format, replace(request, branch=own.branch), more)
    except MergeConflict as conflict:
        raise CommitConflict(conflict.conflicts, f"{conflict.message}{WAY_OUT}") from None


def _check_unchanged(request: WriteRequest, branch: str) -> None:
    """Check that in a transaction the table is as it was read."""
    lake, key = request.lake, request.key
    now = lake.at(branch).outside_read_set.get(key)
    for read in request.own_reads:
        snapshot = Snapshot(lake, read.pin.commit, read.pin.via)
        if snapshot.outside_read_set.get(key) != now:
            conflict = Conflict(ConflictKind.FORMAT, key, why=READ_AND_CHANGED)
            raise CommitConflict([conflict], f"cannot commit: {conflict}{WAY_OUT}")
