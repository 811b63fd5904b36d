"""Rows of a table as programs read them that never heard of Penstock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.product.model import Rows


class Readers:
    """deltalake, DuckDB and pylance, on the folders of tables."""

    def __init__(self) -> None:
        self._deltalake = pytest.importorskip("deltalake")
        self._lance = pytest.importorskip("lance")
        self._duckdb = _duckdb_with_delta()

    def delta(self, location: str, has_vectors: bool) -> dict[str, Rows]:
        """What each reader of Delta tables finds that knows what the table has."""
        found: dict[str, Rows] = {}
        if not has_vectors:
            engine = self._deltalake.QueryBuilder().register("t", self._deltalake.DeltaTable(location))
            found["deltalake"] = frozenset(pa.table(engine.execute("SELECT id FROM t"))["id"].to_pylist())
        if self._duckdb is not None:
            rows = self._duckdb.execute("SELECT id FROM delta_scan(?)", [location]).fetchall()
            found["DuckDB"] = frozenset(row for (row,) in rows)
        return found

    def lance(self, location: str) -> dict[str, Rows]:
        rows = self._lance.dataset(location).to_table(columns=["id"])["id"].to_pylist()
        return {"pylance": frozenset(rows)}

    def close(self) -> None:
        if self._duckdb is not None:
            self._duckdb.close()


def _duckdb_with_delta() -> Any:
    """DuckDB with its Delta extension as it comes from PyPI; ``None`` if it is not installed."""
    try:
        import duckdb
        import duckdb_extension_delta  # type: ignore[import-untyped]
    except ImportError:
        return None
    [extension] = Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    connection.execute(f"LOAD '{extension}'")
    return connection
