"""Deletions and updates of rows of a Delta table: only files that hold such rows are written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.calls import Looked
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import rewriting
from penstock.formats.delta.spark.rewrites.assigning import assign_values, old_of, row
from penstock.formats.delta.spark.rewrites.choosing import (
    check_deterministic,
    files_of_partitions,
    is_about_partitions,
    necessary,
    region,
)
from penstock.formats.delta.spark.rewrites.rewriting import KEEP, Rewrite
from penstock.formats.delta.spark.scan.scans import FILE, rows
from penstock.spark.analysis import Condition, explain_analysis, parse_condition
from penstock.spark.requests import DELETE, UPDATE, Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def plan_delete(spark: SparkSession, table: JobTable, where: str | Column | None) -> Rewrite | None:
    """Write what a deletion leaves of the files that it touches; ``None`` if it touches none."""
    rewriting.check_changeable(table)
    condition = parse_condition(where)
    parameters = {"predicate": condition.told}
    _check(spark, table, condition)
    if is_about_partitions(rows(spark, table.snapshot, ()), condition, table):
        whole = files_of_partitions(spark, table, condition)
        if not whole:
            return None
        reads = rewriting.looked(region(table, _needed(spark, table, condition)))
        return Rewrite(table, "DELETE", parameters, rewriting.removals(whole), reads)
    touched = find(spark, table, condition)
    if not touched.files:
        return None
    from pyspark.sql import functions as f

    old = {one.name: old_of(one.name) for one in table.schema.fields}
    outcome = f.when(condition.column, DELETE).otherwise(KEEP)
    df = rewriting.outcome_rows(touched.rows, old, old, outcome)
    return touched.rewritten(df, "DELETE", parameters)


def plan_update(
    spark: SparkSession, table: JobTable, values: Values, where: str | Column | None
) -> Rewrite | None:
    """Write what an update makes of the files that it touches; ``None`` if it touches none."""
    from pyspark.sql import functions as f

    rewriting.check_changeable(table)
    if not values:
        raise InvalidRequest("nothing is assigned; name at least one column")
    condition = parse_condition(where)
    schema = table.schema
    new = assign_values(rows(spark, table.snapshot, ()), values, schema)
    touched = find(spark, table, condition)
    if not touched.files:
        return None
    old = {one.name: old_of(one.name) for one in schema.fields}
    matched = f.coalesce(condition.column, f.lit(False))
    changed = {path[0] for path in new}
    became = {
        name: f.when(matched, one).otherwise(old[name]) if name in changed else one
        for name, one in row(schema, old_of, new).items()
    }
    with explain_analysis():
        df = rewriting.outcome_rows(touched.rows, old, became, f.when(matched, UPDATE).otherwise(KEEP))
    return touched.rewritten(df, "UPDATE", {"predicate": condition.told})


class Touched(NamedTuple):
    """The files of a table that hold rows for which a condition is true."""

    table: JobTable
    files: list[Add]
    rows: DataFrame
    """All of theirs."""
    reads: Looked

    def rewritten(self, df: DataFrame, operation: str, parameters: dict[str, str]) -> Rewrite:
        """Write what becomes of the rows."""
        has_changes = rewriting.has_feed(self.table)
        actions = self.table.write(
            rewriting.select_written(df, has_changes=has_changes), has_changes=has_changes
        )
        return Rewrite(
            self.table, operation, parameters, [*rewriting.removals(self.files), *actions], self.reads
        )


def find(spark: SparkSession, table: JobTable, condition: Condition) -> Touched:
    """Look for the rows that a condition is true for, in the files that may hold any.

    ``InvalidRequest`` if it is no condition on rows that the table has now.
    """
    _check(spark, table, condition)
    needed = _needed(spark, table, condition)
    candidates = table.candidates(needed)
    meant = rows(spark, table.snapshot, candidates, numbered=True).where(condition.column)
    numbers = sorted(one[0] for one in meant.select(FILE).distinct().collect()) if candidates else []
    files = [candidates[number] for number in numbers]
    reads = rewriting.looked(region(table, needed))
    return Touched(table, files, rows(spark, table.snapshot, files), reads)


def _needed(spark: SparkSession, table: JobTable, condition: Condition) -> str | None:
    return necessary(rows(spark, table.snapshot, ()), condition, table.schema)


def _check(spark: SparkSession, table: JobTable, condition: Condition) -> None:
    """Refuse what is no condition on rows of the table before anything is read."""
    with explain_analysis():
        df = rows(spark, table.snapshot, ()).where(condition.column)
    check_deterministic(df, f"the condition {condition.told!r}")
