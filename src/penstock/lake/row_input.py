"""Rows as programs hand them over: what gives Arrow's stream or plain dicts, and the schema of these."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.rows.schema import StructType, write_schema

UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")
"""What pandas calls an index that has no name, where it has to call it something."""
HAD: Final = (
    "the row stream was already consumed\n  Open the stream inside the function that writes it, or read it "
    "into a table first."
)


ROWS: Final = (
    "rows must be an Arrow table or stream, a pandas or Polars frame, a DuckDB relation, a dict with a list "
    "for each column, or a list with a dict for each row"
)


_had: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Streams that were read, by what they are and not by what they are equal to."""
_made: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Readers that were made here, each for one write that may hand it on."""


def to_arrow_stream(data: Any) -> Any:
    """Rows as something that gives Arrow's stream; ``InvalidRequest`` for what are no rows.

    A dict has a list for each column. A list has a dict for each row; what one of them lacks is null.
    """
    if hasattr(data, "__arrow_c_stream__"):
        return data
    columns = data
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        columns = {name: [row.get(name) for row in data] for name in names}
    is_frame = hasattr(data, "__arrow_c_array__") or hasattr(data, "__dataframe__")
    if not isinstance(columns, Mapping) and not is_frame:
        raise InvalidRequest(f"{ROWS}; got {'an empty list' if data == [] else f'a {type(data).__name__}'}")
    for name, values in columns.items() if not is_frame else ():
        if isinstance(values, str | bytes | Mapping | Set):  # of which Arrow would make rows as well
            raise InvalidRequest(f"the column {name!r} is a {type(values).__name__}, not a list; {ROWS}")
    from penstock.formats.rows.arrow_types import pa

    try:
        return pa.table(data if is_frame else dict(columns))
    except (pa.ArrowException, TypeError, ValueError) as problem:
        raise InvalidRequest(f"the rows cannot be converted to Arrow: {problem}; {ROWS}") from None


def open_row_reader(data: Any) -> Any:
    """Rows as a reader whose schema can be looked at before they are read, once.

    An index of pandas that has a name is a column, as where pandas writes Parquet. One without a name is left
    out: it says where a row was in a frame, and readers other than pandas would take it for data.
    ``InvalidRequest`` if the rows cannot be converted to Arrow, or are a stream that was read before: the
    rest of it, or nothing, must not be taken for all rows.
    """
    from penstock.formats.rows.arrow_types import pa

    data = to_arrow_stream(data)
    if _made.get(id(data)) is data:
        return data
    if _had.get(id(data)) is data:
        raise InvalidRequest(HAD)
    reader = data
    if not isinstance(data, pa.RecordBatchReader):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except (pa.ArrowException, OSError) as problem:
            raise InvalidRequest(f"the rows cannot be converted to Arrow: {problem}") from None
        if is_stream(data):
            _note_consumed(data)
    unnamed = _find_unnamed_index_columns(reader.schema)
    if unnamed or reader is data:
        columns = [name for name in reader.schema.names if name not in unnamed] if unnamed else None
        schema = (
            reader.schema if columns is None else pa.schema([reader.schema.field(name) for name in columns])
        )
        reader = pa.RecordBatchReader.from_batches(schema, _read_batches(data, reader, columns))
    _made[id(reader)] = reader
    return reader


def is_stream(data: Any) -> bool:
    """Whether rows come as a stream, which is empty once it was read: it cannot tell how long it is."""
    return not hasattr(type(data), "__len__") and not getattr(type(data), "is_read_anew", False)


def _read_batches(data: Any, reader: Any, columns: list[str] | None) -> Iterator[Any]:
    if reader is data:  # as long as nobody has read of it, it can still be written
        if _had.get(id(data)) is data:
            raise InvalidRequest(HAD)
        _note_consumed(data)
    for batch in reader:
        yield batch if columns is None else batch.select(columns)


def _note_consumed(stream: Any) -> None:
    with suppress(TypeError):  # libraries whose streams cannot be watched refuse to give one twice
        _had[id(stream)] = stream


def _find_unnamed_index_columns(schema: Any) -> frozenset[str]:
    """The columns of an Arrow schema that pandas made of an index without a name, by its own word."""
    try:
        metadata = msgspec.json.decode((schema.metadata or {}).get(b"pandas", b"{}"))
        index = metadata.get("index_columns", ()) if isinstance(metadata, dict) else ()
    except msgspec.DecodeError:
        index = ()
    return frozenset(name for name in index if isinstance(name, str) and UNNAMED_INDEX.fullmatch(name))


def write_schema_text(schema: Any) -> str:
    """A schema as Delta's metadata spells it: from Arrow's, from data, from a value, or as it is."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, StructType):
        return write_schema(schema)
    from penstock.formats.rows.arrow_types import make_schema, pa

    if hasattr(schema, "__arrow_c_stream__") and isinstance(getattr(schema, "schema", None), pa.Schema):
        return write_schema(make_schema(schema.schema))
    if hasattr(schema, "__arrow_c_schema__"):
        return write_schema(make_schema(pa.schema(schema)))
    raise InvalidRequest(
        "schema must be an Arrow or Delta schema, or rows with '__arrow_c_stream__', got "
        f"{type(schema).__name__}"
    )
