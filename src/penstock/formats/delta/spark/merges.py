"""Merging rows into a table: what a source matches is updated or deleted, what it alone has is inserted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.rows.writing import check_features
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import rewriting
from penstock.formats.delta.spark.rewrites.assigning import Values
from penstock.formats.delta.spark.rewrites.pairs import (
    MATCHED,
    NOT_MATCHED,
    NOT_MATCHED_BY_SOURCE,
    Clause,
    Pairs,
)
from penstock.formats.delta.spark.rewrites.rewriting import DELETE, INSERT, UPDATE, Rewrite
from penstock.lake.answers import Ratified
from penstock.lake.calls import said
from penstock.model.keys import Key
from penstock.spark import jar
from penstock.spark.analysis import analysing, condition_of
from penstock.spark.arguments import check_frame
from penstock.spark.sessions import lake_of

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
) -> Merge:
    """Begin to merge rows into a table: name what is to be done, then ``commit``.

    ``on`` tells which rows of the two belong together, such as ``target.id = source.id``; nulls equal
    nothing. Expressions name columns as ``target.x`` and ``source.x``. Of several clauses for a kind of rows,
    the first applies whose condition is true; only the last may be without one.
    """
    check_frame(source)
    opened = lake_of(source.sparkSession, lake)
    return Merge(source, opened, Key.parse(key), branch, on, message, author, idempotency_key)


class Merge(NamedTuple):
    """A merge that is being described. Each step gives a new one; nothing is read before ``commit``."""

    source: DataFrame
    lake: Lake
    key: Key
    branch: str | None
    on: str | Column
    message: str | None = None
    author: str | None = None
    idempotency_key: str | None = None
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(self, set: Values, condition: str | Column | None = None) -> Merge:  # noqa: A002
        """Give columns of rows that the source matches new values, as in ``update``."""
        return self._with(Clause(MATCHED, UPDATE, set, condition))

    def when_matched_update_all(self, condition: str | Column | None = None) -> Merge:
        """Put the source's row in the place of the one that it matches; it has all columns of the table."""
        return self._with(Clause(MATCHED, UPDATE, None, condition))

    def when_matched_delete(self, condition: str | Column | None = None) -> Merge:
        """Delete rows that the source matches."""
        return self._with(Clause(MATCHED, DELETE, {}, condition))

    def when_not_matched_insert(self, values: Values, condition: str | Column | None = None) -> Merge:
        """Insert a row for one of the source that matches none; columns without a value are null."""
        return self._with(Clause(NOT_MATCHED, INSERT, values, condition))

    def when_not_matched_insert_all(self, condition: str | Column | None = None) -> Merge:
        """Insert rows of the source that match none; they have all columns of the table."""
        return self._with(Clause(NOT_MATCHED, INSERT, None, condition))

    def when_not_matched_by_source_update(
        self,
        set: Values,  # noqa: A002
        condition: str | Column | None = None,
    ) -> Merge:
        """Give columns of rows that the source does not match new values, made of the rows alone."""
        return self._with(Clause(NOT_MATCHED_BY_SOURCE, UPDATE, set, condition))

    def when_not_matched_by_source_delete(self, condition: str | Column | None = None) -> Merge:
        """Delete rows that the source does not match."""
        return self._with(Clause(NOT_MATCHED_BY_SOURCE, DELETE, {}, condition))

    def commit(self) -> Ratified | None:
        """Do all of it as one version of the table; ``None`` if there is nothing to do.

        ``InvalidRequest`` if a row would be changed by several rows of the source, unless all that is done
        to matched rows is to delete them. ``TableConflict`` if others changed meanwhile what it rests on.
        """
        table = JobTable(self.lake, self.key, self.branch)
        if (done := rewriting.done_before(table, self.idempotency_key)) is not None:
            return done
        planned = self.plan(table)
        return (
            None if planned is None else planned.commit(said(self.message, self.author), self.idempotency_key)
        )

    def plan(self, table: JobTable) -> Rewrite | None:
        """Write the files that the merge takes; ``None`` if there is nothing to do."""
        _check_clauses(self.clauses)
        only_inserts = all(one.kind == NOT_MATCHED for one in self.clauses)
        if only_inserts:
            check_features(table.metadata)
        else:
            rewriting.check_changeable(table)
        for clause in self.clauses:
            _check_all(clause, self.source, table)
        with nullcontext(self.source) if only_inserts else _evaluated_once(self.source) as source:
            pairs = Pairs(table, source, condition_of(self.on), self.clauses)
            return pairs.inserted() if only_inserts else pairs.changed()

    def _with(self, clause: Clause) -> Merge:
        return self._replace(clauses=(*self.clauses, clause))


@contextmanager
def _evaluated_once(source: DataFrame) -> Iterator[DataFrame]:
    """The source with rows that are the same at both looks, as far as that is possible.

    One that is deterministic is kept, and evaluated again if executors with parts of it are lost. One that is
    not, as far as Spark can tell, is cut off from where it came from: then the job fails instead.
    """
    if jar.is_classic(source.sparkSession) and not source._jdf.queryExecution().analyzed().deterministic():
        yield source.localCheckpoint(eager=True)
        return
    level = source.storageLevel
    if level.useMemory or level.useDisk:
        yield source  # it is its owner's to release
        return
    held = source.persist()
    try:
        yield held
    finally:
        held.unpersist()


def _check_clauses(clauses: Sequence[Clause]) -> None:
    if not clauses:
        raise InvalidRequest(
            "the merge has no clause; say what is to be done with rows that match, or do not"
        )
    for number, clause in enumerate(clauses):
        later = any(one.kind == clause.kind for one in clauses[number + 1 :])
        if later and clause.condition is None:
            raise InvalidRequest(
                f"a clause for rows that are {clause.kind} has no condition, so that the ones after it would "
                "never apply; only the last may be without"
            )
        if clause.action == UPDATE and clause.values is not None and not clause.values:
            raise InvalidRequest("nothing is assigned; name at least one column")


def _check_all(clause: Clause, source: DataFrame, table: JobTable) -> None:
    """``InvalidRequest`` if all columns are to be taken from a source that has others than the table."""
    if clause.values is not None:
        return
    with analysing():
        there = {name.lower() for name in source.columns}
    fields = {one.name.lower() for one in table.schema.fields}
    problems = [f"the source has no column '{name}'" for name in sorted(fields - there)]
    problems += [f"the table has no column '{name}'" for name in sorted(there - fields)]
    if problems:
        raise InvalidRequest(f"'{table.key}' cannot take all columns of the source: {'; '.join(problems)}")
