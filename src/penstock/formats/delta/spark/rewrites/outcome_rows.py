"""Rewriting: files of a table are replaced by others that hold what becomes of their rows.

A row is kept, updated or deleted, and new rows are inserted. Where the table has a change data feed, the same
job writes what the feed tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.formats.delta.lake.job_outputs import CHANGES
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE
from penstock.formats.delta.protocol.row_ids import get_row_tracking_columns
from penstock.formats.delta.spark.job.computed_columns import add_generated_columns
from penstock.formats.delta.spark.scan.scans import ROW_ID, ROW_VERSION
from penstock.formats.rows.schema import StructType
from penstock.lake.row_changes import DELETE, INSERT, UPDATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.formats.delta.lake.table_job import DeltaJob


KEEP: Final = "keep"
OUTCOME: Final = "__penstock_outcome"
"""What becomes of a row: one of the four, or null for a row that is nobody's business."""
COMPUTED: Final = "__penstock_computed"
"""Of a generated column, by its number, whether it is computed for a row."""
OLD: Final = "__penstock_old"
NEW: Final = "__penstock_new"


class ComputedRows(NamedTuple):
    """The generated columns of a table that are computed anew, each with the condition for which rows."""

    table: StructType
    conditions: Mapping[str, Column]


def outcome_rows(
    df: DataFrame,
    old: Mapping[str, Column] | None,
    new: Mapping[str, Column],
    outcome: Column,
    row_ids: Mapping[str, Column] = {},
    computed: ComputedRows | None = None,
) -> DataFrame:
    """Rows with what they were, what they become, and which of the outcomes it is.

    ``row_ids`` are columns that are written beside the table's.
    """
    from pyspark.sql import functions as f

    made = {NEW: f.struct(*(column.alias(name) for name, column in {**new, **row_ids}.items()))}
    if old is not None:
        absent = {name: f.lit(None).cast("long") for name in row_ids}
        made[OLD] = f.struct(*(column.alias(name) for name, column in {**old, **absent}.items()))
    conditions = {} if computed is None else computed.conditions
    flags = [flag.alias(f"{COMPUTED}{number}") for number, flag in enumerate(conditions.values())]
    rows = df.select(outcome.alias(OUTCOME), *(column.alias(name) for name, column in made.items()), *flags)
    if computed is None or not conditions:
        return rows
    by_name = {name: f.col(f"{COMPUTED}{number}") for number, name in enumerate(conditions)}
    return add_generated_columns(rows, computed.table, by_name, NEW)


def make_row_id_columns(table: DeltaJob, outcome: Column | None = None) -> dict[str, Column]:
    """The columns that keep the ids of rows which are written anew, by their names in files; none if the
    table does not track rows. Without an outcome, rows are new.

    A row that is updated keeps its id, and one that stays as it is also its version.
    """
    from pyspark.sql import functions as f

    columns = get_row_tracking_columns(table.metadata)
    if columns is None:
        return {}
    if outcome is None:
        return dict.fromkeys(columns, f.lit(None).cast("long"))
    return {
        columns.row_id: f.when(outcome.isin(KEEP, UPDATE), f.col(ROW_ID)),
        columns.row_commit_version: f.when(outcome == KEEP, f.col(ROW_VERSION)),
    }


def select_written(df: DataFrame, *, has_changes: bool) -> DataFrame:
    """The rows to be written for outcomes: those of the table, and with changes also those of the feed."""
    from pyspark.sql import functions as f

    outcome = f.col(OUTCOME)
    stays = outcome.isin(KEEP, UPDATE, INSERT)
    if not has_changes:
        return df.where(stays).select(f"{NEW}.*")
    before = f.when(outcome == DELETE, "delete").otherwise("update_preimage")
    after = f.when(outcome == INSERT, "insert").otherwise("update_postimage")
    images = f.array(
        f.when(stays, _change_image(NEW, f.lit(None).cast("string"))),
        f.when(outcome.isin(DELETE, UPDATE), _change_image(OLD, before)),
        f.when(outcome.isin(UPDATE, INSERT), _change_image(NEW, after)),
    )
    rows_with_images = df.select(f.explode(f.array_compact(images)).alias("image"))
    return rows_with_images.select("image.row.*", f"image.{CHANGES}", f"image.{CHANGE_TYPE}")


def _change_image(row: str, change: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(f.col(row).alias("row"), change.isNotNull().alias(CHANGES), change.alias(CHANGE_TYPE))
