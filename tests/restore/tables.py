"""Tables of each format, what is written to them, and what other programs read of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import duckdb
import lance
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.table import Table

FORMATS = ("delta", "lance", "files")
Rows = list[int]


def key_of(format_name: str, name: str = "t") -> str:
    return f"{format_name}.{name}"


def write(lake: Lake, key: str, rows: Rows, *, mode: str = "append", ref: str | None = None) -> str:
    """Write rows to a table, whose format its key begins with; returns the branch's head then."""
    format_name = key.partition(".")[0]
    chosen = "parquet" if format_name == "files" else format_name
    lake.table(key, ref).write({"id": rows}, mode=mode, format=chosen)
    return lake.branch(ref).head


def rows_of(lake: Lake, key: str, ref: str | None = None) -> Rows:
    """What the lake reads, at any revision."""
    at = lake.at(ref) if ref is not None else lake.branch().snapshot()
    return sorted(at.table(key).to_arrow()["id"].to_pylist())


def rows_for_others(lake: Lake, key: str) -> Rows:
    """What programs read of a table of the default branch that never heard of the lake."""
    if isinstance(lake.catalogue, Embedded):  # a server does it by itself
        lake.finish_background(30)
    elif key.startswith("delta."):
        lake.table(key).backfill_to_version()
    table = lake.table(key)
    if key.startswith("files."):
        return _rows_of_files(table)
    if key.startswith("lance."):
        return sorted(lance.dataset(table.location).to_table()["id"].to_pylist())
    by_deltalake = sorted(deltalake.DeltaTable(table.location).to_pyarrow_table()["id"].to_pylist())
    dataset: Any = deltalake.DeltaTable(table.location).to_pyarrow_dataset()
    assert by_deltalake == sorted(one for (one,) in duckdb.from_arrow(dataset).fetchall())
    return by_deltalake


def _rows_of_files(table: Table) -> Rows:
    found = [one.address for one in table.files.list() if one.path.endswith(".parquet")]
    if not found:
        return []
    return sorted(one for (one,) in duckdb.read_parquet(found).fetchall())


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, by what would tell that it was written."""
    found = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {str(path): (about.st_size, about.st_mtime_ns) for path, about in found}


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})
