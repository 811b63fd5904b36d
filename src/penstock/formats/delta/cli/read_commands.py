"""``penstock delta log`` and ``cat``: the versions of a Delta table, and some of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_limit_option, add_ref_option, declare_command
from penstock.cli.completions import complete_key
from penstock.cli.rendering.rows import format_rows as show_rows
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age
from penstock.formats.delta.lake.snapshot import PastVersion, TableSnapshot
from penstock.formats.rows.row_values import list_rows, to_json_value

LOG_LIMIT = 20
ROWS_LIMIT = 20
OPERATIONS_SHOWN = 5
FIGURES = {
    "numOutputRows": "rows written",
    "numDeletedRows": "rows deleted",
    "numUpdatedRows": "rows updated",
    "numFiles": "files",
    "numAddedFiles": "files added",
    "numRemovedFiles": "files removed",
    "numTargetFilesAdded": "files added",
    "numTargetFilesRemoved": "files removed",
}
"""Figures of operations that people look for, and what they count."""


class DeltaRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a Delta table."""

    key: str
    """The key, or the location of a table that was read without a lake."""
    version: int
    """The version that was read."""
    columns: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[dict[str, Any], ...]
    """The rows, each by column. What JSON has no word for is text."""


table_argument = click.argument("table", metavar="KEY|PATH", shell_complete=complete_key)


@declare_command(
    "log",
    prints=ListPage[PastVersion],
    examples="$ penstock delta log web.orders\n$ penstock delta log ./lake/warehouse/visits",
)
@table_argument
@add_ref_option
@add_limit_option(LOG_LIMIT)
@pass_call
def delta_log(call: CommandContext, table: str, ref: str | None, limit: int) -> None:
    """Show the versions of a Delta table, newest first.

    KEY is a table of the lake. PATH is any Delta table, and begins with / or ./ or is a URL such as
    s3://bucket/table: then no lake is opened, and the versions are those in the table's own log.
    """
    versions = _read_table(call, table, ref).history(limit)

    def render_text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            [
                StyledText(f"v{past.version}", "strong"),
                escape_controls(_describe_operation(past)),
                StyledText(escape_controls(past.user), "dim"),
                "" if past.is_published else StyledText("not published", "warning"),
                StyledText(
                    format_age(past.timestamp, screen.now) if past.timestamp is not None else "", "dim"
                ),
            ]
            for past in versions
        ]
        yield from align_columns(screen, rows, flexible=1)

    call.print_answer(lambda: ListPage.from_items(versions), render_text)


@declare_command(
    "cat",
    prints=DeltaRows,
    examples="""
$ penstock delta cat web.orders
$ penstock delta cat web.orders --where 'amount > 10' --columns day,amount
$ penstock delta cat ./lake/warehouse/visits --version 0
""",
)
@table_argument
@add_ref_option
@click.option("--version", type=int, metavar="VERSION", help="The version to show. [the latest one]")
@click.option(
    "--timestamp", metavar="TIME", help="The version that was the newest at this time, in ISO 8601."
)
@click.option(
    "--where", metavar="CONDITION", help="Only rows that match this condition, such as amount > 10."
)
@click.option("--columns", "names", metavar="NAME,...", help="Only these columns.")
@add_limit_option(ROWS_LIMIT)
@pass_call
def delta_cat(
    call: CommandContext,
    table: str,
    ref: str | None,
    version: int | None,
    timestamp: str | None,
    where: str | None,
    names: str | None,
    limit: int,
) -> None:
    """Show rows of a Delta table.

    KEY is a table of the lake. PATH is any Delta table, and begins with / or ./ or is a URL such as
    s3://bucket/table: then no lake is opened, and the rows are those of the table's own log. Nothing is
    written there.
    """
    snapshot = _read_table(call, table, ref, version, timestamp)
    chosen = [name.strip() for name in names.split(",")] if names else None
    head = snapshot.head(limit, chosen, where)
    header, rows = tuple(head.schema.names), list_rows(head)
    call.print_answer(
        lambda: DeltaRows(
            key=table,
            version=snapshot.version,
            columns=header,
            rows=tuple(dict(zip(header, map(to_json_value, row), strict=True)) for row in rows),
        ),
        lambda screen: show_rows(screen, header, rows),
    )


def _describe_operation(past: PastVersion) -> str:
    """What a version did, how, and its most telling figures."""
    if not past.operation:
        return "(no operation)"
    operation_text = past.operation
    if merged := [
        operation.operation for operation in past.operations if operation.operation != operation_text
    ]:
        operation_text += f" of {', '.join(merged[:OPERATIONS_SHOWN])}"
        if len(merged) > OPERATIONS_SHOWN:
            operation_text += f" and {len(merged) - OPERATIONS_SHOWN} more"
    mode = past.parameters.get("mode")
    figures = [f"{past.metrics[name]} {word}" for name, word in FIGURES.items() if name in past.metrics]
    return ", ".join((f"{operation_text} ({mode})" if isinstance(mode, str) else operation_text, *figures))


def _read_table(
    call: CommandContext,
    table: str,
    ref: str | None,
    version: int | None = None,
    timestamp: str | None = None,
) -> TableSnapshot:
    """A version of a table, which is named by its key in the lake or by its location."""
    if not is_location(table):
        return call.open_lake().table(table, ref).snapshot(version, timestamp)
    if ref is not None:
        raise click.UsageError("--ref can only be used with a table of the lake, not with PATH")
    from penstock.formats.delta.lake.table_opener import read_delta

    return read_delta(
        Path(table).expanduser() if table.startswith("~") else table, version=version, timestamp=timestamp
    )


def is_location(text: str) -> bool:
    """Whether an argument is a path or a URL, and not a key. A key with slashes does not begin like that."""
    return "://" in text or text.startswith(("/", "./", "../", "~/")) or text in (".", "..")
