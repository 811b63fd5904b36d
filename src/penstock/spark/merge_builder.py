"""``merge``: update, delete and insert rows of a table by a source that they are matched with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.lake.row_changes import (
    DELETE,
    INSERT,
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    UPDATE,
    MergeClause,
)
from penstock.model.keys import Key
from penstock.spark.arguments import check_frame
from penstock.spark.change_requests import build_request
from penstock.spark.format import ask_format
from penstock.spark.requests import ChangeRequest, RowMerge, Values, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.lake.lake import Lake


def merge(
    source: DataFrame,
    key: str | Key,
    on: str | Column,
    *,
    branch: str | None = None,
    lake: Lake | None = None,
    message: str | None = None,
    author: str | None = None,
    idempotency_key: str | None = None,
    merge_schema: bool = False,
) -> MergeBuilder:
    """Begin to merge rows into a table: add clauses, then call ``commit``.

    ``on`` is the condition by which rows match, such as ``target.id = source.id``; null matches nothing.
    Expressions name columns as ``target.x`` and ``source.x``. If several clauses apply to a row, the first
    whose condition is true is used; only the last one may lack a condition.

    ``merge_schema`` adds columns of the source that the table lacks: all of them with a clause that takes all
    columns, else those that clauses give to columns of the same name. A clause that takes all columns takes
    what the source has then: other columns stay as they are, and are null in new rows.
    """
    check_frame(source)
    change = build_request(source.sparkSession, key, lake, branch, message, author, idempotency_key)
    return MergeBuilder(change, RowMerge(source, on, merge_schema=merge_schema))


class MergeBuilder(NamedTuple):
    """A merge that is being described. Each step gives a new one; nothing is read before ``commit``."""

    change: ChangeRequest
    plan: RowMerge

    def when_matched_update(self, set: Values, condition: str | Column | None = None) -> MergeBuilder:  # noqa: A002
        """Give columns of rows that the source matches new values, as in ``update``."""
        return self._add_clause(MergeClause(MATCHED, UPDATE, set, condition))

    def when_matched_update_all(self, condition: str | Column | None = None) -> MergeBuilder:
        """Put the source's row in the place of the one that it matches; it has all columns of the table."""
        return self._add_clause(MergeClause(MATCHED, UPDATE, None, condition))

    def when_matched_delete(self, condition: str | Column | None = None) -> MergeBuilder:
        """Delete rows that the source matches."""
        return self._add_clause(MergeClause(MATCHED, DELETE, {}, condition))

    def when_not_matched_insert(self, values: Values, condition: str | Column | None = None) -> MergeBuilder:
        """Insert a row for one of the source that matches none; columns without a value are null."""
        return self._add_clause(MergeClause(NOT_MATCHED, INSERT, values, condition))

    def when_not_matched_insert_all(self, condition: str | Column | None = None) -> MergeBuilder:
        """Insert rows of the source that match none; they have all columns of the table."""
        return self._add_clause(MergeClause(NOT_MATCHED, INSERT, None, condition))

    def when_not_matched_by_source_update(
        self,
        set: Values,  # noqa: A002
        condition: str | Column | None = None,
    ) -> MergeBuilder:
        """Give columns of rows that the source does not match new values, made of the rows alone."""
        return self._add_clause(MergeClause(NOT_MATCHED_BY_SOURCE, UPDATE, set, condition))

    def when_not_matched_by_source_delete(self, condition: str | Column | None = None) -> MergeBuilder:
        """Delete rows that the source does not match."""
        return self._add_clause(MergeClause(NOT_MATCHED_BY_SOURCE, DELETE, {}, condition))

    def commit(self) -> WriteResult | None:
        """Do all of it as one version of the table; ``None`` if there is nothing to do.

        ``InvalidRequest`` if a row would be changed by several rows of the source, unless all that is done
        to matched rows is to delete them. ``TableConflict`` if others changed meanwhile what it rests on.
        """
        change, plan = self.change, self.plan
        return ask_format(change.table, lambda spark_format: spark_format.merge_rows(change, plan))

    def _add_clause(self, clause: MergeClause) -> MergeBuilder:
        return self._replace(plan=self.plan._replace(clauses=(*self.plan.clauses, clause)))
