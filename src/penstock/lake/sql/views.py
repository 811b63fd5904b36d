"""Names by which DuckDB knows the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

NAMES_MAX: Final = 3
"""Of a name as DuckDB reads it: database, schema and table. A key with more elements is quoted as one."""
REAL_TYPES: Final = ("FLOAT", "DOUBLE")


def register_rows(connection: Any, rows: Any) -> str:
    """Let DuckDB know rows by a name that nobody can guess, which is returned.

    What is registered comes before tables of its name, so it must have none that a query may name.
    """
    name = f"penstock_{uuid4().hex}"
    connection.register(name, rows)
    return f"temp.main.{name}"


def create_view(connection: Any, names: Sequence[str], rows: str) -> None:
    """Let a query name registered rows by one name, or as ``schema.table`` or ``database.schema.table``."""
    quoted = [quote_name(name) for name in names]
    if len(quoted) == NAMES_MAX:
        connection.execute(f"attach if not exists ':memory:' as {quoted[0]}")
    if len(quoted) > 1:
        connection.execute(f"create schema if not exists {'.'.join(quoted[:-1])}")
    connection.execute(
        f"create view {'.'.join(quoted)} as select *{_select_real_columns(connection, rows)} from {rows}"
    )


def _select_real_columns(connection: Any, rows: str) -> str:
    """How real numbers are selected, so that DuckDB compares them itself, by its own rules.

    It has Arrow compare a column that stands in a condition as it is. To Arrow NaN is not larger than other
    numbers, and 0.0 is none of ``(-0.0, 1.0)``: so a query lost rows that it finds in tables of DuckDB.
    """
    columns = connection.execute(f"describe select * from {rows}").fetchall()
    named = [quote_name(name) for name, kind, *_ in columns if any(real in kind for real in REAL_TYPES)]
    return f" replace ({', '.join(f'coalesce({name}, {name}) as {name}' for name in named)})" if named else ""


def quote_name(name: str) -> str:
    """A name as it stands in a query."""
    return '"' + name.replace('"', '""') + '"'
