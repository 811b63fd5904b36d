"""What a table is to become by a write: the same as before, with more columns, or with others.

A commit that changes what a table is rests on what it was. If somebody else changes that first, files that
are written already may still fit what the table has become.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.lake.column_ids import reserve_column_ids
from penstock.formats.delta.lake.table import find_earlier_result
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import Action, Metadata, Protocol
from penstock.formats.delta.protocol.added_columns import can_hold_files
from penstock.formats.delta.protocol.column_mapping import assign_columns
from penstock.formats.delta.protocol.features import complete_protocol
from penstock.formats.delta.rows.file_writer import check_features, write_files
from penstock.formats.delta.rows.merged_schemas import check_names, merge_schemas
from penstock.formats.rows.arrow_types import make_schema
from penstock.formats.rows.schema import StructType, parse_schema, write_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.row_input import open_row_reader
from penstock.model.similar_names import describe_names

if TYPE_CHECKING:
    from penstock.lake.table import Table

COMMITS_MAX: Final = 10
"""How often files are offered to a table that is changed again and again."""


def append_with_columns(
    table: Table, data: Any, *, description: CommitDescription, idempotency_key: str | None
) -> TableCommitResult:
    """Add rows, and to the table the columns that only they have; they are null in the rows that are there.

    Whatever else lands meanwhile, they are added, unless they do not fit what the table was changed to.
    """
    branch = table.require_branch()
    if (earlier := find_earlier_result(table.lake, [table.key], branch, idempotency_key)) is not None:
        return earlier
    table.lake.begin_write(makes_lake=False)
    job, rows = DeltaJob(table.lake, table.key, branch), open_row_reader(data)
    schema = make_schema(rows.schema)

    def evolve_schema(metadata: Metadata) -> Metadata:
        becomes = with_columns(metadata, schema, case_sensitive=False)
        return reserve_column_ids(table.lake, table.key, branch, metadata, becomes)

    becomes = evolve_schema(job.metadata)
    check_names(becomes)
    files = write_files(job.place, becomes, rows, prefix=job.data_folder, clustering=job.clustering)

    def commit_files(current: DeltaJob, actions: Sequence[Action]) -> TableCommitResult:
        return current.commit_actions(
            actions,
            operation="WRITE",
            parameters={"mode": "Append", "mergeSchema": "true"},
            description=description,
            idempotency_key=idempotency_key,
            keep_files=True,
        )

    return commit_fitting(job, files, becomes, evolve_schema, commit_files)


def with_columns(metadata: Metadata, data: StructType, *, case_sensitive: bool) -> Metadata:
    """A table with the columns that only the data has, after its own; the same, if there are none."""
    before = parse_schema(metadata.schema_string)
    after = merge_schemas(before, data, case_sensitive=case_sensitive)
    if after == before:
        return metadata
    return assign_columns(replace(metadata, schema_string=write_schema(after)))


def with_schema(metadata: Metadata, data: StructType, partition_by: Sequence[str]) -> Metadata:
    """A table with the data's columns instead of its own. Its properties stay."""
    columns = tuple(partition_by)
    return assign_columns(replace(metadata, schema_string=write_schema(data), partition_columns=columns))


def partition_names(schema: StructType, names: Sequence[str]) -> tuple[str, ...]:
    """The columns that a table is to be partitioned by, as the schema spells them.

    ``InvalidRequest`` if there is no such column, or one is named twice.
    """
    columns: list[str] = []
    for name in names:
        field = schema.field(name)
        if field is None:
            suggestion = describe_names(name, [field.name for field in schema.fields])
            raise InvalidRequest(f"there is no column '{name}' to partition by{suggestion}", column=name)
        if field.name in columns:
            raise InvalidRequest(f"'{name}' is given twice as a partition column", column=name)
        columns.append(field.name)
    return tuple(columns)


def find_needed_protocol(protocol: Protocol, metadata: Metadata) -> Protocol | None:
    """The protocol that a table needs for new columns; ``None`` if the one that it has will do."""
    completed = complete_protocol(protocol, metadata)
    return None if completed == protocol else completed


def make_metadata_actions(table: DeltaJob, becomes: Metadata) -> list[Action]:
    """What a commit says of the table itself: nothing, if it stays what it is."""
    if becomes == table.metadata:
        return []
    protocol = find_needed_protocol(table.protocol, becomes)
    return [becomes] if protocol is None else [protocol, becomes]


def commit_fitting(
    table: DeltaJob,
    files: Sequence[Action],
    metadata_to_write: Metadata,
    evolve_schema: Callable[[Metadata], Metadata],
    commit: Callable[[DeltaJob, Sequence[Action]], TableCommitResult],
) -> TableCommitResult:
    """Commit files of a table that is to become another. If others change what the table is meanwhile, the
    files are offered again as long as they fit it; ``commit`` offers them, and leaves them where they are.

    The files were written for ``metadata_to_write``, which the table gets: made anew, columns would have
    other names in files. ``evolve_schema`` makes the metadata of a table that others have changed.
    """
    becomes = metadata_to_write
    with remove_files_if_refused(table.place, files):  # what has the table's key later may be another table
        for tries_left in reversed(range(COMMITS_MAX)):
            try:
                return commit(table, [*make_metadata_actions(table, becomes), *files])
            except TableConflict:
                before, table = table, table.reopen_table()
                is_changed = before.id == table.id and before.metadata != table.metadata
                becomes = evolve_schema(table.metadata)
                if (
                    not tries_left
                    or not is_changed
                    or not can_hold_files_written_for(metadata_to_write, becomes)
                ):
                    raise
                check_features(becomes)
    raise AssertionError("unreachable: the last attempt neither returned nor raised an error")


def can_hold_files_written_for(metadata_to_write: Metadata, now: Metadata) -> bool:
    """Whether files that were written for a table can be part of what it has become.

    They can if every column in them is there, of the same type, and whatever else there is may be null.
    """
    return metadata_to_write.partition_columns == now.partition_columns and can_hold_files(
        now.schema_string, metadata_to_write.schema_string
    )
