"""Delta tables into the lake and out of it: one, or all below a folder or a namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_key_option, add_message_option, declare_command
from penstock.cli.completions import complete_key
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count, format_size
from penstock.errors import TableConflict, Unavailable, UnsupportedFeature
from penstock.formats.delta.lake.answers import (
    BulkOwnershipResult,
    ConvertedFolder,
    OwnershipResult,
    TableHandedOver,
)
from penstock.formats.rows.schema import parse_schema

sole_writer_option = click.option(
    "--sole-writer",
    is_flag=True,
    help="State that nobody else writes there; needed for storage without put-if-absent.",
)
table_option = click.option(
    "--table",
    "key",
    metavar="KEY",
    shell_complete=complete_key,
    help="The key of the table in the lake. [the last part of PATH]",
)
namespace_option = click.option(
    "--namespace", metavar="KEY", shell_complete=complete_key, help="The namespace of the tables."
)
STATUS = {
    "lost": TableConflict.exit_code,
    "unfinished": Unavailable.exit_code,
    "refused": UnsupportedFeature.exit_code,
    "collides": UnsupportedFeature.exit_code,
}
"""The exit status if this came of a table; the first one counts."""


@declare_command(
    "adopt",
    prints=OwnershipResult | BulkOwnershipResult,
    examples="""
$ penstock delta adopt ./lake/warehouse/visits --table web.visits
$ penstock delta adopt --recursive ./lake/warehouse --namespace raw --dry-run
""",
)
@click.argument("path", metavar="PATH")
@table_option
@click.option(
    "--recursive", is_flag=True, help="Adopt all tables below PATH, with keys made of their paths below it."
)
@namespace_option
@click.option(
    "--dry-run", is_flag=True, help="With --recursive: show what would be adopted, and change nothing."
)
@sole_writer_option
@add_message_option
@add_key_option
@pass_call
def delta_adopt(
    call: CommandContext,
    path: str,
    key: str | None,
    recursive: bool,
    namespace: str | None,
    dry_run: bool,
    sole_writer: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Adopt the Delta table at PATH: from now on the lake decides its commits.

    The table stays where it is, with all its versions, and must lie below a root of the lake. Other programs
    can still read it; writers that do not commit through the lake are refused.

    With --recursive, two commits adopt all tables below PATH. A table that cannot be adopted, or that another
    writer changes meanwhile, is named and does not stop the others. If a key is in use, nothing is adopted.
    After an interruption, the same command finishes the adoption.
    """
    if not recursive:
        if namespace is not None or dry_run:
            raise click.UsageError("--namespace and --dry-run can only be used with --recursive")
        made = call.open_lake().delta.adopt(
            path,
            key,
            sole_writer=sole_writer,
            message=message,
            author=call.commit_author,
            idempotency_key=idempotency_key,
        )
        show_handed_table(call, made, "adopted")
        return
    if key is not None or idempotency_key is not None:
        raise click.UsageError("--table and --idempotency-key cannot be used with --recursive")
    lake = call.open_lake()
    with ProgressBar(call.json) as bar:
        adopted = lake.delta.adopt_all(
            path,
            namespace=namespace,
            sole_writer=sole_writer,
            dry_run=dry_run,
            progress=bar,
            message=message,
            author=call.commit_author,
        )
    _show_handed_tables(call, adopted, "adopted", f"no Delta tables below {path}")


@declare_command(
    "convert",
    prints=ConvertedFolder,
    examples="""
$ mkdir -p ./lake/warehouse/taps/day=2026-11-01
$ cp $(find ./lake -name 'part-*.parquet' | head -n 1) ./lake/warehouse/taps/day=2026-11-01/
$ penstock delta convert ./lake/warehouse/taps --table web.taps --partition day:date --dry-run
$ penstock delta convert ./lake/warehouse/taps --table web.taps --partition day:date
""",
)
@click.argument("path", metavar="PATH")
@table_option
@click.option(
    "--partition",
    "partitions",
    metavar="COLUMN:TYPE",
    multiple=True,
    help="The type of a partition column, such as day:date. May be repeated. [string]",
)
@click.option("--dry-run", is_flag=True, help="Show the table that would be created, and change nothing.")
@sole_writer_option
@add_message_option
@add_key_option
@pass_call
def delta_convert(
    call: CommandContext,
    path: str,
    key: str | None,
    partitions: tuple[str, ...],
    dry_run: bool,
    sole_writer: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Convert the folder of Parquet files at PATH to a Delta table.

    The files stay where they are, below a root of the lake, and are not copied: only their footers are read.
    Folders such as day=2026-11-01 become partition columns. Other programs must not write to the folder
    afterwards: files that are added later are not part of the table.
    """
    types = {}
    for partition in partitions:
        column, colon, kind = partition.partition(":")
        if not (column and colon and kind):
            raise click.BadParameter(f"{partition!r} is not COLUMN:TYPE, such as day:date")
        types[column] = kind
    lake = call.open_lake()
    with ProgressBar(call.json) as bar:
        converted = lake.delta.convert(
            path,
            key,
            partition_by=types,
            sole_writer=sole_writer,
            dry_run=dry_run,
            progress=bar,
            message=message,
            author=call.commit_author,
            idempotency_key=idempotency_key,
        )
    call.print_answer(lambda: converted, lambda screen: _show_converted(screen, converted))


def _show_converted(screen: Screen, converted: ConvertedFolder) -> Iterator[str]:
    name = screen.style(escape_controls(str(converted.key)), "strong")
    if converted.repeated:
        yield f"{name} is already converted"
        return
    counts = f"{format_count(converted.files, 'file')}, {format_count(converted.rows, 'row')}"
    if converted.dry_run:
        yield f"would convert {counts}, {format_size(converted.size_bytes)} to {name}"
    else:
        commit = screen.style(shorten_id(converted.commit), "id")
        yield f"converted {counts}, {format_size(converted.size_bytes)} to {name} (commit {commit})"
    for field in parse_schema(converted.schema).fields:
        kind = field.type if isinstance(field.type, str) else field.type.__struct_config__.tag
        note = "  partition column" if field.name in converted.partition_by else ""
        yield f"  {escape_controls(field.name)} {kind}{note}"


@declare_command(
    "release",
    prints=OwnershipResult | BulkOwnershipResult,
    examples="""
$ penstock delta release web.visits
$ penstock delta release --all --namespace web --dry-run
""",
)
@click.argument("key", metavar="[KEY]", required=False, shell_complete=complete_key)
@click.option("--all", "every", is_flag=True, help="All Delta tables of the default branch.")
@namespace_option
@click.option("--dry-run", is_flag=True, help="With --all: show what would be released, and change nothing.")
@add_message_option
@add_key_option
@pass_call
def delta_release(
    call: CommandContext,
    key: str | None,
    every: bool,
    namespace: str | None,
    dry_run: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Release the Delta table KEY to the file system, with all its versions published to its log.

    The table stays where it is, and any Delta writer may commit to it again; the lake no longer has it. This
    needs the role admin. With --all, two commits release all tables, or those below --namespace. After an
    interruption, the same command finishes the release.
    """
    if (key is None) != every:
        raise click.UsageError("give the table to release, or --all")
    if not every and (namespace is not None or dry_run):
        raise click.UsageError("--namespace and --dry-run can only be used with --all")
    if every and idempotency_key is not None:
        raise click.UsageError("--idempotency-key cannot be used with --all")
    lake = call.open_lake(catch_up=True)
    if key is not None:
        made = lake.delta.release(
            key, message=message, author=call.commit_author, idempotency_key=idempotency_key
        )
        show_handed_table(call, made, "released")
        return
    with ProgressBar(call.json) as bar:
        released = lake.delta.release_all(
            namespace, dry_run=dry_run, progress=bar, message=message, author=call.commit_author
        )
    _show_handed_tables(call, released, "released", "no Delta tables")


def show_handed_table(call: CommandContext, created: OwnershipResult, operation: str) -> None:
    def render_text(screen: Screen) -> Iterator[str]:
        name, place = (
            screen.style(escape_controls(str(created.key)), "strong"),
            escape_controls(created.location),
        )
        commit = screen.style(shorten_id(created.commit), "id")
        if created.repeated:
            yield f"{name} is already {operation}, at version {created.version}"
        else:
            yield f"{operation} {name} with version {created.version} (commit {commit})"
        yield f"  {place}"

    call.print_answer(lambda: created, render_text)


def _show_handed_tables(
    call: CommandContext, handed_over: BulkOwnershipResult, verb: str, nothing: str
) -> None:
    call.print_answer(
        lambda: handed_over, lambda screen: _format_handed_over(screen, handed_over, verb, nothing)
    )
    outcomes = {table.outcome for table in handed_over.tables}
    status = next((code for outcome, code in STATUS.items() if outcome in outcomes), 0)
    if status:
        click.get_current_context().exit(status)


def _format_handed_over(
    screen: Screen, handed_over: BulkOwnershipResult, word: str, nothing: str
) -> Iterator[str]:
    yield from align_columns(
        screen, [_format_handed_over_row(table) for table in handed_over.tables], flexible=4
    )
    for table in handed_over.tables:
        if table.problem:
            first, *more = table.problem.splitlines()
            yield f"{escape_controls(table.location)}: {first}"
            yield from more
    counts = Counter(table.outcome for table in handed_over.tables)
    verb = f"would be {word}" if handed_over.dry_run else word
    count = counts.pop("planned", 0) + counts.pop(word, 0)
    rest = [f"{number} {outcome}" for outcome, number in sorted(counts.items())]
    yield ", ".join((f"{format_count(count, 'table')} {verb}", *rest)) if handed_over.tables else nothing


def _format_handed_over_row(table: TableHandedOver) -> Row:
    kind = "bad" if table.problem else "dim"
    return [
        StyledText(table.outcome, kind),
        StyledText(escape_controls("" if table.key is None else str(table.key)), "strong"),
        f"v{table.version}" if table.version >= 0 else "",
        ", ".join(map(escape_controls, table.features)),
        escape_controls(table.location),
    ]
