"""Bringing files of a table to this machine's disk."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from uuid import uuid4

import click

from penstock.cli.call import Call, pass_call
from penstock.cli.declaration import command, ref_option
from penstock.cli.files_places import complete_path, files_at, missing, place_of
from penstock.cli.files_shapes import FilesFetched
from penstock.cli.progress import Bar
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import counted, size
from penstock.errors import InvalidRequest
from penstock.lake.files_answers import FilesTotal
from penstock.lake.files_paths import FilesPath

CHUNK_BYTES = 1024 * 1024


@command(
    "get",
    prints="FilesFetched",
    examples="""
$ penstock files get raw.visits/day=2/mon.csv copy.csv
$ penstock files get -r raw.visits/day=2/ second
""",
)
@click.argument("place", metavar="TABLE/PATH", shell_complete=complete_path)
@click.argument("target", required=False, metavar="[TARGET]", type=click.Path(path_type=Path))
@click.option("-r", "--recursive", is_flag=True, help="Take a folder, with all that is in it.")
@ref_option
@pass_call
def files_get(call: Call, place: str, target: Path | None, recursive: bool, ref: str | None) -> None:
    """Write a file of a table, or with -r a folder, to TARGET on this machine.

    TARGET is a file or directory, the current directory if it is not given. The files of a folder are there
    at their paths, as in the table. No file that is there already is overwritten.
    """
    lake, where = call.open(), place_of(place)
    files = files_at(lake, where, ref)
    if where.is_folder or not files.exists(where.path):
        if where.path and not files.list(where.prefix, limit=1):
            raise missing(where, ref)
        if not recursive:
            raise click.UsageError(f"{place} is a folder: say -r to take what is in it")
        _export(call, where, target or Path(), ref)
        return
    to = target or Path()
    to = to / where.path.rpartition("/")[2] if to.is_dir() else to
    if not to.parent.is_dir():
        raise InvalidRequest(f"there is no directory {to.parent}", path=str(to))
    if to.exists():
        raise InvalidRequest(f"{to} is there already, and nothing is overwritten", path=str(to))
    with Bar(call.json) as progress, files.open(where.path) as file:
        copied = _copy(file, to, progress)
    _say(call, where, to, FilesTotal(files=1, size=copied), ref or lake.default_branch)


def _copy(file: IO[bytes], to: Path, progress: Bar) -> int:
    """Write a file's bytes to one beside ``to``, which takes its place when it is complete."""
    total, copied = file.seek(0, io.SEEK_END), 0
    file.seek(0)
    partial = to.with_name(f"{to.name}.{uuid4().hex}.part")
    try:
        with partial.open("xb") as sink:
            while data := file.read(CHUNK_BYTES):
                sink.write(data)
                copied += len(data)
                progress("bytes", copied, total)
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)
    return copied


@command(
    "export",
    prints="FilesFetched",
    examples="$ penstock files export raw.visits exported --ref main~1",
)
@click.argument("place", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.argument("directory", metavar="DIRECTORY", type=click.Path(path_type=Path))
@ref_option
@pass_call
def files_export(call: Call, place: str, directory: Path, ref: str | None) -> None:
    """Write the files of a table, or of a folder of it, into DIRECTORY, under the same paths.

    It is for programs that need a directory. All files are of one commit.
    """
    _export(call, place_of(place), directory, ref)


def _export(call: Call, where: FilesPath, directory: Path, ref: str | None) -> None:
    lake = call.open()
    with Bar(call.json) as progress:
        total = files_at(lake, where, ref).export(directory, where.prefix, progress=progress)
    _say(call, where, directory, total, ref or lake.default_branch)


def _say(call: Call, where: FilesPath, to: Path, total: FilesTotal, ref: str) -> None:
    def text(screen: Screen) -> Iterator[str]:
        name = screen.paint(printable(str(to)), "strong")
        yield f"wrote {counted(total.files, 'file')}, {size(total.size)}, to {name}"

    call.answer(
        lambda: FilesFetched(
            table=str(where.key), ref=ref, to=str(to.absolute()), files=total.files, size=total.size
        ),
        text,
    )
