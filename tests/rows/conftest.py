"""A lake with a table of each format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.formats.rows.arrow_types import pa
from penstock.lake.lake import Lake

ROWS = pa.table({"id": [1, 2, 3, 4], "day": ["a", "a", "b", None], "amount": [1.5, None, 3.5, 4.5]})
KEYS = {
    "delta": "sales.orders",
    "lance": "sales.vectors",
    "parquet": "raw.events",
    "csv": "raw.lines",
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Every table has the rows ``ROWS``, in two files."""
    with penstock.open(tmp_path / "lake", create=True, author="tester") as lake:
        for format_name, key in KEYS.items():
            lake.table(key).write(ROWS.slice(0, 2), format=format_name)
            lake.table(key).write(ROWS.slice(2), mode="append")
        yield lake
