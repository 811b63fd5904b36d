"""Queries over a lake: which tables one names, and at which revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.rows.reader import TableRows
from penstock.lake.audits.duckdb_requirement import require_sql
from penstock.lake.audits.queries import list_table_names, parse_statements
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.views import Snapshot


class QueriedTable(NamedTuple):
    """A table as a query names it."""

    names: tuple[str, ...]
    """As the query spells it: one name, or several with dots between them."""
    key: Key
    ref: str | None
    """The revision after ``@``, if there is one."""


def read_sql(sql: str) -> list[QueriedTable]:
    """The tables that a query names; ``InvalidRequest`` if it is not one query that only reads."""
    require_sql("lake.sql()")
    try:
        statements = parse_statements(sql)
        if len(statements) != 1:
            raise InvalidRequest(f"expected one query, got {len(statements)} statements\n  {sql}")
        names = dict.fromkeys(list_table_names(statements[0]))
    except RecursionError:
        raise InvalidRequest("the query is nested too deeply") from None
    return [_read_name(name) for name in names]


def strip_end(sql: str) -> str:
    """A query without the semicolon, and comments, at its end: DuckDB 2.0 puts the text into others."""
    import duckdb

    text = sql.encode()
    for start, kind in reversed(duckdb.tokenize(sql)):
        if kind != duckdb.token_type.comment and text[start : start + 1] != b";":
            break
        text = text[:start]
    return text.decode()


def _read_name(names: tuple[str, ...]) -> QueriedTable:
    last, at, ref = names[-1].partition("@")
    if not at:
        return QueriedTable(names, _make_key(names), None)
    if not last or not ref:
        raise InvalidRequest(
            f"'{'.'.join(names)}' is not a table: a table at a revision is named \"sales.orders@dev\""
        )
    return QueriedTable(names, _make_key((*names[:-1], last)), ref)


def _make_key(names: tuple[str, ...]) -> Key:
    return Key(*names) if len(names) > 1 else Key.parse(names[0])


def open_tables(snapshot: Snapshot, tables: list[QueriedTable]) -> dict[tuple[str, ...], TableRows]:
    """The rows of the tables of a query. All that are named at one revision are of one commit.

    ``KeyNotFound`` says which table was probably meant, ``NotManaged`` if the lake does not read its rows.
    """
    at: dict[str | None, Snapshot] = {None: snapshot}
    rows: dict[tuple[str, ...], TableRows] = {}
    for table in tables:
        if table.ref not in at:
            at[table.ref] = snapshot.at(table.ref)
        rows[table.names] = at[table.ref].table(table.key).scan()
    return rows
