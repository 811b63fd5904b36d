"""Tables of files for tests of reading: what lies in a directory, kept by a lake under the same paths."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from penstock.formats.files.files import make_folder_name
from penstock.formats.files.lake.answers import FilesWritten, TableLayout
from penstock.formats.files.lake.calls import NewFile, WriteFiles
from penstock.lake.lake import Lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.storage.places import POOL


def keep(
    lake: Lake,
    directory: Path,
    key: str = "raw.events",
    *,
    branch: str | None = None,
    layout: TableLayout | None = None,
    replaced: tuple[str, ...] = (),
    names: Mapping[str, str] | None = None,
) -> FilesWritten:
    """Put the files of a directory into the lake's pool, and add them to a table in one commit.

    ``names`` are the names below the job's folder of some paths, where they are to lie under others.
    """
    folder = make_folder_name(lake.id, uuid4(), now_us())
    home = Path(lake.warehouse, POOL, folder)
    added = []
    for file in sorted(directory.rglob("*")):
        if file.is_file() and not file.name.endswith(".crc"):
            path = file.relative_to(directory).as_posix()
            name = (names or {}).get(path, path)
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, home / name)
            added.append(NewFile(path=path, name=name, size=file.stat().st_size, modified_us=now_us()))
    call = WriteFiles(
        key=Key.parse(key),
        branch=branch,
        folder=folder,
        added=tuple(added),
        layout=layout,
        replaced=replaced,
    )
    return lake.do(call)


def put(directory: Path, files: Mapping[str, str]) -> Path:
    """Make a directory of text files."""
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, "utf-8")
    return directory
