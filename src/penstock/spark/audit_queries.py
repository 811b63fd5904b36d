"""Audit queries, which must find no rows, run on Spark against tables as they are at one commit.

A query names tables by their keys, as ``sales.orders``. Temporary views have names of one part only, so each
such name is put into the text as that of a view, which is made for the query and goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from penstock.errors import InvalidRequest
from penstock.lake.audits.query_run import SAMPLE_MAX, FoundRows
from penstock.model.keys import Key
from penstock.spark.reader import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.lake.lake import Lake
    from penstock.lake.views import Snapshot

_TOKEN: Final = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>(?:`(?:[^`]|``)+`|\w+)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\w+))*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
_BEGINS: Final = frozenset(("select", "with", "from", "values", "table", "("))
_ENDS: Final = frozenset({
    "where", "group", "order", "having", "limit", "union", "except", "minus", "intersect", "select", "window",
    "cluster", "distribute", "sort", "qualify", "offset",
})  # fmt: skip
"""Words after which no further table of a FROM follows."""
_NO_ALIAS: Final = _ENDS | {
    "join", "left", "right", "full", "inner", "cross", "semi", "anti", "natural", "on", "using", "lateral",
    "pivot", "unpivot", "tablesample", "version", "timestamp", "for",
}  # fmt: skip
"""Words after a table that are not another name for it."""


def run_audit_query(spark: SparkSession, lake: Lake, snapshot: Snapshot, sql: str) -> FoundRows | None:
    """What a query finds in tables of a commit; ``None`` if nothing.

    ``InvalidRequest`` if it cannot be asked.
    """
    from pyspark.errors import PySparkException

    named = list_table_names(sql)
    contents = snapshot.get_many([table_name.key for table_name in named])
    named = [table_name for table_name in named if table_name.key in contents]
    if not named:
        raise InvalidRequest(
            f"the query names no table of the lake; name one by its key, as in FROM sales.orders\n  {sql}"
        )
    views = {key: f"penstock_{uuid4().hex}" for key in dict.fromkeys(table_name.key for table_name in named)}
    ref = snapshot.id if snapshot.via is None else f"{snapshot.via}@{snapshot.id}"
    try:
        for key, view in views.items():
            read(spark, key, ref=ref, lake=lake).createOrReplaceTempView(view)
        rows = spark.sql(_with_views(sql, named, views)).limit(SAMPLE_MAX + 1).collect()
    except PySparkException as problem:
        first_line = str(problem).partition("\n")[0]
        raise InvalidRequest(f"the query failed: {first_line}") from None
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
    return FoundRows.from_first_rows([row.asDict() for row in rows])


class TableName(NamedTuple):
    """A table that a query names, and where."""

    key: Key
    start: int
    end: int
    has_alias: bool


def list_table_names(sql: str) -> list[TableName]:
    """What may be tables in a query; ``InvalidRequest`` if it is none."""
    tokens = [match for match in _TOKEN.finditer(sql) if match.lastgroup != "skipped"]
    if not tokens or tokens[0].group().lower() not in _BEGINS:
        raise InvalidRequest(f"the query of a check must only read\n  {sql}")
    names = _names_of_subqueries(tokens)
    return [
        at_table
        for at_table in _list_tables_after_from(tokens)
        if len(at_table.key) > 1 or str(at_table.key).lower() not in names
    ]


def _names_of_subqueries(tokens: list[re.Match[str]]) -> frozenset[str]:
    """Names that a query gives to queries inside of it."""
    words = [token.group().lower() for token in tokens]
    return frozenset(
        name.strip("`")
        for name, *after in zip(words, words[1:], words[2:], strict=False)
        if after == ["as", "("]
    )


def _list_tables_after_from(tokens: list[re.Match[str]]) -> Iterator[TableName]:
    """The names that stand where a table does: after FROM or JOIN, or after a comma in their list."""
    lists, is_next = [False], False
    for number, token in enumerate(tokens):
        word = token.group().lower()
        if word == "(":
            lists.append(False)
        elif word == ")":
            lists = lists[:-1] or [False]
        elif word in ("from", "join"):
            lists[-1] = is_next = True
            continue
        elif word == ",":
            is_next = lists[-1]
            continue
        elif word in _ENDS:
            lists[-1] = False
        elif is_next and token.lastgroup == "name":
            after = tokens[number + 1] if number + 1 < len(tokens) else None
            if after is None or after.group() != "(":  # that would be a function
                yield TableName(_parse_key(token.group()), token.start(), token.end(), _is_alias(after))
        is_next = False


def _is_alias(after: re.Match[str] | None) -> bool:
    return after is not None and after.lastgroup == "name" and after.group().lower() not in _NO_ALIAS


def _parse_key(name: str) -> Key:
    return Key(*(quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(name)))


def _with_views(sql: str, named: list[TableName], views: dict[Key, str]) -> str:
    """The query with views in the place of tables, each called as the last part of its table's key."""
    parts, last = [], 0
    for table_name in named:
        alias = "" if table_name.has_alias else f" AS `{table_name.key[-1].replace('`', '``')}`"
        parts += [sql[last : table_name.start], views[table_name.key], alias]
        last = table_name.end
    return "".join((*parts, sql[last:]))
