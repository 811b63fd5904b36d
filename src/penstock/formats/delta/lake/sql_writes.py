"""Rows that an engine without Python writes to a Delta table: plain tables only, as Spark itself writes them.

Spark writes Parquet files below the table by Penstock's commit protocol, whose tasks tell them with their
statistics. What takes expressions that Python makes is refused: constraints, computed columns, mapped names.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import InvalidRequest, TableConflict, TableExists, TooLarge
from penstock.formats.delta.lake import own_reads
from penstock.formats.delta.lake.calls import CreateTable, TablePart
from penstock.formats.delta.lake.file_actions import file_actions
from penstock.formats.delta.lake.footer_stats import select_footer_leaves
from penstock.formats.delta.lake.job_outputs import ParquetOutput
from penstock.formats.delta.lake.partition_folders import list_partition_fields
from penstock.formats.delta.lake.replaced_parts import derive_replaced_parts, is_decided_by_partitions
from penstock.formats.delta.lake.row_rewrite import check_changeable
from penstock.formats.delta.lake.schema_evolution import partition_names
from penstock.formats.delta.lake.table import (
    data_folder,
    encode_actions,
    find_earlier_result,
    pack_lines_for_call,
)
from penstock.formats.delta.lake.table_job import DeltaJob
from penstock.formats.delta.protocol.actions import Action, CommitInfo, Metadata
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, assign_columns, get_column_mapping
from penstock.formats.delta.protocol.column_rules import has_generated_value, list_constraints
from penstock.formats.delta.protocol.properties import RANDOM_PREFIXES, is_on, materializes_partition_columns
from penstock.formats.delta.publishing.side_files import note_creation
from penstock.formats.delta.rows.file_writer import NULL_FOLDER, check_features
from penstock.formats.delta.rows.merged_schemas import check_names, new_table_schema
from penstock.formats.delta.rows.stats import StatsLeaf, indexed_leaves
from penstock.formats.rows.arrow_types import allow_nulls
from penstock.formats.rows.schema import Field, parse_schema, write_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import describe_commit
from penstock.lake.job_files import JobStart
from penstock.lake.sql_catalog.formats import make_needs_python_error
from penstock.lake.sql_catalog.requests import RowOrder, WritePlan, WrittenRows
from penstock.lake.write_jobs import SaveMode, check_new_key
from penstock.model.clock import now_us
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.decoders import get_json_decoder
from penstock.storage.hadoop import make_hadoop_address

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.model.keys import Key
    from penstock.storage.places import Place

SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.variant.writeShredding.enabled": "false",
    "spark.sql.variant.inferShreddingSchema": "false",
}
"""How values are stored that readers of a Delta table rely on."""


FILES_MAX_BYTES: Final = 32 * 1024 * 1024
"""In which the files of a commit are told, unpacked."""


def plan_write(lake: Lake, order: RowOrder) -> WritePlan:
    """How Spark is to write rows to a table that is there."""
    if order.is_new:
        return _plan_creation(lake, order)
    table = DeltaJob(lake, order.key, order.branch)
    _check_insert(table, order)
    return _plan_write(
        table.place, table.metadata, _stats_leaves(table), table.data_folder, _digest_metadata(table.metadata)
    )


def _plan_creation(lake: Lake, order: RowOrder) -> WritePlan:
    """How Spark is to write the first rows of a table.

    A note of the lake lies where they go: by that, a sweep knows whose they are if they are never committed.
    """
    key = order.key
    check_new_key(key)
    if lake.table(key, order.branch).outside_read_set.exists:
        if order.mode is SaveMode.IGNORE:
            return WritePlan(format="", path="", mode="")
        if order.mode is SaveMode.OVERWRITE:
            raise make_needs_python_error(
                f"'{key}' exists, and cannot be replaced by a table with other columns"
            )
        raise TableExists(f"the table '{key}' already exists", key=str(key))
    identity = uuid4()
    metadata = _make_metadata(order, identity)
    _check_plain(key, metadata)
    place = lake.places.open_place(lake.delta.place_of(identity))
    note_creation(place, lake.id)
    leaves = select_footer_leaves(indexed_leaves(metadata, frozenset()))
    return _plan_write(place, metadata, leaves, data_folder(lake, order.branch), identity.hex)


def _plan_write(
    place: Place, metadata: Metadata, leaves: Sequence[StatsLeaf], folder: str, planned: str
) -> WritePlan:
    fields, job = list_partition_fields(metadata), uuid4().hex
    options = {
        "attempt": job,
        "columns": msgspec.json.encode([leaf.stored for leaf in leaves]).decode(),
        "subdirectory": folder.rstrip("/"),
    }
    return WritePlan(
        format="parquet",
        path=make_hadoop_address(place.url),
        mode="append",
        partition_by=tuple(field.name for field in fields),
        options={f"penstock.{name}": value for name, value in options.items()},
        settings=SETTINGS,
        expressions=dict(_write_expressions(metadata, {field.name for field in fields})),
        job=job,
        planned=planned,
        began_us=now_us(),
    )


def _make_metadata(order: RowOrder, identity: UUID) -> Metadata:
    schema = new_table_schema(parse_schema(order.schema))
    return assign_columns(
        Metadata(
            id=str(identity),
            schema_string=write_schema(schema),
            partition_columns=partition_names(schema, order.partition_by),
            configuration=order.properties,
        )
    )


def commit_write(lake: Lake, order: RowOrder, written: WrittenRows) -> None:
    """Commit the files that Spark has written, once. Those of a refused job are left for a sweep: whose files
    they are is only the caller's word."""
    branch = order.branch or lake.default_branch
    if find_earlier_result(lake, [order.key], branch, written.job) is not None:
        return
    JobStart.at_time(lake, written.began_us).check_in_time()
    if order.is_new:
        _create_table(lake, order, written)
        return
    table = DeltaJob(
        lake, order.key, order.branch, at=own_reads.oldest_read(lake, order.key, order.own_reads)
    )
    _check_insert(table, order)
    if _digest_metadata(table.metadata) != written.planned:
        why = "its columns or properties were changed while the rows were written: run the statement again"
        raise TableConflict([Conflict(ConflictKind.FORMAT, order.key, why=why)])
    actions = file_actions(_decode_outputs(written), table.metadata, _stats_leaves(table))
    replaces = None
    if order.mode is SaveMode.OVERWRITE:
        replaces = derive_replaced_parts(
            table.metadata, actions, order.replace_where, is_dynamic=order.is_dynamic
        )
    if not actions and replaces is None:
        return

    def commit_actions(
        table: DeltaJob, actions: Sequence[Action], replaces: Sequence[TablePart] | None
    ) -> TableCommitResult:
        return table.commit_actions(
            actions,
            operation="WRITE",
            parameters={"mode": "Overwrite" if order.mode is SaveMode.OVERWRITE else "Append"},
            reads=reads,
            replaces=replaces,
            description=describe_commit(order.message, order.author or None),
            idempotency_key=written.job,
            keep_files=True,
        )

    reads = own_reads.read_set(table, order.own_reads, order.zone)
    if not order.own_reads:
        commit_actions(table, actions, replaces)
        return
    own_reads.commit_on_reads(
        table, replaces, lambda table, removed: commit_actions(table, [*removed, *actions], None)
    )


def _create_table(lake: Lake, order: RowOrder, written: WrittenRows) -> None:
    try:
        identity = UUID(hex=written.planned)
    except ValueError:
        raise InvalidRequest(
            f"'{written.planned}' is not a table id: send the id that the plan of the write contained, a UUID"
        ) from None
    metadata = _make_metadata(order, identity)
    leaves = select_footer_leaves(indexed_leaves(metadata, frozenset()))
    info = CommitInfo({"operation": "CREATE TABLE AS SELECT", "operationParameters": {}})
    place = lake.places.open_place(lake.delta.place_of(identity))
    lines = encode_actions([info, *file_actions(_decode_outputs(written), metadata, leaves)])
    lake.do(
        CreateTable(
            key=order.key,
            schema=metadata.schema_string,
            partition_by=metadata.partition_columns,
            properties=dict(metadata.configuration),
            description=order.description,
            id=identity,
            actions=pack_lines_for_call(lambda: place, lines),
            branch=order.branch,
            said=describe_commit(order.message, order.author or None),
            idempotency_key=written.job,
            who=lake.author,
        )
    )


def _check_insert(table: DeltaJob, order: RowOrder) -> None:
    """``InvalidRequest`` for a table that rows cannot be written to, or not like that."""
    if order.mode is SaveMode.OVERWRITE:
        check_changeable(table)
    where = order.replace_where
    if where is not None and not is_decided_by_partitions(table.metadata, where, order.zone):
        raise make_needs_python_error(f"only whole partitions of '{order.key}' can be replaced")
    _check_plain(order.key, table.metadata)


def _check_plain(key: Key, metadata: Metadata) -> None:
    """``InvalidRequest`` for a table whose rows need more than Spark's own writer does."""
    check_features(metadata)
    check_names(metadata)
    reason = next(_find_unsupported(metadata), None)
    if reason is not None:
        raise make_needs_python_error(f"rows cannot be written to '{key}', which has {reason},")


def _find_unsupported(metadata: Metadata) -> Iterator[str]:
    """What a table has that takes more than Spark's own writer."""
    schema = parse_schema(metadata.schema_string)
    if list_constraints(metadata):
        yield "constraints"
    if any(has_generated_value(field) for field in schema.walk()):
        yield "generated, identity or default columns"
    if get_column_mapping(metadata) is not ColumnMapping.NONE:
        yield "mapped column names"
    if metadata.partition_columns and materializes_partition_columns(metadata.configuration):
        yield "partition columns in its files"
    if is_on(metadata.configuration, RANDOM_PREFIXES):
        yield "random folders for its files"
    if any(field.type == "timestamp" for field in list_partition_fields(metadata)):
        yield "timestamps to be partitioned by"
    if any(allow_nulls(field.type) != field.type for field in schema.fields):
        yield "parts of columns that are NOT NULL"


def _write_expressions(metadata: Metadata, partitions: set[str]) -> Iterator[tuple[str, str]]:
    """What columns are written as that cannot have every value."""
    for field in parse_schema(metadata.schema_string).fields:
        column, refusals = _quote_name(field), []
        if not field.nullable:
            refusals.append(
                (f"{column} IS NULL", f"the column '{field.name}' is NOT NULL, and the data has nulls")
            )
        if field.name in partitions and field.type == "string":
            has_no_name = f"{column} = '{NULL_FOLDER}' OR contains({column}, char(0))"
            refusals.append(
                (has_no_name, f"the column '{field.name}' has a value that cannot be a partition value")
            )
        if refusals:
            cases = " ".join(
                f"WHEN {condition} THEN raise_error({_quote_text(message)})"
                for condition, message in refusals
            )
            yield field.name, f"CASE {cases} ELSE {column} END"


def _quote_name(field: Field) -> str:
    return "`" + field.name.replace("`", "``") + "`"


def _quote_text(message: str) -> str:
    return "'" + message.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _stats_leaves(table: DeltaJob) -> tuple[StatsLeaf, ...]:
    return select_footer_leaves(indexed_leaves(table.metadata, table.clustering))


def _decode_outputs(written: WrittenRows) -> list[ParquetOutput]:
    """The files that a job tells. ``TooLarge`` if they are too many."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        lines = unpacker.decompress(base64.b64decode(written.files), FILES_MAX_BYTES)
        if unpacker.unconsumed_tail:
            raise TooLarge(
                f"the list of files of one commit can have at most {FILES_MAX_BYTES:,} bytes: write fewer "
                "files"
            )
        return get_json_decoder(list[ParquetOutput]).decode(b"[" + lines.strip().replace(b"\n", b",") + b"]")
    except (ValueError, zlib.error, msgspec.MsgspecError) as problem:
        raise InvalidRequest(f"the files that were written cannot be read: {problem}") from None


def _digest_metadata(metadata: Metadata) -> str:
    return hashlib.sha256(msgspec.json.encode(metadata, order="deterministic")).hexdigest()
