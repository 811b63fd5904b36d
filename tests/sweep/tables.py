"""Delta tables to sweep: what jobs leave behind, and a clock that goes on for days at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.formats.delta.protocol.actions import Metadata, decode_path, parse_action
from penstock.formats.delta.rows.file_writer import write_files
from penstock.lake.answers import SweptTable
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.clock import now_us

DAY_US = 86_400_000_000


class LateClock:
    """The machine's clock, so many days later: files that are written now are as old as that."""

    def __init__(self, days: float = 0.0) -> None:
        self.days = days

    def __call__(self) -> int:
        return now_us() + int(self.days * DAY_US)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(table: Table, version: int | None = None) -> list[int]:
    """The rows of a table, from its data files."""
    found: list[int] = table.snapshot(version).to_arrow()["id"].to_pylist()
    return sorted(found)


def root_of(table: Table) -> Path:
    return Path(table.get_commits().location)


def data_files(root: Path) -> set[str]:
    """The data files that are there, of whomever."""
    return {
        str(one.relative_to(root))
        for one in root.rglob("*.parquet")
        if "_delta_log" not in one.relative_to(root).parts
    }


def abandoned(
    lake: Lake, table: Table, *values: int, folder: str = "", days: float = 0.0, **columns: list[Any]
) -> set[str]:
    """Files that a job wrote for a table, so many days ago, and will never commit; their names.

    Ageing files and not the clock is for tests in which others write meanwhile: to a clock that is late their
    unfinished files look like those of the dead.
    """
    metadata = parse_action(table.get_commits().metadata.encode())
    assert isinstance(metadata, Metadata)
    place = lake.places.open_place(table.get_commits().location)
    data = pa.table({"id": pa.array(values or (-1,), pa.int64()), **columns})
    names = {decode_path(one.path) for one in write_files(place, metadata, data, prefix=folder)}
    for name in names if days else ():
        written_s = now_us() / 1e6 - days * 86_400
        os.utime(Path(place.url) / name, (written_s, written_s))
    return names


def only(found: list[SweptTable]) -> SweptTable:
    (one,) = found
    assert one.problem == "", one.problem
    return one
