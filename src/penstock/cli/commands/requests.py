"""Requests: what became of one whose answer never came."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import branch_option, declare_command
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen
from penstock.errors import NotFound
from penstock.lake.answers import LandedRequest
from penstock.lake.calls import GetOutcome


@declare_command(
    "outcome",
    prints=LandedRequest | None,
    examples="""
$ penstock put sales.orders --type iceberg metadata_location=s3://bucket/orders/v9.json --key load-9
$ penstock outcome load-9
""",
)
@click.argument("key", metavar="KEY")
@branch_option
@click.option(
    "--who",
    metavar="NAME",
    help="The name of the token that used the key. [yours, or none without a server]",
)
@pass_call
def outcome(call: CommandContext, key: str, branch: str | None, who: str | None) -> None:
    """Show the outcome of the request with the idempotency key KEY, and the commits it made.

    For a request about a branch or tag itself (create, assign, delete, rebase), --branch is its name. The
    exit status is 4 if the request was not applied. A request whose outcome is unknown can also be repeated
    under the same key. Every token has its own keys; only administrators can look up those of others.
    """
    lake = call.open_lake()
    name = lake.branch(branch).name
    landing = lake.do(GetOutcome(key=key, branch=name, who=who))
    commits = landing.commits if landing is not None else ()

    def render_text(screen: Screen) -> Iterator[str]:
        if landing is None:
            yield f"no request with key {key} was applied to {name}"
        elif not commits:
            yield f"applied to {name}, at {screen.style(shorten_id(landing.head), 'id')} then"
        else:
            ids = (screen.style(shorten_id(commit), "id") for commit in commits)
            yield f"applied to {name} as {', '.join(ids)}"

    call.print_answer(
        lambda: landing,
        render_text,
    )
    if landing is None:
        click.get_current_context().exit(NotFound.exit_code)
