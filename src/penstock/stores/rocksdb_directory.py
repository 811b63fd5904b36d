"""The directory of a lake in RocksDB: whose it is, and which version it has.

``penstock`` says that, and is written first; ``rocksdb/`` is RocksDB's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from penstock.errors import Damaged, InvalidRequest, LakeNotFound, UnsupportedFormat

SCHEMA_VERSION: Final = 1
VERSION_FILE: Final = "penstock"
VERSION_DRAFT: Final = "penstock.draft"
DATA_DIRECTORY: Final = "rocksdb"
_VERSION = re.compile(r"A Penstock lake in RocksDB, version (\d+)\n")


def claim_directory(path: Path, create: bool) -> None:
    """Make the directory a lake's, or see that it is one; leave alone what belongs to somebody else.

    The version is written before anything else, so that a lake whose making was cut short can be told from
    another program's directory, and be finished.
    """
    missing = LakeNotFound(
        f"there is no lake at {path}; make one: penstock init rocksdb://{path}", path=str(path)
    )
    if path.exists() and not path.is_dir():
        raise InvalidRequest(f"{path} is a file; a lake in RocksDB is a directory")
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if VERSION_FILE in names:
        _check_version(path)
        # Before it has written these, RocksDB has nothing to lose.
        data = path / DATA_DIRECTORY
        if not create and not (data / "CURRENT").exists() and not any(data.glob("*.log")):
            raise missing
        return
    if not all(name.startswith(VERSION_DRAFT) for name in names):
        raise InvalidRequest(f"{path} is a directory with other files in it, but not a lake in RocksDB")
    if not create:
        raise missing
    path.mkdir(parents=True, exist_ok=True)
    draft_path = path / f"{VERSION_DRAFT}.{os.getpid()}"
    with draft_path.open("w") as draft:
        draft.write(f"A Penstock lake in RocksDB, version {SCHEMA_VERSION}\n")
        draft.flush()
        os.fsync(draft.fileno())
    draft_path.replace(path / VERSION_FILE)
    for directory in (path, path.parent):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_version(path: Path) -> None:
    text = (path / VERSION_FILE).read_text(errors="replace")
    match = _VERSION.fullmatch(text)
    if match is None:
        raise Damaged(f"{path / VERSION_FILE} does not contain the version of the lake", path=str(path))
    version = int(match[1])
    if version > SCHEMA_VERSION:
        raise UnsupportedFormat(
            f"{path} has schema version {version}; this Penstock reads versions up to {SCHEMA_VERSION}. Use "
            "a newer Penstock.",
            found=version,
            known=SCHEMA_VERSION,
        )
