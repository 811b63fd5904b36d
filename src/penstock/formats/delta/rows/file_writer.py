"""Data files for a table, from anything that Arrow can stream.

Rows are checked against the table's schema, sorted into partitions and written as Parquet. What waits in
memory is bounded: the largest files under way are finished, although they could grow, when all of them
together need too much. So data with many partitions need not be sorted, but makes fewer files if it is.

Every file is durable before ``write_files`` returns. None of them is part of the table: that takes a commit
with the actions that it returns.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as MappingOf
from contextlib import contextmanager, suppress
from decimal import Decimal
from hashlib import blake2b
from io import SEEK_SET, BytesIO
from tempfile import TemporaryFile, gettempdir
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

from msgspec.structs import replace

from penstock.errors import InvalidRequest, OutcomeUnknown, PenstockError
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.protocol.actions import Add, Cdc, Metadata, Values
from penstock.formats.delta.protocol.change_feed import CHANGE_TYPE
from penstock.formats.delta.protocol.column_mapping import (
    ID,
    PARQUET_ID,
    ColumnMapping,
    get_column_mapping,
    nested_ids,
    stored_schema,
)
from penstock.formats.delta.protocol.feature_table import FEATURES, FeatureSupport
from penstock.formats.delta.protocol.features import select_features_in_use
from penstock.formats.delta.protocol.iceberg_compat import row_column_note
from penstock.formats.delta.protocol.properties import materializes_partition_columns
from penstock.formats.delta.protocol.row_ids import get_row_tracking_columns
from penstock.formats.delta.rows.filled_columns import ColumnFiller, IdentityNumberSource
from penstock.formats.delta.rows.row_checks import RowChecks, check_columns, conform_batch
from penstock.formats.delta.rows.stats import Statistics, StatsLeaf, indexed_leaves
from penstock.formats.rows.arrow_types import (
    allow_nulls,
    find_arrow_type,
    make_arrow_schema,
    pa,
    pc,
    pq,
    reshape_array,
)
from penstock.formats.rows.predicates import to_utc
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type, parse_schema
from penstock.storage.disk_space import NO_ROOM, storage_full_error
from penstock.storage.places import Place

TARGET_FILE_BYTES: Final = 128 * 1024 * 1024
"""About how large a file becomes, if there is so much for it."""
WAITING_MAX_BYTES: Final = 256 * 1024 * 1024
"""How much may wait in memory for its files to be finished."""
HELD_MAX_BYTES: Final = 128 * 1024 * 1024
"""How much of a file is held in memory until it is finished; one that becomes larger waits on the disk for
temporary files."""
PIECE_BYTES: Final = 8 * 1024 * 1024
"""A file is stored piece by piece, of about this size."""
GROUP_BYTES: Final = 32 * 1024 * 1024
"""How much, uncompressed, goes into one row group."""
FOLDER_NAME_MAX_BYTES: Final = 120
"""Longer columns and values are cut in the names of folders: no file has a name of more than 255 bytes."""
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
CHANGES_FOLDER: Final = "_change_data/"
"""Where files of the change data feed are: engines that clean up a table look for them there."""

_ESCAPED: Final = frozenset(map(chr, range(0x20))) | frozenset("\"#%'*/:=?\\\x7f{[]^")


def write_files(
    place: Place,
    metadata: Metadata,
    data: Any,
    *,
    target_file_bytes: int = TARGET_FILE_BYTES,
    waiting_max_bytes: int = WAITING_MAX_BYTES,
    prefix: str = "",
    clustering: Collection[tuple[str, ...]] = frozenset(),
    are_checked: bool = False,
    numbers: IdentityNumberSource | None = None,
    with_row_ids: bool = False,
) -> list[Add]:
    """Write rows as data files of a table, and return the actions that would add them.

    ``data`` is anything with ``__arrow_c_stream__``: a table or reader of Arrow, a frame of pandas or Polars.
    ``prefix`` is a folder below the table that the files go into. ``clustering`` are the columns that it is
    clustered by, as files call them: of these there are always statistics. Rows that are written anew
    ``are_checked``: they satisfy the table's constraints. Those of a table that tracks rows come
    ``with_row_ids``: the columns by which they keep their ids.

    A column that the data lacks is generated, or has its default, or is null, if it may be.
    ``InvalidRequest`` names a column that the table does not have, a null where none may be, a constraint
    that is not true for a row, and a type or a value that the table's type cannot hold without loss;
    ``UnsupportedFeature`` names an expression that cannot be evaluated, and a feature of the table that asks
    for more than this does. If anything fails, the files that were written are removed again, as far as
    possible.
    """
    files = DataFileWriter(
        place,
        metadata,
        prefix=prefix,
        clustering=clustering,
        with_row_ids=with_row_ids,
        target_file_bytes=target_file_bytes,
        waiting_max_bytes=waiting_max_bytes,
    )
    reader = _make_reader(data)
    # Rows that are written anew have all columns already.
    fill = None if are_checked or with_row_ids else ColumnFiller(files.schema, reader.schema, numbers=numbers)
    if fill is None:
        check_columns(reader.schema, files.schema)
    with files:
        for batch in _split_batches(reader):
            files.write_rows(batch if fill is None else fill.fill_columns(batch), are_checked=are_checked)
        added = files.finish_files()
    return [action for action in added if isinstance(action, Add)]


class DataFileWriter:
    """Data files of a table under way, or files of its change data feed: rows go in, actions come out.

    As a context: if anything fails in it, the files that were written are removed again, as far as possible.
    """

    def __init__(
        self,
        place: Place,
        metadata: Metadata,
        *,
        prefix: str = "",
        clustering: Collection[tuple[str, ...]] = frozenset(),
        is_feed: bool = False,
        with_row_ids: bool = False,
        target_file_bytes: int = TARGET_FILE_BYTES,
        waiting_max_bytes: int = WAITING_MAX_BYTES,
    ) -> None:
        """``is_feed`` is for rows of the change data feed, which come with their ``_change_type``;
        ``with_row_ids`` for rows that come with the columns by which they keep their ids."""
        self._target = _TargetTable(
            place, metadata, prefix, clustering, is_feed=is_feed, with_row_ids=with_row_ids
        )
        self._metadata, self._checks = metadata, None if is_feed else RowChecks(metadata)
        self._waiting: dict[tuple[str | None, ...], _OpenFile] = {}
        self._target_file_bytes, self._waiting_max_bytes = target_file_bytes, waiting_max_bytes

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        for file in self._waiting.values():
            file.discard()
        if kind is not None:
            # Nobody knows these files; if they cannot be removed either, a sweep of the table will find them.
            with suppress(PenstockError):
                self._target.place.delete(self._target.names)

    @property
    def schema(self) -> StructType:
        """The columns that rows have."""
        return self._target.schema

    def write_rows(self, batch: Any, *, are_checked: bool = False) -> None:
        """Write rows. Raises as ``write_files``; rows that were in the table ``are_checked`` already."""
        for piece in _split_batches([batch]):
            fitting = conform_batch(piece, self._target.schema)
            if self._checks is not None and not are_checked:
                self._checks.check_rows(fitting)
            self._add_rows(fitting)

    def check_constraints(self, rows: Any) -> None:
        """``InvalidRequest`` if a constraint of the table is not true for a row."""
        if self._checks is not None:
            self._checks.check_rows(rows)

    def finish_files(self) -> Sequence[Add | Cdc]:
        """Finish all files, and return the actions that would make them part of the table."""
        while self._waiting:
            self._waiting.popitem()[1].finish_file()
        return self._target.added

    def _add_rows(self, rows: Any) -> None:
        for values, part in self._target.split_by_partition(rows):
            file = self._waiting.get(values) or _OpenFile(self._target, values)
            self._waiting[values] = file
            file.add_rows(part)
            if file.written_bytes >= self._target_file_bytes:
                self._waiting.pop(values).finish_file()
        if sum(file.waiting_bytes for file in self._waiting.values()) > self._waiting_max_bytes:
            _finish_down_to(self._waiting_max_bytes // 2, self._waiting)


def check_features(metadata: Metadata) -> None:
    """``UnsupportedFeature`` if a writer of rows would have to do more for the table than Penstock does."""
    for name in sorted(select_features_in_use(metadata)):
        feature = FEATURES[name]
        if feature.writing is not FeatureSupport.ALWAYS:
            raise UnsupportedFeature(
                f"rows cannot be written: the table uses '{name}': {feature.why}; {feature.advice}",
                feature=name,
            )


def partition_text(kind: Type, value: Any) -> str | None:
    """A value as ``partitionValues`` have it. An empty text is null: the log has one word for both."""
    if value is None or value in ("", b""):
        return None
    match kind:
        case "boolean":
            return "true" if value else "false"
        case "float" | "double":
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
        case "date":
            return str(value.isoformat())
        case "timestamp":
            return f"{to_utc(value).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case "timestamp_ntz":
            return str(value.isoformat(sep=" ", timespec="microseconds"))
        case "binary":
            return str(value.decode())
        case _:
            return format(value, "f") if isinstance(value, Decimal) else str(value)


def partition_folder(values: MappingOf[str, str | None]) -> str:
    """The folder of a partition, as Hive names it. It is for people: readers go by ``partitionValues``."""
    return "/".join(
        f"{_folder_name(name)}={NULL_FOLDER if text is None else _folder_name(text)}"
        for name, text in values.items()
    )


class _TargetTable:
    """The table that rows are written for, and what has been written."""

    def __init__(
        self,
        place: Place,
        metadata: Metadata,
        prefix: str,
        clustering: Collection[tuple[str, ...]],
        *,
        is_feed: bool,
        with_row_ids: bool,
    ) -> None:
        self.place, self._is_feed = place, is_feed
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._prefix += CHANGES_FOLDER if is_feed else ""
        check_features(metadata)
        row_columns = (get_row_tracking_columns(metadata) if with_row_ids else None) or ()
        beside = tuple(
            Field(name=name, type="long", nullable=True, metadata=row_column_note(metadata, is_id=not place))
            for place, name in enumerate(row_columns)
        )
        if is_feed:
            beside = (Field(name=CHANGE_TYPE, type="string", nullable=False),)
        own = parse_schema(metadata.schema_string)
        self.schema = StructType((*own.fields, *beside))
        self._partition_fields = [_partition_field(self.schema, name) for name in metadata.partition_columns]
        names = {field.name for field in self._partition_fields}
        data_fields = [field for field in own.fields if field.name not in names]
        if not data_fields:
            raise InvalidRequest("the table has no columns besides its partition columns")
        self._has_partitions = materializes_partition_columns(metadata.configuration)
        if self._has_partitions:
            data_fields += self._partition_fields
        loose = [replace(field, type=allow_nulls(field.type), nullable=True) for field in data_fields]
        self.mapping = get_column_mapping(metadata)
        self.stored = (*stored_schema(loose, self.mapping).fields, *beside)
        self.file_schema = make_arrow_schema((*loose, *(replace(field, nullable=True) for field in beside)))
        self.parquet_schema = self.file_schema
        if self.mapping is not ColumnMapping.NONE:
            self.parquet_schema = pa.schema([_field_with_id(field) for field in self.stored])
        self.leaves: tuple[StatsLeaf, ...] = () if is_feed else indexed_leaves(metadata, clustering)
        self.added: list[Add | Cdc] = []
        self.names: list[str] = []

    def split_by_partition(self, batch: Any) -> Iterator[tuple[tuple[str | None, ...], Any]]:
        """The rows of each partition, as its files hold them."""
        if not batch.num_rows:
            return
        rows = self._null_empty_texts(batch).select(self.file_schema.names)
        if not self._partition_fields:
            yield (), rows
            return
        coded = [_encode_partition(batch.column(field.name), field) for field in self._partition_fields]
        order, ends = _group_rows([codes for codes, _ in coded])
        start = 0
        for end in ends:
            chosen = order.slice(start, end - start)
            first = chosen[0].as_py()
            # Copied, so that a few rows that wait do not keep the whole batch in memory.
            part = rows if len(ends) == 1 else rows.take(chosen)
            yield tuple(texts[codes[first].as_py()] for codes, texts in coded), part
            start = end

    def _null_empty_texts(self, batch: Any) -> Any:
        """Rows as they are read: an empty text in a partition column is null."""
        for field in self._partition_fields if self._has_partitions else ():
            if field.type == "string":
                column, place = batch.column(field.name), batch.schema.get_field_index(field.name)
                with_nulls = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
                batch = batch.set_column(place, batch.schema.field(place), with_nulls)
        return batch

    def as_stored(self, table: Any) -> Any:
        """Rows with the names that their columns have in files, at every depth."""
        if self.mapping is ColumnMapping.NONE:
            return table
        arrays = [
            reshape_array(column.combine_chunks(), field.type, _locate_renamed_fields, _as_is, field.name)
            for column, field in zip(table.columns, self.stored, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.parquet_schema)

    def create_file(
        self, values: tuple[str | None, ...], encoded: _SpooledBytes, statistics: Statistics
    ) -> None:
        """Write a file, durably, and note its action."""
        named = dict(zip([field.name for field in self._partition_fields], values, strict=True))
        stored = map(self.mapping.get_physical_name, self._partition_fields)
        noted: Values = dict(zip(stored, values, strict=True))
        folder = f"{partition_folder(named)}/" if named else ""
        kind = "cdc" if self._is_feed else "part"
        name = f"{self._prefix}{folder}{kind}-{len(self.names):05}-{uuid4()}-c000.zstd.parquet"
        self.names.append(name)
        try:
            self._store_file(name, encoded)
        except OutcomeUnknown:
            # Nobody else has the name: if a file is there now, it is this one.
            self._store_file(name, encoded)
        path = quote(name, safe="/=")
        if self._is_feed:
            self.added.append(Cdc(path=path, partition_values=noted, size=encoded.size, data_change=False))
            return
        self.added.append(
            Add(
                path=path,
                partition_values=noted,
                size=encoded.size,
                modification_time=time.time_ns() // 1_000_000,
                data_change=True,
                stats=statistics.encode_stats(),
            )
        )

    def _store_file(self, name: str, encoded: _SpooledBytes) -> None:
        if encoded.size <= PIECE_BYTES:
            self.place.create(name, encoded.read_all())
        else:
            self.place.put_pieces(name, encoded.pieces(PIECE_BYTES))


class _OpenFile:
    """A file under way: some of it encoded, some still as rows.

    What is encoded is in memory, and in a temporary file once it is much: it is stored when it is whole.
    """

    def __init__(self, target: _TargetTable, values: tuple[str | None, ...]) -> None:
        self._target, self._values = target, values
        self._rows: list[Any] = []
        self._rows_bytes = 0
        self._encoded = _SpooledBytes(HELD_MAX_BYTES)
        self._writer: Any = None
        self._statistics = Statistics(target.leaves)

    @property
    def written_bytes(self) -> int:
        return self._encoded.size

    @property
    def waiting_bytes(self) -> int:
        """How much of it is in memory."""
        return self._rows_bytes + (self._encoded.size if self._encoded.is_held else 0)

    def add_rows(self, rows: Any) -> None:
        self._rows.append(rows)
        self._rows_bytes += rows.nbytes
        if self._rows_bytes >= GROUP_BYTES:
            self._encode_row_group()

    def finish_file(self) -> None:
        try:
            if self._rows:
                self._encode_row_group()
            self._writer.close()
            self._target.create_file(self._values, self._encoded, self._statistics)
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of what is in memory, and of the temporary file."""
        self._rows = []
        self._encoded.discard()

    def _encode_row_group(self) -> None:
        """Write what waits as a row group."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._encoded, mode="w"),
                self._target.parquet_schema,
                compression="zstd",
                coerce_timestamps="us",
                store_schema=False,
                write_page_index=True,
            )
        table = pa.Table.from_batches(self._rows, self._target.file_schema).combine_chunks()
        for batch in table.to_batches():
            self._statistics.add_batch(batch)
        self._writer.write_table(self._target.as_stored(table), row_group_size=max(1, table.num_rows))
        self._rows, self._rows_bytes = [], 0


class _SpooledBytes:
    """Bytes that Arrow writes: in memory, and in a temporary file once they are many.

    That one has no name, and is gone with the process.

    ``StorageFull`` names the folder for temporary files if there is no room in it.
    """

    closed = False
    """What Arrow looks at before it writes: what still comes after ``discard`` is passed over."""

    def __init__(self, held_max_bytes: int) -> None:
        self._held_max_bytes = held_max_bytes
        self._file: Any = BytesIO()
        self.size = 0
        self.is_held = True
        """Whether all of it is in memory."""

    def write(self, data: Any) -> int:
        count = len(data)
        if self._file is not None:
            with _name_full_disk():
                if self.is_held and self.size + count > self._held_max_bytes:
                    self._spill_to_disk()
                self._file.write(data)
            self.size += count
        return count

    def flush(self) -> None:
        """Nothing: it is only read again by this process."""

    def read_all(self) -> bytes:
        self._file.seek(0, SEEK_SET)
        data: bytes = self._file.read()
        return data

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        with _name_full_disk():  # some of it may still have to be written
            self._file.seek(0, SEEK_SET)
        while data := self._file.read(piece_bytes):
            yield data

    def discard(self) -> None:
        """Let go of all of it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # there may be no room for what it has not written yet
                file.close()

    def _spill_to_disk(self) -> None:
        held, self._file, self.is_held = self._file, TemporaryFile(), False  # noqa: SIM115 - see discard
        self._file.write(held.getbuffer())


@contextmanager
def _name_full_disk() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise
        where = gettempdir()
        raise storage_full_error(where, problem, "or set TMPDIR, then try again", path=where) from None


def _locate_renamed_fields(there: Any, kind: StructType, path: str) -> Sequence[int]:  # noqa: ARG001
    """Where the parts of a struct are that differ from what they become by their names alone."""
    return range(len(kind.fields))


def _as_is(array: Any, target_type: Any, path: str) -> Any:  # noqa: ARG001
    return array


def _field_with_id(field: Field) -> Any:
    """A column of a file with its id, and with those of its parts."""
    found_field = pa.field(
        field.name, _numbered_type(field.type, field.name, nested_ids(field)), field.nullable
    )
    # What stands beside the table's columns has no id.
    return (
        found_field.with_metadata({PARQUET_ID: str(field.metadata[ID])})
        if ID in field.metadata
        else found_field
    )


def _numbered_type(kind: Type, path: str, nested: MappingOf[str, int]) -> Any:
    """A type with ids of the fields in it, and of elements, keys and values that have some by their paths."""

    def make_inner_field(name: str, kind: Type, *, nullable: bool) -> Any:
        field = pa.field(name, _numbered_type(kind, f"{path}.{name}", nested), nullable)
        number = nested.get(f"{path}.{name}")
        return field if number is None else field.with_metadata({PARQUET_ID: str(number)})

    match kind:
        case StructType():
            return pa.struct([_field_with_id(field) for field in kind.fields])
        case ArrayType():
            return pa.list_(make_inner_field("element", kind.element_type, nullable=kind.contains_null))
        case MapType():
            key = make_inner_field("key", kind.key_type, nullable=False)
            return pa.map_(key, make_inner_field("value", kind.value_type, nullable=kind.value_contains_null))
        case _:
            return find_arrow_type(kind, path)


def _make_reader(data: Any) -> Any:
    if not hasattr(data, "__arrow_c_stream__"):
        raise InvalidRequest(
            f"rows must be an Arrow table or stream, or a pandas or Polars frame, not a {type(data).__name__}"
        )
    # A reader of Arrow's own is taken as it is, so that its errors stay what they are.
    return data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)


def _split_batches(reader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a reader, large ones cut: a table may come as a single one, whatever its size."""
    for batch in reader:
        rows = max(1, batch.num_rows * GROUP_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _finish_down_to(waiting_bytes: int, waiting: dict[tuple[str | None, ...], _OpenFile]) -> None:
    """Finish files under way, the largest first, until no more than so much waits."""
    unwritten_bytes = sum(open_file.waiting_bytes for open_file in waiting.values())
    for values in sorted(waiting, key=lambda one: waiting[one].waiting_bytes, reverse=True):
        if unwritten_bytes <= waiting_bytes:
            return
        file = waiting.pop(values)
        unwritten_bytes -= file.waiting_bytes
        file.finish_file()


def _partition_field(schema: StructType, name: str) -> Field:
    field = schema.field(name)
    if field is None:
        raise InvalidRequest(f"the table is partitioned by '{name}', but has no such column")
    if not isinstance(field.type, str) or field.type == "binary":
        raise InvalidRequest(
            f"rows cannot be written: the partition column '{name}' has the type {field.type}, which is "
            "not supported"
        )
    return field


def _encode_partition(array: Any, field: Field) -> tuple[Any, list[str | None]]:
    """A partition column, dictionary-encoded: the codes, and the partition text of each code."""
    encoded = array.dictionary_encode()
    try:
        texts = [partition_text(field.type, value) for value in encoded.dictionary.to_pylist()]
    except (ValueError, OverflowError) as problem:
        raise InvalidRequest(
            f"the column '{field.name}' has a value that cannot be a partition value: {problem}",
            column=field.name,
        ) from None
    if NULL_FOLDER in texts:
        # Spark could not write the rows of such a file anew: it goes by the names of folders.
        raise InvalidRequest(
            f"the column '{field.name}' has the value {NULL_FOLDER}, which is reserved for null",
            column=field.name,
        )
    if not field.nullable and None in texts:
        raise InvalidRequest(
            f"the column '{field.name}' is not nullable, but an empty partition value means null",
            column=field.name,
        )
    codes = encoded.indices.cast(pa.int64()).fill_null(len(texts))
    return codes, [*texts, None]


def _group_rows(columns: Sequence[Any]) -> tuple[Any, list[int]]:
    """Sort rows by the codes of their partitions. Returns the order of rows and the end of each group.

    Within a group the rows keep their order.
    """
    key = columns[0]
    for codes in columns[1:]:
        # Numbered anew each time, so that the product of two stays a small number.
        room = pc.add(pc.max(codes), 1)
        key = pc.add(pc.multiply(key.dictionary_encode().indices.cast(pa.int64()), room), codes)
    order = pc.sort_indices(key)
    return order, pc.run_end_encode(key.take(order)).run_ends.to_pylist()


def _folder_name(text: str) -> str:
    escaped = "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)
    if len(escaped.encode()) <= FOLDER_NAME_MAX_BYTES:
        return escaped
    digest = blake2b(text.encode(), digest_size=16).hexdigest()
    return escaped.encode()[: FOLDER_NAME_MAX_BYTES // 2].decode(errors="ignore") + f"-{digest}"
