"""Figures of the lake: those that the page plots."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_ref_option, declare_command
from penstock.cli.completions import complete_key
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.lake.answers import Figures, TableFigures
from penstock.lake.call import PAGE_MAX


@declare_command(
    "figures",
    prints=Figures,
    examples="""
$ penstock figures
$ penstock figures --json
""",
)
@add_ref_option
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
    answer = call.open_lake().figures(ref, table=table)
    call.print_answer(lambda: answer, lambda screen: _format_figures(screen, answer))


def _format_figures(screen: Screen, answer: Figures) -> Iterator[str]:
    yield screen.style("Commits a day", "strong")
    days: list[Row] = [[count.day, f"{count.commits:,}"] for count in answer.commits if count.commits]
    yield from align_columns(screen, days, indent="  ") if days else ["  none yet"]
    if answer.requests is not None:
        yield screen.style("Requests by branch", "strong")
        requests: list[Row] = [
            [
                escape_controls(count.branch),
                f"{count.total:,}",
                f"{count.conflicts:,} conflicts ({count.conflict_share:.1%})",
                f"{count.other_errors:,} other errors",
            ]
            for count in answer.requests
        ]
        yield from align_columns(screen, requests, indent="  ") if requests else ["  none yet"]
    yield screen.style("Publishing", "strong")
    waiting: list[Row] = [
        [
            StyledText(escape_controls(str(lag.key)), "strong"),
            f"v{lag.latest_version}",
            f"{lag.backlog:,} to publish",
            f"for {lag.oldest_s or 0:.0f} s",
            escape_controls(lag.alarm),
        ]
        for lag in answer.publishing
    ]
    which = "the first" if answer.published_tables == PAGE_MAX else "all of"
    up_to_date = f"  {which} {answer.published_tables:,} tables are up to date"
    yield from align_columns(screen, waiting, indent="  ", flexible=-1) if waiting else [up_to_date]
    if answer.table is not None:
        yield from _format_table_figures(screen, answer.table)


def _format_table_figures(screen: Screen, table: TableFigures) -> Iterator[str]:
    more = "" if table.are_all else " or more"
    yield screen.style(escape_controls(str(table.key)), "strong")
    yield f"  {table.files:,}{more} files, {table.size_bytes:,} bytes"
    sizes: list[Row] = [
        [
            "larger" if size.below_bytes is None else f"below {size.below_bytes:,} bytes",
            f"{size.files:,} files",
        ]
        for size in table.sizes
        if size.files
    ]
    yield from align_columns(screen, sizes, indent="  ")
    growth: list[Row] = [
        [size.commit[:8] if size.version is None else f"v{size.version}", f"{size.size_bytes:,} bytes"]
        for size in table.growth
    ]
    yield from align_columns(screen, growth, indent="  ")
