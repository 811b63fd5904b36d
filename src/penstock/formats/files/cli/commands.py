"""Tables of files: looking at what they have."""

from __future__ import annotations

import base64
import io
import re
import sys
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

import click
import msgspec

from penstock.cli.answers import ListPage
from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_limit_option, add_ref_option, declare_command, declare_group
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_age, format_count, format_iso_time, format_size
from penstock.formats.files.cli.download_commands import files_export, files_get
from penstock.formats.files.cli.path_arguments import (
    complete_path,
    not_found_error,
    open_files_at,
    parse_files_path,
)
from penstock.formats.files.cli.write_commands import files_cp, files_mv, files_put, files_rm
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import is_managed
from penstock.formats.files.lake.answers import FileEntry, FilesTableInfo, FilesTotal
from penstock.formats.files.lake.calls import GetFilesTable, ListFiles
from penstock.formats.files.lake.paths import FilesPath
from penstock.lake.calls import Resolve

if TYPE_CHECKING:
    from penstock.formats.files.lake.table import Files

LIST_LIMIT = 1000
CHUNK_BYTES = 1024 * 1024
_RANGE = re.compile(r"(-?\d*):(-?\d*)")


class FileBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file."""

    key: str
    """The key."""
    path: str
    """In the table."""
    start: int
    """The first byte that is here."""
    size: int
    """How many bytes are here."""
    base64: str
    """The bytes."""


class FilesAmount(FilesTotal, frozen=True, kw_only=True):
    """How much there is in a table, folder or file."""

    path: str
    """In the table; of a folder with a slash at its end, empty for the whole table."""


@declare_group(
    "files",
    prints=ListPage[FilesTableInfo],
    examples="""
$ echo day,amount > mon.csv
$ penstock files put mon.csv raw.visits/day=1/
$ penstock files ls raw.visits/day=1/
$ penstock files
""",
)
@click.pass_context
def files(ctx: click.Context) -> None:
    """List, read, write and copy files of tables, each change in one commit.

    A table of files holds the files of a job, of any type: Parquet, CSV, images. TABLE is its key, such as
    raw.visits, and TABLE/PATH a file or folder in it. A command makes one commit, however many files it
    writes. Without a subcommand, the tables of files on the default branch are listed.
    """
    if ctx.invoked_subcommand is None:
        _print_tables(ctx.ensure_object(CommandContext))


def _print_tables(call: CommandContext) -> None:
    lake = call.open_lake()
    at = lake.at()
    keys = [key for key, content in at.entries() if isinstance(content, FilesTable) and is_managed(content)]
    tables = [lake.do(GetFilesTable(key=key, at=at.id, via=at.via)) for key in keys]

    def render_text(screen: Screen) -> Iterator[str]:
        if not tables:
            yield "no tables of files"
        rows: list[Row] = [
            [
                StyledText(escape_controls(str(table.key)), "strong"),
                format_count(table.files, "file"),
                format_size(table.size),
                escape_controls(table.layout.format),
                StyledText(escape_controls(", ".join(table.layout.partition_by)), "dim"),
            ]
            for table in tables
        ]
        yield from align_columns(screen, rows, flexible=0)

    call.print_answer(lambda: ListPage.from_items(tables), render_text)


@declare_command(
    "ls",
    prints=ListPage[FileEntry],
    examples="""
$ penstock files ls raw.visits
$ penstock files ls -r raw.visits --ref main
""",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Include the files in subfolders.")
@add_ref_option
@add_limit_option(LIST_LIMIT)
@click.option("--after", metavar="PATH", default="", help="List only paths after this one.")
@pass_call
def files_ls(
    call: CommandContext, place: str, recursive: bool, ref: str | None, limit: int, after: str
) -> None:
    """List the files and folders of a table, or of a folder of it."""
    lake, where = call.open_lake(), parse_files_path(place)
    commit = lake.do(Resolve(revision=ref))  # all pages are of one
    list_files = ListFiles(
        key=where.key,
        at=commit.commit,
        via=commit.name,
        prefix=where.prefix,
        folders=not recursive,
        after=after,
    )
    pages = lake.pages(list_files, limit + 1, lambda last: {"after": last.path})
    if not pages and where.path and not after:
        pages = [_find_file(open_files_at(lake, where, ref), where, ref)]
    page, following = pages[:limit], pages[limit - 1].path if len(pages) > limit else None

    def render_text(screen: Screen) -> Iterator[str]:
        if not page:
            yield "no files"
        yield from align_columns(screen, [_format_file_row(screen, entry) for entry in page], flexible=-1)
        if following is not None:
            yield screen.replace_unsupported(f"… more with --after {escape_controls(following)}")

    call.print_answer(
        lambda: ListPage.from_items(page, following),
        render_text,
    )


def _format_file_row(screen: Screen, entry: FileEntry) -> Row:
    when = "" if entry.modified is None else format_age(entry.modified, screen.now)
    return [
        "" if entry.is_folder else format_size(entry.size),
        StyledText(when, "dim"),
        StyledText(escape_controls(entry.path), "name" if entry.is_folder else "strong"),
    ]


def _find_file(table: Files, path: FilesPath, ref: str | None) -> FileEntry:
    """The file at a path; ``FileNotFound`` if it is none."""
    if not path.path or not table.exists(path.path):
        raise not_found_error(path, ref)
    return table.stat(path.path)


@declare_command("stat", prints=FileEntry, examples="$ penstock files stat raw.visits/day=1/mon.csv")
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@add_ref_option
@pass_call
def files_stat(call: CommandContext, place: str, ref: str | None) -> None:
    """Show the properties of a file, and where its bytes are stored."""
    lake, where = call.open_lake(), parse_files_path(place, needs_path=True)
    file = _find_file(open_files_at(lake, where, ref), where, ref)

    def render_text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            ["path", StyledText(escape_controls(file.path), "strong")],
            ["size", f"{format_size(file.size)}" + (f" ({file.size:,} bytes)" if file.size >= 1024 else "")],
            ["modified", "" if file.modified is None else format_iso_time(file.modified)],
            ["checksum", file.checksum or "not known"],
            ["address", escape_controls(file.address)],
        ]
        yield from align_columns(screen, rows)

    call.print_answer(lambda: file, render_text)


def _parse_byte_range(ctx: click.Context, param: click.Parameter, value: str | None) -> slice:
    match = _RANGE.fullmatch(value or ":")
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not a range; write START:END, as in 0:100, 100: or -100:", ctx, param
        )
    return slice(*(int(part) if part not in ("", "-") else None for part in match.groups()))


@declare_command(
    "cat",
    prints=FileBytes,
    examples="""
$ penstock files cat raw.visits/day=1/mon.csv
$ penstock files cat raw.visits/day=1/mon.csv --range 0:3
$ penstock files cat raw.visits/day=1/mon.csv --range=-7:
""",
)
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@add_ref_option
@click.option(
    "--range",
    "part",
    metavar="START:END",
    callback=_parse_byte_range,
    help=(
        "Only the bytes from START up to END, without END. Either can be left out; a negative one counts "
        "from the end."
    ),
)
@pass_call
def files_cat(call: CommandContext, place: str, ref: str | None, part: slice) -> None:
    """Write the bytes of a file to standard output."""
    lake, where = call.open_lake(), parse_files_path(place, needs_path=True)
    table = open_files_at(lake, where, ref)
    _find_file(table, where, ref)
    with table.open(where.path) as file:
        start, end, _ = part.indices(file.seek(0, io.SEEK_END))
        file.seek(start)
        if not call.json:
            _copy_to_stdout(file, max(0, end - start))
            return
        data = file.read(max(0, end - start))
    call.print_answer(
        lambda: FileBytes(
            key=str(where.key),
            path=where.path,
            start=start,
            size=len(data),
            base64=base64.b64encode(data).decode(),
        ),
        lambda _: (),
    )


def _copy_to_stdout(file: IO[bytes], remaining_bytes: int) -> None:
    sys.stdout.flush()
    while remaining_bytes > 0 and (data := file.read(min(remaining_bytes, CHUNK_BYTES))):
        sys.stdout.buffer.write(data)
        remaining_bytes -= len(data)
    sys.stdout.buffer.flush()


@declare_command(
    "du",
    prints=ListPage[FilesAmount],
    examples="""
$ penstock files du raw.visits
$ penstock files du raw.visits --folders
""",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@add_ref_option
@click.option("--folders", is_flag=True, help="Also show each direct subfolder.")
@pass_call
def files_du(call: CommandContext, place: str, ref: str | None, folders: bool) -> None:
    """Show the number and the total size of the files in a table or folder."""
    lake, where = call.open_lake(), parse_files_path(place)
    table = open_files_at(lake, where, ref)
    below = [entry.path for entry in table.folder(where.prefix) if entry.is_folder] if folders else []
    totals, whole = [(path, table.total(path)) for path in below], table.total(where.prefix)
    if where.path and not whole.files:
        _show_sizes(call, where, [_total_of_file(_find_file(table, where, ref))])
    else:
        _show_sizes(call, where, [*totals, (where.prefix, whole)])


def _total_of_file(file: FileEntry) -> tuple[str, FilesTotal]:
    return file.path, FilesTotal(files=1, size=file.size)


def _show_sizes(call: CommandContext, where: FilesPath, totals: Sequence[tuple[str, FilesTotal]]) -> None:
    def render_text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            [
                format_size(total.size),
                format_count(total.files, "file"),
                StyledText(escape_controls(f"{where.key}/{path}"), "strong"),
            ]
            for path, total in totals
        ]
        yield from align_columns(screen, rows, flexible=-1)

    call.print_answer(
        lambda: ListPage.from_items(
            FilesAmount(path=path, files=files_total.files, size=files_total.size)
            for path, files_total in totals
        ),
        render_text,
    )


for _each in (
    files_put,
    files_ls,
    files_stat,
    files_cat,
    files_du,
    files_get,
    files_export,
    files_cp,
    files_mv,
    files_rm,
):
    files.add_command(_each)
