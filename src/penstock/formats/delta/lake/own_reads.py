"""Writes of rows that are made of the table's own: they rest on the version that was read.

An overwrite removes the files of that version, and no others: rows that others append meanwhile stay, as if
they came later. What else others change of the part that was read is a conflict, as with ``UPDATE``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from penstock.errors import TableConflict
from penstock.formats.delta.lake.calls import GetTableVersions, TablePart, WriterReads
from penstock.formats.delta.lake.replaced_parts import replaced_files
from penstock.formats.delta.lake.row_rewrite import has_only_maintenance, make_removes, make_table_part
from penstock.formats.delta.lake.scan_conditions import readable_condition
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.actions import Action
from penstock.lake.answers import TableCommitResult
from penstock.lake.lake import Lake
from penstock.lake.own_reads import WAY_OUT, OwnReads
from penstock.lake.query_pins import PinnedCommit
from penstock.model.keys import Key

Job = TypeVar("Job", bound=DeltaJob)

COMMITS_MAX: Final = 10
"""How often a write is offered to a table whose files are rewritten again and again, with the same rows."""


def oldest_read(lake: Lake, key: Key, reads: OwnReads) -> PinnedCommit | None:
    """The commit at which a table is read, the earliest if there are several; ``None`` without reads."""
    pins = list(dict.fromkeys(read.pin for read in reads))
    if len(pins) < 2:
        return pins[0] if pins else None

    def version_at(pin: PinnedCommit) -> int:
        return lake.do(GetTableVersions(key=key, at=pin.commit, via=pin.via, limit=0)).latest_version

    return min(pins, key=version_at)


def read_set(table: DeltaJob, reads: OwnReads, zone: str | None) -> WriterReads:
    """What a write rests on that has read these parts of the table."""
    conditions = dict.fromkeys(readable_condition(table.snapshot, read.where, zone) for read in reads)
    parts = tuple(make_table_part(table, condition) for condition in conditions)
    return WriterReads(parts=parts, files=None if reads else ())


def unite_reads(one: WriterReads, other: WriterReads) -> WriterReads:
    """What a write rests on that rests on both."""
    if not other.parts:
        return one
    applications = tuple(dict.fromkeys((*one.applications, *other.applications)))
    return WriterReads(parts=(*one.parts, *other.parts), applications=applications)


def commit_on_reads(
    table: Job,
    replaces: Sequence[TablePart] | None,
    commit: Callable[[Job, Sequence[Action]], TableCommitResult],
) -> TableCommitResult:
    """Commit a write that has read the table as it is in ``table``, and the removal of the files that it has
    there in the parts to be replaced; ``commit`` offers them.

    ``TableConflict`` if others changed what was read. Files that were only written anew are removed instead.
    """
    for tries_left in reversed(range(COMMITS_MAX)):
        removed: Sequence[Action] = ()
        if replaces is not None:
            removed = make_removes(replaced_files(table.metadata, replaces, table.snapshot.files()))
        try:
            return commit(table, removed)
        except TableConflict as conflict:
            fresh = table.reopen_table()
            if not tries_left or not has_only_maintenance(table, fresh):
                raise explain_conflict(conflict) from None
            table = fresh
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


def explain_conflict(conflict: TableConflict) -> TableConflict:
    """The same conflict, with what to do about it."""
    details = {name: value for name, value in conflict.details.items() if name != "conflicts"}
    return TableConflict(conflict.conflicts, f"{conflict.message}{WAY_OUT}", **details)
