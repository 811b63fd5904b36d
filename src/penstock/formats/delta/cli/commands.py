"""Delta tables: bringing them into the lake and out of it, and looking after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_key_argument,
    add_key_option,
    add_message_option,
    add_ref_option,
    branch_option,
    declare_group,
)
from penstock.cli.completions import complete_key
from penstock.cli.rendering.backlogs import StatusLine, format_statuses
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import PenstockError
from penstock.formats.delta.cli.alterations import delta_alter, parse_columns, parse_pairs
from penstock.formats.delta.cli.handover import (
    delta_adopt,
    delta_convert,
    delta_release,
    show_handed_table,
    sole_writer_option,
)
from penstock.formats.delta.cli.read_commands import delta_cat, delta_log
from penstock.formats.delta.cli.recovery import delta_recover
from penstock.formats.delta.lake.answers import CleanedLog, OwnershipResult, TableStatus, WrittenFile
from penstock.lake.answers import TableCommitResult


@declare_group(
    "delta",
    prints=ListPage[TableStatus],
    examples="$ penstock delta",
)
@click.pass_context
def delta(ctx: click.Context) -> None:
    """Create, adopt, read, publish and maintain Delta tables that the lake manages.

    Other programs read such a table as usual, up to the version that is published to its log. Without a
    subcommand, the tables of the default branch are listed, each with its published version.
    """
    if ctx.invoked_subcommand is None:
        call = ctx.ensure_object(CommandContext)
        _show_statuses(call, call.open_lake().delta.status())


# -- in and out --------------------------------------------------------------------------------------------


@delta.command(
    "create",
    prints=OwnershipResult,
    examples="""
$ penstock delta create web.orders day:date customer:string amount:double --partition-by day
$ penstock delta create web.visits page:string seconds:double --location ./lake/warehouse/visits
""",
)
@add_key_argument
@click.argument("columns_", metavar="NAME:TYPE...", nargs=-1, required=True)
@click.option("--partition-by", metavar="NAME", multiple=True, help="A partition column. Repeatable.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="A table property, such as delta.appendOnly=true. Repeatable.",
)
@click.option("--location", metavar="PATH", help="The location of the table. [a new folder in the warehouse]")
@sole_writer_option
@branch_option
@add_message_option
@add_key_option
@pass_call
def delta_create(
    call: CommandContext,
    key: str,
    columns_: tuple[str, ...],
    partition_by: tuple[str, ...],
    properties: tuple[str, ...],
    location: str | None,
    sole_writer: bool,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Create the empty Delta table KEY with these columns.

    TYPE is one of Delta's: string, long, integer, short, byte, double, float, boolean, date, timestamp,
    timestamp_ntz, binary, decimal(10,2).
    """
    made = call.open_lake().delta.create_empty(
        key,
        parse_columns(columns_),
        partition_by=partition_by,
        properties=parse_pairs(properties),
        location=location,
        sole_writer=sole_writer,
        branch=branch,
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    show_handed_table(call, made, "created")


@delta.command(
    "clone",
    prints=OwnershipResult,
    examples="""
$ penstock delta clone web.orders web.orders_trial
$ penstock delta clone web.orders web.orders_first --version 0
""",
)
@click.argument("source", metavar="SOURCE", shell_complete=complete_key)
@click.argument("target", metavar="TARGET")
@add_ref_option
@click.option("--version", type=int, help="A version of the source. [the latest that it has there]")
@branch_option
@add_message_option
@add_key_option
@pass_call
def delta_clone(
    call: CommandContext,
    source: str,
    target: str,
    ref: str | None,
    version: int | None,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Create the Delta table TARGET with the files of the table SOURCE.

    It is a shallow clone: no file is copied, and the two tables go their own ways from then on. The clone's
    rows stay readable whatever becomes of the source: sweeps leave files that a clone needs.
    """
    made = call.open_lake().delta.clone(
        source,
        target,
        ref=ref,
        version=version,
        branch=branch,
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    show_handed_table(call, made, "cloned")


delta.add_command(delta_release)
delta.add_command(delta_adopt)
delta.add_command(delta_convert)

# -- publishing --------------------------------------------------------------------------------------------


@delta.command(
    "status", prints=ListPage[TableStatus], examples="$ penstock delta status\n$ penstock delta status --json"
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@pass_call
def delta_status(call: CommandContext, key: str | None) -> None:
    """Show the published versions of Delta tables: of all on the default branch, or of KEY."""
    _show_statuses(call, call.open_lake().delta.status(key))


def _show_statuses(call: CommandContext, statuses: Sequence[TableStatus]) -> None:
    call.print_answer(
        lambda: ListPage.from_items(statuses),
        lambda screen: _format_statuses(screen, statuses),
    )


def _format_statuses(screen: Screen, found: Sequence[TableStatus]) -> Iterator[str]:
    lines = [
        StatusLine(
            table,
            version=f"v{table.latest_version}",
            done=f"read-only: owned by lake {table.owner}" if table.owner else "published",
            to_do="publish",
            phase="" if table.phase == "owned" else table.phase,
        )
        for table in found
    ]
    nothing = "no Delta tables. 'penstock delta create' makes one, 'penstock delta adopt' takes one over"
    return format_statuses(screen, lines, nothing)


@delta.command(
    "publish",
    prints=ListPage[TableStatus],
    examples="$ penstock delta publish\n$ penstock delta publish web.orders",
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=complete_key)
@pass_call
def delta_publish(call: CommandContext, key: str | None) -> None:
    """Publish ratified versions to the logs of Delta tables: of all on the default branch, or of KEY.

    The lake publishes by itself; use this command after an interruption or a failure of storage. A problem
    with one table does not stop the others.
    """
    lake, problems = call.open_lake(), list[PenstockError]()
    if key is not None:
        lake.delta.publish(key)
    else:
        problems = [
            published_table
            for _, published_table in lake.delta.publish_each()
            if isinstance(published_table, PenstockError)
        ]
    status = lake.delta.status(key)
    call.print_answer(
        lambda: ListPage.from_items(status),
        lambda screen: _format_statuses(screen, status),
    )
    for problem in problems[1:]:
        call.print_note(problem.message)
    if problems:
        raise problems[0]


# -- looking after the log ---------------------------------------------------------------------------------


@delta.command("checkpoint", prints=WrittenFile, examples="$ penstock delta checkpoint web.orders")
@add_key_argument
@pass_call
def delta_checkpoint(call: CommandContext, key: str) -> None:
    """Write a checkpoint of KEY's newest published version, so that readers need not read earlier commits."""
    _show_written_file(call, call.open_lake().delta.checkpoint(key), "there is a checkpoint of")


@delta.command("compact-log", prints=WrittenFile, examples="$ penstock delta compact-log web.orders")
@add_key_argument
@click.option(
    "--first", type=int, metavar="VERSION", help="The first version. [the one after the newest checkpoint]"
)
@click.option(
    "--last", type=int, metavar="VERSION", help="The last version. [the newest one that is published]"
)
@pass_call
def delta_compact_log(call: CommandContext, key: str, first: int | None, last: int | None) -> None:
    """Compact published commits of KEY's log into one file. Data files stay."""
    _show_written_file(call, call.open_lake().delta.compact_log(key, first, last), "nothing to compact up to")


def _show_written_file(call: CommandContext, written: WrittenFile, nothing: str) -> None:
    def render_text(_: Screen) -> Iterator[str]:
        yield f"wrote {written.name}" if written.name else f"{nothing} version {written.version}"

    call.print_answer(lambda: written, render_text)


@delta.command("repair", prints=TableCommitResult | None, examples="$ penstock delta repair web.orders")
@add_key_argument
@branch_option
@add_message_option
@pass_call
def delta_repair(call: CommandContext, key: str, branch: str | None, message: str | None) -> None:
    """Repair metadata of the Delta table KEY that other engines refuse, if Penstock 0.1 wrote it.

    The repair adds the features that the table's columns and properties enable to its protocol; without them
    Delta Spark reports DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH. It also changes maximum values of -0.0 in
    file statistics to 0.0, because DuckDB skips rows otherwise. It commits one version without rows, or
    nothing if there is nothing to repair.
    """
    repaired = call.open_lake().delta.repair(key, branch=branch, message=message, author=call.commit_author)

    def render_text(screen: Screen) -> Iterator[str]:
        name = screen.style(escape_controls(key), "strong")
        if repaired is None:
            yield f"{name} needs no repair"
        else:
            commit = screen.style(shorten_id(repaired.commit.id), "id")
            yield f"repaired {name} with version {repaired.version} (commit {commit})"

    call.print_answer(lambda: repaired, render_text)


@delta.command("clean-log", prints=CleanedLog, examples="$ penstock delta clean-log web.orders --dry-run")
@add_key_argument
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@pass_call
def delta_clean_log(call: CommandContext, key: str, dry_run: bool) -> None:
    """Remove expired versions and unused commit files from the log of the Delta table KEY.

    Data files stay: 'penstock sweep' removes those. Versions that a retained commit of the lake needs stay
    too: 'penstock horizon' sets how many commits are retained.
    """
    cleaned = call.open_lake().delta.clean_log(key, dry_run=dry_run)

    def render_text(screen: Screen) -> Iterator[str]:
        word = "would remove" if dry_run else "removed"
        table = screen.style(escape_controls(key), "strong")
        yield f"{word} {format_count(len(cleaned.names), 'file')} of {table}"
        yield from (f"  {escape_controls(name)}" for name in cleaned.names)

    call.print_answer(lambda: cleaned, render_text)


delta.add_command(delta_alter)
delta.add_command(delta_log)
delta.add_command(delta_cat)
delta.add_command(delta_recover)
