"""A merge of rows into a Delta table: the files that it takes are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.formats.delta.rows.writing import check_features
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import rewriting
from penstock.formats.delta.spark.rewrites.pairs import Pairs
from penstock.formats.delta.spark.rewrites.rewriting import Rewrite
from penstock.spark import jar
from penstock.spark.analysis import explain_analysis, parse_condition
from penstock.spark.requests import NOT_MATCHED, UPDATE, MergeClause, RowMerge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_merge(table: JobTable, plan: RowMerge) -> Rewrite | None:
    """Write the files that a merge takes; ``None`` if there is nothing to do."""
    _check_clauses(plan.clauses)
    only_inserts = all(one.kind == NOT_MATCHED for one in plan.clauses)
    if only_inserts:
        check_features(table.metadata)
    else:
        rewriting.check_changeable(table)
    for clause in plan.clauses:
        _check_all(clause, plan.source, table)
    with nullcontext(plan.source) if only_inserts else _evaluated_once(plan.source) as source:
        pairs = Pairs(table, source, parse_condition(plan.on), plan.clauses)
        return pairs.inserted() if only_inserts else pairs.changed()


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


def _check_all(clause: MergeClause, source: DataFrame, table: JobTable) -> None:
    """``InvalidRequest`` if all columns are to be taken from a source that has others than the table."""
    if clause.values is not None:
        return
    with explain_analysis():
        there = {name.lower() for name in source.columns}
    fields = {one.name.lower() for one in table.schema.fields}
    problems = [f"the source has no column '{name}'" for name in sorted(fields - there)]
    problems += [f"the table has no column '{name}'" for name in sorted(there - fields)]
    if problems:
        raise InvalidRequest(f"'{table.key}' cannot take all columns of the source: {'; '.join(problems)}")


def _check_clauses(clauses: Sequence[MergeClause]) -> None:
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
