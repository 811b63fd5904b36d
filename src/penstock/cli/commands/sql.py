"""Queries over tables of all formats."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_ref_option, declare_command, require_at_least
from penstock.cli.rendering.rows import format_rows as show_rows
from penstock.cli.rendering.screen import Screen
from penstock.formats.rows.row_values import list_rows, to_json_value, to_text

SHOWN_ROWS = 100


class QueryRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that a query found."""

    columns: tuple[str, ...]
    """The names of the columns."""
    types: tuple[str, ...]
    """Their types, as Arrow names them."""
    rows: tuple[tuple[Any, ...], ...]
    """The rows, each with a value for every column. What JSON has no word for is text."""


@declare_command(
    "sql",
    prints=QueryRows,
    examples="""
$ penstock sql 'select id, price from shop.items where price > 10'
$ penstock sql 'select count(*) from "shop.items@main"'
$ penstock sql 'from shop.items' --ref main --format csv
""",
)
@click.argument("query", metavar="QUERY")
@add_ref_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    help="How to print the rows; json is the same as --json. [table]",
)
@click.option(
    "-n",
    "--limit",
    type=int,
    callback=require_at_least(1),
    metavar="COUNT",
    help=f"How many rows to print at most. [table: {SHOWN_ROWS}, else all]",
)
@pass_call
def sql(call: CommandContext, query: str, ref: str | None, form: str, limit: int | None) -> None:
    """Run a SELECT over tables of all formats, by DuckDB.

    Tables are named by their keys: sales.orders. "sales.orders@dev", in double quotes, is the table at
    another revision. All other tables are those of --ref, at one commit. QUERY - reads standard input.
    """
    call.json = call.json or form == "json"
    result = call.open_lake().sql(sys.stdin.read() if query == "-" else query, ref)
    header = result.schema.names
    if form == "csv" and not call.json:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(header)
        for batch in _limit_batches(result.to_batches(), limit):
            writer.writerows(map(to_text, row) for row in list_rows(batch))
        return
    most = limit if call.json else limit or SHOWN_ROWS
    rows = list_rows(result.to_arrow() if most is None else result.head(most + 1))

    def render_text(screen: Screen) -> Iterator[str]:
        yield from show_rows(screen, header, rows[:most])
        if most is not None and len(rows) > most:
            yield screen.replace_unsupported("… more with --limit; all rows with --format csv")

    call.print_answer(
        lambda: QueryRows(
            columns=tuple(header),
            types=tuple(str(field.type) for field in result.schema),
            rows=tuple(tuple(map(to_json_value, row)) for row in rows[:most]),
        ),
        render_text,
    )


def _limit_batches(batches: Any, limit: int | None) -> Iterator[Any]:
    """Batches with so many rows at most, or all."""
    missing = limit
    for batch in batches:
        yield batch if missing is None else batch.slice(0, missing)
        if missing is not None and (missing := missing - batch.num_rows) <= 0:
            return
