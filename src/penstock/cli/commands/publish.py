"""Publish: merge a branch if all checks hold, and just as they saw it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_key_option, add_message_option, declare_command
from penstock.cli.completions import complete_branch
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count
from penstock.lake.audits.publication import DROP, KEEP, PublishResult


def _parse_checks(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    checks: dict[str, str] = {}
    for value in values:
        name, is_given, sql = value.partition("=")
        if not is_given or not name.strip() or not sql.strip():
            raise click.BadParameter(f"{value!r} is not NAME=SQL", ctx, param)
        if name.strip() in checks:
            raise click.BadParameter(f"the name {name.strip()!r} is given twice", ctx, param)
        checks[name.strip()] = sql.strip()
    return checks


@declare_command(
    "publish",
    prints=PublishResult,
    examples="""
$ penstock branch create checked
$ penstock publish checked --expect 'amounts=select * from web.orders where amount < 0'
""",
)
@click.argument("branch", metavar="BRANCH", shell_complete=complete_branch)
@click.option(
    "--into", metavar="BRANCH", shell_complete=complete_branch, help="The target. [the default branch]"
)
@click.option(
    "--expect",
    "checks",
    multiple=True,
    metavar="NAME=SQL",
    callback=_parse_checks,
    help="A query that must find no row on BRANCH, with tables named by their keys. Repeatable.",
)
@click.option("--drop", is_flag=True, help="Delete BRANCH if a query finds rows. [it is kept]")
@add_message_option
@add_key_option
@pass_call
def publish(
    call: CommandContext,
    branch: str,
    into: str | None,
    checks: dict[str, str],
    drop: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Publish BRANCH: merge it if every check holds on it (write, audit, publish).

    Exactly the commit that was checked is merged, even if others write to BRANCH meanwhile. If queries find
    rows, each failed query is shown with some of its rows, and nothing is merged. Expectations of the target
    branch are checked on the result, as for any merge.
    """
    published = call.open_lake().publish(
        branch,
        into,
        checks=checks,
        otherwise=DROP if drop else KEEP,
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    call.print_answer(lambda: published, lambda screen: _render_published(screen, published))


def _render_published(screen: Screen, published: PublishResult) -> Iterator[str]:
    names = (escape_controls(published.branch), escape_controls(published.into))
    if published.checks:
        hold = "holds" if len(published.checks) == 1 else "hold"
        yield (
            f"{format_count(len(published.checks), 'check')} {hold} on {names[0]} at "
            f"{shorten_id(published.audited)}"
        )
    if published.commit is None:
        yield screen.style(f"{names[1]} has everything of {names[0]} already", "dim")
    else:
        yield f"published {names[0]} into {names[1]} as {screen.style(shorten_id(published.commit), 'id')}"
