"""Rows of a Lance table are deleted, updated and merged, and its files compacted, by Lance itself.

Conditions and values are Lance's SQL. What Lance cannot do is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.errors import InvalidRequest, NotManaged
from penstock.formats.lance.lake.failures import own_errors
from penstock.formats.lance.lake.jobs import CommittedJob, JobNamespace, LanceJob
from penstock.formats.lance.lake.rows import find_earlier_write, open_lance_dataset
from penstock.lake.call import CommitDescription
from penstock.lake.row_changes import (
    DELETE,
    MATCHED,
    NOT_MATCHED,
    ChangedRows,
    MergeClause,
    RowValues,
)
from penstock.lake.row_input import open_row_reader
from penstock.lake.upkeep import OptimizedTable, OptimizeProgress

if TYPE_CHECKING:
    from penstock.lake.table import Table

EVERYTHING = "true"


def delete_rows(
    table: Table, where: str | None, description: CommitDescription, idempotency_key: str | None
) -> ChangedRows:
    """Delete the rows for which a condition is true, all of them without one."""
    if (earlier := _find_earlier(table, idempotency_key)) is not None:
        return earlier
    condition = EVERYTHING if where is None else where
    count = _count_rows(table, condition)
    if not count:
        return ChangedRows(key=table.key)
    committed = _run_lance_job(table, lambda dataset: dataset.delete(condition), description, idempotency_key)
    return _make_changed_rows(table, committed, deleted=count)


def update_rows(
    table: Table,
    values: RowValues,
    where: str | None,
    description: CommitDescription,
    idempotency_key: str | None,
) -> ChangedRows:
    """Give columns new values in the rows for which a condition is true."""
    if not values:
        raise InvalidRequest("no column is assigned; name at least one")
    if (earlier := _find_earlier(table, idempotency_key)) is not None:
        return earlier
    texts = {name: _value_as_sql(name, value) for name, value in values.items()}
    count = _count_rows(table, EVERYTHING if where is None else where)
    if not count:
        return ChangedRows(key=table.key)
    committed = _run_lance_job(
        table, lambda dataset: dataset.update(texts, where=where), description, idempotency_key
    )
    return _make_changed_rows(table, committed, updated=count)


def merge_rows(
    table: Table,
    source: Any,
    on: str | Sequence[str],
    clauses: tuple[MergeClause, ...],
    description: CommitDescription,
    idempotency_key: str | None,
) -> ChangedRows:
    """Merge rows into a table by columns that are equal."""
    if isinstance(on, str):
        raise _make_not_managed_error(table, "rows can only be matched by equal columns: on=['id']")
    if (earlier := _find_earlier(table, idempotency_key)) is not None:
        return earlier
    rows, counts = open_row_reader(source), dict[str, int]()

    def merge_into_dataset(dataset: Any) -> None:
        builder = dataset.merge_insert(list(on))
        for clause in clauses:
            builder = _add_clause(table, builder, clause)
        counts.update(builder.execute(rows))

    committed = _run_lance_job(table, merge_into_dataset, description, idempotency_key)
    return _make_changed_rows(
        table,
        committed,
        deleted=counts.get("num_deleted_rows", 0),
        updated=counts.get("num_updated_rows", 0),
        inserted=counts.get("num_inserted_rows", 0),
    )


def optimize_files(table: Table, progress: OptimizeProgress) -> OptimizedTable:
    """Put small fragments together, leave deleted rows out, and have indexes cover what they do not yet.

    Lance makes several commits of it, and words them itself.
    """
    from lance.optimize import Compaction

    table.require_branch()
    table.lake.begin_write(makes_lake=False)
    dataset = open_lance_dataset(table.outside_read_set)
    first, before = dataset.version, {fragment.fragment_id for fragment in dataset.get_fragments()}
    with own_errors(table.lake.lance(table.ref, via=table.via), table.key):
        if Compaction.plan(dataset, {}).num_tasks():
            dataset.optimize.compact_files()
        after = {fragment.fragment_id for fragment in dataset.get_fragments()}
        if dataset.describe_indices() and after != before:
            dataset.optimize.optimize_indices()
    progress(1, 1)
    if dataset.version == first:
        return OptimizedTable(key=table.key)
    return OptimizedTable(
        key=table.key,
        version=dataset.version,
        files_removed=len(before - after),
        files_added=len(after - before),
    )


def _add_clause(table: Table, builder: Any, clause: MergeClause) -> Any:
    is_all = clause.values is None
    if clause.kind == MATCHED and clause.action != DELETE and is_all:
        return builder.when_matched_update_all(clause.condition)
    if clause.kind == NOT_MATCHED and is_all and clause.condition is None:
        return builder.when_not_matched_insert_all()
    if clause.kind not in (MATCHED, NOT_MATCHED) and clause.action == DELETE:
        return builder.when_not_matched_by_source_delete(clause.condition)
    raise _make_not_managed_error(
        table,
        "a merge into a Lance table supports the update and insert of all columns and the deletion of rows "
        f"that the source lacks; it cannot {clause.action} rows that are {clause.kind} in another way",
    )


def _run_lance_job(
    table: Table, work: Callable[[Any], Any], description: CommitDescription, idempotency_key: str | None
) -> CommittedJob:
    """Have Lance do something to a table as one commit."""
    import lance

    table.lake.begin_write(makes_lake=False)
    job = LanceJob(
        key=table.key,
        branch=table.require_branch(),
        id=idempotency_key or uuid4().hex,
        id_name="idempotency_key",
        said=description,
    )

    def run_change(client: Any) -> Any:
        dataset = lance.dataset(namespace_client=client, table_id=[*table.key])
        work(dataset)
        return dataset

    return JobNamespace(table.lake, job).run_lance_job(run_change)


def _make_changed_rows(
    table: Table, committed: CommittedJob, deleted: int = 0, updated: int = 0, inserted: int = 0
) -> ChangedRows:
    return ChangedRows(
        key=table.key,
        commit=committed.commit or table.lake.show(f"{table.ref}@{committed.head}"),
        version=committed.version,
        deleted=deleted,
        updated=updated,
        inserted=inserted,
    )


def _find_earlier(table: Table, idempotency_key: str | None) -> ChangedRows | None:
    table.require_branch()
    if idempotency_key is None or (earlier := find_earlier_write(table, idempotency_key)) is None:
        return None
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


def _count_rows(table: Table, where: str) -> int:
    dataset = open_lance_dataset(table.outside_read_set)
    with own_errors(table.lake.lance(table.ref, via=table.via), table.key):
        count: int = dataset.count_rows(filter=where)
    return count


def _value_as_sql(name: str, value: Any) -> str:
    """A value as Lance's SQL: text is that already."""
    match value:
        case str():
            return value
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return f"timestamp '{value.isoformat(sep=' ')}'"
        case date():
            return f"date '{value.isoformat()}'"
    raise InvalidRequest(f"the value of '{name}' is a {type(value).__name__}; write it as SQL", column=name)


def _make_not_managed_error(table: Table, why: str) -> NotManaged:
    return NotManaged(f"'{table.key}' is a Lance table: {why}", key=str(table.key))
