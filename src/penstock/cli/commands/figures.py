"""Figures of the lake: those that the page plots."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import command, ref_option
from penstock.cli.completions import complete_key
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.text_columns import Row, StyledText, columns
from penstock.lake.answers import Figures, TableFigures
from penstock.lake.call import PAGE_MAX


@command(
    "figures",
    prints=Figures,
    examples="""
$ penstock figures
$ penstock figures --json
""",
)
@ref_option
@click.option(
    "--table",
    metavar="KEY",
    shell_complete=complete_key,
    help="Also show the sizes of this table and its files.",
)
@pass_call
def figures(call: CommandContext, ref: str | None, table: str | None) -> None:
    """Show statistics of the lake: commits a day, conflicts by branch, tables with unpublished versions.

    A server counts conflicts from its start, so they are shown only for a lake behind a server.
    """
    answer = call.open().figures(ref, table=table)
    call.answer(lambda: answer, lambda screen: _show(screen, answer))


def _show(screen: Screen, answer: Figures) -> Iterator[str]:
    yield screen.paint("Commits a day", "strong")
    days: list[Row] = [[count.day, f"{count.commits:,}"] for count in answer.commits if count.commits]
    yield from columns(screen, days, indent="  ") if days else ["  none yet"]
    if answer.requests is not None:
        yield screen.paint("Requests by branch", "strong")
        requests: list[Row] = [
            [
                printable(count.branch),
                f"{count.total:,}",
                f"{count.conflicts:,} conflicts ({count.conflict_share:.1%})",
                f"{count.other_errors:,} other errors",
            ]
            for count in answer.requests
        ]
        yield from columns(screen, requests, indent="  ") if requests else ["  none yet"]
    yield screen.paint("Publishing", "strong")
    waiting: list[Row] = [
        [
            StyledText(printable(str(lag.key)), "strong"),
            f"v{lag.latest_version}",
            f"{lag.backlog:,} to publish",
            f"for {lag.oldest_s or 0:.0f} s",
            printable(lag.alarm),
        ]
        for lag in answer.publishing
    ]
    which = "the first" if answer.published_tables == PAGE_MAX else "all of"
    up_to_date = f"  {which} {answer.published_tables:,} tables are up to date"
    yield from columns(screen, waiting, indent="  ", flexible=-1) if waiting else [up_to_date]
    if answer.table is not None:
        yield from _show_table(screen, answer.table)


def _show_table(screen: Screen, table: TableFigures) -> Iterator[str]:
    more = "" if table.are_all else " or more"
    yield screen.paint(printable(str(table.key)), "strong")
    yield f"  {table.files:,}{more} files, {table.size_bytes:,} bytes"
    sizes: list[Row] = [
        [
            "larger" if size.below_bytes is None else f"below {size.below_bytes:,} bytes",
            f"{size.files:,} files",
        ]
        for size in table.sizes
        if size.files
    ]
    yield from columns(screen, sizes, indent="  ")
    growth: list[Row] = [
        [size.commit[:8] if size.version is None else f"v{size.version}", f"{size.size_bytes:,} bytes"]
        for size in table.growth
    ]
    yield from columns(screen, growth, indent="  ")
