"""``penstock files get`` and ``export``: files of a table are written to this machine's disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import add_ref_option, declare_command
from penstock.cli.progress import ProgressBar, WaitingLine
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count, format_size
from penstock.errors import InvalidRequest
from penstock.formats.files.cli.path_arguments import (
    complete_path,
    not_found_error,
    open_files_at,
    parse_files_path,
)
from penstock.formats.files.lake.answers import FilesTotal
from penstock.formats.files.lake.paths import FilesPath

if TYPE_CHECKING:
    from penstock.formats.files.lake.table import Files


class FilesFetched(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were written to this machine's disk."""

    key: str
    """The key."""
    ref: str
    """The revision that they are of."""
    to: str
    """The file or directory that has them now."""
    files: int
    """How many."""
    size: int
    """Of all of them, in bytes."""


@declare_command(
    "get",
    prints=FilesFetched,
    examples="""
$ penstock files get raw.visits/day=2/mon.csv copy.csv
$ penstock files get -r raw.visits/day=2/ second
""",
)
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@click.argument("target", required=False, metavar="[TARGET]", type=click.Path(path_type=Path))
@click.option("-r", "--recursive", is_flag=True, help="Copy a folder with all files in it.")
@add_ref_option
@pass_call
def files_get(
    call: CommandContext, place: str, target: Path | None, recursive: bool, ref: str | None
) -> None:
    """Write a file of a table, or with -r a folder, to TARGET on this machine.

    TARGET is a file or directory; without it, the current directory. The files of a folder keep their paths
    below TARGET. Existing files with the same bytes stay; no file is overwritten.
    """
    lake, where = call.open_lake(), parse_files_path(place)
    files = open_files_at(lake, where, ref)
    if where.is_folder or not files.exists(where.path):
        if where.path and not files.list(where.prefix, limit=1):
            raise not_found_error(where, ref)
        if not recursive:
            raise click.UsageError(f"{place} is a folder: use -r to copy its files")
        _export_files(call, files, where, target or Path(), ref or lake.default_branch)
        return
    to = target or Path()
    to = to / where.path.rpartition("/")[2] if to.is_dir() else to
    if not to.parent.is_dir():
        raise InvalidRequest(f"there is no directory {to.parent}", path=str(to))
    with WaitingLine(f"getting {where.path}", call.json):
        got = files.export_file(where.path, to)
    _show_download(call, where, to, FilesTotal(files=1, size=got.size), ref or lake.default_branch)


@declare_command(
    "export",
    prints=FilesFetched,
    examples="$ penstock files export raw.visits exported --ref main~1",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.argument("directory", metavar="DIRECTORY", type=click.Path(path_type=Path))
@add_ref_option
@pass_call
def files_export(call: CommandContext, place: str, directory: Path, ref: str | None) -> None:
    """Write the files of a table, or of a folder of it, into DIRECTORY, under the same paths.

    This is for programs that need a directory. All files are those of one commit.
    """
    lake, where = call.open_lake(), parse_files_path(place)
    files = open_files_at(lake, where, ref)
    if not where.is_folder and files.exists(where.path):
        raise click.UsageError(f"{place} is a file: use 'penstock files get'")
    _export_files(call, files, where, directory, ref or lake.default_branch)


def _export_files(call: CommandContext, files: Files, where: FilesPath, directory: Path, ref: str) -> None:
    with ProgressBar(call.json) as progress:
        total = files.export(directory, where.path, progress=progress)
    _show_download(call, where, directory, total, ref)


def _show_download(call: CommandContext, where: FilesPath, to: Path, total: FilesTotal, ref: str) -> None:
    def render_text(screen: Screen) -> Iterator[str]:
        name = screen.style(escape_controls(str(to)), "strong")
        yield f"wrote {format_count(total.files, 'file')}, {format_size(total.size)}, to {name}"

    call.print_answer(
        lambda: FilesFetched(
            key=str(where.key), ref=ref, to=str(to.absolute()), files=total.files, size=total.size
        ),
        render_text,
    )
