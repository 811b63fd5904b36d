"""Erasing: making deleted rows of a table unrecoverable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import declare_command, require_at_least
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count, format_size
from penstock.kernel.settings import Settings
from penstock.lake.answers import ErasedTable


@declare_command(
    "erase",
    prints=ErasedTable,
    examples="""
$ penstock erase web.orders --dry-run
$ penstock erase web.orders --all-references
$ penstock erase web.orders --older-than 30d --dry-run
""",
)
@click.argument("key", metavar="KEY")
@click.option(
    "--older-than",
    metavar="TIME",
    help=(
        "Erase only rows that were deleted before this time, or longer ago than this (30d, 12h); later "
        "history stays."
    ),
)
@click.option(
    "--all-references",
    is_flag=True,
    help=(
        "Also erase at tags, and at branches without changes of their own: the table becomes unreadable "
        "there."
    ),
)
@click.option(
    "--dropped",
    is_flag=True,
    help="Erase the tables that were dropped at the key, completely: they cannot be restored any more.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show what would happen, and what still holds rows; change nothing."
)
@click.option(
    "--nobody-writes",
    is_flag=True,
    help="State that nobody writes to the lake until the erase has ended: it then needs no grace period.",
)
@click.option(
    "--data-grace-days",
    type=float,
    callback=require_at_least(0),
    metavar="DAYS",
    help="A longer grace period of unreferenced files than 'penstock grace' sets.",
)
@pass_call
def erase(
    call: CommandContext,
    key: str,
    older_than: str | None,
    all_references: bool,
    dropped: bool,
    dry_run: bool,
    nobody_writes: bool,
    data_grace_days: float | None,
) -> None:
    """Make rows that were deleted from a table unrecoverable, and end its history before now.

    First delete the rows with any engine, or the files of a table of files. The erase then rewrites files
    that still hold deleted rows, and removes what only earlier versions need: data files, change data, log
    entries, checkpoints, objects of the lake's database and its free pages. The history of all other tables
    stays.

    Files that a writer may still commit stay for the grace period (see 'penstock grace'); the command then
    shows when to run it again. It can be repeated at any time, also after a crash. While branches, tags,
    transactions or forks still hold the rows, it lists them, changes nothing, and ends with exit status 3.

    With --older-than, the history begins with the state of the table at that time. Rows that were deleted
    later can still be read, reverted and restored.
    """
    options: dict[str, Any] = {}
    if nobody_writes:
        options = {"nobody_writes": True, "grace_s": 0, "data_grace_days": 0}
    if data_grace_days is not None:
        options["data_grace_days"] = data_grace_days
    if options and call.is_behind_server:
        option = "nobody-writes" if nobody_writes else "data-grace-days"
        raise click.UsageError(f"--{option} cannot be used with a server, which has its own settings")
    settings = msgspec.structs.replace(Settings(), **options) if options else None
    lake = call.open_lake(create=False, settings=settings)
    with ProgressBar(call.json) as progress:
        erased = lake.erase(
            key,
            older_than=older_than,
            all_references=all_references,
            dropped=dropped,
            dry_run=dry_run,
            progress=progress,
        )
    call.print_answer(lambda: erased, lambda screen: _render_erased(screen, erased))


def _render_erased(screen: Screen, erased: ErasedTable) -> Iterator[str]:
    key = escape_controls(str(erased.key))
    did = "would remove" if erased.dry_run else "removed"
    rows: list[Row] = []
    if erased.rewritten_files:
        verb = "would rewrite" if erased.dry_run else "rewrote"
        rows.append([StyledText(verb, "strong"), format_count(erased.rewritten_files, "data file"), ""])
    rows += [
        [
            StyledText(did, "strong"),
            format_count(erased.data_files, "data file"),
            format_size(erased.data_bytes),
        ],
        [
            StyledText(did, "strong"),
            format_count(erased.log_files, "file of the log", "files of the log"),
            "",
        ],
    ]
    if not erased.dry_run:
        rows.append(
            [
                StyledText(did, "strong"),
                format_count(erased.objects, "object of the lake", "objects of the lake"),
                "",
            ]
        )
    yield from align_columns(screen, rows)
    if erased.left:
        yield "still holding rows, or to be known:"
        yield from (f"  {escape_controls(line)}" for line in "\n".join(erased.left).splitlines())
    if erased.dry_run:
        return
    if erased.finished:
        before = erased.older_than or erased.begun
        is_all = erased.first_version < 0 and erased.older_than is None
        since = "" if is_all else f" from before {before:%Y-%m-%d %H:%M} UTC"
        yield screen.style(f"{key} is erased: nothing is left of its history{since}", "good")
    elif erased.older_than is not None and erased.until is None:
        yield screen.style("not finished: later history needs what is left", "bad")
    else:
        until = "" if erased.until is None else f" after {erased.until:%Y-%m-%d %H:%M} UTC"
        yield screen.style(f"not finished: run this again{until}", "bad")
