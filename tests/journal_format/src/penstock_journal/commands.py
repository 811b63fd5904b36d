"""Journals on the command line: ``penstock journal append`` and ``penstock journal show``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_ref_option, branch_option, declare_command, declare_group
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock_journal.calls import AppendLines, Journal, ReadJournal


@declare_group(
    "journal", examples="$ penstock journal append diary 'It rained.'\n$ penstock journal show diary"
)
def journal() -> None:
    """Write and read journals."""


@declare_command("append", prints=Commit)
@click.argument("key")
@click.argument("text")
@branch_option
@pass_call
def append(call: CommandContext, key: str, text: str, branch: str | None) -> None:
    """Add a line to a journal."""
    commit = call.open_lake().do(AppendLines(key=Key.parse(key), lines=(text,), branch=branch))
    call.print_answer(lambda: commit, lambda _: [f"appended to {escape_controls(key)}"])


@declare_command("show", prints=Journal)
@click.argument("key")
@add_ref_option
@pass_call
def show(call: CommandContext, key: str, ref: str | None) -> None:
    """Print the lines of a journal."""
    found = call.open_lake().do(ReadJournal(key=Key.parse(key), at=ref))

    def text(_: Screen) -> Iterator[str]:
        yield from map(escape_controls, found.lines)

    call.print_answer(lambda: found, text)


journal.add_command(append)
journal.add_command(show)
