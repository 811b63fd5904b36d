"""The page of a lake, in a browser."""

from __future__ import annotations

import sys
import webbrowser
from functools import partial

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.commands.serve import check_port, run_server
from penstock.cli.rendering.screen import Screen


class ServedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that is served."""

    url: str
    """Where it is."""


@declare_command("ui", prints=ServedPage, examples="$ penstock ui --no-browser &")
@click.argument("place", metavar="[LAKE]", required=False)
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@click.option(
    "--port",
    type=int,
    callback=check_port,
    default=0,
    metavar="PORT",
    help="The port; 0 chooses a free one. [0]",
)
@pass_call
def ui(call: CommandContext, place: str | None, no_browser: bool, port: int) -> None:
    """Open the web page of a lake in a browser: log, tables, rows, differences, merges.

    The lake is served to this machine only, without tokens, until Ctrl-C: every user of this machine can use
    it. For a lake behind a server, the command opens the page of that server.
    """
    call.lake = place or call.lake
    announce = partial(_announce_page, call, opens_browser=not no_browser)
    if call.is_behind_server:
        announce(call.lake_target, call.lake_target.rstrip("/"))
        return
    run_server(
        announce, lake=call.lake_target, port=port, is_insecure=True, sweep_every_hours=0, log_level="warning"
    )


def _announce_page(call: CommandContext, _: str, url: str, *, opens_browser: bool) -> None:
    """Say where the page is, and open it."""
    page = f"{url}/ui/"
    if call.json:
        print(msgspec.json.encode(ServedPage(url=page)).decode(), flush=True)
    else:
        print(f"The page is at {Screen.of_stream(sys.stdout).style(page, 'strong')}", flush=True)
    if opens_browser:
        webbrowser.open(page)
