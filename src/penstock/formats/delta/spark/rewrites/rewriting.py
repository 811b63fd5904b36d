"""Rewriting: files of a table are replaced by others that hold what becomes of their rows.

A row is kept, updated or deleted, and new rows are inserted. Where the table has a change data feed, the same
job writes what the feed tells of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.delta.branch_log.replacing import removal
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.calls import Looked, Part
from penstock.formats.delta.protocol.actions import Action, Add, Remove
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE
from penstock.formats.delta.protocol.properties import APPEND_ONLY, CHANGE_DATA_FEED, is_on
from penstock.formats.delta.rows.writing import check_features
from penstock.formats.delta.spark.job.outputs import CHANGES
from penstock.lake.answers import Ratified
from penstock.lake.call import Said
from penstock.spark.requests import DELETE, INSERT, UPDATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.formats.delta.spark.job.tables import JobTable

KEEP: Final = "keep"
OUTCOME: Final = "__penstock_outcome"
"""What becomes of a row: one of the four, or null for a row that is nobody's business."""
OLD: Final = "__penstock_old"
NEW: Final = "__penstock_new"
READ_FILES_MAX_BYTES: Final = 16 * 1024
"""Names of files beyond this size are not told one by one: the partitions are, that they are in."""


class Rewrite(NamedTuple):
    """A change of a table whose files are written, and which is not committed yet."""

    table: JobTable
    operation: str
    parameters: dict[str, Any]
    actions: Sequence[Action]
    reads: Looked

    def commit(self, said: Said, idempotency_key: str | None) -> Ratified:
        """Make it the table's next version. ``TableConflict`` if others changed what it rests on.

        The files of a change that was refused are removed again, as far as possible. If nobody knows what
        became of it, they stay.
        """
        return self.table.commit(
            self.actions,
            operation=self.operation,
            parameters=self.parameters,
            reads=self.reads,
            said=said,
            idempotency_key=idempotency_key,
        )


def done_before(table: JobTable, idempotency_key: str | None) -> Ratified | None:
    """What a change under an idempotency key came to, if it was done: another try has other files."""
    return delta.done_before(table.lake, [table.key], table.branch, idempotency_key)


def check_changeable(table: JobTable) -> None:
    """``InvalidRequest`` if rows of the table must stay, ``UnsupportedFeature`` if it asks for more of its
    writers than Penstock does."""
    if is_on(table.metadata.configuration, APPEND_ONLY):
        raise InvalidRequest(
            f"rows of '{table.key}' stay as they are: the table has the property {APPEND_ONLY}",
            table=str(table.key),
        )
    check_features(table.metadata)


def has_feed(table: JobTable) -> bool:
    """Whether the table has a change data feed."""
    return is_on(table.metadata.configuration, CHANGE_DATA_FEED)


def removals(files: Iterable[Add]) -> list[Remove]:
    """What takes files out of the table."""
    now_ms = time.time_ns() // 1_000_000
    return [removal(one, now_ms) for one in files]


def looked(region: Part, files: Iterable[Add] | None = ()) -> Looked:
    """What a change rests on: that no further rows are in a region, and that files are still there.

    The files that it removes need not be named. ``None`` stands for all files of the region.
    """
    names = None if files is None else tuple(one.key.path for one in files)
    if names is not None and sum(map(len, names)) > READ_FILES_MAX_BYTES:
        names = None
    return Looked(parts=(region,), files=names)


def outcome_rows(
    df: DataFrame, old: Mapping[str, Column] | None, new: Mapping[str, Column], outcome: Column
) -> DataFrame:
    """Rows with what they were, what they become, and which of the outcomes it is."""
    from pyspark.sql import functions as f

    made = {NEW: f.struct(*(one.alias(name) for name, one in new.items()))}
    if old is not None:
        made[OLD] = f.struct(*(one.alias(name) for name, one in old.items()))
    return df.select(outcome.alias(OUTCOME), *(one.alias(name) for name, one in made.items()))


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
        f.when(stays, _image(NEW, f.lit(None).cast("string"))),
        f.when(outcome.isin(DELETE, UPDATE), _image(OLD, before)),
        f.when(outcome.isin(UPDATE, INSERT), _image(NEW, after)),
    )
    told = df.select(f.explode(f.array_compact(images)).alias("image"))
    return told.select("image.row.*", f"image.{CHANGES}", f"image.{CHANGE_TYPE}")


def _image(row: str, change: Column) -> Column:
    from pyspark.sql import functions as f

    return f.struct(f.col(row).alias("row"), change.isNotNull().alias(CHANGES), change.alias(CHANGE_TYPE))
