"""Journals on the command line: ``penstock journal append`` and ``penstock journal show``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import branch_option, command, group, ref_option
from penstock.cli.rendering.screen import Screen, printable
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock_journal.calls import AppendLines, Journal, ReadJournal


@group("journal", examples="$ penstock journal append diary 'It rained.'\n$ penstock journal show diary")
def journal() -> None:
    """Write and read journals."""


@command("append", prints=Commit)
@click.argument("key")
@click.argument("text")
@branch_option
@pass_call
def append(call: CommandContext, key: str, text: str, branch: str | None) -> None:
    """Add a line to a journal."""
    commit = call.open().do(AppendLines(key=Key.parse(key), lines=(text,), branch=branch))
    call.answer(lambda: commit, lambda _: [f"appended to {printable(key)}"])


@command("show", prints=Journal)
@click.argument("key")
@ref_option
@pass_call
def show(call: CommandContext, key: str, ref: str | None) -> None:
    """Print the lines of a journal."""
    found = call.open().do(ReadJournal(key=Key.parse(key), at=ref))

    def text(_: Screen) -> Iterator[str]:
        yield from map(printable, found.lines)

    call.answer(lambda: found, text)


journal.add_command(append)
journal.add_command(show)
