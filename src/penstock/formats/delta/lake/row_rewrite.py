"""A change of rows of a Delta table: files are replaced by others that hold what becomes of their rows.

What such a change rests on is told here, whichever engine makes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.branch_log.proposal import MAINTENANCE
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.lake import table as delta
from penstock.formats.delta.lake.calls import TablePart, WriterReads
from penstock.formats.delta.protocol.actions import Action, Add, Remove
from penstock.formats.delta.protocol.partition_conditions import partition_part
from penstock.formats.delta.protocol.properties import APPEND_ONLY, CHANGE_DATA_FEED, is_on
from penstock.formats.delta.rows.file_writer import check_features
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription

if TYPE_CHECKING:
    from penstock.formats.delta.lake.table_job import DeltaJob

Job = TypeVar("Job", bound="DeltaJob")

TRIES_MAX: Final = 50
"""How often a change is planned because only maintenance or appends came first. Each time others got on."""
READ_FILES_MAX_BYTES: Final = 16 * 1024
"""Names of files beyond this size are not told one by one: the partitions are, that they are in."""


class RowCounts(NamedTuple):
    """How many rows a change deletes, updates and inserts; ``None`` for what is not known."""

    deleted: int | None = 0
    updated: int | None = 0
    inserted: int | None = 0

    @property
    def merge_metrics(self) -> dict[str, int]:
        """The known ones, as the log calls them of a merge."""
        counts = {"Updated": self.updated, "Deleted": self.deleted, "Inserted": self.inserted}
        return {f"numTargetRows{name}": count for name, count in counts.items() if count is not None}


class RowRewrite(NamedTuple):
    """A change of a table whose files are written, and which is not committed yet."""

    table: DeltaJob
    operation: str
    parameters: dict[str, Any]
    actions: Sequence[Action]
    reads: WriterReads
    metrics: Mapping[str, int] = {}
    """What it did, in the words that other engines have for it."""
    counts: RowCounts = RowCounts(None, None, None)

    def commit_rewrite(
        self, description: CommitDescription, idempotency_key: str | None
    ) -> TableCommitResult:
        """Make it the table's next version. ``TableConflict`` if others changed what it rests on.

        The files of a change that was refused are removed again, as far as possible. If nobody knows what
        became of it, they stay.
        """
        return self.table.commit_actions(
            self.actions,
            operation=self.operation,
            parameters=self.parameters,
            metrics=self.metrics,
            reads=self.reads,
            description=description,
            idempotency_key=idempotency_key,
        )


def find_earlier_result(table: DeltaJob, idempotency_key: str | None) -> TableCommitResult | None:
    """What a change under an idempotency key came to, if it was done: another try has other files."""
    return delta.find_earlier_result(table.lake, [table.key], table.branch, idempotency_key)


def commit_planned(
    table: Job,
    plan: Callable[[Job], RowRewrite | None],
    description: CommitDescription,
    idempotency_key: str | None,
    can_plan_anew: Callable[[TableConflict, Job, Job], bool] | None = None,
) -> TableCommitResult | None:
    """Plan a change of a table and commit it; ``None`` if there is nothing to do.

    A change that came too late only because its files got others with the same rows, or because of appends,
    is planned anew, on the table as it is then. ``TableConflict`` if others changed what it rests on.
    """
    is_harmless = _can_plan_again if can_plan_anew is None else can_plan_anew
    for tries_left in reversed(range(TRIES_MAX)):
        planned = plan(table)
        if planned is None:
            return None
        try:
            return planned.commit_rewrite(description, idempotency_key)
        except TableConflict as conflict:
            fresh = table.reopen_table()
            if not tries_left or not is_harmless(conflict, table, fresh):
                raise
            table = fresh
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


def _can_plan_again(conflict: TableConflict, before: DeltaJob, after: DeltaJob) -> bool:
    """Whether a change was refused for nothing that it means: the version that it conflicts with only gave
    files others with the same rows, or all that came since are such versions and appends."""
    count = after.version - before.version
    if before.id != after.id or count <= 0:
        return False
    since = after.snapshot.outside_read_set.history(count)
    if len(since) < count:
        return False
    winners = {part.found_version for part in conflict.conflicts if part.key == before.key}
    named = [past for past in since if past.version in winners]
    if named and all(past.operation.upper() in MAINTENANCE for past in named):
        return True
    return all(
        past.operation.upper() in MAINTENANCE or past.info.get("isBlindAppend") is True for past in since
    )


def has_only_maintenance(before: DeltaJob, after: DeltaJob) -> bool:
    """Whether nothing came in between but versions that gave files others with the same rows."""
    count = after.version - before.version
    if before.id != after.id or count <= 0:
        return False
    since = after.snapshot.outside_read_set.history(count)
    return len(since) == count and all(past.operation.upper() in MAINTENANCE for past in since)


def check_changeable(table: DeltaJob) -> None:
    """``InvalidRequest`` if rows of the table must stay, ``UnsupportedFeature`` if it asks for more of its
    writers than Penstock does."""
    if is_on(table.metadata.configuration, APPEND_ONLY):
        raise InvalidRequest(
            f"rows of '{table.key}' cannot be changed: the table has the property {APPEND_ONLY}",
            table=str(table.key),
        )
    check_features(table.metadata)


def has_feed(table: DeltaJob) -> bool:
    """Whether the table has a change data feed."""
    return is_on(table.metadata.configuration, CHANGE_DATA_FEED)


def make_removes(files: Iterable[Add]) -> list[Remove]:
    """What takes files out of the table."""
    now_ms = time.time_ns() // 1_000_000
    return [make_remove(file, now_ms) for file in files]


def read_set_of(region: TablePart, files: Iterable[Add] | None = ()) -> WriterReads:
    """What a change rests on: that no further rows are in a region, and that files are still there.

    The files that it removes need not be named. ``None`` stands for all files of the region.
    """
    names = None if files is None else tuple(file.key.path for file in files)
    if names is not None and sum(map(len, names)) > READ_FILES_MAX_BYTES:
        names = None
    return WriterReads(parts=(region,), files=names)


def make_table_part(table: DeltaJob, needed: str | None) -> TablePart:
    """The part of a table that holds all rows for which ``needed`` is true, by partition columns alone."""
    if needed is None:
        return TablePart()
    return TablePart(where=partition_part(needed, table.metadata.schema_string, table.partition_columns))
