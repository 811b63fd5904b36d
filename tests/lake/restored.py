"""A lake whose database came back from a copy, while its tables went on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import lance
import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

import penstock
from penstock.errors import KeyNotFound, LakeNotFound
from penstock.lake.lake import Lake

FORMATS = ("delta", "lance")
KEYS = {"delta": "a.t", "lance": "a.v"}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids})


def ids(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def write(lake: Lake, kind: str, number: int, key: str = "", branch: str = "main") -> None:
    """Add a row to a table of a format, which is made if it is not there."""
    key = key or KEYS[kind]
    if kind == "delta":
        try:
            lake.branch(branch).table(key).append(rows(number))
        except (KeyNotFound, LakeNotFound):
            lake.create_table(key, data=rows(number), branch=branch)
    else:
        lake.branch(branch).table(key).write(rows(number), format="lance")


def location_of(lake: Lake, kind: str, key: str = "") -> str:
    table = lake.table(key or KEYS[kind])
    return str(table.location if kind == "delta" else table.to_lance().uri)


def read_outside(location: str, kind: str) -> list[list[int]]:
    """What other programs read, each of them."""
    if kind == "lance":
        return [ids(lance.dataset(location).to_table())]
    found = duckdb.sql(f"select id from delta_scan('{location}')").fetchall() if _has_delta() else None
    there = [ids(DeltaTable(location).to_pyarrow_table())]
    return there if found is None else [*there, sorted(one for (one,) in found)]


def _has_delta() -> bool:
    try:
        duckdb.sql("load delta")
    except duckdb.Error:
        return False
    return True


def copy_database(place: Path, copy: Path) -> None:
    with sqlite3.connect(place / "penstock.db") as database:
        database.execute("VACUUM INTO ?", (str(copy),))
    database.close()


def put_back(place: Path, copy: Path) -> None:
    for part in place.glob("penstock.db*"):
        part.unlink()
    shutil.copy(copy, place / "penstock.db")


def restore_lake(place: Path, before: Callable[[Lake], object], after: Callable[[Lake], object]) -> None:
    """Make a lake, copy its database, go on, and put the copy back."""
    copy = place.parent / f"{place.name}.copy.db"
    with penstock.open(place) as lake:
        before(lake)
        lake.finish_background()
    copy_database(place, copy)
    with penstock.open(place) as lake:
        after(lake)
        lake.finish_background()
    put_back(place, copy)
