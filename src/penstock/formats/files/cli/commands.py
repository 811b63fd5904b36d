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
from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import command, group, limit_option, ref_option
from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import ago, counted, iso, size
from penstock.formats.files.cli.fetching import files_export, files_get
from penstock.formats.files.cli.places import complete_path, files_at, missing, place_of
from penstock.formats.files.cli.writing import files_cp, files_mv, files_put, files_rm
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import is_managed
from penstock.formats.files.lake.answers import FileEntry, FilesAbout, FilesTotal
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


@group(
    "files",
    prints=ListPage[FilesAbout],
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

    A table of files is whatever a job leaves behind: Parquet, CSV, anything. TABLE is its key, as in
    raw.visits, and TABLE/PATH a file or folder of it. What a command writes is one commit, however many files
    that is. Without a subcommand, the tables of files on the default branch are listed.
    """
    if ctx.invoked_subcommand is None:
        _tables(ctx.ensure_object(Call))


def _tables(call: Call) -> None:
    lake = call.open()
    at = lake.at()
    keys = [key for key, one in at.entries() if isinstance(one, FilesTable) and is_managed(one)]
    found = [lake.do(GetFilesTable(key=key, at=at.id, via=at.via)) for key in keys]

    def text(screen: Screen) -> Iterator[str]:
        if not found:
            yield "no tables of files"
        rows: list[Row] = [
            [
                Cell(printable(str(table.key)), "strong"),
                counted(table.files, "file"),
                size(table.size),
                printable(table.layout.format),
                Cell(printable(", ".join(table.layout.partition_by)), "dim"),
            ]
            for table in found
        ]
        yield from columns(screen, rows, flexible=0)

    call.answer(lambda: ListPage.of(found), text)


@command(
    "ls",
    prints=ListPage[FileEntry],
    examples="""
$ penstock files ls raw.visits
$ penstock files ls -r raw.visits --ref main
""",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Go into folders.")
@ref_option
@limit_option(LIST_LIMIT)
@click.option("--after", metavar="PATH", default="", help="Go on after this path.")
@pass_call
def files_ls(call: Call, place: str, recursive: bool, ref: str | None, limit: int, after: str) -> None:
    """List the files and folders of a table, or of a folder of it."""
    lake, where = call.open(), place_of(place)
    commit = lake.do(Resolve(revision=ref))  # all pages are of one
    wanted = ListFiles(
        key=where.key,
        at=commit.commit,
        via=commit.name,
        prefix=where.prefix,
        folders=not recursive,
        after=after,
    )
    found = lake.pages(wanted, limit + 1, lambda last: {"after": last.path})
    if not found and where.path and not after:
        found = [_file(files_at(lake, where, ref), where, ref)]
    page, following = found[:limit], found[limit - 1].path if len(found) > limit else None

    def text(screen: Screen) -> Iterator[str]:
        if not page:
            yield "no files"
        yield from columns(screen, [_row(screen, one) for one in page], flexible=-1)
        if following is not None:
            yield screen.spell(f"… more with --after {printable(following)}")

    call.answer(
        lambda: ListPage.of(page, following),
        text,
    )


def _row(screen: Screen, one: FileEntry) -> Row:
    when = "" if one.modified is None else ago(one.modified, screen.now)
    return [
        "" if one.is_folder else size(one.size),
        Cell(when, "dim"),
        Cell(printable(one.path), "name" if one.is_folder else "strong"),
    ]


def _file(table: Files, where: FilesPath, ref: str | None) -> FileEntry:
    """The file at a path; ``FileNotFound`` if it is none."""
    if not where.path or not table.exists(where.path):
        raise missing(where, ref)
    return table.stat(where.path)


@command("stat", prints=FileEntry, examples="$ penstock files stat raw.visits/day=1/mon.csv")
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@ref_option
@pass_call
def files_stat(call: Call, place: str, ref: str | None) -> None:
    """Show what is known of a file, and where its bytes are."""
    lake, where = call.open(), place_of(place, needs_path=True)
    found = _file(files_at(lake, where, ref), where, ref)

    def text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            ["path", Cell(printable(found.path), "strong")],
            ["size", f"{size(found.size)}" + (f" ({found.size:,} bytes)" if found.size >= 1024 else "")],
            ["modified", "" if found.modified is None else iso(found.modified)],
            ["checksum", found.checksum or "not known"],
            ["address", printable(found.address)],
        ]
        yield from columns(screen, rows)

    call.answer(lambda: found, text)


def _range(ctx: click.Context, param: click.Parameter, value: str | None) -> slice:
    found = _RANGE.fullmatch(value or ":")
    if found is None:
        raise click.BadParameter(f"{value!r} is not like 0:100, 100: or -100:", ctx, param)
    return slice(*(int(part) if part not in ("", "-") else None for part in found.groups()))


@command(
    "cat",
    prints=FileBytes,
    examples="""
$ penstock files cat raw.visits/day=1/mon.csv
$ penstock files cat raw.visits/day=1/mon.csv --range 0:3
$ penstock files cat raw.visits/day=1/mon.csv --range=-7:
""",
)
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@ref_option
@click.option(
    "--range",
    "part",
    metavar="START:END",
    callback=_range,
    help="Only bytes from START up to but without END; either may be left out, or count from the end.",
)
@pass_call
def files_cat(call: Call, place: str, ref: str | None, part: slice) -> None:
    """Write the bytes of a file to standard output."""
    lake, where = call.open(), place_of(place, needs_path=True)
    table = files_at(lake, where, ref)
    _file(table, where, ref)
    with table.open(where.path) as file:
        start, end, _ = part.indices(file.seek(0, io.SEEK_END))
        file.seek(start)
        if not call.json:
            _pour(file, max(0, end - start))
            return
        data = file.read(max(0, end - start))
    call.answer(
        lambda: FileBytes(
            key=str(where.key),
            path=where.path,
            start=start,
            size=len(data),
            base64=base64.b64encode(data).decode(),
        ),
        lambda _: (),
    )


def _pour(file: IO[bytes], left: int) -> None:
    sys.stdout.flush()
    while left > 0 and (data := file.read(min(left, CHUNK_BYTES))):
        sys.stdout.buffer.write(data)
        left -= len(data)
    sys.stdout.buffer.flush()


@command(
    "du",
    prints=ListPage[FilesAmount],
    examples="""
$ penstock files du raw.visits
$ penstock files du raw.visits --folders
""",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@ref_option
@click.option("--folders", is_flag=True, help="Also tell of each folder right below.")
@pass_call
def files_du(call: Call, place: str, ref: str | None, folders: bool) -> None:
    """Show the number and the total size of the files in a table or folder."""
    lake, where = call.open(), place_of(place)
    table = files_at(lake, where, ref)
    below = [one.path for one in table.folder(where.prefix) if one.is_folder] if folders else []
    found, whole = [(path, table.total(path)) for path in below], table.total(where.prefix)
    if where.path and not whole.files:
        _say_amounts(call, where, [_single(_file(table, where, ref))])
    else:
        _say_amounts(call, where, [*found, (where.prefix, whole)])


def _single(file: FileEntry) -> tuple[str, FilesTotal]:
    return file.path, FilesTotal(files=1, size=file.size)


def _say_amounts(call: Call, where: FilesPath, found: Sequence[tuple[str, FilesTotal]]) -> None:
    def text(screen: Screen) -> Iterator[str]:
        rows: list[Row] = [
            [size(total.size), counted(total.files, "file"), Cell(printable(f"{where.key}/{path}"), "strong")]
            for path, total in found
        ]
        yield from columns(screen, rows, flexible=-1)

    call.answer(
        lambda: ListPage.of(FilesAmount(path=path, files=one.files, size=one.size) for path, one in found),
        text,
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
