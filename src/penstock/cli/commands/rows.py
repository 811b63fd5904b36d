"""Rows of a table are changed from the command line, and its files are kept in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_key_argument,
    add_message_option,
    branch_option,
    declare_command,
    require_at_least,
)
from penstock.cli.completions import complete_key
from penstock.cli.option_groups import RowChangeOptions, add_row_change_options
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.screen import Screen
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count, format_size
from penstock.errors import InvalidRequest, NotManaged, PenstockError
from penstock.formats.rows.arrow_types import pa, pq, read_csv
from penstock.lake.row_changes import ChangedRows
from penstock.lake.upkeep import OptimizedTable
from penstock.model.keys import Key

MEBIBYTE = 1024 * 1024


class MaintainedTable(msgspec.Struct, frozen=True, kw_only=True):
    """What the upkeep of one table came to."""

    key: Key
    optimized: OptimizedTable | None = None
    """The files that were rewritten; `null` if that failed, or tables of the format are not optimized."""
    problem: str | None = None
    """Why it failed."""


class MaintenanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the upkeep of tables came to."""

    tables: tuple[MaintainedTable, ...]
    """By key."""


@declare_command(
    "delete-rows",
    prints=ChangedRows,
    examples="""
$ penstock delete-rows shop.items --where "price > 10 and id <> 7"
$ penstock delete-rows shop.items --all
""",
)
@add_key_argument
@click.option("--where", metavar="CONDITION", help="Delete the rows for which this is true.")
@click.option("--all", "is_all", is_flag=True, help="Delete all rows.")
@pass_call
@add_row_change_options
def delete_rows(
    call: CommandContext,
    key: str,
    where: str | None,
    is_all: bool,
    commit: RowChangeOptions,
) -> None:
    """Delete rows of the table KEY. 'penstock delete' drops the table itself."""
    _require_rows(where, is_all)
    changed = (
        call.open_lake()
        .table(key, commit.branch)
        .delete(where, **commit.to_commit_options(call.commit_author))
    )
    call.print_answer(lambda: changed, lambda screen: _format_changed_rows(screen, changed))


@declare_command(
    "update-rows",
    prints=ChangedRows,
    examples="""
$ penstock update-rows shop.items --set 'price=price * 1.2' --where "id = 7"
$ penstock update-rows shop.items --set price=0 --all
""",
)
@add_key_argument
@click.option(
    "--set",
    "assignments",
    multiple=True,
    required=True,
    metavar="COLUMN=EXPRESSION",
    help="The new value of a column: SQL over the row before the update. Several may be given.",
)
@click.option("--where", metavar="CONDITION", help="In the rows for which this is true.")
@click.option("--all", "is_all", is_flag=True, help="In all rows.")
@pass_call
@add_row_change_options
def update_rows(
    call: CommandContext,
    key: str,
    assignments: tuple[str, ...],
    where: str | None,
    is_all: bool,
    commit: RowChangeOptions,
) -> None:
    """Update columns of the table KEY."""
    _require_rows(where, is_all)
    values: dict[str, str] = {}
    for assignment in assignments:
        column, sign, expression = assignment.partition("=")
        if not sign or not column.strip() or not expression.strip():
            raise click.UsageError(f"--set takes COLUMN=EXPRESSION, not {assignment!r}")
        if column.strip() in values:
            raise click.UsageError(f"--set names the column '{column.strip()}' twice")
        values[column.strip()] = expression.strip()
    changed = (
        call.open_lake()
        .table(key, commit.branch)
        .update(values, where, **commit.to_commit_options(call.commit_author))
    )
    call.print_answer(lambda: changed, lambda screen: _format_changed_rows(screen, changed))


@declare_command(
    "upsert",
    prints=ChangedRows,
    examples="""
$ penstock upsert shop.items new-items.csv --on id
$ penstock upsert shop.items new-items.csv --on id --delete-missing
""",
)
@add_key_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--on", "columns_on", multiple=True, required=True, metavar="COLUMN", help="A column by which rows match."
)
@click.option("--no-insert", is_flag=True, help="Only update rows that match.")
@click.option("--no-update", is_flag=True, help="Only insert rows that match none.")
@click.option("--delete-missing", is_flag=True, help="Delete the table's rows that the file does not have.")
@pass_call
@add_row_change_options
def upsert(
    call: CommandContext,
    /,
    key: str,
    file: Path,
    columns_on: tuple[str, ...],
    commit: RowChangeOptions,
    **chosen: bool,
) -> None:
    """Merge the rows of FILE into the table KEY: rows that match are updated, the others are inserted.

    FILE is Parquet (.parquet) or CSV with a header (.csv). It has all columns of the table. 'penstock merge'
    merges branches.
    """
    table = call.open_lake().table(key, commit.branch)
    statement = table.merge(
        read_row_file(file), on=columns_on, **commit.to_commit_options(call.commit_author)
    )
    if not chosen["no_update"]:
        statement = statement.when_matched_update_all()
    if not chosen["no_insert"]:
        statement = statement.when_not_matched_insert_all()
    if chosen["delete_missing"]:
        statement = statement.when_not_matched_by_source_delete()
    changed = statement.commit()
    call.print_answer(lambda: changed, lambda screen: _format_changed_rows(screen, changed))


@declare_command(
    "optimize",
    prints=OptimizedTable,
    examples="""
$ penstock optimize shop.items
$ penstock optimize shop.items --zorder-by price
""",
)
@add_key_argument
@click.option("--where", metavar="CONDITION", help="Only partitions for which this condition is true.")
@click.option(
    "--target-mb",
    type=int,
    callback=require_at_least(1),
    metavar="MIB",
    help="The target size of files. [what the table says, else 128]",
)
@click.option(
    "--zorder-by",
    multiple=True,
    metavar="COLUMN",
    help="Sort rows along a curve of columns.",
)
@branch_option
@add_message_option
@pass_call
def optimize(
    call: CommandContext,
    key: str,
    where: str | None,
    target_mb: int | None,
    zorder_by: tuple[str, ...],
    branch: str | None,
    message: str | None,
) -> None:
    """Compact the table KEY: rewrite small files, and files with deleted rows, into larger ones."""
    table = call.open_lake(create=False).table(key, branch)
    with ProgressBar(call.json) as progress:
        optimized = table.optimize(
            target_file_bytes=None if target_mb is None else target_mb * MEBIBYTE,
            where=where,
            zorder_by=zorder_by,
            message=message,
            author=call.commit_author,
            progress=lambda part, whole: progress(f"rewrite {key}", part, whole),
        )
    call.print_answer(
        lambda: optimized,
        lambda screen: iter([screen.replace_unsupported(_describe_optimized(optimized))]),
    )


@declare_command(
    "maintain",
    prints=MaintenanceReport,
    examples="""
$ penstock maintain shop.items
$ penstock maintain --all
""",
)
@click.argument("keys", nargs=-1, metavar="[KEY]...", shell_complete=complete_key)
@click.option("--all", "is_all", is_flag=True, help="All tables of the branch.")
@branch_option
@pass_call
def maintain(call: CommandContext, keys: tuple[str, ...], is_all: bool, branch: str | None) -> None:
    """Run the maintenance that tables need: compact small files, purge deleted rows, cluster rows.

    Maintenance is incremental and safe beside writers, so that cron can run it. A table that fails is named
    and does not stop the others; the exit status is then 1. 'penstock sweep --remove-data' removes the
    replaced files.
    """
    if bool(keys) == is_all:
        raise click.UsageError("give tables, or --all")
    lake = call.open_lake(create=False)
    target = lake.branch(branch)
    names = [str(table.key) for table in target.tables()] if is_all else list(keys)
    results: list[MaintainedTable] = []
    has_failed = False

    def print_report() -> None:
        call.print_answer(
            lambda: MaintenanceReport(tables=tuple(results)),
            lambda screen: _format_maintenance_report(screen, results),
        )

    with ProgressBar(call.json) as progress:
        for number, name in enumerate(names):
            progress(f"maintain {name}", number, len(names))
            try:
                optimized = target.table(name).optimize(author=call.commit_author)
                results.append(MaintainedTable(key=Key.parse(name), optimized=optimized))
            except NotManaged as problem:
                if not is_all:
                    raise
                results.append(MaintainedTable(key=Key.parse(name), problem=problem.message))
            except PenstockError as problem:
                has_failed = True
                results.append(MaintainedTable(key=Key.parse(name), problem=problem.message))
            except KeyboardInterrupt:
                print_report()  # what was done until then
                raise
    print_report()
    if has_failed:
        click.get_current_context().exit(1)


def _require_rows(where: str | None, is_all: bool) -> None:
    if (where is None) != is_all:
        raise click.UsageError("say which rows: --where CONDITION, or --all")


def _format_maintenance_report(screen: Screen, results: list[MaintainedTable]) -> Iterator[str]:
    rows: list[Row] = []
    for result in results:
        text = (result.problem or "").partition("\n")[0]
        if result.optimized is not None:
            text = _describe_optimized(result.optimized)
        rows.append([StyledText(str(result.key), "strong"), text])
    yield from align_columns(screen, rows)
    ways_out = ((result.problem or "").partition("\n")[2] for result in results)
    for way_out in filter(None, dict.fromkeys(ways_out)):
        yield from map(screen.replace_unsupported, way_out.splitlines())


def _format_changed_rows(screen: Screen, changed: ChangedRows) -> Iterator[str]:
    if changed.commit is None:
        yield screen.replace_unsupported("nothing to change")
        return
    counts = (("deleted", changed.deleted), ("updated", changed.updated), ("inserted", changed.inserted))
    parts = [f"{word} {format_count(count, 'row')}" for word, count in counts if count]
    yield screen.replace_unsupported(
        f"{', '.join(parts) or 'changed'}: version {changed.version} of {changed.key}"
    )


def _describe_optimized(optimized: OptimizedTable) -> str:
    if not optimized.files_removed and not optimized.files_skipped:
        return "nothing to rewrite"
    text = (
        f"{format_count(optimized.files_removed, 'file')} ({format_size(optimized.bytes_removed)}) became "
        f"{optimized.files_added:,} ({format_size(optimized.bytes_added)})"
    )
    return (
        text if not optimized.files_skipped else f"{text}; {optimized.files_skipped:,} left to the next run"
    )


def read_row_file(path: Path) -> Any:
    """The rows of a file, read as they are asked for: Parquet, or CSV with a header."""
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            file = pq.ParquetFile(path)
            return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())
        if kind == ".csv":
            return read_csv(path)
    except (pa.ArrowException, OSError) as problem:
        raise InvalidRequest(f"{path} cannot be read: {problem}") from None
    raise InvalidRequest(f"{path} is neither .parquet nor .csv; convert it")
