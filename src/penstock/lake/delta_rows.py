"""Rows as programs hand them over: anything that gives Arrow's stream, and the schema that it has."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.schema import StructType, parse_schema, write_schema

UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")
"""What pandas calls an index that has no name, where it has to call it something."""


def rows_of(data: Any) -> Any:
    """Rows as a reader whose schema can be looked at before they are read, once.

    An index of pandas that has a name is a column, as where pandas writes Parquet. One without a name is left
    out: it says where a row was in a frame, and readers other than pandas would take it for data.
    ``InvalidRequest`` if the rows cannot be had as Arrow's.
    """
    from penstock.formats.delta.rows.arrow_types import pa

    if not hasattr(data, "__arrow_c_stream__"):
        return data  # whoever wants rows refuses it
    try:
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
    except pa.ArrowException as problem:
        raise InvalidRequest(f"the rows cannot be had as Arrow's: {problem}") from None
    unnamed = _unnamed_index(reader.schema)
    if not unnamed:
        return reader
    kept = [name for name in reader.schema.names if name not in unnamed]
    schema = pa.schema([reader.schema.field(name) for name in kept])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(kept) for batch in reader))


def _unnamed_index(schema: Any) -> frozenset[str]:
    """The columns of an Arrow schema that pandas made of an index without a name, by its own word."""
    try:
        told = msgspec.json.decode((schema.metadata or {}).get(b"pandas", b"{}"))
        index = told.get("index_columns", ()) if isinstance(told, dict) else ()
    except msgspec.DecodeError:
        index = ()
    return frozenset(name for name in index if isinstance(name, str) and UNNAMED_INDEX.fullmatch(name))


def schema_text(schema: Any) -> str:
    """A schema as Delta's metadata spells it: from Arrow's, from data, from a value, or as it is."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, StructType):
        return write_schema(schema)
    from penstock.formats.delta.rows.arrow_types import pa, schema_of

    if hasattr(schema, "__arrow_c_stream__") and isinstance(getattr(schema, "schema", None), pa.Schema):
        return write_schema(schema_of(schema.schema))
    if hasattr(schema, "__arrow_c_schema__"):
        return write_schema(schema_of(pa.schema(schema)))
    raise InvalidRequest(
        "a table is created from a schema or from data: give one of Arrow's or Delta's, or rows with "
        f"'__arrow_c_stream__', not {type(schema).__name__}"
    )


def check_fit(rows: Any, schema: str) -> None:
    """``InvalidRequest`` if rows have other columns than a schema, as far as their own schema tells."""
    from penstock.formats.delta.rows.arrow_types import pa
    from penstock.formats.delta.rows.row_checks import check_columns

    if not isinstance(rows, pa.RecordBatchReader):
        raise InvalidRequest(
            "rows come as a table or a stream of Arrow, a frame of pandas or Polars, "
            f"and this is a {type(rows).__name__}"
        )
    check_columns(rows.schema, parse_schema(schema))
