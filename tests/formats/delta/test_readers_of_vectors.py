"""What other readers do with a table that has deletion vectors: why new tables have none (decision 0100)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

import penstock
from penstock.formats.delta.rows import vectors

READ = [number for number in range(100) if number % 10 != 3]


def make_table(root: Path, *, is_marked: bool, **properties: str) -> str:
    """A table that is published, and where it is."""
    with penstock.init(root / "lake") as lake:
        table = lake.delta.create("t", data=pa.table({"id": range(100)}), properties=properties)
        if is_marked:
            table.delete("id % 10 = 3")
        table.backfill_to_version()
        return str(table.location)


@pytest.mark.parametrize("is_inline", [True, False])
def test_readers_leave_out_marked_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_inline: bool
) -> None:
    monkeypatch.setattr(vectors, "INLINE_MAX_BYTES", 1024 if is_inline else 0)
    location = make_table(tmp_path, is_marked=True, **{"delta.enableDeletionVectors": "true"})
    assert bool(list(Path(location).glob("*.bin"))) != is_inline
    scanned: Any = pa.table(DeltaTable(location).scan())
    assert sorted(scanned["id"].to_pylist()) == READ
    polars = pytest.importorskip("polars")
    assert sorted(polars.scan_delta(location).collect()["id"].to_list()) == READ
    duckdb = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB's Delta extension is not here")
    (path,) = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": False}) as connection:
        connection.execute(f"LOAD '{path}'")
        found = connection.sql(f"SELECT id FROM delta_scan('{location}')").fetchall()
    assert sorted(one for (one,) in found) == READ


def test_deltalake_refuses_a_table_because_it_lists_the_feature(tmp_path: Path) -> None:
    location = make_table(tmp_path, is_marked=False, **{"delta.enableDeletionVectors": "true"})
    for read in (DeltaTable(location).to_pandas, DeltaTable(location).to_pyarrow_table):
        with pytest.raises(DeltaProtocolError, match="deletionVectors"):
            read()


def test_new_tables_do_not_list_it(tmp_path: Path) -> None:
    location = make_table(tmp_path, is_marked=True)
    assert sorted(DeltaTable(location).to_pyarrow_table()["id"].to_pylist()) == READ
