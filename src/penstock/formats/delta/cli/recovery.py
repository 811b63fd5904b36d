"""Taking Delta tables back, after the lake that owned them was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.completions import complete_key
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import PenstockError
from penstock.formats.delta.lake.answers import RecoveredTable
from penstock.model.keys import Key


@declare_command(
    "recover",
    prints=ListPage[RecoveredTable],
    examples="""
$ penstock root add ./lake/warehouse --lake ./other
$ penstock delta recover ./lake/warehouse/visits --any --prefix web --lake ./other
""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--lost", metavar="ID", help="The id of the lake that was lost.")
@click.option("--any", "any_lake", is_flag=True, help="Recover tables of any lake.")
@click.option(
    "--table",
    "key",
    metavar="KEY",
    shell_complete=complete_key,
    help="The key of the table in the lake. [as in the lost lake, else the last part of PATH]",
)
@click.option("--prefix", metavar="KEY", shell_complete=complete_key, help="The namespace for the tables.")
@pass_call
def delta_recover(
    call: CommandContext,
    paths: tuple[str, ...],
    lost: str | None,
    any_lake: bool,
    key: str | None,
    prefix: str | None,
) -> None:
    """Take over Delta tables whose lake was lost for good.

    The tables continue after their last published version. The command names staged files of later commits:
    it cannot know whether these were ratified. If the other lake still exists, it stops publishing to these
    tables and raises an alarm.
    """
    if lost is not None and any_lake:
        raise click.UsageError("--lost and --any cannot be used together: give one of them")
    if lost is None and not any_lake:
        raise click.UsageError(f"give the lake that was lost: {_describe_lost_lake(paths[0])}")
    if key is not None and (prefix is not None or len(paths) > 1):
        raise click.UsageError("--table needs one PATH, and cannot be used with --prefix")
    lake, recovered_tables = call.open_lake(), list[RecoveredTable]()
    try:
        for place in paths:
            chosen = key if prefix is None else Key(*Key.parse(prefix), Path(place).absolute().name)
            recovered_tables.append(lake.delta.recover(place, chosen, lost=lost, any_lake=any_lake))
    finally:
        if recovered_tables:  # also if another one could not be taken back
            _show_recovered_tables(call, recovered_tables)


def _describe_lost_lake(path: str) -> str:
    """How to say which lake was lost, with the id that the table names, if it can be read from here."""
    from penstock.formats.delta.lake.table_opener import make_absolute_location, owner_at

    try:
        owner = owner_at(make_absolute_location(path))
    except PenstockError:
        return "--lost ID, or --any for any lake"
    return f"{path} names {owner}. If that one is lost for good, --lost {owner.lake}"


def _show_recovered_tables(call: CommandContext, recovered_tables: Sequence[RecoveredTable]) -> None:
    call.print_answer(
        lambda: ListPage.from_items(recovered_tables),
        lambda screen: _render_recovered(screen, recovered_tables),
    )


def _render_recovered(screen: Screen, recovered_tables: Sequence[RecoveredTable]) -> Iterator[str]:
    for recovered_table in recovered_tables:
        name = screen.style(escape_controls(str(recovered_table.key)), "strong")
        yield (
            f"recovered {name} up to version {recovered_table.version}   "
            f"{escape_controls(recovered_table.location)}"
        )
        if recovered_table.doubtful:
            count = format_count(len(recovered_table.doubtful), "file")
            yield f"  {count} of later commits that may or may not have been ratified:"
            yield from (f"    {escape_controls(name)}" for name in recovered_table.doubtful)
