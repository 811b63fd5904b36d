"""Rows chosen by columns and conditions, where a format does not choose them itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.errors import InvalidRequest
from penstock.formats.rows.arrow_types import make_schema, pa
from penstock.formats.rows.predicate_parser import parse_predicate
from penstock.formats.rows.row_filter import select_matching_rows
from penstock.model.keys import Key
from penstock.model.similar_names import describe_names


def select_rows(key: Key, reader: Any, columns: Sequence[str] | None, where: str | None) -> Any:
    """Some columns of a stream, and the rows for which a condition is true, as a stream.

    ``InvalidRequest`` names a column that is not there.
    """
    schema = reader.schema
    names = schema.names if columns is None else check_columns(key, schema, columns)
    if where is None:
        return _map_batches(reader, names, lambda batch: batch)
    predicate = parse_predicate(where, make_schema(schema))
    return _map_batches(reader, names, lambda batch: select_matching_rows(predicate, batch))


def filter_rows(reader: Any, columns: Sequence[str] | None, expression: Any) -> Any:
    """The rows of a stream for which an expression of Arrow's is true, with some columns, as a stream."""

    def filter_batch(batch: Any) -> Any:
        matching = pa.Table.from_batches([batch]).filter(expression).combine_chunks().to_batches()
        return matching[0] if matching else batch.slice(0, 0)

    return _map_batches(reader, reader.schema.names if columns is None else columns, filter_batch)


def read_first_rows(reader: Any, count: int) -> Any:
    """So many rows of a stream at most, as a ``pyarrow.Table``. No further batch is read."""
    batches, missing = [], count
    while missing > 0 and (batch := next(reader, None)) is not None:
        batches.append(batch.slice(0, missing))
        missing -= batch.num_rows
    return pa.Table.from_batches(batches, reader.schema)


def find_named_columns(expression: Any, schema: Any) -> list[str]:
    """The columns of a schema that an expression of Arrow's is about, which only Arrow itself can tell."""
    fields = list(schema)
    return [
        field.name
        for field in fields
        if not _is_about_column(expression, [other for other in fields if other is not field])
    ]


def _is_about_column(expression: Any, fields: Sequence[Any]) -> bool:
    """Whether all columns that an expression names are among some."""
    try:
        pa.schema(fields).empty_table().filter(expression)
    except (pa.ArrowInvalid, KeyError):
        return False
    return True


def check_columns(key: Key, schema: Any, columns: Sequence[str]) -> list[str]:
    """Columns that are there, each once; ``InvalidRequest`` names one that is not."""
    absent = [name for name in columns if name not in schema.names]
    if absent:
        raise InvalidRequest(
            f"'{key}' has no column '{absent[0]}'{describe_names(absent[0], schema.names)}", table=str(key)
        )
    if not columns or len(set(columns)) < len(columns):
        raise InvalidRequest("name at least one column to read, and each only once", table=str(key))
    return list(columns)


def _map_batches(reader: Any, names: Sequence[str], change: Callable[[Any], Any]) -> Any:
    schema = pa.schema([reader.schema.field(name) for name in names])

    def make_batches() -> Iterator[Any]:
        for batch in reader:
            changed = change(batch)
            if changed.num_rows:
                yield changed.select(list(names))

    return pa.RecordBatchReader.from_batches(schema, make_batches())
