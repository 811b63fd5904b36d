"""The modules that a reader passes who follows one commit: those whose code the thread that commits runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

import penstock
from penstock.lake.lake import Lake
from tests.tidy.source import Source

ROOT: Final = f"{Path(penstock.__file__).parent}{os.sep}"
ROUNDS: Final = 3
"""So many commits come before the one that is followed: it finds all that it needs loaded and remembered."""

FIRST_COMMIT: Final = """
import sys
import penstock
with penstock.open(sys.argv[1]) as lake:
    lake.branch().put("sales.orders", penstock.IcebergTable(metadata_location="s3://warehouse/orders/1.json"))
print(*(name for name in sys.modules if name.startswith("penstock.")))
"""

Step = Callable[[], object]


def find_commit_path(_: Source) -> list[str]:
    """Those that a commit of one table to a lake in SQLite passes."""
    content = penstock.IcebergTable(
        metadata_location="s3://warehouse/orders/metadata/1.json", snapshot_id=1, schema_id=0, spec_id=0
    )
    return _follow_in_lake(lambda lake: lambda: lake.branch().put("sales.orders", content))


def find_append_path(_: Source) -> list[str]:
    """Those that an append of rows to a table of the default format passes."""
    rows = [{"id": 1}, {"id": 2}]

    def prepare(lake: Lake) -> Step:
        table = lake.branch().table("sales.orders")
        table.write(rows)
        return lambda: table.append(rows)

    return _follow_in_lake(prepare)


def find_loaded(_: Source) -> list[str]:
    """The modules that are loaded by a program which opens a lake in SQLite and commits one table."""
    with TemporaryDirectory() as directory:
        ran = subprocess.run(
            [sys.executable, "-c", FIRST_COMMIT, directory], capture_output=True, text=True, check=True
        )
    return ran.stdout.split()


def _follow_in_lake(prepare: Callable[[Lake], Step]) -> list[str]:
    with TemporaryDirectory() as directory, penstock.open(Path(directory) / "lake") as lake:
        step = prepare(lake)
        for _ in range(ROUNDS):
            step()
        return follow(step)


def follow(step: Step) -> list[str]:
    """The modules of the package whose functions this thread calls within a step."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    names = (file.removeprefix(ROOT).removesuffix(".py") for file in files if file.startswith(ROOT))
    return sorted(name.replace(os.sep, ".").removesuffix(".__init__") for name in names)
