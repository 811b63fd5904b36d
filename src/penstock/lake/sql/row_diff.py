"""Which rows of a table differ between two commits.

Only what differs is read: files that both commits have, and that hold the same rows in both, are left out.
Rows that are equal on both sides cancel each other out, one for one. Where key columns are given, a row that
is left on both sides with the same key has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import KeyNotFound
from penstock.formats.rows.arrow_types import pa, pc
from penstock.formats.rows.reader import RowReader, TableRows
from penstock.formats.rows.row_difference import (
    ADDED,
    AFTER,
    BEFORE,
    CHANGE,
    REMOVED,
    REPEATED_MAX,
    StoredRows,
    choose_columns,
    find_unshared_parts,
    list_key_columns,
    repeated_key_error,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.audits.duckdb_requirement import require_sql
from penstock.lake.sql.datasets import ErrorRecordingRows
from penstock.lake.sql.duckdb_thread import DuckDbThread
from penstock.lake.sql.views import quote_name, register_rows
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


class ReadFiles(NamedTuple):
    """How much of one side was read."""

    files: int | None
    """Files, or fragments; ``None`` if the format cannot tell them apart, so that all rows were read."""
    total: int | None


class RowDiff(RowReader):
    """The rows by which two commits differ in a table.

    As a stream of rows it has one column more, ``_change_type``: ``insert``, ``delete``, and for rows that
    changed ``update_preimage`` and ``update_postimage``.
    """

    def __init__(
        self,
        key: Key,
        on: tuple[str, ...],
        rows: Any,
        schemas: tuple[Any, Any],
        read: tuple[ReadFiles, ReadFiles],
    ) -> None:
        self.key, self.on, self._rows = key, on, rows
        self._schemas = schemas
        self.read_before, self.read_after = read
        self.added = self._choose_change(ADDED)
        """Rows that only the second commit has, as a ``pyarrow.Table``."""
        self.removed = self._choose_change(REMOVED)
        """Rows that only the first commit has."""
        self.changed = self._pair_changes()
        """Rows with the same key and other values: the key's columns, and ``before`` and ``after`` as structs
        of the others."""

    def __repr__(self) -> str:
        return f"<RowDiff {self.key}: {self.summary}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_row_diff

        return show_row_diff(self)

    @property
    def summary(self) -> str:
        """The numbers, in words."""
        return f"{self.num_added:,} added, {self.num_removed:,} removed" + (
            f", {self.num_changed:,} changed" if self.on else ""
        )

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Columns that only the second commit has. They are not compared."""
        return _list_missing_columns(self._schemas[1], self._schemas[0])

    @property
    def removed_columns(self) -> tuple[str, ...]:
        """Columns that only the first commit has. They are not compared."""
        return _list_missing_columns(self._schemas[0], self._schemas[1])

    def _pair_changes(self) -> Any:
        before, after = self._choose_change(BEFORE), self._choose_change(AFTER)
        names = [name for name in before.schema.names if name not in self.on]

        def pack_columns(rows: Any) -> Any:
            fields = [before.schema.field(name) for name in names]
            columns = [rows.column(name).combine_chunks() for name in names]
            if not rows.num_rows:
                return pa.array([], pa.struct(fields))
            return pa.StructArray.from_arrays(columns, fields=fields)

        columns = {name: before.column(name) for name in self.on}
        return pa.table({**columns, "before": pack_columns(before), "after": pack_columns(after)})

    def _choose_change(self, change: str) -> Any:
        return self._rows.filter(pc.equal(self._rows.column(CHANGE), change)).drop_columns([CHANGE])

    @property
    def num_added(self) -> int:
        return int(self.added.num_rows)

    @property
    def num_removed(self) -> int:
        return int(self.removed.num_rows)

    @property
    def num_changed(self) -> int:
        return int(self.changed.num_rows)

    @property
    def is_empty(self) -> bool:
        """Whether no row differs."""
        return bool(self._rows.num_rows == 0)

    @property
    def num_rows(self) -> int:
        return int(self._rows.num_rows)

    @property
    def arrow_schema(self) -> Any:
        return self._rows.schema

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows with ``_change_type``, as a ``pyarrow.RecordBatchReader``."""
        return TableRows(self.key, self._rows.to_reader).to_batches(columns, where)


def _list_missing_columns(schema: Any, other: Any) -> tuple[str, ...]:
    return tuple(name for name in schema.names if name not in other.names)


def diff_rows(
    lake: Lake,
    key: str | Key,
    before: str,
    after: str,
    on: str | Sequence[str] | None,
    columns: Sequence[str] | None,
    progress: Progress = show_no_progress,
) -> RowDiff:
    """See ``Lake.diff_rows``."""
    require_sql("lake.diff_rows()")
    path = Key.parse(key)
    keys = list_key_columns(on)
    sides = [_open_rows(lake, path, before), _open_rows(lake, path, after)]
    if all(side is None for side in sides):
        raise lake.key_not_found(path, after)
    old, new = (
        side if side is not None else _MissingTableRows(path, sides[1 - n]) for n, side in enumerate(sides)
    )
    names = choose_columns(path, old.schema.names, new.schema.names, keys, columns)
    (old_rows, new_rows), read = _read_differing_rows(old, new, names)
    read_rows = _CountedRows(f"comparing rows of {path}", progress)
    rows = _RowComparison(path, names, keys).compare_rows(
        read_rows.count_rows(old_rows), read_rows.count_rows(new_rows)
    )
    return RowDiff(path, keys, rows, (old.schema, new.schema), read)


def _open_rows(lake: Lake, key: Key, ref: str) -> TableRows | None:
    """The rows of a table at a revision; ``None`` if it is not there."""
    try:
        return lake.at(ref).table(key).scan()
    except KeyNotFound:
        return None


class _MissingTableRows(TableRows):
    """A table that is not there, with the columns that it has elsewhere."""

    def __init__(self, key: Key, other: TableRows | None) -> None:
        assert other is not None
        schema = other.schema
        super().__init__(key, lambda: pa.RecordBatchReader.from_batches(schema, []))


def _read_differing_rows(
    old: TableRows, new: TableRows, names: list[str]
) -> tuple[tuple[Any, Any], tuple[ReadFiles, ReadFiles]]:
    """Streams of the rows that only one side may have, and how much of each side they are."""
    stored = _list_parts(old), _list_parts(new)
    unshared = find_unshared_parts(*stored, names)
    if unshared is None:
        whole = ReadFiles(None, None)
        return (old.to_batches(names), new.to_batches(names)), (whole, whole)
    streams = old.read_parts(unshared.before, names), new.read_parts(unshared.after, names)
    totals = [0 if side is None else len(side.parts) for side in stored]
    return streams, (
        ReadFiles(len(unshared.before), totals[0]),
        ReadFiles(len(unshared.after), totals[1]),
    )


def _list_parts(rows: TableRows) -> StoredRows | None:
    parts = rows.list_parts()
    return None if parts is None else StoredRows(list(parts), rows.identify_columns())


class _CountedRows:
    """Tells how many rows of both sides were read."""

    def __init__(self, subject: str, progress: Progress) -> None:
        self._what, self._progress, self._total = subject, progress, 0

    def count_rows(self, reader: Any) -> Any:
        return pa.RecordBatchReader.from_batches(reader.schema, self._count_rows(reader))

    def _count_rows(self, reader: Any) -> Iterator[Any]:
        for batch in reader:
            self._total += batch.num_rows
            self._progress(self._what, self._total)
            yield batch


class _RowComparison:
    """What DuckDB does with the rows of both sides. It goes to a disk for what memory does not hold."""

    def __init__(self, key: Key, names: list[str], on: tuple[str, ...]) -> None:
        self._key, self._names, self._on = key, names, on

    def compare_rows(self, old: Any, new: Any) -> Any:
        """The rows that differ, with what became of each, as a ``pyarrow.Table``."""
        sides = ErrorRecordingRows(old), ErrorRecordingRows(new)
        with DuckDbThread() as thread:
            return thread.run_in_thread(
                lambda: self._compare_in_thread(thread, sides[0].reader, sides[1].reader),
                lambda: sides[0].problem or sides[1].problem,
            )

    def _compare_in_thread(self, thread: DuckDbThread, old: Any, new: Any) -> Any:
        connection = thread.connection
        columns = ", ".join(map(quote_name, self._names))
        for name, rows in (("old_rows", old), ("new_rows", new)):
            registered = register_rows(connection, rows)
            connection.execute(f"create temp table {name} as select {columns} from {registered}")
        connection.execute("create temp table gone as from old_rows except all from new_rows")
        connection.execute("create temp table came as from new_rows except all from old_rows")
        if not self._on:
            query = (
                f"select {columns}, '{REMOVED}' as {CHANGE} from gone "
                f"union all select {columns}, '{ADDED}' from came order by all"
            )
            return connection.sql(query).to_arrow_table()
        for name in ("gone", "came"):
            self._check_unique(connection, name)
        match = " and ".join(
            f"gone.{column} is not distinct from came.{column}" for column in map(quote_name, self._on)
        )
        order = ", ".join(str(number) for number in range(1, len(self._on) + 1))
        rest = [name for name in self._names if name not in self._on]
        chosen = ", ".join(map(quote_name, (*self._on, *rest)))
        kinds = [
            (ADDED, f"came where not exists (from gone where {match})"),
            (REMOVED, f"gone where not exists (from came where {match})"),
            (BEFORE, f"gone where exists (from came where {match})"),
            (AFTER, f"came where exists (from gone where {match})"),
        ]
        return pa.concat_tables(
            connection.sql(
                f"select {chosen}, '{change}' as {CHANGE} from {rows} order by {order}"
            ).to_arrow_table()
            for change, rows in kinds
        )

    def _check_unique(self, connection: Any, side: str) -> None:
        keys = ", ".join(map(quote_name, self._on))
        repeated_keys = connection.execute(
            f"select {keys} from {side} group by all having count(*) > 1 limit {REPEATED_MAX}"
        ).fetchall()
        if repeated_keys:
            raise repeated_key_error(self._key, self._on, repeated_keys)
