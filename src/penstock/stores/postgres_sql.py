"""The SQL of the PostgreSQL store: its schema, and every statement that is ever sent.

Only what CockroachDB takes as well; it has not been tried there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

BYTES, BYTES_ARRAY, INTEGER, INTEGER_ARRAY, TEXT = 17, 1001, 20, 1016, 25
"""How the protocol names types."""


class SqlStatement(NamedTuple):
    """SQL with the types of its parameters. Called with their values, it is a step to be run."""

    text: str
    types: tuple[int, ...] = ()

    def __call__(self, *parameters: bytes | str | int) -> Step:
        return self, tuple(map(_encode_value, parameters))


Step: TypeAlias = tuple[SqlStatement, tuple[bytes, ...]]


def _encode_value(value: bytes | str | int) -> bytes:
    """A value as the protocol carries it."""
    if isinstance(value, int):
        return value.to_bytes(8, "big", signed=True)
    return value.encode() if isinstance(value, str) else value


def encode_bytes_array(items: Sequence[bytes]) -> bytes:
    return _encode_array(BYTES, items)


def encode_integer_array(items: Sequence[int]) -> bytes:
    return _encode_array(INTEGER, [_encode_value(item) for item in items])


def _encode_array(kind: int, items: Sequence[bytes]) -> bytes:
    """One dimension, nothing empty; the kind, how many, and the number of the first."""
    parts = [b"".join(number.to_bytes(4, "big") for number in (1, 0, kind, len(items), 1))]
    for item in items:
        parts += (len(item).to_bytes(4, "big"), item)
    return b"".join(parts)


def decode_integer(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


MIGRATIONS: Final = (
    (
        "CREATE TABLE {0}.objects (id bytea PRIMARY KEY, referenced_us bigint NOT NULL, data bytea NOT NULL)",
        # Names are bytes, which every database orders alike; text is ordered by the database's language.
        "CREATE TABLE {0}.refs (name bytea PRIMARY KEY, kind text NOT NULL, data bytea NOT NULL)",
        "CREATE INDEX refs_by_kind ON {0}.refs (kind, name)",
    ),
)
"""What leads from each version of the schema to the next."""
MARK: Final = "penstock_schema"
COLUMNS: Final = {
    ("objects", "id", "bytea"),
    ("objects", "referenced_us", "bigint"),
    ("objects", "data", "bytea"),
    ("refs", "name", "bytea"),
    ("refs", "kind", "text"),
    ("refs", "data", "bytea"),
    (MARK, "version", "bigint"),
}

BEGIN: Final = SqlStatement("BEGIN")
COMMIT: Final = SqlStatement("COMMIT")
ROLLBACK: Final = SqlStatement("ROLLBACK")
SET: Final = SqlStatement("SELECT set_config($1, $2, false)", (TEXT, TEXT))
DURABLE: Final = SqlStatement(
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
RELATIONS: Final = SqlStatement(
    "SELECT c.relname::text FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1::text::name AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')",
    (TEXT,),
)
NAMESPACE: Final = SqlStatement(
    "SELECT nspname::text FROM pg_catalog.pg_namespace WHERE nspname = $1::text::name", (TEXT,)
)
FOUND_COLUMNS: Final = SqlStatement(
    "SELECT c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, NULL) "
    "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1::text::name AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind = 'r'",
    (TEXT,),
)
PRIMARY_KEYS: Final = SqlStatement(
    "SELECT c.relname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = $1::text::name AND i.indisprimary AND i.indisvalid",
    (TEXT,),
)
CARELESS: Final = SqlStatement(
    "SELECT name FROM pg_catalog.pg_settings "
    "WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name"
)


class Statements:
    """The SQL of one schema."""

    def __init__(self, schema: str) -> None:
        insert = (
            f"INSERT INTO {schema}.objects (id, referenced_us, data) SELECT one.id, $3, one.data "
            "FROM unnest($1, $2) AS one (id, data)"
        )
        objects = (BYTES_ARRAY, BYTES_ARRAY, INTEGER)
        self.fetch = SqlStatement(
            f"SELECT id, data FROM {schema}.objects WHERE id = ANY ($1)", (BYTES_ARRAY,)
        )
        self.present = SqlStatement(f"SELECT id FROM {schema}.objects WHERE id = ANY ($1)", (BYTES_ARRAY,))
        self.insert = SqlStatement(insert, objects)
        # Always another time than before, whoever's clock is behind: it is how a sweep notices.
        self.store = SqlStatement(
            f"{insert} ON CONFLICT (id) DO UPDATE "
            "SET referenced_us = GREATEST(excluded.referenced_us, objects.referenced_us + 1)",
            objects,
        )
        rows = f"SELECT name, kind, data FROM {schema}.refs"
        self.row = SqlStatement(f"{rows} WHERE name = $1", (BYTES,))
        self.lock_row = SqlStatement(f"{rows} WHERE name = $1 FOR UPDATE", (BYTES,))
        self.insert_row = SqlStatement(
            f"INSERT INTO {schema}.refs (name, kind, data) VALUES ($1, $2, $3)", (BYTES, TEXT, BYTES)
        )
        self.update_row = SqlStatement(
            f"UPDATE {schema}.refs SET kind = $2, data = $3 WHERE name = $1", (BYTES, TEXT, BYTES)
        )
        self.delete_row = SqlStatement(f"DELETE FROM {schema}.refs WHERE name = $1", (BYTES,))
        self.rows_after, self.rows_from = (
            SqlStatement(
                f"{rows} WHERE kind = $1 AND name {beyond} $2 AND name < $3 ORDER BY name LIMIT $4",
                (TEXT, BYTES, BYTES, INTEGER),
            )
            for beyond in (">", ">=")
        )
        self.scan = SqlStatement(
            f"SELECT id, referenced_us, octet_length(data)::bigint FROM {schema}.objects "
            "WHERE id > $1 ORDER BY id LIMIT $2",
            (BYTES, INTEGER),
        )
        # What is locked is just being stored again. Not to wait for it is not to deadlock with it.
        self.delete = SqlStatement(
            "WITH doomed AS ("
            f"SELECT o.id FROM {schema}.objects o JOIN unnest($1, $2) AS one (id, referenced_us) "
            "ON o.id = one.id AND o.referenced_us = one.referenced_us FOR UPDATE OF o SKIP LOCKED"
            f") DELETE FROM {schema}.objects USING doomed WHERE objects.id = doomed.id",
            (BYTES_ARRAY, INTEGER_ARRAY),
        )
        # In the order in which an advance locks them.
        self.scrub = (
            SqlStatement(f"VACUUM (FULL) {schema}.objects"),
            SqlStatement(f"VACUUM (FULL) {schema}.refs"),
        )
        self.erase = SqlStatement(f"TRUNCATE {schema}.refs, {schema}.objects")
        self.version = SqlStatement(f"SELECT version FROM {schema}.{MARK}")
        self.lock_version = SqlStatement(f"SELECT version FROM {schema}.{MARK} FOR UPDATE")
