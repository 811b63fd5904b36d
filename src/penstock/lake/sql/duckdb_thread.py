"""A connection to DuckDB that sees only what it is given, used in a thread of Python's own.

In a thread that a library has started, DuckDB loses Python's global lock while it reads rows, which ends the
process. Whoever interrupts the program interrupts what DuckDB does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import pa
from penstock.lake.audits.queries import CLOSED
from penstock.lake.sql.duckdb_limits import find_bounds

T = TypeVar("T")


class DuckDbThread:
    """A closed connection, and the thread in which it is used."""

    def __init__(self) -> None:
        self.connection: Any = None
        self._bounds = find_bounds()
        self._resources = ExitStack()
        self._thread = ThreadPoolExecutor(1, "penstock-sql")
        self._thread.submit(self._open_connection).result()

    def _open_connection(self) -> None:
        import duckdb

        folder = self._resources.enter_context(tempfile.TemporaryDirectory(prefix="penstock-sql-"))
        config = {**CLOSED, **self._bounds, "temp_directory": folder}
        self.connection = self._resources.enter_context(duckdb.connect(":memory:", config=config))

    def __enter__(self) -> DuckDbThread:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection. What is under way is interrupted."""
        self.connection.interrupt()
        self._thread.submit(self._resources.close).result()
        self._thread.shutdown()

    def run_in_thread(
        self, work: Callable[[], T], find_problem: Callable[[], BaseException | None] = lambda: None
    ) -> T:
        """Do something in the thread. What DuckDB refuses is ``InvalidRequest``, unless another problem is
        found to have caused it."""
        import duckdb

        try:
            return self._thread.submit(work).result()
        except (duckdb.Error, RuntimeError, OSError, pa.ArrowException) as problem:
            cause = find_problem()
            if cause is not None:
                raise cause from None
            if isinstance(problem, duckdb.OutOfMemoryException):  # whose advice are settings that are locked
                raise InvalidRequest(
                    "the query needs more memory than it may use, and more room on the disk for what "
                    "does not fit: choose fewer rows or columns"
                ) from None
            text = str(problem).partition(" Detail: ")[0].strip()
            raise InvalidRequest(f"the query cannot be run: {text}") from None
