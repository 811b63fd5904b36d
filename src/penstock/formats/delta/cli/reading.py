"""Looking at a Delta table: its versions, and some of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from penstock.cli.answers import Page
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import command, key_argument, limit_option, ref_option
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import ago
from penstock.formats.delta.lake.snapshot import PastVersion

LOG_LIMIT = 20
ROWS_LIMIT = 20


class DeltaRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a Delta table."""

    key: str
    """The key."""
    version: int
    """The version that was read."""
    columns: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[dict[str, Any], ...]
    """The rows, each by column. What JSON has no word for is text."""


@command("log", prints=Page[PastVersion], examples="$ penstock delta log web.orders")
@key_argument
@ref_option
@limit_option(LOG_LIMIT)
@pass_call
def delta_log(call: Call, key: str, ref: str | None, limit: int) -> None:
    """Show the versions of the Delta table KEY, newest first."""
    lake = call.open()
    found = lake.table(key, ref).snapshot().history(limit)

    def text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            [
                Cell(f"v{one.version}", "strong"),
                printable(one.operation) or "(no operation)",
                "" if one.is_published else Cell("not published", "warning"),
                Cell(ago(one.timestamp, screen.now) if one.timestamp is not None else "", "dim"),
            ]
            for one in found
        ]
        yield from columns(screen, rows, flexible=1)

    call.answer(lambda: Page.of(found), text)


@command(
    "cat",
    prints=DeltaRows,
    examples="""
$ penstock delta cat web.orders
$ penstock delta cat web.orders --where 'amount > 10' --columns day,amount
""",
)
@key_argument
@ref_option
@click.option("--version", type=int, metavar="VERSION", help="The version to show. [the latest one]")
@click.option("--where", metavar="CONDITION", help="Only rows for which it is true, such as amount > 10.")
@click.option("--columns", "names", metavar="NAME,...", help="Only these columns.")
@limit_option(ROWS_LIMIT)
@pass_call
def delta_cat(
    call: Call,
    key: str,
    ref: str | None,
    version: int | None,
    where: str | None,
    names: str | None,
    limit: int,
) -> None:
    """Show rows of the Delta table KEY."""
    lake = call.open()
    snapshot = lake.table(key, ref).snapshot(version)
    chosen = [name.strip() for name in names.split(",")] if names else None
    reader = snapshot.to_batches(chosen, where)
    header, rows = tuple(reader.schema.names), _first_rows(reader, limit)
    call.answer(
        lambda: DeltaRows(
            key=key,
            version=snapshot.version,
            columns=header,
            rows=tuple({name: _json(value) for name, value in row.items()} for row in rows),
        ),
        lambda screen: _rows(screen, header, rows),
    )


def _first_rows(reader: Any, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in reader:
        rows += batch.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    return rows


def _rows(screen: Screen, header: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    table: list[Row] = [[Cell(printable(name), "dim") for name in header]]
    table += [[printable("" if row[name] is None else str(row[name])) for name in header] for row in rows]
    yield from columns(screen, table)
    if not rows:
        yield "no rows"


def _json(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list):
        return [_json(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    return str(value)
