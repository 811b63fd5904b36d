"""Creates a table with the rows of a DataFrame: one version and one commit, so it is never seen without
them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.answers import OwnershipResult
from penstock.formats.delta.lake.calls import CommitTables, CreateTable, TableCommit
from penstock.formats.delta.lake.schema_evolution import partition_names
from penstock.formats.delta.lake.table import encode_actions, pack_lines_for_call
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata
from penstock.formats.delta.protocol.column_mapping import assign_columns
from penstock.formats.delta.publishing.side_files import note_creation
from penstock.formats.delta.rows.merged_schemas import check_names
from penstock.formats.delta.spark.job.files import write_files
from penstock.formats.delta.spark.writes.delta_write_options import DeltaWriteOptions
from penstock.formats.delta.spark.writes.replace_where import enforce_condition
from penstock.formats.delta.spark.writes.row_casts import fit_rows
from penstock.formats.delta.spark.writes.schemas import new_schema
from penstock.formats.rows.schema import write_schema
from penstock.lake.answers import LandedRequest, TableCommitResult
from penstock.lake.job_files import JobStart
from penstock.lake.write_jobs import check_new_key
from penstock.model.keys import Key
from penstock.spark.job.durable_files import make_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake


def create_table(
    df: DataFrame, lake: Lake, key: Key, branch: str, order: DeltaWriteOptions
) -> TableCommitResult:
    """Create a table that has the rows from the beginning.

    ``CommitConflict`` if there is one when the commit has its turn. Whatever it is refused for, the files are
    removed again, as far as possible; if nobody knows whether it was done, they stay.
    """
    check_new_key(key)
    _check_has_warehouse(lake, key)
    began, identity = JobStart.at_lake_time(lake), uuid4()
    schema = new_schema(df.schema)
    metadata = assign_columns(
        Metadata(
            id=str(identity),
            schema_string=write_schema(schema),
            partition_columns=partition_names(schema, order.partition_by or ()),
            configuration=order.properties,
        )
    )
    check_names(metadata)
    rows = fit_rows(df, schema)
    if order.replace_where is not None:
        rows = enforce_condition(rows, order.replace_where)
    location = lake.delta.place_of(identity)
    place = lake.places.open_place(location)
    make_root(place)
    note_creation(place, lake.id)
    actions = write_files(rows, lake, location, metadata, branch=branch, options=order.options)
    with remove_files_if_refused(place, actions):
        began.check_in_time()
        info = CommitInfo({"operation": "CREATE TABLE AS SELECT", "operationParameters": {}})
        lines = encode_actions([info, *order.batches, *actions])
        made = lake.do(
            CreateTable(
                key=key,
                schema=metadata.schema_string,
                partition_by=metadata.partition_columns,
                properties=dict(metadata.configuration),
                description=order.description,
                id=identity,
                actions=pack_lines_for_call(lambda: place, lines),
                branch=branch,
                said=order.said,
                idempotency_key=order.idempotency_key if order.idempotency_key is not None else str(identity),
                who=lake.author,
            )
        )
    return _make_answer(lake, made, branch, identity)


def _check_has_warehouse(lake: Lake, key: Key) -> None:
    """``InvalidRequest`` if there is no place for the table's files."""
    if not lake.warehouse:
        raise InvalidRequest(
            f"'{key}' cannot be created: the lake {lake.url} has no warehouse for its files\n  Use a lake "
            "in a directory, as penstock.open('./lake') creates it, or one that 'penstock init "
            "--warehouse' created.",
            key=str(key),
        )


def _make_answer(lake: Lake, made: OwnershipResult, branch: str, identity: UUID) -> TableCommitResult:
    """What a creation came to, as any other write tells it."""
    landing = LandedRequest(commits=(made.commit,), head=made.commit)
    write = CommitTables(tables=(TableCommit(key=made.key, actions=""),), branch=branch)
    result = write.recover(lake.do, landing)
    (table,) = result.tables
    return TableCommitResult(
        commit=result.commit, tables=(msgspec.structs.replace(table, repeated=made.id != identity),)
    )
