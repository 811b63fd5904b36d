"""Deletions and updates of rows of a Delta table: only files that hold such rows are written anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import row_rewrite
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.lake.file_changes import count_live_rows
from penstock.formats.delta.lake.marked_files import uses_deletion_vectors
from penstock.formats.delta.lake.row_rewrite import RowCounts, RowRewrite
from penstock.formats.delta.lake.scan_plan import FILE
from penstock.formats.delta.protocol.actions import Action, Add, Metadata
from penstock.formats.delta.protocol.column_rules import list_generation_expressions
from penstock.formats.delta.rows.deletion_words import BitmapWords
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import outcome_rows
from penstock.formats.delta.spark.rewrites.assignments import assign_values, get_old_column, make_row
from penstock.formats.delta.spark.rewrites.outcome_rows import KEEP
from penstock.formats.delta.spark.rewrites.row_conditions import (
    check_deterministic,
    files_of_partitions,
    is_about_partitions,
    make_necessary_condition,
)
from penstock.formats.delta.spark.rewrites.row_marks import (
    collect_rows,
    collect_words,
    group_by_word,
    mark_files,
)
from penstock.formats.delta.spark.scan.deletions import make_word_bits
from penstock.formats.delta.spark.scan.scans import ROW, picked_rows, read_rows
from penstock.lake.row_changes import DELETE, UPDATE
from penstock.spark.analysis import AnalyzedCondition, explain_analysis, parse_condition
from penstock.spark.requests import Values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BITS: Final = "bits"
_COUNTED: Final = {"DELETE": "numDeletedRows", "UPDATE": "numUpdatedRows"}
"""What the log calls the number of rows that an operation changed."""


def plan_delete(spark: SparkSession, table: JobTable, where: str | Column | None) -> RowRewrite | None:
    """Write what a deletion leaves of the files that it touches; ``None`` if it touches none."""
    row_rewrite.check_changeable(table)
    condition = parse_condition(where)
    parameters = {"predicate": condition.told}
    _check_condition(spark, table, condition)
    if is_about_partitions(read_rows(spark, table.snapshot, ()), condition, table):
        whole = files_of_partitions(spark, table, condition)
        if not whole:
            return None
        reads = row_rewrite.read_set_of(
            row_rewrite.make_table_part(table, _necessary_condition(spark, table, condition))
        )
        count = count_live_rows(whole)
        metrics = {} if count is None else {_COUNTED["DELETE"]: count}
        counts = RowCounts(deleted=count)
        return RowRewrite(
            table, "DELETE", parameters, row_rewrite.make_removes(whole), reads, metrics, counts
        )
    touched = find_matched_files(spark, table, condition)
    if not touched.files:
        return None
    if touched.is_marked and not row_rewrite.has_feed(table):
        return touched.make_rewrite(None, "DELETE", parameters)
    from pyspark.sql import functions as f

    old = {field.name: get_old_column(field.name) for field in table.schema.fields}
    outcome = f.when(touched.condition, DELETE).otherwise(KEEP)
    row_ids = outcome_rows.make_row_id_columns(table, outcome)
    df = outcome_rows.outcome_rows(touched.read(), old, old, outcome, row_ids)
    return touched.make_rewrite(df, "DELETE", parameters)


def plan_update(
    spark: SparkSession, table: JobTable, values: Values, where: str | Column | None
) -> RowRewrite | None:
    """Write what an update makes of the files that it touches; ``None`` if it touches none."""
    from pyspark.sql import functions as f

    row_rewrite.check_changeable(table)
    if not values:
        raise InvalidRequest("nothing is assigned; name at least one column")
    condition = parse_condition(where)
    schema = table.schema
    new = assign_values(read_rows(spark, table.snapshot, ()), values, schema)
    touched = find_matched_files(spark, table, condition)
    if not touched.files:
        return None
    old = {field.name: get_old_column(field.name) for field in schema.fields}
    matched = f.coalesce(touched.condition, f.lit(False))
    changed = {path[0] for path in new}
    became = {
        name: f.when(matched, column).otherwise(old[name]) if name in changed else column
        for name, column in make_row(schema, get_old_column, new).items()
    }
    outcome = f.when(matched, UPDATE).otherwise(KEEP)
    row_ids = outcome_rows.make_row_id_columns(table, outcome)
    with explain_analysis():
        computed = {
            name: matched for name, _ in list_generation_expressions(table.metadata) if name not in changed
        }
        df = outcome_rows.outcome_rows(
            touched.read(), old, became, outcome, row_ids, outcome_rows.ComputedRows(schema, computed)
        )
    return touched.make_rewrite(df, "UPDATE", {"predicate": condition.told})


class MatchedFiles(NamedTuple):
    """The files of a table that hold rows for which a condition is true."""

    table: JobTable
    files: list[Add]
    reads: WriterReads
    read: Callable[[], DataFrame]
    """All of their rows, or where these are marked those that are meant; with their ids, if the table tracks
    rows."""
    condition: Column
    """Which of the rows that are read are meant."""
    row_count: int
    """How many these are."""
    marks: dict[int, BitmapWords] | None = None
    """The rows that are meant, by the numbers of their files, where they are marked as deleted; ``None``
    where files are written anew."""

    @property
    def is_marked(self) -> bool:
        return self.marks is not None

    def write_outcomes(self, df: DataFrame | None, metadata: Metadata | None = None) -> list[Action]:
        """Write what becomes of the rows, and say what becomes of the files."""
        has_changes = row_rewrite.has_feed(self.table)
        written: list[Action] = []
        if df is not None:
            selected = outcome_rows.select_written(df, has_changes=has_changes)
            written = [*self.table.write_rows(selected, has_changes=has_changes, metadata=metadata)]
        named = [] if self.marks is None else mark_files(self.table, self.files, self.marks, written)
        return [*row_rewrite.make_removes(self.files), *named, *written]

    def make_rewrite(self, df: DataFrame | None, operation: str, parameters: dict[str, str]) -> RowRewrite:
        """What becomes of the rows, as a change of the table."""
        counts = (
            RowCounts(deleted=self.row_count) if operation == "DELETE" else RowCounts(updated=self.row_count)
        )
        metrics = {_COUNTED[operation]: self.row_count}
        return RowRewrite(
            self.table, operation, parameters, self.write_outcomes(df), self.reads, metrics, counts
        )


def find_matched_files(spark: SparkSession, table: JobTable, condition: AnalyzedCondition) -> MatchedFiles:
    """Look for the rows that a condition is true for, in the files that may hold any.

    ``InvalidRequest`` if it is no condition on rows that the table has now.
    """
    _check_condition(spark, table, condition)
    needed = _necessary_condition(spark, table, condition)
    candidates = table.find_candidate_files(needed)
    reads = row_rewrite.read_set_of(row_rewrite.make_table_part(table, needed))

    def select_meant(files: Sequence[Add]) -> DataFrame:
        return read_rows(spark, table.snapshot, files, numbered=True).where(condition.column)

    if candidates and uses_deletion_vectors(table):
        marks = _find_marks(candidates, select_meant)
        if marks is not None:
            return _find_files_of_marked_rows(spark, table, candidates, marks, needed, reads)
    by_file = (
        sorted(tuple(row) for row in select_meant(candidates).groupBy(FILE).count().collect())
        if candidates
        else []
    )
    files = [candidates[number] for number, _ in by_file]

    def read_candidates() -> DataFrame:
        return read_rows(spark, table.snapshot, files, row_ids=table.final_row_ids(files))

    return MatchedFiles(
        table, files, reads, read_candidates, condition.column, sum(count for _, count in by_file)
    )


def _find_marks(
    candidates: Sequence[Add], select_meant: Callable[[Sequence[Add]], DataFrame]
) -> dict[int, BitmapWords] | None:
    """The rows that are meant, by the numbers of their files; ``None`` if they are too many to be told."""
    from pyspark.sql import functions as f

    words = collect_words(
        candidates,
        lambda files: group_by_word(select_meant(files), f.bit_or(make_word_bits(ROW)).alias(_BITS)),
    )
    return None if words is None else collect_rows(words, _BITS)


def _find_files_of_marked_rows(
    spark: SparkSession,
    table: JobTable,
    candidates: Sequence[Add],
    marks: Mapping[int, BitmapWords],
    needed: str | None,
    reads: WriterReads,
) -> MatchedFiles:
    from pyspark.sql import functions as f

    files = [candidates[number] for number in marks]
    words = list(marks.values())

    def read_candidates() -> DataFrame:
        chosen = zip(files, words, strict=True)
        marked = picked_rows(spark, table.snapshot, chosen, row_ids=table.final_row_ids(files))
        # It is true for all of them. By it Spark leaves out parts of files.
        return marked if needed is None else marked.where(f.expr(needed))

    count = sum(bitmap.rows for bitmap in words)
    return MatchedFiles(table, files, reads, read_candidates, f.lit(True), count, dict(enumerate(words)))


def _necessary_condition(spark: SparkSession, table: JobTable, condition: AnalyzedCondition) -> str | None:
    return make_necessary_condition(read_rows(spark, table.snapshot, ()), condition, table.schema)


def _check_condition(spark: SparkSession, table: JobTable, condition: AnalyzedCondition) -> None:
    """Refuse what is no condition on rows of the table before anything is read."""
    with explain_analysis():
        df = read_rows(spark, table.snapshot, ()).where(condition.column)
    check_deterministic(df, f"the condition {condition.told!r}")
