"""Rows with numbers, and those that a table has."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

from penstock import Lake


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def numbers_in(table: pa.Table) -> list[int]:
    return sorted(table["id"].to_pylist())


def numbers(lake: Lake, key: str = "a.t", ref: str = "main") -> list[int]:
    """The rows of a table, as the lake reads them."""
    return numbers_in(lake.at(ref).table(key).to_arrow())
