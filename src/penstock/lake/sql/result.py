"""The answer of a query: run when its rows are asked for, each time on the same commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.reader import RowReader, TableRows
from penstock.lake.sql.datasets import RowDataset
from penstock.lake.sql.duckdb_thread import DuckDbThread
from penstock.lake.sql.query import open_tables, read_sql, strip_end
from penstock.lake.sql.views import create_view, quote_name, register_rows

if TYPE_CHECKING:
    from penstock.lake.views import Snapshot

BATCH_ROWS: Final = 65_536


def run_sql(snapshot: Snapshot, sql: str) -> SqlResult:
    """Run a query on the lake at a commit. What it names is looked up, and checked, at once."""
    tables = read_sql(sql)
    return SqlResult(strip_end(sql), open_tables(snapshot, tables))


class SqlResult(RowReader):
    """The rows that a query finds. It is run anew each time that they are read, on the same commits."""

    def __init__(self, sql: str, tables: Mapping[tuple[str, ...], TableRows]) -> None:
        self.sql, self._tables = sql, tables
        with _QueryRun(tables) as session:
            self._schema = session.begin_query(sql, lambda found: found.limit(0)).schema

    def __repr__(self) -> str:
        return f"<SqlResult {', '.join(self._schema.names)}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_rows

        return show_rows(self, "Query")

    @property
    def schema(self) -> Any:
        """The columns, as a ``pyarrow.Schema``."""
        return self._schema

    @property
    def arrow_schema(self) -> Any:
        return self._schema

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``. ``where`` is a condition as DuckDB reads it."""

        def select_rows(found: Any) -> Any:
            rows = found if where is None else found.filter(where)
            return rows if columns is None else rows.project(", ".join(map(quote_name, columns)))

        session = _QueryRun(self._tables)
        try:
            reader = session.begin_query(self.sql, select_rows)
        except BaseException:
            session.close()
            raise
        batches = _read_batches(session, reader)
        next(batches)  # from now on, who lets go of it ends the query
        return pa.RecordBatchReader.from_batches(reader.schema, batches)

    def count(self, where: str | None = None) -> int:
        def select_count(found: Any) -> Any:
            return (found if where is None else found.filter(where)).aggregate("count(*)")

        with _QueryRun(self._tables) as session:
            counted: int = (
                session.next_batch(session.begin_query(self.sql, select_count)).column(0)[0].as_py()
            )
        return counted

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python's values."""
        return [tuple(row.values()) for row in self.to_arrow().to_pylist()]


def _read_batches(session: _QueryRun, reader: Any) -> Iterator[Any]:
    with session:
        yield None
        while (batch := session.next_batch(reader)) is not None:
            yield batch


class _QueryRun:
    """One run of a query on some tables."""

    def __init__(self, tables: Mapping[tuple[str, ...], TableRows]) -> None:
        self._tables = tables
        self._datasets: list[RowDataset] = []
        self._thread = DuckDbThread()

    def __enter__(self) -> _QueryRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.close()

    def begin_query(self, sql: str, choose: Callable[[Any], Any]) -> Any:
        """Begin to run a query; what is chosen of its answer is a ``pyarrow.RecordBatchReader``."""
        return self._thread.run_in_thread(lambda: self._begin_in_thread(sql, choose), self._find_problem)

    def next_batch(self, reader: Any) -> Any:
        """The next rows; ``None`` if there are no more."""
        return self._thread.run_in_thread(lambda: next(reader, None), self._find_problem)

    def _begin_in_thread(self, sql: str, choose: Callable[[Any], Any]) -> Any:
        connection = self._thread.connection
        for names, rows in self._tables.items():
            dataset = RowDataset(rows)
            self._datasets.append(dataset)
            create_view(connection, names, register_rows(connection, dataset))
        connection.execute("set lock_configuration = true")
        return choose(connection.sql(sql)).to_arrow_reader(BATCH_ROWS)

    def _find_problem(self) -> BaseException | None:
        """Why a table could not be read, if one could not: DuckDB does not tell."""
        return next(
            (dataset.read_problem for dataset in self._datasets if dataset.read_problem is not None), None
        )
