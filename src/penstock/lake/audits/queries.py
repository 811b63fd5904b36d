"""Queries that must find nothing: what tables they name, and what DuckDB finds by them.

A query sees the rows that it is given, and nothing else: no files, no network, no variables of the program.
It reads, and cannot change anything. Rows come as streams, and are not held in memory as a whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.lake.audits.installed import require_sql
from penstock.lake.audits.rows import TableRows
from penstock.model.keys import Key

SAMPLE_MAX: Final = 5
"""How many of the rows that a query finds are told."""
VALUE_MAX_CHARS: Final = 80
FUNCTIONS: Final = frozenset(("range", "generate_series", "unnest"))
"""That may stand where a table does. Others read files, or what the text does not show."""
ELEMENTS_MAX: Final = 3
"""Of a name, as DuckDB reads it: a key with more elements is quoted as one."""
_SETTINGS: Final[Mapping[str, Any]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class Query(NamedTuple):
    """A query that is understood."""

    sql: str
    tables: tuple[Key, ...]
    """That it names, each once."""


class Found(NamedTuple):
    """Rows that a query found, though it should have found none."""

    rows: tuple[Mapping[str, str], ...]
    """Some of them: the values of each by column, in words."""
    are_all: bool

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Found | None:
        """Of the first rows of an answer: one more than are told, if there are so many. ``None`` of none."""
        shown = tuple({name: _short(value) for name, value in row.items()} for row in rows[:SAMPLE_MAX])
        return cls(shown, len(rows) <= SAMPLE_MAX) if shown else None

    def __str__(self) -> str:
        many = f"{len(self.rows)} row{'s' * (len(self.rows) != 1)}"
        if not self.are_all:
            many = f"more than {many}"
        shown = ", ".join(f"{name} = {value}" for name, value in self.rows[0].items())
        return f"it finds {many}, such as {shown}"


def read_query(sql: str) -> Query:
    """What a query is about; ``InvalidRequest`` if it is none, or not one that only reads tables.

    The tables need not be there.
    """
    require_sql()
    import duckdb

    with duckdb.connect(":memory:", config=dict(_SETTINGS)) as connection:
        told = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchone()
    parsed = msgspec.json.decode(told[0] if told else "{}")
    if parsed.get("error"):
        raise InvalidRequest(f"this is no query: {parsed.get('error_message')}\n  {sql}")
    statements = parsed.get("statements", ())
    if len(statements) != 1:
        raise InvalidRequest(f"an expectation is one query, and not {len(statements)}\n  {sql}")
    tables = tuple(dict.fromkeys(_tables(statements[0], frozenset())))
    if not tables:
        raise InvalidRequest(f"the query names no table of the lake, such as sales.orders\n  {sql}")
    return Query(sql, tables)


def _tables(node: Any, inside: frozenset[str]) -> Iterator[Key]:
    """The tables that a part of a query names; ``inside`` are names that the query itself has given."""
    if isinstance(node, list):
        for one in node:
            yield from _tables(one, inside)
        return
    if not isinstance(node, dict):
        return
    if (given := node.get("cte_map")) is not None:
        inside |= {one["key"].lower() for one in given.get("map", ())}
    if node.get("type") == "TABLE_FUNCTION":
        name = (node.get("function") or {}).get("function_name", "")
        if name.lower() not in FUNCTIONS:
            raise InvalidRequest(f"a query reads tables of the lake, and not what '{name}' gives")
    if node.get("type") == "SHOW_REF":
        raise InvalidRequest("a query selects rows; it does not describe tables")
    if node.get("type") == "BASE_TABLE":
        names = [name for part in ("catalog_name", "schema_name", "table_name") if (name := node.get(part))]
        if len(names) > 1:
            yield Key(*names)
        elif names and names[0].lower() not in inside:
            yield Key.parse(names[0])
    for value in node.values():
        yield from _tables(value, inside)


def ask(query: Query, rows: Mapping[Key, TableRows]) -> Found | None:
    """What a query finds in tables; ``None`` if nothing.

    ``InvalidRequest`` if it cannot be asked, and what the tables themselves raise while they are read.
    """
    require_sql()
    import duckdb

    read = [_Watched(rows[key]) for key in query.tables]
    with (
        tempfile.TemporaryDirectory(prefix="penstock-sql-") as spilled,
        duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": spilled}) as connection,
    ):
        try:
            for number, (key, one) in enumerate(zip(query.tables, read, strict=True)):
                connection.register(f"penstock_{number}", one)
                _name(connection, key, f"penstock_{number}")
            connection.execute("set lock_configuration = true")
            return Found.of(_first_rows(connection.execute(query.sql).to_arrow_reader(SAMPLE_MAX + 1)))
        except duckdb.Error as problem:
            for one in read:
                if one.problem is not None:
                    raise one.problem from None
            raise InvalidRequest(f"the query cannot be asked: {_first_line(problem)}") from None


def _first_rows(found: Any) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    for batch in found:
        rows += batch.slice(0, SAMPLE_MAX + 1).to_pylist()
        if len(rows) > SAMPLE_MAX:
            break
    return rows


def _name(connection: Any, key: Key, registered: str) -> None:
    """Let DuckDB know what was registered by the key of its table: as elements, and as one quoted name."""
    whole = _quoted(str(key))
    connection.execute(f"create view {whole} as select * from temp.main.{registered}")
    if not 1 < len(key) <= ELEMENTS_MAX:
        return
    quoted = [_quoted(one) for one in key]
    if len(quoted) == ELEMENTS_MAX:
        connection.execute(f"attach if not exists ':memory:' as {quoted[0]}")
    connection.execute(f"create schema if not exists {'.'.join(quoted[:-1])}")
    connection.execute(f"create view {'.'.join(quoted)} as select * from temp.main.{registered}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Watched:
    """Rows of which it is known afterwards why they could not be read: DuckDB only tells that they cannot.

    It asks for columns more than once before it reads, for which nothing is begun anew.
    """

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows
        self._first: Any = None
        self._schema: Any = None
        self.problem: PenstockError | None = None

    @property
    def schema(self) -> Any:
        if self._schema is None:
            self._first = self._begun()
            self._schema = self._first.schema
        return self._schema

    def __arrow_c_schema__(self) -> object:
        found: object = self.schema.__arrow_c_schema__()
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from penstock.formats.delta.rows.arrow_types import pa

        reader, self._first = self._first or self._begun(), None
        watched = pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))
        found: object = watched.__arrow_c_stream__(requested_schema)
        return found

    def _begun(self) -> Any:
        try:
            return self._rows.to_batches()
        except PenstockError as problem:
            self.problem = problem
            raise

    def _batches(self, reader: Any) -> Iterator[Any]:
        try:
            yield from reader
        except PenstockError as problem:
            self.problem = problem
            raise


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= VALUE_MAX_CHARS else f"{text[: VALUE_MAX_CHARS - 1]}…"


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0]
