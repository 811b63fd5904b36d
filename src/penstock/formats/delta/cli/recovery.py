"""Taking Delta tables back, after the lake that owned them was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from penstock.cli.answers import Page
from penstock.cli.call import Call, pass_call
from penstock.cli.completions import complete_key
from penstock.cli.declaration import command
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import counted
from penstock.errors import PenstockError
from penstock.formats.delta.lake.answers import RecoveredTable
from penstock.model.keys import Key


@command(
    "recover",
    prints=Page[RecoveredTable],
    examples="""
$ penstock root add ./lake/warehouse --lake ./other
$ penstock delta recover ./lake/warehouse/visits --any --prefix web --lake ./other
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--lost", metavar="ID", help="The id of the lake that was lost.")
@click.option("--any", "any_lake", is_flag=True, help="Take tables of whatever lake they name.")
@click.option(
    "--table",
    "key",
    metavar="KEY",
    shell_complete=complete_key,
    help="What it is to be called in the lake. [as in the lost lake, else the last part of PATH]",
)
@click.option("--prefix", metavar="KEY", shell_complete=complete_key, help="The namespace to put them in.")
@pass_call
def delta_recover(
    call: Call,
    paths: tuple[str, ...],
    lost: str | None,
    any_lake: bool,
    key: str | None,
    prefix: str | None,
) -> None:
    """Take back the Delta tables at each PATH, after the lake that owned them was lost for good.

    They go on from their published versions. Files of commits after those are named: whether they were
    ratified cannot be known any more. If the other lake is not lost after all, it will stop publishing there
    with an alarm.
    """
    if lost is not None and any_lake:
        raise click.UsageError(
            "--lost names one lake, and --any is for whatever lake it was: say one of them"
        )
    if lost is None and not any_lake:
        raise click.UsageError(f"say which lake was lost: {_named_lake(paths[0])}")
    if key is not None and (prefix is not None or len(paths) > 1):
        raise click.UsageError("--table is for one PATH, and goes without --prefix")
    lake, found = call.open(), list[RecoveredTable]()
    try:
        for place in paths:
            chosen = key if prefix is None else Key(*Key.parse(prefix), Path(place).absolute().name)
            found.append(lake.delta.recover(place, chosen, lost=lost, any_lake=any_lake))
    finally:
        if found:  # also if another one could not be taken back
            _say_recovered(call, found)


def _named_lake(path: str) -> str:
    """How to say which lake was lost, with the id that the table names, if it can be read from here."""
    from penstock.formats.delta.lake.opening import owner_at
    from penstock.formats.delta.lake.tables import absolute

    try:
        owner = owner_at(absolute(path))
    except PenstockError:
        return "--lost ID, or --any for whatever lake it was"
    return f"{path} names {owner}. If that one is lost for good, --lost {owner.lake}"


def _say_recovered(call: Call, found: Sequence[RecoveredTable]) -> None:
    call.answer(lambda: Page.of(found), lambda screen: _recovered(screen, found))


def _recovered(screen: Screen, found: Sequence[RecoveredTable]) -> Iterator[str]:
    for one in found:
        name = screen.paint(printable(str(one.key)), "strong")
        yield f"recovered {name} up to version {one.version}   {printable(one.location)}"
        if one.doubtful:
            count = counted(len(one.doubtful), "file")
            yield f"  {count} of later commits, of which it cannot be known whether they were ratified:"
            yield from (f"    {printable(name)}" for name in one.doubtful)
