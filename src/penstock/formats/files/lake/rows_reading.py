"""Rows out of files, by Arrow: of a given layout, with the values of partition columns from their paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import unquote

from penstock.errors import InvalidRequest, RequestError
from penstock.formats.files.lake.answers import TableLayout
from penstock.formats.files.lake.data_files import NO_VALUE
from penstock.formats.rows.arrow_types import arrow_schema, loosened, pa, pq, schema_of
from penstock.formats.rows.filtering import rows_where
from penstock.formats.rows.predicate_text import parse_predicate
from penstock.formats.rows.schema import StructType, parse_schema

_CSV_OPTIONS: Final = frozenset({"header", "sep", "delimiter", "quote", "nullvalue"})
"""Options of Spark's CSV that Arrow's reader has too."""


class DataFile(NamedTuple):
    """A file with rows."""

    path: str
    """In its table."""
    open: Callable[[], BinaryIO]


def read_rows(
    table: str,
    layout: TableLayout,
    files: Sequence[DataFile],
    columns: Sequence[str] | None = None,
    where: str | None = None,
) -> Any:
    """The rows of files as a ``pyarrow.Table``: all columns or some, all rows or those for which it is true.

    ``InvalidRequest`` if Arrow does not read such files, or they have not the columns that are named.
    """
    read = _READERS.get(layout.format.lower())
    if read is None:
        what = f"in the format {layout.format}" if layout.format else "in a format that nobody has said"
        raise InvalidRequest(
            f"'{table}' is a table of files {what}, which Arrow does not read: their bytes are in .files\n"
            f"  Arrow reads {', '.join(_READERS)}; Spark also others.",
            table=table,
        )
    schema = _schema(layout)
    places = [_partitions(one.path, layout.partition_by) for one in files]
    kinds = {name: _kind(name, places, schema) for place in places for name in place}
    parts = []
    for file, place in zip(files, places, strict=True):
        try:
            with file.open() as opened:
                inside = read(opened, layout, _without(schema, kinds))
            parts.append(_shaped(inside, place, kinds, schema))
        except (pa.ArrowException, ValueError) as problem:
            raise InvalidRequest(
                f"'{file.path}' of '{table}' cannot be read as {layout.format}: {problem}", table=table
            ) from None
    rows = _joined(table, parts, schema)
    if where is not None:
        rows = _filtered(rows, where)
    return rows if columns is None else _selected(table, rows, columns)


def _schema(layout: TableLayout) -> StructType | None:
    """The columns that the last writer wrote, if it said so in types that Arrow has."""
    if not layout.schema:
        return None
    try:
        found = loosened(parse_schema(layout.schema))
        assert isinstance(found, StructType)
        arrow_schema(found.fields)
    except RequestError:
        return None
    return found


# -- partitions --------------------------------------------------------------------------------------------


def _partitions(path: str, named: Sequence[str]) -> dict[str, str | None]:
    """The values of partition columns that a path tells."""
    found: dict[str, str | None] = {}
    for part in path.split("/")[:-1]:
        name, sign, value = part.partition("=")
        name = unquote(name)
        if sign and (not named or name in named):
            found[name] = None if value == NO_VALUE else unquote(value)
    return found


def _kind(name: str, places: Sequence[dict[str, str | None]], schema: StructType | None) -> Any:
    field = None if schema is None else schema.field(name)
    if field is not None:
        return arrow_schema([field]).field(0).type
    values = [one[name] for one in places if one.get(name) is not None]
    is_whole = all(value is not None and value.removeprefix("-").isdecimal() for value in values)
    return pa.int64() if values and is_whole else pa.string()


def _without(schema: StructType | None, kinds: dict[str, Any]) -> Any:
    """The columns that are in the files; ``None`` if only a look into them tells."""
    if schema is None:
        return None
    return arrow_schema(one for one in schema.fields if one.name not in kinds)


# -- formats -----------------------------------------------------------------------------------------------


def _parquet(file: BinaryIO, _: TableLayout, __: Any) -> Any:
    return pq.ParquetFile(file).read()


def _orc(file: BinaryIO, _: TableLayout, __: Any) -> Any:
    from pyarrow import orc  # type: ignore[import-untyped]

    return orc.ORCFile(file).read()


def _json(file: BinaryIO, _: TableLayout, schema: Any) -> Any:
    from pyarrow import json

    return json.read_json(file, parse_options=json.ParseOptions(explicit_schema=schema))


def _csv(file: BinaryIO, layout: TableLayout, schema: Any) -> Any:
    from pyarrow import csv

    options = {name.lower(): value for name, value in layout.options.items()}
    unknown = sorted(options.keys() - _CSV_OPTIONS)
    if unknown:
        raise ValueError(f"Arrow has no option '{unknown[0]}'")
    has_header = options.get("header", "false").lower() == "true"
    names = None if has_header or schema is None else schema.names
    found = csv.read_csv(
        file,
        read_options=csv.ReadOptions(
            column_names=names, autogenerate_column_names=not has_header and names is None
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.get("sep", options.get("delimiter", ",")), quote_char=options.get("quote", '"')
        ),
        convert_options=csv.ConvertOptions(
            column_types=schema,
            null_values=[options.get("nullvalue", "")],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if has_header or names is not None:
        return found
    return found.rename_columns([f"_c{number}" for number in range(found.num_columns)])


_READERS: Final[dict[str, Callable[[BinaryIO, TableLayout, Any], Any]]] = {
    "parquet": _parquet,
    "orc": _orc,
    "csv": _csv,
    "json": _json,
}


# -- rows --------------------------------------------------------------------------------------------------


def _shaped(
    inside: Any, place: dict[str, str | None], kinds: dict[str, Any], schema: StructType | None
) -> Any:
    """The rows of a file with their partition columns; with those of the schema, if there is one."""
    for name, value in place.items():
        if name not in inside.schema.names:
            array = pa.array([value], pa.string()).cast(kinds[name])
            inside = inside.append_column(name, pa.repeat(array[0], inside.num_rows))
    if schema is None:
        return inside
    wanted = arrow_schema(schema.fields)
    there = set(inside.schema.names)
    arrays = [
        inside.column(one.name).cast(one.type) if one.name in there else pa.nulls(inside.num_rows, one.type)
        for one in wanted
    ]
    return pa.table(arrays, schema=wanted)


def _joined(table: str, parts: Sequence[Any], schema: StructType | None) -> Any:
    if parts:
        return pa.concat_tables(parts, promote_options="permissive")
    if schema is None:
        raise InvalidRequest(f"'{table}' has no rows, and it is not known which columns", table=table)
    return arrow_schema(schema.fields).empty_table()


def _filtered(rows: Any, where: str) -> Any:
    predicate = parse_predicate(where, schema_of(rows.schema))
    batches = [rows_where(predicate, batch) for batch in rows.combine_chunks().to_batches()]
    return pa.Table.from_batches(batches, rows.schema)


def _selected(table: str, rows: Any, columns: Sequence[str]) -> Any:
    absent = [one for one in columns if one not in rows.schema.names]
    if absent:
        raise InvalidRequest(
            f"'{table}' has no column '{absent[0]}'; there are {', '.join(rows.schema.names)}", table=table
        )
    return rows.select(list(columns))
