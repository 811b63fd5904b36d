"""Writes by ``format("penstock")``: what Spark calls in tasks and beside the driver, for jobs and streams.

Spark picks one message for each partition, so a file of an attempt that lost is never named. ``abort`` is
called after a failed task, and after a commit that raised, whatever became of it. In the second case all
messages are there, and nothing is removed: the commit may have landed, or may be about to.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.delta.protocol.actions import Txn
from penstock.formats.delta.spark.source.target import Messages, PlannedTable, PlannedWrite, TaskMessage
from penstock.spark.spark_errors import mark_errors
from penstock.spark.streams import QUERY_ID


class TableWriter(DataSourceArrowWriter):
    """A job that writes to a table. Made once; Spark sends it to the tasks, and then to the commit."""

    def __init__(self, target: PlannedTable) -> None:
        self._target = target
        self._key = uuid4()
        """Tells this job's commit from any other."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with mark_errors():
            return TaskMessage(self._target.write_batches(iterator))

    def commit(self, messages: Messages) -> None:
        options = self._target.options
        txn = None
        if options.app_id is not None and options.batch is not None:
            txn = Txn(app_id=options.app_id, version=options.batch)
        with mark_errors(), options.open() as lake:
            self._target.commit_files(lake, messages, self._key, txn)

    def abort(self, messages: Messages) -> None:
        if None in messages:
            # An error here would take the place of the one that the job failed with.
            with suppress(PenstockError), self._target.options.open() as lake:
                self._target.discard_files(lake, messages, self._key)


class TableSink(DataSourceStreamArrowWriter):
    """A stream that writes to a table: each batch of a query once, however often Spark repeats it.

    The table remembers the last batch of each query, in the same commit as its rows. Spark makes one of these
    for the tasks and another for each commit, and they share nothing but the messages.
    """

    def __init__(self, target: PlannedTable) -> None:
        self._target = target

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        target = self._target
        planned = PlannedWrite(id=target.id, version=target.version, tip=target.tip, began_s=time.time())
        with mark_errors():
            return TaskMessage(self._target.write_batches(iterator), _query_id(), planned)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        if self._target.is_empty(messages):
            return  # the batch is in the table as it is, however often it is repeated
        with mark_errors():
            app_id = self._target.options.app_id or _query_of(messages)
            target = self._target.as_planned(messages)
            with target.options.open() as lake:
                target.commit_files(lake, messages, uuid4(), Txn(app_id=app_id, version=batchId))

    def abort(  # Spark names the arguments
        self,
        messages: Messages,
        batchId: int,  # noqa: N803, ARG002
    ) -> None:
        if None in messages:
            with suppress(PenstockError), self._target.options.open() as lake:
                self._target.discard_files(lake, messages)


def _query_id() -> str:
    """The streaming query that this task is part of, as its checkpoint knows it across restarts."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) if context is not None else None) or ""


def _query_of(messages: Messages) -> str:
    query_ids = {message.query for message in messages if isinstance(message, TaskMessage)} - {""}
    if len(query_ids) != 1:
        raise InvalidRequest(
            "the id of the streaming query is not known; give it a name that stays the same across restarts, "
            "with the option 'app_id'"
        )
    return query_ids.pop()
