"""Lakes to erase from: a value to look for in every byte, and processes that state that nobody writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

import penstock
from penstock.kernel.settings import Settings
from penstock.lake.lake import Lake

MARKER = "MARKER-4711"
"""The value that has to be gone. No other text has it."""
ALONE = Settings(grace_s=0, data_grace_days=0, nobody_writes=True)
"""For a process that erases while nobody writes."""


def people(**others: list[Any]) -> pa.Table:
    return pa.table({"id": [1, 2, 3], "name": ["ada", MARKER, "zoe"], **others})


def where_is(root: Path, marker: str = MARKER) -> list[str]:
    """The files and folders below a folder whose names, bytes or rows have the marker."""
    while True:
        with suppress(FileNotFoundError):  # one went meanwhile, perhaps to another name: look again
            return sorted({str(one.relative_to(root)) for one in _found(root, marker)})


def _found(root: Path, marker: str) -> Iterator[Path]:
    for one in root.rglob("*"):
        if marker in one.name or (one.is_file() and marker.encode() in one.read_bytes()):
            yield one
        if one.suffix == ".parquet" and marker in str(pq.read_table(one).to_pylist()):
            yield one  # pages are compressed
        if one.suffix == ".lance" and one.is_file() and marker in _read_lance(one):
            yield one


def _read_lance(file: Path) -> str:
    """What is in a file of Lance's format, as text: of a row that is deleted, too."""
    from lance.file import LanceFileReader

    return str(LanceFileReader(str(file)).read_all().to_table().to_pylist())


def alone(path: Path) -> Lake:
    """The lake at a path, for an erase that waits for nothing."""
    return penstock.open(path, settings=ALONE, author="privacy")
