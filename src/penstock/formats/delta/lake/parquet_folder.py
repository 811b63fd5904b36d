"""A folder of Parquet files that becomes a Delta table: the files stay where they are; footers are read.

Every file below the folder counts whose path has no part that begins with ``.`` or ``_``, as for Spark; each
must be a Parquet file. Columns come from their footers, and so do statistics, except those of floats: some
writers leave NaN out of a footer. Folders such as ``day=2026-11-01`` give the values of partition columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.answers import ConvertedFolder
from penstock.formats.delta.lake.calls import CreateTable
from penstock.formats.delta.lake.creation import check_missing, find_done
from penstock.formats.delta.lake.file_actions import file_actions
from penstock.formats.delta.lake.footer_stats import select_footer_leaves
from penstock.formats.delta.lake.footers import READERS, footer_columns
from penstock.formats.delta.lake.job_outputs import ParquetOutput
from penstock.formats.delta.lake.table import encode_actions, pack_lines_for_call
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata
from penstock.formats.delta.protocol.column_mapping import MODE
from penstock.formats.delta.protocol.column_rules import CONSTRAINTS
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.delta.protocol.properties import ICEBERG_COMPAT, MATERIALIZED_PARTITIONS
from penstock.formats.delta.rows.footer_bytes import read_footer_bytes
from penstock.formats.delta.rows.stats import indexed_leaves
from penstock.formats.rows.arrow_types import DECIMAL, allow_nulls, make_schema, pa, pq
from penstock.formats.rows.expression_text import SQL_TYPES
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})
_INT96: Final = "INT96"


class _FolderFile(NamedTuple):
    """A Parquet file of the folder, and the columns that it has."""

    output: ParquetOutput
    schema: StructType


class FolderPlan(NamedTuple):
    """What the table would be."""

    metadata: Metadata
    files: tuple[ParquetOutput, ...]


def convert_folder(
    lake: Lake,
    call: CreateTable,
    partition_types: Mapping[str, str],
    *,
    dry_run: bool,
    progress: Progress = show_no_progress,
) -> ConvertedFolder:
    """Create a table at ``call.location`` that has the Parquet files which lie there, as one commit.

    With ``dry_run`` only say what it would be. ``InvalidRequest`` names a file that is none, columns that
    differ between files, and folders that are not partitions alike; nothing is written then.
    """
    assert call.location is not None
    _check_properties(call.properties)
    if not dry_run and (made := find_done(lake, call)) is not None:
        return ConvertedFolder(key=made.key, location=made.location, commit=made.commit, repeated=True)
    check_missing(lake, call)
    place = lake.places.open_place(call.location)
    plan = plan_folder(place, partition_types, call.properties, progress)
    metadata = plan.metadata
    adds = file_actions(plan.files, metadata, select_footer_leaves(indexed_leaves(metadata)))
    converted = ConvertedFolder(
        key=call.key,
        location=call.location,
        schema=metadata.schema_string,
        partition_by=metadata.partition_columns,
        files=len(adds),
        rows=sum(file.rows for file in plan.files),
        size_bytes=sum(file.size for file in plan.files if file.rows),
        dry_run=dry_run,
    )
    if dry_run:
        return converted
    parameters = {"numFiles": converted.files, "partitionedBy": list(metadata.partition_columns)}
    info = CommitInfo({"operation": "CONVERT", "operationParameters": parameters})
    made = lake.do(
        msgspec.structs.replace(
            call,
            id=uuid4(),
            schema=metadata.schema_string,
            partition_by=metadata.partition_columns,
            actions=pack_lines_for_call(lambda: place, encode_actions([info, *adds])),
        )
    )
    return msgspec.structs.replace(converted, commit=made.commit)


_OF_FILES: Final = (*ICEBERG_COMPAT.values(), MATERIALIZED_PARTITIONS)
"""Properties that ask for more than the files of a folder have."""


def _check_properties(properties: Mapping[str, str]) -> None:
    """``InvalidRequest`` for properties by which files would have had to be written otherwise, or checked."""
    for name in properties:
        if name == MODE or name.startswith(CONSTRAINTS) or name in _OF_FILES:
            raise InvalidRequest(
                f"the property {name} cannot be set while a folder is converted\n  Convert the folder "
                "first, then alter the table: that checks its rows, and records the names of columns in "
                "its files.",
                property=name,
            )


def plan_folder(
    place: Place, partition_types: Mapping[str, str], properties: Mapping[str, str], progress: Progress
) -> FolderPlan:
    """What a table of the Parquet files of a folder would be. Raises as ``convert_folder``."""
    entries = list(_list_data_entries(place))
    if not entries:
        raise InvalidRequest(f"there are no Parquet files below {place.url}", location=place.url)
    names = _find_partition_names(place, entries)
    files: list[_FolderFile] = []
    with ThreadPoolExecutor(READERS) as threads:
        read = partial(_read_footer, place, has_partitions=bool(names))
        for file in threads.map(read, entries):
            files.append(file)
            progress("footers read", len(files))
    columns = _merge_columns(place, files, {name.lower() for name in names})
    fields = (*columns, *_make_partition_fields(names, partition_types))
    metadata = Metadata(
        id="",
        schema_string=write_schema(StructType(fields)),
        partition_columns=names,
        configuration=dict(properties),
    )
    return FolderPlan(metadata, tuple(file.output for file in files))


# -- files -------------------------------------------------------------------------------------------------


def _list_data_entries(place: Place) -> Iterator[BucketEntry]:
    for entry in place.entries():
        if f"/{LOG}" in f"/{entry.key}":
            inner = entry.key.partition(LOG)[0].rstrip("/")
            where = f"{place.url}/{inner}" if inner else place.url
            raise InvalidRequest(
                f"there is already a Delta table at {where}\n  Adopt it: penstock delta adopt {where}",
                location=where,
            )
        if not any(map(_is_hidden, entry.key.split("/"))):
            yield entry


def _is_hidden(path: str) -> bool:
    """Whether Spark passes over what has this name."""
    return path.startswith(".") or (path.startswith("_") and "=" not in path)


def _read_footer(place: Place, entry: BucketEntry, *, has_partitions: bool) -> _FolderFile:
    end = read_footer_bytes(place, entry.key, entry.size) if entry.size else None
    try:
        if end is None:
            raise InvalidRequest("the file is empty, or cannot be read")
        footer = pq.read_metadata(pa.BufferReader(end))
        schema = _make_schema(footer)
        leaves = select_footer_leaves(
            indexed_leaves(Metadata(id="", schema_string=write_schema(schema), partition_columns=()))
        )
        columns = footer_columns(footer, [leaf.stored for leaf in leaves])
    except (InvalidRequest, pa.ArrowException, OSError) as problem:
        raise InvalidRequest(
            f"{place.url}/{entry.key} cannot be a file of a Delta table: {problem}\n  Move it out of the "
            "folder, or rewrite it as Parquet.",
            file=entry.key,
        ) from None
    output = ParquetOutput(
        name=entry.key,
        partition=entry.key.rpartition("/")[0] if has_partitions else "",
        size=entry.size,
        modified_ms=entry.modified_us // 1000,
        rows=footer.num_rows,
        columns=tuple(column for column in columns if column.type not in _FLOATS),
    )
    return _FolderFile(output, schema)


def _make_schema(footer: Any) -> StructType:
    """The columns of a file, all nullable. ``InvalidRequest`` names one that Delta readers do not read."""
    arrow = footer.schema.to_arrow_schema()
    has_int96 = any(footer.schema.column(at).physical_type == _INT96 for at in range(footer.num_columns))
    arrow = pa.schema(
        [pa.field(field.name, _find_stored_type(field.type, field.name, has_int96)) for field in arrow]
    )
    schema = allow_nulls(make_schema(arrow))
    assert isinstance(schema, StructType)
    return schema


def _find_stored_type(kind: Any, name: str, has_int96: bool) -> Any:
    """An Arrow type as files have it, if Delta's readers read it as it is stored."""
    kinds = pa.types
    if kinds.is_dictionary(kind):
        return _find_stored_type(kind.value_type, name, has_int96)
    if kinds.is_struct(kind):
        return pa.struct(
            [
                pa.field(part.name, _find_stored_type(part.type, f"{name}.{part.name}", has_int96))
                for part in kind
            ]
        )
    if kinds.is_map(kind):
        return pa.map_(
            _find_stored_type(kind.key_type, f"{name}.key", has_int96),
            _find_stored_type(kind.item_type, f"{name}.value", has_int96),
        )
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(_find_stored_type(kind.value_type, f"{name}.element", has_int96))
    if kinds.is_timestamp(kind) and kind.unit == "ns":
        if has_int96:
            return pa.timestamp("us", "UTC")
        raise InvalidRequest(
            f"the column '{name}' has times in nanoseconds, but Delta supports microseconds only"
        )
    if kinds.is_unsigned_integer(kind) or kinds.is_null(kind):
        raise InvalidRequest(f"the column '{name}' has the type {kind}, which Delta does not support")
    return kind


# -- columns -----------------------------------------------------------------------------------------------


def _merge_columns(place: Place, files: Iterable[_FolderFile], partitions: set[str]) -> tuple[Field, ...]:
    """The columns of all files, those of later files behind. A file without one has nulls there."""
    columns: dict[str, tuple[Field, str]] = {}
    for file in files:
        for field in file.schema.fields:
            if field.name.lower() in partitions:
                continue  # readers take the value of the folder
            first, where = columns.setdefault(field.name.lower(), (field, file.output.name))
            if first.name != field.name or first.type != field.type:
                raise InvalidRequest(
                    f"the files at {place.url} have incompatible columns: '{first.name}' is "
                    f"{_describe_field(first)} in {where}, but '{field.name}' is {_describe_field(field)} in "
                    f"{file.output.name}\n  Rewrite one of the files with the column name and type of the "
                    "other.",
                    column=field.name,
                )
    if not columns:
        raise InvalidRequest(f"the files at {place.url} have no columns besides partition columns")
    return tuple(field for field, _ in columns.values())


def _describe_field(field: Field) -> str:
    return field.type if isinstance(field.type, str) else write_schema(StructType((field,)))


def _find_partition_names(place: Place, entries: Iterable[BucketEntry]) -> tuple[str, ...]:
    """The partition columns that folders name, in the same order for every file."""
    first: tuple[tuple[str, ...], str] | None = None
    for entry in entries:
        folders = entry.key.split("/")[:-1]
        names = tuple(unquote(folder.partition("=")[0]) for folder in folders if "=" in folder)
        if names and len(names) < len(folders):
            raise InvalidRequest(
                f"{place.url}/{entry.key} has folders in its path that name a partition, and others that "
                "do not\n  Move the file, so that every folder on its path is column=value, or none is.",
                file=entry.key,
            )
        if first is None:
            first = names, entry.key
        elif names != first[0]:
            raise InvalidRequest(
                f"the files at {place.url} are partitioned differently: {first[1]} by "
                f"{', '.join(first[0]) or 'nothing'}, {entry.key} by {', '.join(names) or 'nothing'}\n  "
                "Move the files, so that all are in folders of the same partition columns.",
                file=entry.key,
            )
    assert first is not None
    return first[0]


def _make_partition_fields(names: tuple[str, ...], types: Mapping[str, str]) -> Iterator[Field]:
    if unknown := [name for name in types if name not in names]:
        folder_columns = ", ".join(names) or "none"
        raise InvalidRequest(
            f"no folder has the partition column '{unknown[0]}'; the partition columns are: {folder_columns}"
        )
    for name in names:
        text = types.get(name, "string").strip().lower()
        kind = SQL_TYPES.get(text, text)
        if kind not in SQL_TYPES.values() and DECIMAL.fullmatch(kind) is None:
            raise InvalidRequest(
                f"'{types[name]}' is not a type of the partition column '{name}'; use one such as date, int "
                "or string",
                column=name,
            )
        yield Field(name=name, type=kind, nullable=True)
