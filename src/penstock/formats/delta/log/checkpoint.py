"""The files of a checkpoint, of every shape that there is, read a batch of rows at a time.

A checkpoint in Parquet has a column for each kind of action, and one of them is filled in each row. Only the
columns that are needed are decoded: of statistics, which may be there twice, the parsed form only if there is
no other. Rows become values a whole column at a time, because there may be a million of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import chain, compress, repeat
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

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
    Values,
    decode_path,
    parse_commit,
)
from penstock.formats.delta.protocol.actions import Protocol as ProtocolAction
from penstock.model import decoders

BATCH_ROWS: Final = 4096
"""So few that their values stay near the processor: more take longer, each."""
STATE: Final = (ProtocolAction, Metadata, Txn, DomainMetadata, CheckpointMetadata, Sidecar)
"""The actions that are not about files."""
_KEY_FIELDS: Final = frozenset({"path", "deletion_vector"})
_NOTHING: Final = repeat(None)
"""A column without any value."""
_STATS: Final = msgspec.json.Encoder(decimal_format="number")

FileActionT = TypeVar("FileActionT", Add, Remove)


class NewerActions(NamedTuple):
    """The files that newer actions are about, and whose actions in a checkpoint therefore do not count."""

    paths: Set[str]
    """Decoded, of all of them. Most files of a checkpoint are told by this alone to count."""
    has: Callable[[FileKey], bool]
    """Asked for those whose paths are among them: with another deletion vector it is another file."""


NOTHING_NEWER: Final = NewerActions(frozenset(), lambda _: False)


class CheckpointFile(Protocol):
    """One file of a checkpoint: a whole one, a part, or a sidecar."""

    def read_state(self) -> Iterator[Action]:
        """Its actions that are not about files."""
        ...

    def read_files(
        self, kind: type[FileActionT], newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileActionT]:
        """Its actions of one kind about files, without those that do not count any more; only those at some
        decoded paths, if given."""
        ...

    def file_keys(
        self, newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileKey]:
        """The keys of the files that it adds, likewise, read without all else that is known of them."""
        ...


def open_checkpoint(table: str, name: str, data: bytes) -> CheckpointFile:
    """A file of a checkpoint, from its bytes. ``InvalidLog`` if they cannot be read, now or later."""
    shape = _JsonFile if name.endswith(".json") else _ParquetFile
    return shape(table, name, data)


class _JsonFile:
    """The actions of a checkpoint as lines."""

    def __init__(self, table: str, name: str, data: bytes) -> None:
        self._table, self._name, self._data = table, name, data

    def read_state(self) -> Iterator[Action]:
        return (action for action in self._read_actions() if isinstance(action, STATE))

    def read_files(
        self, kind: type[FileActionT], newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileActionT]:
        for action in self._read_actions():
            if (
                isinstance(action, kind)
                and not newer.has(action.key)
                and (among is None or action.key.path in among)
            ):
                yield action

    def file_keys(
        self, newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileKey]:
        return (file.key for file in self.read_files(Add, newer, among))

    def _read_actions(self) -> Iterator[Action]:
        try:
            for line in parse_commit(self._data):
                yield line.action
        except MalformedAction as problem:
            raise _invalid_log_error(self._table, self._name, problem) from None


class _ParquetFile:
    """The actions of a checkpoint as columns."""

    def __init__(self, table: str, name: str, data: bytes) -> None:
        self._table, self._name = table, name
        self._arrow = _load_parquet()
        with self._name_file_in_errors():
            self._file = self._arrow.parquet.ParquetFile(
                self._arrow.BufferReader(data), coerce_int96_timestamp_unit="us"
            )
            self._columns = _group_columns_by_kind(self._file.schema_arrow)

    def read_state(self) -> Iterator[Action]:
        kinds: dict[str, type[Action]] = {
            ACTION_NAMES[kind]: kind for kind in STATE if ACTION_NAMES[kind] in self._columns
        }
        if not kinds:
            return
        for batch in self._read_batches(
            [f"{name}.{field}" for name in kinds for field in self._columns[name]]
        ):
            for name, kind in kinds.items():
                with self._name_file_in_errors():
                    rows = batch.column(name).drop_null().to_pylist(maps_as_pydicts="strict")
                    adds: list[Action] = [decoders.convert_value(_drop_nulls(row), kind) for row in rows]
                yield from adds

    def read_files(
        self, kind: type[FileActionT], newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileActionT]:
        names = [field.name for field in msgspec.structs.fields(kind)]
        make: Callable[..., FileActionT] = (
            _make_add if kind is Add else lambda *values: kind(**dict(zip(names, values, strict=True)))
        )

        def make_actions(rows: _CheckpointRows) -> Iterator[FileActionT]:
            columns = [rows.columns.get(name, _NOTHING) for name in names]
            counting = rows.mark_counting_rows(newer)
            if counting is not None:
                columns = [compress(column, counting) for column in columns]
            return map(make, *columns)

        return chain.from_iterable(
            map(make_actions, self._read_action_rows(kind, self._columns_of_kind(kind), among))
        )

    def file_keys(
        self, newer: NewerActions = NOTHING_NEWER, among: Set[str] | None = None
    ) -> Iterator[FileKey]:
        fields = {name: column for name, column in self._columns_of_kind(Add).items() if name in _KEY_FIELDS}

        def make_keys(rows: _CheckpointRows) -> Iterator[FileKey]:
            counting = rows.mark_counting_rows(newer)
            return rows.list_keys() if counting is None else compress(rows.list_keys(), counting)

        return chain.from_iterable(map(make_keys, self._read_action_rows(Add, fields, among)))

    def _read_action_rows(
        self, kind: type[Action], fields: dict[str, str], among: Set[str] | None = None
    ) -> Iterator[_CheckpointRows]:
        """Batches of the actions of a kind, of each the fields that are given with their columns."""
        if not fields:
            return
        name = ACTION_NAMES[kind]
        fields = self._select_columns_with_values(name, fields)
        required = [
            fields[field.name]
            for field in msgspec.structs.fields(kind)
            if field.required and field.name in fields
        ]
        search = None if among is None else _PathSearch(self._arrow, among)
        missing = 0 if search is None else search.count
        groups = None
        if search is not None and not fields.keys() <= _KEY_FIELDS:  # whose columns cost little
            groups = self._groups_with_paths(name, fields["path"], search)
        for batch in self._read_batches([f"{name}.{column}" for column in fields.values()], groups):
            with self._name_file_in_errors():
                rows = _get_rows(batch, name, required)
                positions = None if search is None else search.find_paths(rows.field(fields["path"]))
                if not len(rows) or (positions is not None and not positions):
                    continue
                if positions is not None:
                    rows = rows.take(self._arrow.array(positions))
                read = _CheckpointRows(
                    {field: _convert_column(field, rows.field(column)) for field, column in fields.items()}
                )
            yield read
            missing -= len(read.paths)
            if search is not None and missing <= 0:
                return

    def _select_columns_with_values(self, name: str, fields: dict[str, str]) -> dict[str, str]:
        """The fields without deletion vectors, if no action of a kind has one: to decode nulls takes time,
        too."""
        column = fields.get("deletion_vector")
        if column is None or _find_row_groups_with(self._file.metadata, {f"{name}.{column}"}):
            return fields
        return {field: column for field, column in fields.items() if field != "deletion_vector"}

    def _groups_with_paths(self, name: str, column: str, search: _PathSearch) -> list[int]:
        """The groups of rows in which some paths are: of the others nothing else is decoded."""
        groups, missing = [], search.count
        for group in _find_row_groups_with(self._file.metadata, {name}):
            matches = 0
            for batch in self._read_batches([f"{name}.{column}"], [group]):
                with self._name_file_in_errors():
                    matches += len(search.find_paths(_get_rows(batch, name, [column]).field(column)))
            if matches:
                groups.append(group)
                missing -= matches
            if missing <= 0:
                break
        return groups

    def _columns_of_kind(self, kind: type[FileActionT]) -> dict[str, str]:
        """The columns to read, by the fields that they fill; none if there are no actions of the kind."""
        columns = self._columns.get(ACTION_NAMES[kind], ())
        fields = {}
        for field in msgspec.structs.fields(kind):
            if field.encode_name in columns:
                fields[field.name] = field.encode_name
            elif field.name == "stats" and "stats_parsed" in columns:
                fields["stats"] = "stats_parsed"
            elif field.required and columns:
                problem = f"it has no column {ACTION_NAMES[kind]}.{field.encode_name}"
                raise _invalid_log_error(self._table, self._name, problem)
        return fields

    def _read_batches(self, columns: Sequence[str], groups: Sequence[int] | None = None) -> Iterator[Any]:
        """Batches of some columns, of all groups of rows that may have values there if none are given."""
        with self._name_file_in_errors():
            if groups is None:
                groups = _find_row_groups_with(
                    self._file.metadata, {column.partition(".")[0] for column in columns}
                )
            batches = self._file.iter_batches(BATCH_ROWS, groups, columns=columns, use_threads=False)
        while True:
            with self._name_file_in_errors():
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _name_file_in_errors(self) -> Iterator[None]:
        """Arrow's errors, and those of values that are not what the protocol says, name the file."""
        try:
            yield
        except (self._arrow.ArrowException, msgspec.MsgspecError, ValueError, KeyError, OSError) as problem:
            raise _invalid_log_error(self._table, self._name, problem) from None


def _find_row_groups_with(metadata: Any, columns: Set[str]) -> list[int]:
    """The groups of rows that may hold values of some columns, or of parts of them: what is known to be empty
    is not decoded."""
    beginnings = tuple(f"{column}." for column in columns)
    leaves = [
        number
        for number in range(metadata.num_columns)
        if f"{metadata.schema.column(number).path}.".startswith(beginnings)
    ]
    return [
        group
        for group in range(metadata.num_row_groups)
        if any(_may_hold_values(metadata.row_group(group).column(leaf)) for leaf in leaves)
    ]


def _may_hold_values(chunk: Any) -> bool:
    statistics = chunk.statistics
    return (
        statistics is None or not statistics.has_null_count or bool(statistics.null_count < chunk.num_values)
    )


def _group_columns_by_kind(schema: Any) -> dict[str, tuple[str, ...]]:
    """Per kind of action the fields that are there."""
    return {
        column.name: tuple(column.type.field(index).name for index in range(column.type.num_fields))
        for column in schema
    }


class _CheckpointRows:
    """Actions of one kind about files, as columns: by the name of a field, what each action has there."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self.columns = columns
        self.paths = _decode_paths(columns["path"])
        vectors: Iterable[DeletionVector | None] = columns.get("deletion_vector", _NOTHING)
        self._vectors: Iterable[str | None] = _NOTHING
        if vectors is not _NOTHING:
            self._vectors = [None if vector is None else vector.unique_id for vector in vectors]

    def list_keys(self) -> Iterator[FileKey]:
        return map(FileKey._make, zip(self.paths, self._vectors, strict=False))

    def mark_counting_rows(self, newer: NewerActions) -> list[bool] | None:
        """Which of them count; ``None`` if all do."""
        if newer.paths.isdisjoint(self.paths):
            return None
        return [key.path not in newer.paths or not newer.has(key) for key in self.list_keys()]


def _get_rows(batch: Any, name: str, required: Iterable[str]) -> Any:
    """The actions of a kind in a batch. ``ValueError`` if one lacks what it must have."""
    rows = batch.column(name)
    rows = rows.drop_null() if rows.null_count else rows
    for column in required:
        if rows.field(column).null_count:
            raise ValueError(f"{name}.{column} is null")
    return rows


class _PathSearch:
    """Finds some decoded paths in columns, without making a value of each of the others where that can be."""

    def __init__(self, arrow: ModuleType, among: Set[str]) -> None:
        self._arrow, self._among = arrow, among
        self._wanted: Any = None
        """The paths as an array of the column's type."""

    @property
    def count(self) -> int:
        """How many paths are looked for. Each is in a checkpoint once at most."""
        return len(self._among)

    def find_paths(self, paths: Any) -> list[int]:
        """The places in a column where one of them is."""
        if self._may_have_encoded(paths):
            decoded = _decode_paths(paths.to_pylist())
            return [place for place, path in enumerate(decoded) if path in self._among]
        if self._wanted is None:
            text = [path for path in self._among if _is_text(path)]
            self._wanted = self._arrow.array(text, paths.type)
        is_match = self._arrow.compute.is_in(paths, value_set=self._wanted)
        positions: list[int] = self._arrow.compute.indices_nonzero(is_match).to_pylist()
        return positions

    def _may_have_encoded(self, paths: Any) -> bool:
        """Whether a column may have paths that are written in another way than they are meant."""
        types = self._arrow.types
        if not types.is_string(paths.type) and not types.is_large_string(paths.type):
            return True
        buffer = paths.buffers()[2]
        if buffer is not None and _PERCENT in buffer.to_pybytes():
            return True
        compute = self._arrow.compute
        return bool(compute.any(compute.starts_with(paths, _ADDRESS)).as_py())


_PERCENT: Final = b"%"
_ADDRESS: Final = "file:"
_ENCODED: Final = ("%", _ADDRESS)
"""What a path has, and begins with, that is written in another way than it is meant."""


def _is_text(path: str) -> bool:
    """Whether a column can hold a path: one with bytes that are no text is always written in another way."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decode_paths(paths: Sequence[str]) -> Sequence[str]:
    """Decode percent-encoded paths. Most paths need no decoding."""
    text = "\n".join(paths)
    is_encoded = any(mark in text for mark in _ENCODED)
    return [decode_path(path) for path in paths] if is_encoded else paths


def _convert_column(field: str, column: Any) -> Sequence[Any] | repeat[None]:
    """A column as what a field holds: maps as dicts, deletion vectors as such, statistics as JSON."""
    if column.null_count == len(column):
        return _NOTHING
    kind = str(column.type)
    if kind.startswith("map<"):
        return _convert_maps(column)
    values: list[Any] = column.to_pylist()
    if field == "deletion_vector":
        return [None if value is None else decoders.convert_value(value, DeletionVector) for value in values]
    if field == "stats" and kind.startswith("struct<"):
        return [None if value is None else _STATS.encode(_drop_nulls(value)).decode() for value in values]
    return values


def _convert_maps(column: Any) -> list[dict[str, str | None] | None]:
    """Maps as dicts, from their flat keys and items: one by one, a million take many times as long."""
    bounds = column.offsets.to_pylist()
    if bounds[0] == bounds[-1] and not column.null_count:
        return [{} for _ in range(len(column))]
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    is_null = column.is_null().to_pylist()
    return [
        None if null else dict(zip(keys[start:end], items[start:end], strict=True))
        for null, start, end in zip(is_null, bounds, bounds[1:], strict=False)
    ]


def _make_add(
    path: str,
    partition_values: Values,
    size: int,
    modification_time: int,
    data_change: bool,
    stats: str | None,
    tags: Values | None,
    deletion_vector: DeletionVector | None,
    base_row_id: int | None,
    default_row_commit_version: int | None,
    clustering_provider: str | None,
) -> Add:
    """An action from its fields in their order. Names that are written out are looked up only once."""
    return Add(
        path=path,
        partition_values=partition_values,
        size=size,
        modification_time=modification_time,
        data_change=data_change,
        stats=stats,
        tags=tags,
        deletion_vector=deletion_vector,
        base_row_id=base_row_id,
        default_row_commit_version=default_row_commit_version,
        clustering_provider=clustering_provider,
    )


def _drop_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the log would have it: a field without a value is left out, at any depth."""
    return {
        name: _drop_nulls(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if value is not None
    }


def _load_parquet() -> ModuleType:
    """The library for Parquet, loaded when a checkpoint is really read: that takes a while."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.compute  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InvalidRequest(
            "checkpoints of Delta tables need the library pyarrow: pip install 'penstock[delta]'"
        ) from None
    module: ModuleType = pyarrow
    return module


def _invalid_log_error(table: str, name: str, problem: object) -> InvalidLog:
    return InvalidLog(
        f"{name} of the table {table} cannot be read: {problem}\n  Rename it, as in '….damaged'. If the "
        "commits before it are still in the log, the table is read from them, and a new checkpoint can be "
        "made; if not, restore the file from a backup.",
        table=table,
        file=name,
    )
