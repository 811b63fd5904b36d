"""Expect: what a branch is to be like, whoever publishes there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import branch_option, declare_group
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.lake.lake import Lake
from penstock.model.expectations import Expectation


@declare_group("expect", prints=ListPage[Expectation], examples="$ penstock expect")
@click.pass_context
def expect(ctx: click.Context) -> None:
    """List, add and remove expectations: queries that must find no row on a branch.

    An expectation is a query that must find no row. The lake stores it and runs it for every commit, merge
    and transaction that changes a table named in the query, by any process. Without a subcommand, the
    expectations of the default branch are listed.
    """
    if ctx.invoked_subcommand is None:
        _list_expectations(ctx.ensure_object(CommandContext), None)


@expect.command("list", prints=ListPage[Expectation], examples="$ penstock expect list --branch main")
@branch_option
@pass_call
def expect_list(call: CommandContext, branch: str | None) -> None:
    """List the expectations of a branch."""
    _list_expectations(call, branch)


@expect.command(
    "add",
    prints=ListPage[Expectation],
    examples="""
$ penstock expect add 'no negative amounts' 'select * from web.orders where amount < 0'
""",
)
@click.argument("name", metavar="NAME")
@click.argument("sql", metavar="SQL")
@click.option("--missing-ok", is_flag=True, help="Add it even if a table in the query does not exist.")
@branch_option
@pass_call
def expect_add(call: CommandContext, name: str, sql: str, missing_ok: bool, branch: str | None) -> None:
    """Add the expectation NAME: a query in DuckDB's SQL that must find no row.

    The query names tables by their keys, such as sales.orders. The expectation is refused if it does not hold
    now, or if a table does not exist. With --missing-ok it is not run until the table exists and has columns.
    """
    lake = call.open_lake()
    expectations = lake.expect(name, sql, branch, missing_ok=missing_ok)
    _show_expectation_list(call, lake, branch, expectations)
    snapshot = lake.at(lake.branch(branch).name)
    tables = next(expectation.tables for expectation in expectations if expectation.name == name)
    if missing := [key for key in tables if snapshot.get(key) is None]:
        call.print_note(f"it is not checked until there is {' and '.join(missing)}, by exactly that name")


@expect.command(
    "remove", prints=ListPage[Expectation], examples="$ penstock expect remove 'no negative amounts'"
)
@click.argument("name", metavar="NAME")
@branch_option
@pass_call
def expect_remove(call: CommandContext, name: str, branch: str | None) -> None:
    """Remove the expectation NAME, and list those that remain."""
    lake = call.open_lake()
    _show_expectation_list(call, lake, branch, lake.unexpect(name, branch))


def _list_expectations(call: CommandContext, branch: str | None) -> None:
    lake = call.open_lake()
    _show_expectation_list(call, lake, branch, lake.expectations(branch))


def _show_expectation_list(
    call: CommandContext, lake: Lake, branch: str | None, expectations: Sequence[Expectation]
) -> None:
    name = lake.branch(branch).name
    call.print_answer(
        lambda: ListPage.from_items(expectations),
        lambda screen: _format_expectations(screen, name, expectations),
    )


def _format_expectations(screen: Screen, branch: str, expectations: Sequence[Expectation]) -> Iterator[str]:
    if not expectations:
        yield screen.style(f"{branch} has no expectations", "dim")
    rows: list[Row] = [
        [
            StyledText(escape_controls(expectation.name), "name"),
            StyledText(escape_controls(" ".join(expectation.sql.split()))),
        ]
        for expectation in expectations
    ]
    yield from align_columns(screen, rows)
