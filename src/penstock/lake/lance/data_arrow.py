"""Rows that travel with a request or an answer, in Arrow's IPC formats."""

from __future__ import annotations

from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from lance_namespace import InvalidInputError, LanceNamespaceError

FILE_MAGIC: Final = b"ARROW1"
QUERY_MAX_BYTES: Final = 512 * 1024 * 1024
"""Of the rows that a query gives. They are all in memory before they are sent."""


def read_rows(data: bytes | None) -> pa.Table:
    """The rows of an IPC stream or file; ``InvalidInputError`` if it is neither."""
    if not data:
        raise InvalidInputError("the request needs rows, as an Arrow IPC stream, but has none")
    try:
        source = pa.py_buffer(data)
        reader = pa.ipc.open_file(source) if data[:6] == FILE_MAGIC else pa.ipc.open_stream(source)
        rows = reader.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f"the rows are no Arrow IPC stream: {problem}") from None
    return rows


def write_rows(reader: pa.RecordBatchReader) -> bytes:
    """Rows as an IPC file. ``InvalidInputError`` if there are too many for one answer."""
    sink = pa.BufferOutputStream()
    size = 0
    with pa.ipc.new_file(sink, reader.schema) as writer:
        for batch in reader:
            size += batch.nbytes
            if size > QUERY_MAX_BYTES:
                raise too_many()
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def too_many() -> LanceNamespaceError:
    """What is said of a query that gives too much."""
    return InvalidInputError(
        f"the query gives more than {QUERY_MAX_BYTES:,} bytes of rows: ask for fewer rows or columns, or "
        "open the table by Lance itself, which reads it piece by piece"
    )
