"""The rows of a table as a dataset of Arrow's: DuckDB tells it which columns and rows a query needs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from penstock.errors import PenstockError
from penstock.formats.rows.arrow_types import pa
from penstock.formats.rows.reader import TableRows

_DATASET: Any = import_module("pyarrow.dataset").Dataset


class RowDataset(_DATASET):  # type: ignore[misc]
    """Rows that are read when DuckDB scans them."""

    def __init__(self, rows: TableRows) -> None:
        self._rows, self._schema = rows, rows.schema
        self._problem: BaseException | None = None
        self._scans: list[ErrorRecordingRows] = []

    @property
    def schema(self) -> Any:
        return self._schema

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> RowScan:  # noqa: A002
        """What DuckDB calls when it begins to read."""
        return RowScan(self, None if columns is None else list(columns), filter)

    def read(self, columns: list[str] | None, condition: Any) -> Any:
        """The rows as a ``pyarrow.RecordBatchReader``."""
        try:
            reader = self._rows.to_batches(self._schema.names[:1] if columns == [] else columns, condition)
        except (PenstockError, KeyboardInterrupt, SystemExit) as problem:
            self._problem = problem
            raise
        self._scans.append(ErrorRecordingRows(reader))
        return self._scans[-1].reader

    @property
    def read_problem(self) -> BaseException | None:
        """Why rows could not be read, if they could not: DuckDB only tells that they cannot."""
        problems = (scan.problem for scan in self._scans if scan.problem is not None)
        return self._problem or next(problems, None)


class ErrorRecordingRows:
    """A stream of rows of which it is known afterwards why it could not be read."""

    def __init__(self, reader: Any) -> None:
        self.problem: BaseException | None = None
        self.reader = pa.RecordBatchReader.from_batches(reader.schema, self._record_errors(reader))

    def _record_errors(self, reader: Any) -> Iterator[Any]:
        try:
            yield from reader
        except (PenstockError, KeyboardInterrupt, SystemExit) as problem:
            self.problem = problem
            raise


class RowScan:
    """One scan of a dataset."""

    def __init__(self, dataset: RowDataset, columns: list[str] | None, condition: Any) -> None:
        self._dataset, self._columns, self._condition = dataset, columns, condition

    @property
    def projected_schema(self) -> Any:
        names = self._dataset.schema.names if self._columns is None else self._columns
        return pa.schema([self._dataset.schema.field(name) for name in names])

    def to_reader(self) -> Any:
        return self._dataset.read(self._columns, self._condition)
