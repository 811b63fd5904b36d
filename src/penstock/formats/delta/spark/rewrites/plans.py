"""Deletions and updates of rows of a Delta table: only files that hold such rows are written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import rewrite
from penstock.formats.delta.lake.calls import Looked
from penstock.formats.delta.lake.rewrite import Rewrite
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.column_rules import expressions_of
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import rewriting
from penstock.formats.delta.spark.rewrites.assignments import assign_values, old_of, row
from penstock.formats.delta.spark.rewrites.choosing import (
    check_deterministic,
    files_of_partitions,
    is_about_partitions,
    necessary,
)
from penstock.formats.delta.spark.rewrites.rewriting import KEEP
from penstock.formats.delta.spark.scan.scans import rows
from penstock.lake.row_changes import DELETE, UPDATE
from penstock.spark.analysis import Condition, explain_analysis, parse_condition
from penstock.spark.requests import Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def plan_delete(spark: SparkSession, table: JobTable, where: str | Column | None) -> Rewrite | None:
    """Write what a deletion leaves of the files that it touches; ``None`` if it touches none."""
    rewrite.check_changeable(table)
    condition = parse_condition(where)
    parameters = {"predicate": condition.told}
    _check(spark, table, condition)
    if is_about_partitions(rows(spark, table.snapshot, ()), condition, table):
        whole = files_of_partitions(spark, table, condition)
        if not whole:
            return None
        reads = rewrite.read_set_of(rewrite.region(table, _necessary_condition(spark, table, condition)))
        return Rewrite(table, "DELETE", parameters, rewrite.removals(whole), reads)
    touched = find(spark, table, condition)
    if not touched.files:
        return None
    from pyspark.sql import functions as f

    old = {field.name: old_of(field.name) for field in table.schema.fields}
    outcome = f.when(condition.column, DELETE).otherwise(KEEP)
    row_ids = rewriting.materialized_row_ids(table, outcome)
    df = rewriting.outcome_rows(touched.rows, old, old, outcome, row_ids)
    return touched.rewritten(df, "DELETE", parameters)


def plan_update(
    spark: SparkSession, table: JobTable, values: Values, where: str | Column | None
) -> Rewrite | None:
    """Write what an update makes of the files that it touches; ``None`` if it touches none."""
    from pyspark.sql import functions as f

    rewrite.check_changeable(table)
    if not values:
        raise InvalidRequest("nothing is assigned; name at least one column")
    condition = parse_condition(where)
    schema = table.schema
    new = assign_values(rows(spark, table.snapshot, ()), values, schema)
    touched = find(spark, table, condition)
    if not touched.files:
        return None
    old = {field.name: old_of(field.name) for field in schema.fields}
    matched = f.coalesce(condition.column, f.lit(False))
    changed = {path[0] for path in new}
    became = {
        name: f.when(matched, one).otherwise(old[name]) if name in changed else one
        for name, one in row(schema, old_of, new).items()
    }
    outcome = f.when(matched, UPDATE).otherwise(KEEP)
    row_ids = rewriting.materialized_row_ids(table, outcome)
    with explain_analysis():
        computed = {name: matched for name, _ in expressions_of(table.metadata) if name not in changed}
        df = rewriting.outcome_rows(
            touched.rows, old, became, outcome, row_ids, rewriting.ComputedRows(schema, computed)
        )
    return touched.rewritten(df, "UPDATE", {"predicate": condition.told})


class Touched(NamedTuple):
    """The files of a table that hold rows for which a condition is true."""

    table: JobTable
    files: list[Add]
    rows: DataFrame
    """All of theirs; with their ids, if the table tracks rows."""
    reads: Looked

    def rewritten(self, df: DataFrame, operation: str, parameters: dict[str, str]) -> Rewrite:
        """Write what becomes of the rows."""
        has_changes = rewrite.has_feed(self.table)
        actions = self.table.write(
            rewriting.select_written(df, has_changes=has_changes), has_changes=has_changes
        )
        return Rewrite(
            self.table, operation, parameters, [*rewrite.removals(self.files), *actions], self.reads
        )


def find(spark: SparkSession, table: JobTable, condition: Condition) -> Touched:
    """Look for the rows that a condition is true for, in the files that may hold any.

    ``InvalidRequest`` if it is no condition on rows that the table has now.
    """
    _check(spark, table, condition)
    needed = _necessary_condition(spark, table, condition)
    candidates = table.candidates(needed)
    meant = rows(spark, table.snapshot, candidates, numbered=True).where(condition.column)
    numbers = sorted(one[0] for one in meant.select(FILE).distinct().collect()) if candidates else []
    files = [candidates[number] for number in numbers]
    reads = rewrite.read_set_of(rewrite.region(table, needed))
    df = rows(spark, table.snapshot, files, row_ids=table.final_row_ids(files))
    return Touched(table, files, df, reads)


def _necessary_condition(spark: SparkSession, table: JobTable, condition: Condition) -> str | None:
    return necessary(rows(spark, table.snapshot, ()), condition, table.schema)


def _check(spark: SparkSession, table: JobTable, condition: Condition) -> None:
    """Refuse what is no condition on rows of the table before anything is read."""
    with explain_analysis():
        df = rows(spark, table.snapshot, ()).where(condition.column)
    check_deterministic(df, f"the condition {condition.told!r}")
