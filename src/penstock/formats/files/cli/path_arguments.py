"""Places in tables of files, as commands are given them: ``TABLE``, ``TABLE/PATH``, ``TABLE/FOLDER/``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.completions import make_completer
from penstock.errors import FileNotFound, InvalidKey, InvalidRequest
from penstock.formats.files.files import is_managed
from penstock.formats.files.lake.calls import ListFiles
from penstock.formats.files.lake.paths import FilesPath, parse_path, quote_table_key
from penstock.lake.lake import Lake

if TYPE_CHECKING:
    from penstock.formats.files.lake.table import Files

OFFERED_MAX = 200


def parse_files_path(text: str, *, needs_path: bool = False) -> FilesPath:
    """A place as it was written; a usage error if it is none."""
    try:
        path = parse_path(text)
    except (InvalidKey, InvalidRequest) as wrong:
        raise click.UsageError(wrong.message) from wrong
    if path.ref is not None:
        raise click.UsageError(f"{text!r}: use --ref or --branch instead of '@{path.ref}'")
    if needs_path and path.is_folder:
        raise click.UsageError(f"{text!r} is not a file: write TABLE/PATH, as in raw.visits/day=1/mon.csv")
    return path


def open_files_at(lake: Lake, path: FilesPath, ref: str | None) -> Files:
    """The files of a table at the commit that a revision names now, so that all that is read is of one."""
    return lake.at(ref).table(path.key).files


def not_found_error(path: FilesPath, ref: str | None) -> FileNotFound:
    """The error for a place where nothing is."""
    at = "" if ref is None else f" at '{ref}'"
    return FileNotFound(f"'{path.key}' has no file at '{path.path}'{at}", table=str(path.key), path=path.path)


def _complete_paths(lake: Lake, start: str) -> list[str]:
    """Tables while the key is written, then what is in the folder that was come to."""
    if "/" not in start:
        keys = (quote_table_key(key) for key, content in lake.at().entries() if is_managed(content))
        return [f"{key}/" for key, _ in zip(keys, range(OFFERED_MAX), strict=False) if key.startswith(start)]
    place = parse_path(start)
    folder = place.prefix if place.is_folder else place.path.rpartition("/")[0]
    prefix = folder if not folder or folder.endswith("/") else f"{folder}/"
    list_files = ListFiles(key=place.key, prefix=prefix, folders=True, limit=OFFERED_MAX)
    return [
        name for entry in lake.do(list_files) if (name := place.replace_path(entry.path)).startswith(start)
    ]


complete_path = make_completer(_complete_paths)
