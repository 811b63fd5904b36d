"""Asking: what DuckDB finds by a query in rows that it is given, within bounds of time and memory.

A query sees these rows, and nothing else: no files, no network, no variables of the program. It reads, and
cannot change anything. Rows come as streams, and are not held in memory as a whole: Arrow reads up to
1 GiB ahead of a query that takes them more slowly than they come.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Thread, _DummyThread, current_thread
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.rows.reader import TableRows
from penstock.lake.audits.duckdb_requirement import require_sql
from penstock.lake.audits.queries import CLOSED, AuditQuery
from penstock.lake.sql.duckdb_limits import MEMORY_MAX_BYTES, bound_duckdb
from penstock.lake.sql.views import NAMES_MAX, create_view, register_rows
from penstock.model.keys import Key

SAMPLE_MAX: Final = 5
"""How many of the rows that a query finds are told."""
VALUE_MAX_CHARS: Final = 80
_INTERRUPT_EVERY_S: Final = 0.05


class FoundRows(NamedTuple):
    """Rows that a query found, though it should have found none."""

    rows: tuple[Mapping[str, str], ...]
    """Some of them: the values of each by column, in words."""
    are_all: bool

    @classmethod
    def from_first_rows(cls, rows: Sequence[Mapping[str, Any]]) -> FoundRows | None:
        """Of the first rows of an answer: one more than are told, if there are so many. ``None`` of none."""
        shown = tuple(
            {name: _shorten_value(value) for name, value in row.items()} for row in rows[:SAMPLE_MAX]
        )
        return cls(shown, len(rows) <= SAMPLE_MAX) if shown else None

    def __str__(self) -> str:
        many = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}"
        if not self.are_all:
            many = f"more than {many}"
        shown = ", ".join(f"{name} = {value}" for name, value in self.rows[0].items())
        return f"it finds {many}, such as {shown}"


def run_audit_query(
    query: AuditQuery,
    rows: Mapping[Key, TableRows],
    timeout_s: float | None = None,
    memory_max_bytes: int = MEMORY_MAX_BYTES,
) -> FoundRows | None:
    """What a query finds in tables; ``None`` if nothing.

    ``InvalidRequest`` if it cannot be asked, or takes longer than it may; and what the tables themselves
    raise while they are read. Whoever interrupts the program ends the query too.
    """
    require_sql()
    if isinstance(current_thread(), _DummyThread):
        return _run_in_python_thread(partial(_run_query, query, rows, timeout_s, memory_max_bytes))
    return _run_query(query, rows, timeout_s, memory_max_bytes)


def _run_query(
    query: AuditQuery, rows: Mapping[Key, TableRows], timeout_s: float | None, memory_max_bytes: int
) -> FoundRows | None:
    import duckdb

    read = [_WatchedQuery(rows[key]) for key in query.tables]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-sql-") as spilled,
        duckdb.connect(
            ":memory:", config={**CLOSED, **bound_duckdb(memory_max_bytes), "temp_directory": spilled}
        ) as connection,
        _Deadline(connection, timeout_s) as deadline,
    ):
        try:
            for key, rows_read in zip(query.tables, read, strict=True):
                _register_rows(connection, key, rows_read)
            connection.execute("set lock_configuration = true")
            reader = connection.sql(query.sql).to_arrow_reader(SAMPLE_MAX + 1)
            return FoundRows.from_first_rows(_read_first_rows(connection, reader))
        except duckdb.Error as problem:
            for rows_read in read:
                if rows_read.problem is not None:
                    raise rows_read.problem from None
            if deadline.is_over:
                raise InvalidRequest(
                    f"it took longer than {timeout_s:.3g} s and was stopped: make it read less, or remove it "
                    "and run it as a check of publish",
                    timeout_s=timeout_s,
                ) from None
            raise InvalidRequest(f"the query failed: {_describe_problem(problem)}") from None
        except RuntimeError as problem:  # so DuckDB tells of whatever the handler of a signal has raised
            connection.interrupt()  # it would go on until its end, and closing would wait for that
            raise _signal_error(problem, read) from None


def _signal_error(problem: RuntimeError, read: Sequence[_WatchedQuery]) -> BaseException:
    """What the handler of a signal has raised. DuckDB 2.0 does not tell."""
    raised = next(
        (rows_read.problem for rows_read in read if rows_read.problem is not None), problem.__cause__
    )
    if raised is None and str(problem) == "Query interrupted":
        return KeyboardInterrupt()
    return raised or problem


def _run_in_python_thread(work: Callable[[], FoundRows | None]) -> FoundRows | None:
    """Do something in a thread that Python has started.

    In one that it has not, DuckDB 2.0 loses Python's global lock while it reads rows, which ends the process.
    """
    with ThreadPoolExecutor(1, "penstock-sql") as threads:
        return threads.submit(work).result()


def _read_first_rows(connection: Any, reader: Any) -> list[Mapping[str, Any]]:
    """Some rows. If they have values that Python has not, such as times in far years, all are text."""
    batches: list[Any] = []
    for batch in reader:
        batches.append(batch.slice(0, SAMPLE_MAX + 1))
        if sum(map(len, batches)) > SAMPLE_MAX:
            break
    reader.close()  # DuckDB 2.0 does nothing else on the connection before
    rows: list[Mapping[str, Any]] = []
    for some in batches:
        try:
            rows += some.to_pylist()
        except (OverflowError, ValueError):
            shown = connection.from_arrow(some).project("cast(columns(*) as varchar)")
            rows += [
                dict(zip(shown.columns, map(_DisplayText, row), strict=True)) for row in shown.fetchall()
            ]
    return rows


class _DisplayText(str):
    """Words for a value, which are not the value itself: they are told without quotes."""

    __slots__ = ()

    __repr__ = str.__str__


def _register_rows(connection: Any, key: Key, rows: _WatchedQuery) -> None:
    """Let DuckDB know rows by the key of their table: as elements, and as one quoted name."""
    registered = register_rows(connection, rows)
    create_view(connection, [str(key)], registered)
    if 1 < len(key) <= NAMES_MAX:
        create_view(connection, key, registered)


class _Deadline:
    """Interrupts what a connection does once it has taken too long."""

    def __init__(self, connection: Any, timeout_s: float | None) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._done = Event()
        self._thread: Thread | None = None
        self.is_over = False

    def __enter__(self) -> Self:
        if self._timeout_s is not None:
            self._thread = Thread(target=self._watch, name="penstock-deadline", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()  # before the connection is closed, which must not be interrupted any more

    def _watch(self) -> None:
        if self._done.wait(self._timeout_s):
            return
        self.is_over = True
        while not self._done.wait(_INTERRUPT_EVERY_S):  # one that comes between two statements is forgotten
            self._connection.interrupt()


class _WatchedQuery:
    """Rows of which it is known afterwards why they could not be read: DuckDB only tells that they cannot.

    It asks for columns more than once before it reads, for which nothing is begun anew.
    """

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows
        self._first: Any = None
        self._schema: Any = None
        self.problem: BaseException | None = None

    @property
    def schema(self) -> Any:
        if self._schema is None:
            self._first = self._begin_reading()
            self._schema = self._first.schema
        return self._schema

    def __arrow_c_schema__(self) -> object:
        schema: object = self.schema.__arrow_c_schema__()
        return schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from penstock.formats.rows.arrow_types import pa

        reader, self._first = self._first or self._begin_reading(), None
        watched = pa.RecordBatchReader.from_batches(reader.schema, self._watch_batches(reader))
        stream: object = watched.__arrow_c_stream__(requested_schema)
        return stream

    def _begin_reading(self) -> Any:
        try:
            return self._rows.to_batches()
        except (PenstockError, KeyboardInterrupt, SystemExit) as problem:
            self.problem = problem
            raise

    def _watch_batches(self, reader: Any) -> Iterator[Any]:
        try:
            yield from reader
        except (PenstockError, KeyboardInterrupt, SystemExit) as problem:
            self.problem = problem
            raise


def _shorten_value(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_MAX_CHARS else f"{text[: VALUE_MAX_CHARS - 1]}…"


def _describe_problem(problem: Exception) -> str:
    """What DuckDB says, without what follows of the program that it was asked by."""
    return str(problem).partition("\n")[0].partition(" Detail: ")[0]
