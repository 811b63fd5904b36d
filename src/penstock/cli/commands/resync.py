"""Resync: taking over the versions that tables have and the lake does not know."""

from __future__ import annotations

from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command
from penstock.cli.completions import complete_key
from penstock.cli.progress import Progress
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import OutOfSync
from penstock.lake.resync_calls import ResyncedTable, ResyncResult


@declare_command(
    "resync",
    prints=ResyncResult,
    examples="""
$ penstock resync web.orders --dry-run
$ penstock resync web.orders
""",
)
@click.argument("keys", metavar="[KEY]...", nargs=-1, shell_complete=complete_key)
@click.option("--all", "every", is_flag=True, help="All tables, including those that the lake never had.")
@click.option(
    "--leave-own",
    is_flag=True,
    help="Leave behind the versions that only the lake has and that cannot be reapplied.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@pass_call
def resync(call: CommandContext, keys: tuple[str, ...], every: bool, leave_own: bool, dry_run: bool) -> None:
    """Import the versions that the logs and folders of tables have and the lake lacks.

    Use this for a lake that is older than its tables, for example after its database was restored from a
    backup: until then, commits to such a table are refused. Delta and Lance tables keep their keys, ids and
    history, and continue after their newest versions. --all also imports tables of the warehouse that were
    created since.

    If the lake has versions that differ from the table's and only append rows, their rows are appended again.
    For other differing versions, --leave-own leaves them out; they can still be read at their commit.
    """
    if bool(keys) == every:
        raise click.UsageError("give the tables to resync, or --all")
    lake = call.open_lake(create=False)
    with Progress(call.json) as progress:
        each = [None] if every else list(keys)
        answers = [lake.resync(key, leave_own=leave_own, dry_run=dry_run, progress=progress) for key in each]
    total = ResyncResult(
        tables=tuple(table for answer in answers for table in answer.tables),
        in_sync=sum(answer.in_sync for answer in answers),
        dry_run=dry_run,
    )
    call.print_answer(
        lambda: total,
        lambda screen: _format_resynced(screen, total),
    )
    if any(table.problem for table in total.tables):
        click.get_current_context().exit(OutOfSync.exit_code)


def _format_resynced(screen: Screen, resynced: ResyncResult) -> Iterator[str]:
    word = "would resync" if resynced.dry_run else "resynced"
    for table in resynced.tables:
        name = screen.style(escape_controls(str(table.key)), "strong")
        if table.problem:
            yield f"{screen.style('not resynced', 'bad')} {name}: {table.problem}"
            continue
        since = "which the lake did not have, at" if table.known < 0 else f"from version {table.known} to"
        yield f"{word} {name}, {since} version {table.version}"
        yield from _format_own_versions(table)
        if table.doubtful:
            count = format_count(len(table.doubtful), "file")
            yield f"  {count} of later commits that may or may not have been ratified:"
            yield from (f"    {escape_controls(file)}" for file in table.doubtful)
    yield f"{format_count(resynced.in_sync, 'table')} in sync"


def _format_own_versions(resynced_table: ResyncedTable) -> Iterator[str]:
    if not resynced_table.own:
        return
    own = f"versions {resynced_table.own[0]} to {resynced_table.own[-1]} that only the lake had"
    if resynced_table.repeated:
        yield f"  the rows of {own} are added on top; they are also at commit {resynced_table.commit}"
    else:
        yield f"  {own} are left at commit {resynced_table.commit}: write their changes again"
