"""``penstock files put``, ``cp``, ``mv`` and ``rm``: each changes a table in one commit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from penstock.cli.command_context import CommandContext, pass_call
from penstock.cli.command_declaration import (
    add_key_option,
    add_message_option,
    branch_option,
    declare_command,
)
from penstock.cli.completions import complete_revision
from penstock.cli.progress import WaitingLine
from penstock.cli.rendering.history import shorten_id
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.times import format_count
from penstock.errors import InvalidRequest, KeyNotFound
from penstock.formats.files.cli.path_arguments import (
    complete_path,
    not_found_error,
    open_files_at,
    parse_files_path,
)
from penstock.formats.files.lake.answers import FileEntry, FilesWritten
from penstock.formats.files.lake.calls import CopiedFile
from penstock.formats.files.lake.paths import FilesPath

if TYPE_CHECKING:
    from penstock.formats.files.lake.table import Files
    from penstock.lake.lake import Lake

SHOWN_MAX = 20
STANDARD_INPUT = "-"


class FilesChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a command changed in a table of files, or would change."""

    key: str
    """The key."""
    branch: str
    """The branch."""
    commit: str | None
    """The commit that did it; nothing for a dry run."""
    put: tuple[str, ...]
    """Paths that have new files."""
    removed: tuple[str, ...]
    """Paths and folders, these with a slash at their end, that are gone."""
    dry_run: bool
    """Whether nothing was changed in fact."""

    @classmethod
    def from_result(
        cls,
        key: str,
        branch: str,
        written: FilesWritten | None,
        paths: Sequence[str] = (),
        removed: Sequence[str] = (),
    ) -> FilesChange:
        return cls(
            key=key,
            branch=branch,
            commit=None if written is None or written.commit is None else written.commit.id,
            put=tuple(paths),
            removed=tuple(removed),
            dry_run=written is None,
        )


@declare_command(
    "put",
    prints=FilesChange,
    examples="""
$ penstock files put mon.csv raw.visits/day=1/
$ mkdir -p out/day=2 && cp mon.csv out/day=2/
$ penstock files put -r out/ raw.visits -m 'second load'
$ penstock files put mon.csv raw.visits/day=2/ --replace
$ echo done | penstock files put - raw.visits/_NOTE
""",
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=str))
@click.argument("target", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Put directories with all files in them.")
@click.option("--replace", is_flag=True, help="Remove all other files in the folder, in the same commit.")
@click.option("--dry-run", is_flag=True, help="Show what would be put, and change nothing.")
@branch_option
@add_message_option
@add_key_option
@pass_call
def files_put(
    call: CommandContext,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    replace: bool,
    dry_run: bool,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Upload files to a table in one commit. The table is created if it does not exist.

    One SOURCE becomes the file at PATH. If PATH ends with a slash, or only the table is given, files keep
    their names below it. A directory keeps its name too, unless it ends with a slash: then only its contents
    are uploaded. '-' reads standard input.
    """
    where = parse_files_path(target)
    puts = _find_upload_sources(sources, where, recursive)
    if replace and not where.is_folder:
        raise click.UsageError(
            f"'penstock files put --replace' replaces a whole folder: write the target as {target}/, or name "
            "only the table"
        )
    lake = call.open_lake()
    name = lake.branch(branch).name
    _check_no_folder(lake, where, name)
    written = None
    if not dry_run:
        data = {path: sys.stdin.buffer if source is None else source for path, source in puts.items()}
        with WaitingLine(f"putting {format_count(len(puts), 'file')}", call.json):
            written = lake.table(where.key, name).files.write(
                data,
                replace=(where.prefix,) if replace else (),
                message=message,
                author=call.commit_author,
                idempotency_key=idempotency_key,
            )
    _show_change(call, where, name, written, paths=list(puts), removed=[where.prefix] if replace else [])


def _check_no_folder(lake: Lake, where: FilesPath, branch: str) -> None:
    """A usage error for a file that would have the name of a folder: no directory can have both."""
    with suppress(KeyNotFound):
        if not where.is_folder and lake.table(where.key, branch).files.list(where.path, limit=1):
            path = where.replace_path(where.path)
            raise click.UsageError(f"{path} is a folder: write {path}/ to put files into it")


def _find_upload_sources(sources: Sequence[str], where: FilesPath, recursive: bool) -> dict[str, Path | None]:
    """What goes to which path; ``None`` stands for standard input. A usage error if it cannot be told."""
    paths: dict[str, Path | None] = {}
    for source in sources:
        if source == STANDARD_INPUT:
            if where.is_folder or len(sources) > 1:
                raise click.UsageError("a file from standard input needs a name: write TABLE/PATH")
            return {where.path: None}
        for name, file in _list_source_files(source, recursive):
            path = where.prefix + name
            if not where.is_folder and len(sources) == 1 and not Path(source).is_dir():
                path = where.path
            elif not where.is_folder:
                raise click.UsageError(
                    f"several files need a folder: write {where.replace_path(where.path)}/"
                )
            if path in paths:
                raise click.UsageError(f"two of these files would have the path '{path}'")
            paths[path] = file
    if not paths:
        raise click.UsageError("the given directories contain no file")
    return paths


def _list_source_files(source: str, recursive: bool) -> Iterator[tuple[str, Path]]:
    """The files of a source, each with its name below the target folder."""
    path = Path(source)
    if not path.exists():
        raise click.UsageError(f"there is no file {source}")
    if not path.is_dir():
        yield path.name, _require_regular_file(path)
        return
    if not recursive:
        raise click.UsageError(f"{source} is a directory: use -r to put its files")
    base = path if source.endswith(("/", "/.")) or path.name in ("", "..") else path.parent
    for folder, below, names in os.walk(path, onerror=_raise_unreadable):
        below.sort()
        for name in below:
            if Path(folder, name).is_symlink():
                raise InvalidRequest(
                    f"{Path(folder, name)} is a link to a directory: put that directory separately"
                )
        for name in sorted(names):
            file = _require_regular_file(Path(folder, name))
            yield file.relative_to(base).as_posix(), file


def _require_regular_file(file: Path) -> Path:
    """A file that has an end; ``InvalidRequest`` for what may have none, or leads nowhere."""
    if not file.is_file():
        raise InvalidRequest(f"{file} is not a regular file; '-' puts the content of standard input")
    return file


def _raise_unreadable(problem: OSError) -> None:
    """What is not seen would be missing afterwards, without a word."""
    raise InvalidRequest(f"{problem.filename} cannot be read: {problem.strerror}; nothing was put")


@declare_command(
    "cp",
    prints=FilesChange,
    examples="""
$ penstock files cp raw.visits/day=2/mon.csv raw.visits/day=3/mon.csv
$ penstock files cp -r raw.visits/day=2/ raw.archive/
$ penstock files cp --from main~1 raw.visits/day=2/mon.csv raw.visits/day=2/mon.csv
""",
)
@click.argument("source", metavar="TABLE/PATH", shell_complete=complete_path)
@click.argument("target", metavar="TABLE[/PATH]", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Include a folder with all files in it.")
@click.option(
    "--from",
    "ref",
    metavar="REVISION",
    shell_complete=complete_revision,
    help="The revision to copy from, such as main~3. [the branch]",
)
@branch_option
@add_message_option
@add_key_option
@pass_call
def files_cp(
    call: CommandContext,
    source: str,
    target: str,
    recursive: bool,
    ref: str | None,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Copy files to other paths, in any table, in one commit. No bytes are copied.

    A folder's files keep their names below the target.
    """
    lake, origin, where = call.open_lake(), parse_files_path(source), parse_files_path(target)
    name = lake.branch(branch).name
    pairs = _pair_files_with_paths(
        open_files_at(lake, origin, ref or name), origin, where, recursive, ref or name
    )
    key = None if origin.key == where.key else origin.key
    written = lake.table(where.key, name).files.write(
        copy=[CopiedFile(path=to, source=entry.path, key=key, at=ref) for entry, to in pairs],
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    _show_change(call, where, name, written, paths=[to for _, to in pairs])


@declare_command(
    "mv",
    prints=FilesChange,
    examples="""
$ penstock files mv raw.visits/day=3/mon.csv raw.visits/day=4/mon.csv
$ penstock files mv -r raw.visits/day=4/ raw.visits/day=5/
""",
)
@click.argument("source", metavar="TABLE/PATH", shell_complete=complete_path)
@click.argument("target", metavar="TABLE/PATH", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Include a folder with all files in it.")
@branch_option
@add_message_option
@add_key_option
@pass_call
def files_mv(
    call: CommandContext,
    source: str,
    target: str,
    recursive: bool,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Move files of a table to other paths, in one commit. No bytes are copied."""
    lake, origin, where = call.open_lake(), parse_files_path(source), parse_files_path(target)
    if origin.key != where.key:
        raise click.UsageError(
            f"cannot move files from '{origin.key}' to '{where.key}' in one commit: use 'cp', then 'rm'"
        )
    name = lake.branch(branch).name
    pairs = _pair_files_with_paths(open_files_at(lake, origin, name), origin, where, recursive, name)
    targets = {to for _, to in pairs}
    moved = [entry for entry, _ in pairs if entry.path not in targets]
    written = lake.table(where.key, name).files.write(
        copy=[CopiedFile(path=to, source=entry.path) for entry, to in pairs],
        remove=[entry.path for entry in moved],
        matching=moved,
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    _show_change(
        call, where, name, written, paths=[to for _, to in pairs], removed=[entry.path for entry in moved]
    )


def _pair_files_with_paths(
    files: Files, origin: FilesPath, path: FilesPath, recursive: bool, ref: str
) -> list[tuple[FileEntry, str]]:
    """Which file is to be at which path; ``FileNotFound`` if there is none."""
    if not origin.is_folder and files.exists(origin.path):
        name = origin.path.rpartition("/")[2]
        return [(files.stat(origin.path), path.prefix + name if path.is_folder else path.path)]
    prefix = files.list(origin.prefix)
    if not prefix:
        raise not_found_error(origin, ref)
    if not recursive:
        raise click.UsageError(f"{origin.replace_path(origin.path)} is a folder: use -r to copy its files")
    return [(entry, path.prefix + entry.path.removeprefix(origin.prefix)) for entry in prefix]


@declare_command(
    "rm",
    prints=FilesChange,
    examples="""
$ penstock files rm raw.visits/_NOTE
$ penstock files rm -r raw.visits/day=5/ --dry-run
$ penstock files rm -r raw.visits/day=5/ -m 'loaded twice'
""",
)
@click.argument("places", nargs=-1, required=True, metavar="TABLE/PATH...", shell_complete=complete_path)
@click.option("-r", "--recursive", is_flag=True, help="Remove folders with all files in them.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@branch_option
@add_message_option
@add_key_option
@pass_call
def files_rm(
    call: CommandContext,
    places: tuple[str, ...],
    recursive: bool,
    dry_run: bool,
    branch: str | None,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Remove files of a table, all in one commit. Earlier commits still have them.

    A folder is removed with the files that it has when the commit is applied. A table without files stays in
    the lake; 'penstock delete' drops it.
    """
    lake, files_paths = call.open_lake(), [parse_files_path(place) for place in places]
    where = files_paths[0]
    for files_path in files_paths:
        if files_path.key != where.key:
            raise click.UsageError(
                f"cannot remove files of '{where.key}' and '{files_path.key}' in one commit: run the command "
                "once for each table"
            )
    name = lake.branch(branch).name
    files = open_files_at(lake, where, name)
    paths, folders = list[str](), list[str]()
    for files_path in files_paths:
        if not files_path.is_folder and files.exists(files_path.path):
            paths.append(files_path.path)
        elif files_path.path and not files.list(files_path.prefix, limit=1):
            raise not_found_error(files_path, name)
        elif not recursive:
            raise click.UsageError(
                f"{files_path.replace_path(files_path.path)} is a folder: use -r to remove its files"
            )
        else:
            folders.append(files_path.prefix)
    if dry_run:
        removed_paths = {file.path: None for prefix in folders for file in files.walk(prefix)}
        _show_change(call, where, name, None, removed=list(dict.fromkeys(paths) | removed_paths))
        return
    written = lake.table(where.key, name).files.write(
        remove=[path for path in dict.fromkeys(paths) if not path.startswith(tuple(folders))],
        replace=list(dict.fromkeys(folders)),
        message=message,
        author=call.commit_author,
        idempotency_key=idempotency_key,
    )
    _show_change(call, where, name, written, removed=paths + folders)


def _show_change(
    call: CommandContext,
    where: FilesPath,
    branch: str,
    written: FilesWritten | None,
    paths: Sequence[str] = (),
    removed: Sequence[str] = (),
) -> None:
    def render_text(screen: Screen) -> Iterator[str]:
        if written is None:
            yield "dry run: nothing was changed"
        elif written.commit is None:
            yield "nothing to do"
        else:
            commit = screen.style(shorten_id(written.commit.id), "id")
            yield f"committed {commit} to {screen.style(branch, 'name')}"
        lines = [("-", path or "all files", "removed") for path in removed]
        lines += [("+", path, "added") for path in paths]
        for sign, path, style in lines[:SHOWN_MAX]:
            yield screen.style(f"  {sign} {escape_controls(path)}", style)
        if len(lines) > SHOWN_MAX:
            yield screen.replace_unsupported(f"  … {len(lines) - SHOWN_MAX:,} more")

    call.print_answer(
        lambda: FilesChange.from_result(str(where.key), branch, written, paths, removed), render_text
    )
