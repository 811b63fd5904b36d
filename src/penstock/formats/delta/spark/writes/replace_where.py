"""Replaces the rows for which a condition is true, where these are not whole partitions.

Files that hold such rows are written anew with those of their rows that stay, and the new rows with them. The
commit rests on what was read: if others change it first, it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.delta.lake import row_rewrite
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.protocol.actions import Action, Metadata
from penstock.formats.delta.spark.job.tables import JobTable
from penstock.formats.delta.spark.rewrites import outcome_rows
from penstock.formats.delta.spark.rewrites.change_plans import find_matched_files
from penstock.formats.delta.spark.rewrites.outcome_rows import KEEP
from penstock.formats.delta.spark.rewrites.row_conditions import check_deterministic
from penstock.formats.delta.spark.scan.scans import ROW_ID, ROW_VERSION
from penstock.formats.delta.spark.writes.row_casts import fit_rows
from penstock.formats.rows.schema import parse_schema
from penstock.lake.row_changes import DELETE, INSERT
from penstock.spark.analysis import explain_analysis, parse_condition
from penstock.spark.row_refusals import make_refusal_column
from penstock.spark.schemas import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def enforce_condition(df: DataFrame, where: str) -> DataFrame:
    """The same rows; the job ends with a refusal at the first one for which a condition is not true."""
    from pyspark.sql import functions as f

    condition = parse_condition(where)
    error = make_refusal_column(
        f"the data has rows that do not match the condition of the overwrite: {where}"
    )
    with explain_analysis():
        checked_rows = df.where(f.when(condition.column, f.lit(True)).otherwise(error))
    check_deterministic(checked_rows, f"the condition {where!r}")
    return checked_rows


def replace_rows(
    df: DataFrame, table: JobTable, where: str, metadata: Metadata
) -> tuple[list[Action], WriterReads]:
    """Write what becomes of the files that a replacement touches, and say what it rests on.

    ``df`` has the columns of ``metadata``, which is what the table is to become.
    """
    from pyspark.sql import functions as f

    condition, schema = parse_condition(where), parse_schema(metadata.schema_string)
    inserted = enforce_condition(df, where)
    touched = find_matched_files(df.sparkSession, table, condition)
    columns = {field.name: f.col(quote_name(field.name)) for field in schema.fields}
    absent = {name: f.when(f.lit(False), column) for name, column in columns.items()}
    new = outcome_rows.make_row_id_columns(table)
    rows = outcome_rows.outcome_rows(inserted, absent, columns, f.lit(INSERT), new)
    if not touched.is_marked or row_rewrite.has_feed(table):
        present = touched.read()
        row_ids = [name for name in (ROW_ID, ROW_VERSION) if name in present.columns]
        present = fit_rows(present, schema, beside=row_ids)
        outcome = f.when(touched.condition, DELETE).otherwise(KEEP)
        old = outcome_rows.make_row_id_columns(table, outcome)
        rows = outcome_rows.outcome_rows(present, columns, columns, outcome, old).unionByName(rows)
    return touched.write_outcomes(rows, metadata), touched.reads
