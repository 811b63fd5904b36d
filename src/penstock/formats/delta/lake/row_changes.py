"""Deletions, updates and replacements of rows of a Delta table, without Spark.

Which files may hold such rows is told by their partitions and statistics. These are looked into, with the
columns alone that the condition names; only files that hold such rows are changed. What the commit rests on
is as with Spark (``row_rewrite``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake import bin_rewrites
from penstock.formats.delta.lake.auto_compaction import compact_if_due
from penstock.formats.delta.lake.calls import WriterReads
from penstock.formats.delta.lake.file_changes import (
    ChangedFiles,
    RowOutcomes,
    count_live_rows,
    make_empty_mask,
)
from penstock.formats.delta.lake.identity_numbers import ReservedNumbers
from penstock.formats.delta.lake.row_assignments import RowAssignment, parse_assignments
from penstock.formats.delta.lake.row_rewrite import (
    RowRewrite,
    check_changeable,
    commit_planned,
    find_earlier_result,
    make_removes,
    make_table_part,
    read_set_of,
)
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.log.scan import FILE_NUMBER, numbered_batches
from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.column_mapping import stored_name
from penstock.formats.delta.protocol.predicate_outcomes import partition_value
from penstock.formats.delta.protocol.predicate_sql import write_predicate
from penstock.formats.delta.protocol.properties import is_auto_compacted
from penstock.formats.delta.rows.filled_columns import ColumnFiller
from penstock.formats.rows.arrow_types import find_arrow_type, pa, pc
from penstock.formats.rows.expression_text import parse_condition_text
from penstock.formats.rows.row_expressions import TABLE, RowFrames, SqlExpression, find_needed_predicate
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.row_changes import ChangedRows, RowValues
from penstock.lake.row_input import open_row_reader

if TYPE_CHECKING:
    from penstock.lake.table import Table

EVERYTHING = "true"


def delete_rows(
    table: Table, where: str | None, description: CommitDescription, idempotency_key: str | None
) -> ChangedRows:
    """Delete the rows for which a condition is true, all of them without one."""
    return change_rows(table, partial(_plan_delete, where=where), description, idempotency_key)


def update_rows(
    table: Table,
    values: RowValues,
    where: str | None,
    description: CommitDescription,
    idempotency_key: str | None,
) -> ChangedRows:
    """Give columns new values in the rows for which a condition is true."""
    return change_rows(table, partial(_plan_update, values=values, where=where), description, idempotency_key)


def replace_rows(
    table: Table, data: Any, where: str, description: CommitDescription, idempotency_key: str | None
) -> TableCommitResult:
    """Put rows in the place of those for which a condition is true, which it is for all of the new ones."""
    job = DeltaJob(table.lake, table.key, table.require_branch())
    if (earlier := find_earlier_result(job, idempotency_key)) is not None:
        return earlier
    return _plan_replacement(job, data, where).rewrite.commit_rewrite(description, idempotency_key)


class PlannedChange(NamedTuple):
    """A change whose files are written, and how many rows it changes."""

    rewrite: RowRewrite
    deleted: int | None = 0
    updated: int | None = 0
    inserted: int | None = 0


def change_rows(
    table: Table, plan: Any, description: CommitDescription, idempotency_key: str | None
) -> ChangedRows:
    """Plan a change of a table and commit it, unless it was done before or there is nothing to do."""
    table.lake.begin_write(makes_lake=False)
    job = DeltaJob(table.lake, table.key, table.require_branch())
    if (earlier := find_earlier_result(job, idempotency_key)) is not None:
        (ratified,) = earlier.tables
        return ChangedRows(
            key=table.key,
            commit=earlier.commit,
            version=ratified.version,
            deleted=None,
            updated=None,
            inserted=None,
            is_repeated=True,
        )
    counts = ChangedRows(key=table.key)

    def plan_once(current: DeltaJob) -> RowRewrite | None:
        nonlocal counts
        planned: PlannedChange | None = plan(current)
        if planned is None:
            return None
        counts = msgspec.structs.replace(
            counts, deleted=planned.deleted, updated=planned.updated, inserted=planned.inserted
        )
        return planned.rewrite

    landed = commit_planned(job, plan_once, description, idempotency_key)
    if landed is None:
        return ChangedRows(key=table.key)
    (ratified,) = landed.tables
    if is_auto_compacted(job.metadata.configuration):
        compact_if_due(table, ratified.version, bin_rewrites.ARROW)
    return msgspec.structs.replace(
        counts, commit=landed.commit, version=ratified.version, is_repeated=ratified.repeated
    )


def _plan_delete(job: DeltaJob, where: str | None) -> PlannedChange | None:
    check_changeable(job)
    condition = parse_condition_text(where if where is not None else EVERYTHING, {TABLE: job.schema})
    parameters = {"predicate": condition.text}
    if condition.list_columns_of(TABLE) <= set(job.partition_columns):
        files = files_of_partitions(job, condition)
        if not files:
            return None
        reads = read_set_of(make_table_part(job, make_necessary_condition(condition, TABLE)))
        count = count_live_rows(files)
        metrics = {} if count is None else {"numDeletedRows": count}
        metrics["numRemovedFiles"] = len(files)
        return PlannedChange(
            RowRewrite(job, "DELETE", parameters, make_removes(files), reads, metrics), count
        )
    touched = find_touched(job, condition)
    if not touched.files:
        return None

    def decide_outcomes(rows: Any) -> RowOutcomes:
        deleted = condition.is_true(RowFrames.of(table=rows))
        return RowOutcomes(deleted, make_empty_mask(rows), rows.slice(0, 0))

    with ChangedFiles(job) as changes:
        changes.rewrite_files(touched.files, partial(read_files, job), decide_outcomes)
        actions = changes.finish_actions()
    metrics = {"numDeletedRows": changes.deleted, **count_files(actions)}
    return PlannedChange(
        RowRewrite(job, "DELETE", parameters, actions, touched.reads, metrics), changes.deleted
    )


def _plan_update(job: DeltaJob, values: RowValues, where: str | None) -> PlannedChange | None:
    check_changeable(job)
    if not values:
        raise InvalidRequest("no column is assigned; name at least one")
    condition = parse_condition_text(where if where is not None else EVERYTHING, {TABLE: job.schema})
    assigned = parse_assignments(values, {TABLE: job.schema}, job.schema)
    assignment = RowAssignment(job.schema, assigned, is_insert=False)
    touched = find_touched(job, condition)
    if not touched.files:
        return None

    def decide_outcomes(rows: Any) -> RowOutcomes:
        is_updated = condition.is_true(RowFrames.of(table=rows))
        before = rows.filter(is_updated)
        return RowOutcomes(
            make_empty_mask(rows), is_updated, assignment.assign_columns(before, RowFrames.of(table=before))
        )

    with ChangedFiles(job) as changes:
        changes.rewrite_files(touched.files, partial(read_files, job), decide_outcomes)
        actions = changes.finish_actions()
    parameters = {"predicate": condition.text}
    metrics = {"numUpdatedRows": changes.updated, **count_files(actions)}
    rewrite = RowRewrite(job, "UPDATE", parameters, actions, touched.reads, metrics)
    return PlannedChange(rewrite, updated=changes.updated)


def _plan_replacement(job: DeltaJob, data: Any, where: str) -> PlannedChange:
    check_changeable(job)
    condition = parse_condition_text(where, {TABLE: job.schema})
    touched = find_touched(job, condition)

    def decide_outcomes(rows: Any) -> RowOutcomes:
        deleted = condition.is_true(RowFrames.of(table=rows))
        return RowOutcomes(deleted, make_empty_mask(rows), rows.slice(0, 0))

    reader = open_row_reader(data)
    numbers = ReservedNumbers(job.lake, job.key, job.branch, job.metadata)
    fill = ColumnFiller(job.schema, reader.schema, numbers=numbers)
    with ChangedFiles(job) as changes:
        for batch in reader:
            rows = fill.fill_columns(batch)
            if not pc.all(condition.is_true(RowFrames.of(table=rows))).as_py():
                raise InvalidRequest(
                    f"the data has rows that do not match the condition of the overwrite: {where}"
                )
            changes.insert_rows(rows, in_feed=bool(touched.files))
        if touched.files:
            changes.rewrite_files(touched.files, partial(read_files, job), decide_outcomes)
        actions = [*mark_numbers(job, numbers), *changes.finish_actions()]
    parameters = {"mode": "Overwrite", "predicate": where}
    metrics = {"numDeletedRows": changes.deleted, "numOutputRows": changes.inserted}
    rewrite = RowRewrite(job, "WRITE", parameters, actions, touched.reads, metrics)
    return PlannedChange(rewrite, changes.deleted, inserted=changes.inserted)


def mark_numbers(job: DeltaJob, numbers: ReservedNumbers) -> list[Metadata]:
    """What a change that gave away numbers of a table says of its metadata."""
    numbers.keep_free()
    return numbers.list_metadata_changes(job.metadata)


# -- files -------------------------------------------------------------------------------------------------


class TouchedFiles(NamedTuple):
    """The files of a table that hold rows for which a condition is true."""

    files: list[Add]
    reads: WriterReads


def find_touched(job: DeltaJob, condition: SqlExpression) -> TouchedFiles:
    """Look for rows for which a condition is true, in the files that may hold any."""
    needed = make_necessary_condition(condition, TABLE)
    candidates = job.find_candidate_files(needed)
    numbers: set[int] = set()
    for batch in read_files(job, candidates, condition.list_columns_of(TABLE)):
        is_true = condition.is_true(RowFrames.of(table=batch))
        numbers.update(pc.unique(batch.column(FILE_NUMBER).filter(is_true)).to_pylist())
    return TouchedFiles(
        [candidates[number] for number in sorted(numbers)], read_set_of(make_table_part(job, needed))
    )


def make_necessary_condition(condition: SqlExpression, table: str) -> str | None:
    """What must be true of a row for a condition to be, in the words of the lake's own conditions."""
    predicate = find_needed_predicate(condition.root, table)
    return None if predicate is None else write_predicate(predicate)


def read_files(job: DeltaJob, files: Sequence[Add], columns: Iterable[str] | None = None) -> Iterator[Any]:
    """The rows of files in batches, numbered by file and row; all columns, or those that are named."""
    snapshot = job.snapshot
    chosen = None if columns is None else set(columns)
    # Whole rows are read to be written again, and keep their ids where the table has such.
    row_ids = job.final_row_ids(files) if columns is None else None
    return numbered_batches(snapshot.log_snapshot, snapshot.place, files, chosen, row_ids)


def files_of_partitions(job: DeltaJob, condition: SqlExpression) -> list[Add]:
    """The files of the partitions for whose values a condition is true, which names nothing else."""
    fields = [field for field in job.schema.fields if field.name in job.partition_columns]
    groups: dict[tuple[str | None, ...], list[Add]] = {}
    for file in job.find_candidate_files(make_necessary_condition(condition, TABLE)):
        values = tuple(file.partition_values.get(stored_name(field)) for field in fields)
        groups.setdefault(values, []).append(file)
    arrays = [
        pa.array([partition_value(field.type, values[at]) for values in groups], find_arrow_type(field.type))
        for at, field in enumerate(fields)
    ]
    partitions = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])
    chosen = condition.is_true(RowFrames({TABLE: partitions}, len(groups))).to_pylist()
    return [
        file for files, is_meant in zip(groups.values(), chosen, strict=True) if is_meant for file in files
    ]


def count_files(actions: Sequence[Any]) -> dict[str, int]:
    added = sum(isinstance(action, Add) for action in actions)
    return {"numAddedFiles": added}
