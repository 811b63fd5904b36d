"""Queries that must find nothing: what they are, and which tables they name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from penstock.errors import InvalidRequest
from penstock.lake.audits.duckdb_requirement import require_sql
from penstock.model.expectations import check_text
from penstock.model.keys import Key

FUNCTIONS: Final = frozenset(("range", "generate_series", "unnest"))
"""That may stand where a table does. Others read files, or what the text does not show."""
SETTING: Final = "current_setting"
"""The function that tells of the process and of its folders."""
CLOSED: Final[Mapping[str, Any]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
"""Settings of DuckDB's by which a query sees what it is given, and nothing else."""


class AuditQuery(NamedTuple):
    """A query that is understood."""

    sql: str
    tables: tuple[Key, ...]
    """That it names, each once."""


def read_query(sql: str) -> AuditQuery:
    """What a query is about; ``InvalidRequest`` if it is none, or not one that only reads tables.

    The tables need not be there.
    """
    require_sql()
    check_text(sql)
    try:
        statements = parse_statements(sql)
        if len(statements) != 1:
            raise InvalidRequest(
                f"an expectation must be one query, got {len(statements)} statements\n  {sql}"
            )
        tables = tuple(dict.fromkeys(map(_make_key, list_table_names(statements[0]))))
    except RecursionError:
        raise InvalidRequest("the query is nested too deeply") from None
    if not tables:
        raise InvalidRequest(f"the query names no table of the lake, such as sales.orders\n  {sql}")
    return AuditQuery(sql, tables)


def parse_statements(sql: str) -> list[Any]:
    """The statements of a text, as DuckDB understands them."""
    import duckdb

    try:
        with duckdb.connect(":memory:", config=dict(CLOSED)) as connection:
            serialized = connection.execute("select json_serialize_sql(?::varchar)", [sql]).fetchone()
    except duckdb.Error as problem:
        raise InvalidRequest(f"invalid query: {str(problem).partition(chr(10))[0]}\n  {sql}") from None
    # DuckDB writes a number that is too large for a double as Infinity, which Python's own decoder reads.
    parsed = json.loads(serialized[0] if serialized else "{}")
    if parsed.get("error") and parsed.get("error_type") == "not implemented":
        raise InvalidRequest(f"a query must be a SELECT, which changes nothing\n  {sql}")
    if parsed.get("error"):
        raise InvalidRequest(f"invalid query: {parsed.get('error_message')}\n  {sql}")
    statements: list[Any] = parsed.get("statements", [])
    return statements


def _make_key(names: tuple[str, ...]) -> Key:
    return Key(*names) if len(names) > 1 else Key.parse(names[0])


def list_table_names(node: Any, inside: frozenset[str] = frozenset()) -> Iterator[tuple[str, ...]]:
    """The tables that a part of a query names; ``inside`` are names that the query itself has given."""
    if isinstance(node, list):
        for part in node:
            yield from list_table_names(part, inside)
        return
    if not isinstance(node, dict):
        return
    remaining = dict(node)
    for own_name, query in _list_ctes(remaining.pop("cte_map", None)):
        yield from list_table_names(query, inside)
        inside |= {own_name}
    if node.get("type") == "RECURSIVE_CTE_NODE":
        yield from list_table_names(remaining.pop("right", None), inside | {node["cte_name"].lower()})
    if node.get("type") == "TABLE_FUNCTION":
        name = (node.get("function") or {}).get("function_name", "")
        if name.lower() not in FUNCTIONS:
            raise InvalidRequest(f"a query can only read tables of the lake, not the function '{name}'")
    if node.get("type") == "FUNCTION" and node.get("function_name", "").lower() == SETTING:
        raise InvalidRequest(f"a query can only read tables of the lake, not the function '{SETTING}'")
    if node.get("type") == "SHOW_REF":
        raise InvalidRequest("a query must select rows; it cannot describe tables")
    if node.get("type") == "BASE_TABLE":
        names = [name for part in ("catalog_name", "schema_name", "table_name") if (name := node.get(part))]
        if len(names) > 1:
            yield tuple(names)
        elif names and names[0].lower() not in inside:
            yield (names[0],)
    for part in remaining.values():
        yield from list_table_names(part, inside)


def _list_ctes(ctes: Any) -> Iterator[tuple[str, Any]]:
    """The names that a query gives, each with what it stands for. Only what comes after one knows it: before,
    and in itself unless it is recursive, the same name is a table's, as DuckDB reads it."""
    for cte in (ctes or {}).get("map", ()):
        yield cte["key"].lower(), cte["value"]
