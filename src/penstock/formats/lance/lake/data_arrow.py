"""Rows that travel with a request or an answer, in Arrow's IPC formats."""

from __future__ import annotations

from typing import IO, Final

import pyarrow as pa  # type: ignore[import-untyped]
from lance_namespace import InvalidInputError, LanceNamespaceError

from penstock.errors import TooLarge
from penstock.formats.lance.lake.unpacked_sizes import FILE_MAGIC, UnreadableRows, measure_unpacked_size

QUERY_MAX_BYTES: Final = 512 * 1024 * 1024
"""Of the rows that a query gives."""


def read_rows(data: bytes | None) -> pa.Table:
    """The rows of an IPC stream or file; ``InvalidInputError`` if it is neither."""
    if not data:
        raise InvalidInputError("the request needs rows, as an Arrow IPC stream, but has none")
    try:
        source = pa.py_buffer(data)
        reader = pa.ipc.open_file(source) if data.startswith(FILE_MAGIC) else pa.ipc.open_stream(source)
        rows = reader.read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError) as problem:
        raise InvalidInputError(f"the rows are not an Arrow IPC stream: {problem}") from None
    return rows


def check_unpacked_size(data: bytes, size_max_bytes: int) -> None:
    """``TooLarge`` if rows are larger, once they are unpacked. They are not unpacked for that."""
    try:
        size = measure_unpacked_size(data)
    except UnreadableRows as problem:
        raise InvalidInputError(f"the rows are not an Arrow IPC stream: {problem}") from None
    if size > size_max_bytes:
        raise TooLarge(
            f"the rows have {size:,} bytes uncompressed, more than this server accepts ({size_max_bytes:,}, "
            "--body-max-bytes): send fewer at once, or write them with Lance directly",
            body_max_bytes=size_max_bytes,
        )


def write_rows(reader: pa.RecordBatchReader, sink: IO[bytes]) -> None:
    """Write rows as an IPC file. ``InvalidInputError`` if there are too many for one answer."""
    size = 0
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), reader.schema) as writer:
        for batch in reader:
            size += batch.nbytes
            if size > QUERY_MAX_BYTES:
                raise too_many_rows_error()
            writer.write_batch(batch)


def too_many_rows_error() -> LanceNamespaceError:
    """What is said of a query that gives too much."""
    return InvalidInputError(
        f"the result has more than {QUERY_MAX_BYTES:,} bytes: request fewer rows or columns, or open the "
        "table with Lance itself, which reads it in batches"
    )
