"""Rows of a table for people and their libraries: Arrow, pandas, Polars, DuckDB.

Whatever has rows is a ``RowReader``: a table, a version of a Delta table, the answer of a query. It only has
to say how its rows are read as a stream; all else follows from that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.model.keys import Key

HEAD_ROWS: Final = 10


class RowReader:
    """Something that has rows. They are read when they are asked for, each time from the first one on."""

    is_read_anew: ClassVar[bool] = True
    """Whether its rows can be read as often as somebody asks for them."""

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``, which never holds all of them in memory.

        ``columns`` are those to be read, in that order. ``where`` is a condition as text, such as
        ``"amount > 100 and day >= '2026-11-01'"``.
        """
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows for libraries that take Arrow's stream: DuckDB, Polars, pandas, pyarrow."""
        return self.to_batches().__arrow_c_stream__(requested_schema)

    @property
    def arrow_schema(self) -> Any:
        """The columns, as a ``pyarrow.Schema``."""
        return self.to_batches().schema

    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """Read the rows as a ``pyarrow.Table``: all columns or some, all rows or those that match
        ``where``."""
        return self.to_batches(columns, where).read_all()

    def to_pandas(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """The rows as a ``pandas.DataFrame``; takes what ``to_arrow`` takes."""
        require_library("pandas")
        return self.to_arrow(columns, where).to_pandas()

    def to_polars(self, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """The rows as a ``polars.DataFrame``; takes what ``to_arrow`` takes."""
        require_library("polars")
        return import_module("polars").from_arrow(self.to_arrow(columns, where))

    def head(self, n: int = HEAD_ROWS, columns: Sequence[str] | None = None, where: str | None = None) -> Any:
        """The first rows as a ``pyarrow.Table``. No more is read than that takes, in whole batches."""
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise InvalidRequest(f"the number of rows must be 0 or greater, got {n!r}")
        return _load_arrow().read_first_rows(self.to_batches(columns, where), n)

    @property
    def num_rows(self) -> int | None:
        """How many rows there are, if that is known exactly without reading them; else ``None``.

        ``count()`` always gives the number.
        """
        return None

    def count(self, where: str | None = None) -> int:
        """Count the rows, or those for which a condition is true.

        Without one it is answered from statistics if they are exact; else only one column is read.
        """
        exact_count = self.num_rows if where is None else None
        if exact_count is not None:
            return exact_count
        names = self.arrow_schema.names
        return sum(batch.num_rows for batch in self.to_batches(names[:1] or None, where))


class StoredRowPart(NamedTuple):
    """A part of a table's rows that is stored by itself, such as a file."""

    identity: Hashable
    """Parts of two states of a table with the same identity hold the same rows, in columns of one binding."""
    source: Any
    """What the format needs to read it."""


class TableRows(RowReader):
    """The rows of a table, in one state. Nothing is read before it is asked for, and never all at once.

    A format whose files can be told apart, or left out, has a class of its own.
    """

    def __init__(self, key: Key, begin: Callable[[], Any]) -> None:
        """``begin`` starts to read all rows, as a ``pyarrow.RecordBatchReader``."""
        self.key, self._begin = key, begin

    def __repr__(self) -> str:
        return f"<TableRows of {self.key}>"

    @property
    def schema(self) -> Any:
        """Arrow's schema of them."""
        return self.to_batches().schema

    @property
    def arrow_schema(self) -> Any:
        return self.schema

    @property
    def has_columns(self) -> bool:
        """Whether there can be rows: not of a table that was only declared, or has no file yet."""
        return len(self.schema.names) > 0

    def to_batches(self, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """As of every ``RowReader``; ``where`` may also be an expression of ``pyarrow.compute``."""
        if where is None or isinstance(where, str):
            return self.read(columns, where, None)
        needed = columns
        if columns is not None:
            needed = [*dict.fromkeys((*columns, *_load_arrow().find_named_columns(where, self.schema)))]
        return _load_arrow().filter_rows(self.read(needed, None, where), columns, where)

    def read(self, columns: Sequence[str] | None, where: str | None, hint: Any) -> Any:
        """Start to read rows, as a ``pyarrow.RecordBatchReader``.

        ``hint`` is an expression of ``pyarrow.compute`` by which rows are filtered afterwards: what it is
        certainly false for need not be read.
        """
        del hint
        reader = self._begin()
        if columns is None and where is None:
            return reader
        return _load_arrow().select_rows(self.key, reader, columns, where)

    def list_parts(self) -> Iterator[StoredRowPart] | None:
        """What the rows are stored in, if that can be told; else all rows have to be read to compare them."""
        return None

    def read_parts(self, parts: Sequence[StoredRowPart], columns: Sequence[str]) -> Any:
        """Start to read the rows of some parts, as a ``pyarrow.RecordBatchReader``."""
        raise NotImplementedError

    def identify_columns(self) -> dict[str, Hashable]:
        """For each column what binds it to the values in files. Where it is the same in two states, parts of
        one identity hold the same values in that column."""
        return {field.name: str(field.type) for field in self.schema}


def require_library(name: str) -> None:
    """``InvalidRequest`` if a library is not installed that only the caller needs."""
    if find_spec(name) is None:
        raise InvalidRequest(
            f"to_{name} needs the library {name}, which is not installed: pip install {name}"
        )


def _load_arrow() -> Any:
    """What chooses rows with Arrow, which takes a while and much memory to load."""
    from penstock.formats.rows import arrow_expressions

    return arrow_expressions
