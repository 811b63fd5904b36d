"""Where a job of Spark's writes files of a Delta table, and what its tasks tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.storage.places import Place

CHANGES: Final = "__is_cdc"
"""A column of booleans: whether a row is one of the change data feed. It comes before the partition
columns."""


BOUND_MAX_BYTES: Final = 512
"""How much of a text is told as a bound: more than any statistics keep of it."""


class JobTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job writes, and how."""

    place: Place
    """The table's."""
    partition_by: tuple[str, ...] = ()
    has_changes: bool = False
    """Whether the rows have the column ``CHANGES``."""
    subdirectory: str = ""
    """A folder below the table that all its files go into."""
    prefix_length: int = 0
    """The length of a random folder name that stands in for the partition's; 0 for none."""
    columns: tuple[tuple[str, ...], ...] = ()
    """Of which columns, or parts of structs, the bounds are wanted."""
    options: Mapping[str, str] = {}
    """For Spark's Parquet writer."""


class FooterColumn(msgspec.Struct, frozen=True):
    """What the footer of a file says of a column."""

    path: tuple[str, ...]
    type: str
    """How Parquet keeps its values, such as ``INT32``; empty if it does not say."""
    nulls: int
    """-1 if it does not say."""
    min: bytes | None = None
    """In Parquet's plain encoding, times in microseconds; of a long text the beginning, ``BOUND_MAX_BYTES``.
    ``None`` if the footer does not say."""
    max: bytes | None = None


class ParquetOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a job has written, as its task tells of it."""

    name: str
    """Below the table's root, as it is: not percent-encoded."""
    partition: str
    """The directory of its partition, as Spark spells it; empty without one."""
    size: int
    modified_ms: int

    is_change: bool = msgspec.field(name="isChange", default=False)
    """Whether its rows are of the change data feed."""
    rows: int = -1
    """-1 if its footer was not read."""
    columns: tuple[FooterColumn, ...] = ()
