"""The files of a checkpoint, of every shape that there is, read a batch of rows at a time.

A checkpoint in Parquet has a column for each kind of action, and one of them is filled in each row. Only the
columns that are needed are decoded: of statistics, which may be there twice, the parsed form only if there is
no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.errors import InvalidLog, MalformedAction
from penstock.formats.delta.protocol.actions import (
    ACTION_NAMES,
    Action,
    Add,
    CheckpointMetadata,
    DeletionVector,
    DomainMetadata,
    FileKey,
    Metadata,
    Remove,
    Sidecar,
    Txn,
    file_key,
    parse_commit,
)
from penstock.formats.delta.protocol.actions import Protocol as ProtocolAction

BATCH_ROWS: Final = 16_384
STATE: Final = (ProtocolAction, Metadata, Txn, DomainMetadata, CheckpointMetadata, Sidecar)
"""The actions that are not about files."""
_STATS: Final = msgspec.json.Encoder(decimal_format="number")

FileActionT = TypeVar("FileActionT", Add, Remove)
IsWanted = Callable[[FileKey], bool]


class CheckpointFile(Protocol):
    """One file of a checkpoint: a whole one, a part, or a sidecar."""

    def state(self) -> Iterator[Action]:
        """Its actions that are not about files."""
        ...

    def files(self, kind: type[FileActionT], is_wanted: IsWanted | None = None) -> Iterator[FileActionT]:
        """Its actions of one kind about files, all of them or those whose keys are wanted."""
        ...


def open_checkpoint(table: str, name: str, data: bytes) -> CheckpointFile:
    """A file of a checkpoint, from its bytes. ``InvalidLog`` if they cannot be read, now or later."""
    shape = _JsonFile if name.endswith(".json") else _ParquetFile
    return shape(table, name, data)


class _JsonFile:
    """The actions of a checkpoint as lines."""

    def __init__(self, table: str, name: str, data: bytes) -> None:
        self._table, self._name, self._data = table, name, data

    def state(self) -> Iterator[Action]:
        return (one for one in self._actions() if isinstance(one, STATE))

    def files(self, kind: type[FileActionT], is_wanted: IsWanted | None = None) -> Iterator[FileActionT]:
        for one in self._actions():
            if isinstance(one, kind) and (is_wanted is None or is_wanted(one.key)):
                yield one

    def _actions(self) -> Iterator[Action]:
        try:
            for line in parse_commit(self._data):
                yield line.action
        except MalformedAction as problem:
            raise _invalid(self._table, self._name, problem) from None


class _ParquetFile:
    """The actions of a checkpoint as columns."""

    def __init__(self, table: str, name: str, data: bytes) -> None:
        self._table, self._name = table, name
        self._arrow = _arrow()
        with self._reading():
            self._file = self._arrow.parquet.ParquetFile(
                self._arrow.BufferReader(data), coerce_int96_timestamp_unit="us"
            )
            self._columns = _columns(self._file.schema_arrow)

    def state(self) -> Iterator[Action]:
        kinds: dict[str, type[Action]] = {
            ACTION_NAMES[kind]: kind for kind in STATE if ACTION_NAMES[kind] in self._columns
        }
        if not kinds:
            return
        for batch in self._batches([f"{name}.{field}" for name in kinds for field in self._columns[name]]):
            for name, kind in kinds.items():
                with self._reading():
                    rows = batch.column(name).drop_null().to_pylist(maps_as_pydicts="strict")
                    found: list[Action] = [msgspec.convert(_without_nulls(row), kind) for row in rows]
                yield from found

    def files(self, kind: type[FileActionT], is_wanted: IsWanted | None = None) -> Iterator[FileActionT]:
        name = ACTION_NAMES[kind]
        fields = self._fields(kind)
        if not fields:
            return
        required = [one.name for one in msgspec.structs.fields(kind) if one.required]
        for batch in self._batches([f"{name}.{column}" for column in fields.values()]):
            with self._reading():
                rows = batch.column(name).drop_null()
                columns = {field: _values(field, rows.field(column)) for field, column in fields.items()}
                for field in required:
                    if None in columns[field]:
                        raise ValueError(f"{name}.{fields[field]} is null")
            yield from _build(kind, columns, is_wanted)

    def _fields(self, kind: type[FileActionT]) -> dict[str, str]:
        """The columns to read, by the fields that they fill; none if there are no actions of the kind."""
        there = self._columns.get(ACTION_NAMES[kind], ())
        fields = {}
        for one in msgspec.structs.fields(kind):
            if one.encode_name in there:
                fields[one.name] = one.encode_name
            elif one.name == "stats" and "stats_parsed" in there:
                fields["stats"] = "stats_parsed"
            elif one.required and there:
                problem = f"it has no column {ACTION_NAMES[kind]}.{one.encode_name}"
                raise _invalid(self._table, self._name, problem)
        return fields

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        batches = self._file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
        while True:
            with self._reading():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Arrow's errors, and those of values that are not what the protocol says, name the file."""
        try:
            yield
        except (self._arrow.ArrowException, msgspec.MsgspecError, ValueError, KeyError, OSError) as problem:
            raise _invalid(self._table, self._name, problem) from None


def _columns(schema: Any) -> dict[str, tuple[str, ...]]:
    """Per kind of action the fields that are there."""
    return {
        column.name: tuple(column.type.field(index).name for index in range(column.type.num_fields))
        for column in schema
    }


def _values(field: str, column: Any) -> list[Any]:
    """A column as what a field holds: maps as dicts, deletion vectors as such, statistics as JSON."""
    if column.null_count == len(column):
        return [None] * len(column)
    kind = str(column.type)
    if kind.startswith("map<"):
        return _maps(column)
    values: list[Any] = column.to_pylist()
    if field == "deletion_vector":
        return [None if one is None else msgspec.convert(one, DeletionVector) for one in values]
    if field == "stats" and kind.startswith("struct<"):
        return [None if one is None else _STATS.encode(_without_nulls(one)).decode() for one in values]
    return values


def _maps(column: Any) -> list[dict[str, str | None] | None]:
    """Maps as dicts, from their flat keys and items: one by one, a million take many times as long."""
    bounds = column.offsets.to_pylist()
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    is_null = column.is_null().to_pylist()
    return [
        None if null else dict(zip(keys[start:end], items[start:end], strict=True))
        for null, start, end in zip(is_null, bounds, bounds[1:], strict=False)
    ]


def _build(
    kind: type[FileActionT], columns: dict[str, list[Any]], is_wanted: IsWanted | None
) -> Iterator[FileActionT]:
    names = tuple(columns)
    vectors = columns.get("deletion_vector") or [None] * len(columns["path"])
    for path, vector, row in zip(columns["path"], vectors, zip(*columns.values(), strict=True), strict=True):
        if is_wanted is None or is_wanted(file_key(path, vector)):
            yield kind(**dict(zip(names, row, strict=True)))


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the log would have it: a field without a value is left out, at any depth."""
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if value is not None
    }


def _arrow() -> ModuleType:
    """The library for Parquet, loaded when a checkpoint is really read: that takes a while."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InvalidRequest(
            "checkpoints of Delta tables need the library pyarrow: pip install 'penstock[delta]'"
        ) from None
    found: ModuleType = pyarrow
    return found


def _invalid(table: str, name: str, problem: object) -> InvalidLog:
    return InvalidLog(
        f"{name} of the table {table} cannot be read: {problem}\n"
        "  Delete this checkpoint, if the commits that it stands for are still there; a new one can be made.",
        table=table,
        file=name,
    )
