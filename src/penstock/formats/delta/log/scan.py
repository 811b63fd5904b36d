"""The rows of a version of a table, as Arrow.

Files are read in the order in which the log gives them, a few of them ahead in threads, each a batch of rows
at a time: however large the table, only so many batches are in memory. What a file lacks of the table's
columns is null, what its partition values say is filled in, what its deletion vector names is left out, and
what it holds in a narrower type, from before a column was widened, is widened.

Only files below the table are read, and of a clone that the lake made those of its sources. An absolute
address that leads elsewhere is refused: what a lake may read is said by its roots, and not by a log.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog
from penstock.formats.delta.log.snapshot import LogSnapshot
from penstock.formats.delta.protocol.actions import Add
from penstock.formats.delta.protocol.column_mapping import ColumnMapping, get_column_mapping
from penstock.formats.delta.protocol.predicate_outcomes import partition_value
from penstock.formats.delta.protocol.row_ids import FileRowIds, get_row_tracking_columns
from penstock.formats.delta.rows.file_addresses import name_inside
from penstock.formats.delta.rows.pruning import FilePruner, read_stats
from penstock.formats.delta.rows.row_ids import RowIdReader
from penstock.formats.delta.rows.vectors import read_deleted_bitmap
from penstock.formats.rows.arrow_types import (
    allow_nulls,
    find_arrow_type,
    make_arrow_schema,
    pa,
    pc,
    pq,
    reshape_array,
)
from penstock.formats.rows.parquet_batches import GROUP_MAX_BYTES, open_parquet, read_batches
from penstock.formats.rows.positions import number_rows
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.predicates import list_columns
from penstock.formats.rows.row_filter import select_matching_rows
from penstock.formats.rows.schema import ArrayType, Field, MapType, StructType, Type
from penstock.model.similar_names import describe_names
from penstock.storage.places import Place

FILES_AHEAD: Final = 4
"""How many files are read at the same time, each of them a batch ahead."""
AHEAD_MAX_BYTES: Final = 128 * 1024 * 1024
"""Large files are fewer: each has some of its bytes in memory."""
FILE_NUMBER: Final = "__penstock_file"
ROW_NUMBER: Final = "__penstock_row"
WHOLE_MAX_BYTES: Final = 4 * 1024 * 1024
"""A file up to this size is fetched at once; of a larger one only the parts that are needed."""


def find_files(snapshot: LogSnapshot, where: str | None = None) -> Iterator[Add]:
    """The files of a version that may have rows for which a condition is true; without one, all files.

    ``InvalidRequest`` if the condition cannot be understood.
    """
    if where is None:
        return snapshot.read_files()
    return prune_files(snapshot, FilePruner(parse_predicate(where, snapshot.schema), snapshot.metadata))


def prune_files(snapshot: LogSnapshot, pruner: FilePruner) -> Iterator[Add]:
    """The files of a version that may have rows for which a pruner's condition is true."""
    return (
        filter(pruner.may_match, snapshot.read_files())
        if snapshot.index is None
        else snapshot.index.find_files(pruner)
    )


def to_arrow(
    snapshot: LogSnapshot, place: Place, *, columns: Sequence[str] | None = None, where: str | None = None
) -> Any:
    """The rows of a version as a ``pyarrow.Table``. Raises as ``read_rows``."""
    plan = _ReadPlan(snapshot, place, columns, where)
    return pa.Table.from_batches(list(plan.read_batches(find_files(snapshot, where))), plan.schema)


def read_rows(
    snapshot: LogSnapshot, place: Place, *, columns: Sequence[str] | None = None, where: str | None = None
) -> Any:
    """The rows of a version as a ``pyarrow.RecordBatchReader``, read as they are asked for.

    ``columns`` are those to be read, in that order; ``where`` is a condition (see ``predicate_text``).
    ``InvalidRequest`` if either cannot be. While reading, ``InvalidLog`` names a file that is missing or
    is not what the log says, ``UnsupportedFeature`` one that lies outside of the table.
    """
    plan = _ReadPlan(snapshot, place, columns, where)
    return pa.RecordBatchReader.from_batches(plan.schema, plan.read_batches(find_files(snapshot, where)))


def read_rows_of_files(
    snapshot: LogSnapshot,
    place: Place,
    files: Iterable[Add],
    columns: Sequence[str] | None = None,
    final_row_ids: Mapping[str, FileRowIds] | None = None,
) -> Any:
    """The rows of some files of a version that are not deleted. Raises as ``read_rows``.

    ``final_row_ids``, of files by their decoded paths, adds the columns by which rows that are written to
    other files keep their ids.
    """
    plan = _ReadPlan(snapshot, place, columns, None, final_row_ids)
    return pa.RecordBatchReader.from_batches(plan.schema, plan.read_batches(iter(files)))


def numbered_batches(
    snapshot: LogSnapshot,
    place: Place,
    files: Iterable[Add],
    columns: Collection[str] | None = None,
    final_row_ids: Mapping[str, FileRowIds] | None = None,
) -> Iterator[Any]:
    """The rows of some files, each with the number of its file among them and of its row in the file.

    These are the columns ``FILE_NUMBER`` and ``ROW_NUMBER``. ``columns`` are those that are needed, in any
    order; there may be none. ``final_row_ids`` as in ``read_rows_of_files``. Raises as ``read_rows``.
    """
    names = [field.name for field in snapshot.schema.fields if columns is not None and field.name in columns]
    plan = _ReadPlan(snapshot, place, names or None, None, final_row_ids)
    return plan.numbered_batches(iter(files), plan.schema.names if columns is None else names)


def row_schema(snapshot: LogSnapshot) -> Any:
    """Arrow's schema of the rows of a version."""
    return make_arrow_schema(replace(field, type=allow_nulls(field.type)) for field in snapshot.schema.fields)


def count_rows(snapshot: LogSnapshot) -> int | None:
    """How many rows a version has, if the statistics of all its files tell; nothing is read but the log."""
    total = 0
    for file in snapshot.read_files():
        rows = read_stats(file).get("numRecords")
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0:
            return None
        total += rows - (0 if file.deletion_vector is None else file.deletion_vector.cardinality)
    return total


def has_further_columns(snapshot: LogSnapshot, place: Place, file: Add) -> bool:
    """Whether a file holds columns that the version does not have: of a mapped table, some were dropped."""
    return _ReadPlan(snapshot, place, None, None).has_further_columns(file)


class _ReadPlan:
    """What is read of each file, and how rows come out of it."""

    def __init__(
        self,
        snapshot: LogSnapshot,
        place: Place,
        columns: Sequence[str] | None,
        where: str | None,
        final_row_ids: Mapping[str, FileRowIds] | None = None,
    ) -> None:
        schema = StructType(
            tuple(replace(field, type=allow_nulls(field.type)) for field in snapshot.schema.fields)
        )
        self._table, self._place = snapshot.table, place
        self._mapping, self._metadata = get_column_mapping(snapshot.metadata), snapshot.metadata
        self._row_ids = RowIdReader.to_show(snapshot.metadata, columns or ())
        if final_row_ids is not None:
            self._row_ids = RowIdReader.to_rewrite(snapshot.metadata, final_row_ids)
        readable = StructType((*schema.fields, *self._row_ids.fields))
        fields_to_show = (
            readable.fields if columns is None else tuple(_require_column(readable, name) for name in columns)
        )
        if not fields_to_show or len({needed_field.name for needed_field in fields_to_show}) < len(
            fields_to_show
        ):
            raise InvalidRequest("give at least one column to read, and each only once")
        self.schema = make_arrow_schema(fields_to_show)
        self._where = None if where is None else parse_predicate(where, schema)
        fields_of_condition = (
            [] if self._where is None else [column.fields[0] for column in list_columns(self._where)]
        )
        needed = {field.name: field for field in (*fields_to_show, *fields_of_condition)}
        partitions = {name.lower() for name in snapshot.metadata.partition_columns}
        self._partition_fields = [
            needed_field for needed_field in needed.values() if needed_field.name.lower() in partitions
        ]
        beside = [*self._partition_fields, *self._row_ids.fields]
        self._data_fields = [field for field in needed.values() if field not in beside]
        self._read_schema = make_arrow_schema(
            (*self._partition_fields, *self._data_fields, *self._row_ids.fields)
        )

    def read_batches(self, files: Iterator[Add]) -> Iterator[Any]:
        return _read_ahead((file.size, self._read_file_rows(file)) for file in files)

    def numbered_batches(self, files: Iterator[Add], names: Sequence[str]) -> Iterator[Any]:
        numbered = enumerate(files)
        return _read_ahead((file.size, self._read_file_rows(file, at, names)) for at, file in numbered)

    def has_further_columns(self, file: Add) -> bool:
        with self._name_file_in_errors(file):
            schema = pq.read_schema(_open_data_file(self._place, self._name_in_place(file.path), file.size))
        hidden = get_row_tracking_columns(self._metadata) or ()
        columns = [column for column in schema if column.name not in hidden]
        return _has_further(columns, [*self._data_fields, *self._partition_fields], self._mapping)

    def _read_file_rows(
        self, file: Add, number: int | None = None, names_only: Sequence[str] = ()
    ) -> Iterator[Any]:
        """The rows of one file; with a number of its own, also where each of them is."""
        with self._name_file_in_errors(file):
            source = _open_data_file(self._place, self._name_in_place(file.path), file.size)
            parquet = open_parquet(source)
            keep = self._live_row_mask(file, parquet.metadata.num_rows)
            places = self._mapping.locate_fields(parquet.schema_arrow, self._data_fields)
            names = [None if place is None else parquet.schema_arrow.names[place] for place in places]
            partition = [_partition_scalar(field, file, self._mapping) for field in self._partition_fields]
            stored = self._row_ids.find_stored_columns(parquet.schema_arrow)
            chosen = [*(name for name in names if name), *stored]
            read = read_batches(source, parquet, chosen, is_near="://" not in self._place.url)
        first = 0
        while True:
            with self._name_file_in_errors(file):
                batch = next(read, None)
                if batch is None:
                    return
                rows = batch.num_rows
                row_ids = self._row_ids.make_columns(file, batch, first)
                table_rows = self._table_rows(batch, names, partition, row_ids)
                if number is not None:
                    table_rows = _add_numbers(table_rows.select(names_only), number, first)
                if keep is not None:
                    table_rows = table_rows.filter(keep.slice(first, rows))
                if self._where is not None:
                    table_rows = select_matching_rows(self._where, table_rows)
                first += rows
            if table_rows.num_rows:
                yield table_rows.select(self.schema.names) if number is None else table_rows

    def _table_rows(
        self, batch: Any, names: Sequence[str | None], partition: Sequence[Any], row_ids: Sequence[Any]
    ) -> Any:
        """A batch of a file as rows of the table."""
        rows = batch.num_rows
        arrays = [pa.repeat(scalar, rows) for scalar in partition]
        for field, name in zip(self._data_fields, names, strict=True):
            if name is not None:
                arrays.append(
                    reshape_array(
                        batch.column(name),
                        field.type,
                        self._mapping.match_nested_fields,
                        _cast_array,
                        field.name,
                    )
                )
            elif field.nullable:
                arrays.append(pa.nulls(rows, find_arrow_type(field.type, field.name)))
            else:
                raise ValueError(f"the file lacks the column '{field.name}', which is not nullable")
        return pa.RecordBatch.from_arrays([*arrays, *row_ids], schema=self._read_schema)

    def _live_row_mask(self, file: Add, rows: int) -> Any:
        """The mask of rows that the file's deletion vector does not delete; ``None`` without a vector."""
        vector = file.deletion_vector
        if vector is None:
            return None
        bitmap = read_deleted_bitmap(vector, rows, self._place.read_range, self._name_in_place)
        deleted = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bitmap)])
        return pc.invert(deleted)

    def _name_in_place(self, path: str) -> str:
        return name_inside(path, self._place)

    @contextmanager
    def _name_file_in_errors(self, file: Add) -> Iterator[None]:
        """Errors of Arrow, and of values that are not what the log says, name the file."""
        try:
            yield
        except (pa.ArrowException, ValueError, TypeError, KeyError, OSError) as problem:
            raise InvalidLog(
                f"{file.path} of the table {self._table} cannot be read: {problem}",
                table=self._table,
                file=file.path,
            ) from None


def _add_numbers(batch: Any, file: int, first: int) -> Any:
    numbers = number_rows(batch.num_rows, first)
    files = pa.repeat(pa.scalar(file, pa.int32()), batch.num_rows)
    names = [*batch.schema.names, FILE_NUMBER, ROW_NUMBER]
    return pa.RecordBatch.from_arrays([*batch.columns, files, numbers], names=names)


def _read_ahead(streams: Iterator[tuple[int, Iterator[Any]]]) -> Iterator[Any]:
    """The items of some streams, one stream after the other, with the next item of a few streams under way.

    Each comes with the size of its file. Nothing waits for a reader: if nobody asks any more, what is under
    way ends by itself.
    """
    with ThreadPoolExecutor(FILES_AHEAD, "penstock-scan") as threads:
        waiting: deque[tuple[int, Iterator[Any], Future[Any]]] = deque()

        def begin_next() -> None:
            while len(waiting) < FILES_AHEAD and sum(size for size, _, _ in waiting) < AHEAD_MAX_BYTES:
                following = next(streams, None)
                if following is None:
                    return
                size, stream = following
                bounded = min(size, GROUP_MAX_BYTES)
                waiting.append((bounded, stream, threads.submit(next, stream, None)))

        begin_next()
        while waiting:
            size, stream, ready = waiting.popleft()
            item = ready.result()
            if item is None:
                begin_next()
                continue
            waiting.appendleft((size, stream, threads.submit(next, stream, None)))
            yield item


class _RangeFile(io.RawIOBase):
    """A file of a place, of which only the parts are fetched that are asked for."""

    def __init__(self, place: Place, name: str, size: int) -> None:
        super().__init__()
        self._place, self._name, self._size, self._at = place, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read(self, size: int | None = -1) -> bytes:
        bytes_left = max(0, self._size - self._at)
        count = bytes_left if size is None or size < 0 else min(size, bytes_left)
        if not count:
            return b""
        data = self._place.read_range(self._name, self._at, count)
        if data is None or len(data) != count:
            raise OSError(f"the file has fewer than {count} bytes after offset {self._at}")
        self._at += count
        return data


def _open_data_file(place: Place, name: str, size: int) -> Any:
    """The bytes of a data file, for Arrow to read from. The log's word on its size is not taken for it."""
    if size <= WHOLE_MAX_BYTES:
        (data,) = place.read([name])
        if data is not None:
            return pa.BufferReader(data)
    else:
        real_size = place.size(name)
        if real_size is not None:
            return pa.PythonFile(_RangeFile(place, name, real_size), mode="r")
    raise OSError("there is no such file")


def _has_further(there: Sequence[Any], fields: Sequence[Field], mapping: ColumnMapping) -> bool:
    """Whether there are fields of Arrow's, at any depth, that are none of these."""
    places = mapping.locate_fields(there, fields)
    pairs = [
        (there[place].type, field.type)
        for place, field in zip(places, fields, strict=True)
        if place is not None
    ]
    return len(pairs) < len(there) or any(_is_wider(*pair, mapping) for pair in pairs)


def _is_wider(there: Any, kind: Type, mapping: ColumnMapping) -> bool:
    if isinstance(kind, StructType):
        return _has_further([there.field(at) for at in range(there.num_fields)], kind.fields, mapping)
    if isinstance(kind, ArrayType):
        return _is_wider(there.value_type, kind.element_type, mapping)
    if isinstance(kind, MapType):
        return _is_wider(there.key_type, kind.key_type, mapping) or _is_wider(
            there.item_type, kind.value_type, mapping
        )
    return False


def _require_column(schema: StructType, name: str) -> Field:
    column = schema.field(name)
    if column is None:
        choices = describe_names(name, [field.name for field in schema.fields])
        raise InvalidRequest(f"the table has no column '{name}'{choices}", column=name)
    return column


def _partition_scalar(field: Field, file: Add, mapping: ColumnMapping) -> Any:
    text = file.partition_values.get(mapping.get_physical_name(field))
    value = partition_value(field.type, text)
    if field.type == "binary" and isinstance(value, str):
        return pa.scalar(value.encode(), pa.binary())
    return pa.scalar(value, find_arrow_type(field.type, field.name))


def _cast_array(array: Any, target_type: Any, path: str) -> Any:
    try:
        return array.cast(target_type)
    except pa.ArrowException as problem:
        raise ValueError(
            f"the column '{path}' has the type {array.type}, but the table has {target_type}: {problem}"
        ) from None
