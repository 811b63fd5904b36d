"""What a page asks of rows, and what it is answered: all of it bounded, and values as text."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from penstock.lake.answers import SizeCount, VersionSize

ROWS_MAX: Final = 100
"""On one page."""
OFFSET_MAX: Final = 10_000
"""Rows before those of a page: they are read too. Whoever wants to see others names a condition."""
COLUMNS_MAX: Final = 100
VALUE_MAX_CHARS: Final = 300
FILES_MAX: Final = 50
"""Files on one page."""


class RowRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One question about rows or files of a table, or one query."""

    kind: Literal["rows", "diff", "file_diff", "table", "figures", "sql", "expectations"]
    who: str = ""
    page_max: int | None = None
    ref: str
    """The revision; of a difference the second one."""
    base: str = ""
    """Of a difference the first one."""
    key: str = ""
    sql: tuple[str, ...] = ()
    where: str = ""
    on: tuple[str, ...] = ()
    """The columns that identify a row."""
    offset: int = 0
    limit: int = ROWS_MAX


class ShownColumn(msgspec.Struct, frozen=True):
    """A column."""

    name: str
    type: str
    is_number: bool = False
    nullable: bool = True


class ShownRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, of which every value is text that may be cut; ``None`` is null."""

    columns: tuple[ShownColumn, ...] = ()
    columns_total: int = 0
    rows: tuple[tuple[str | None, ...], ...] = ()
    total: int | None = None
    """How many there are, if that is known."""
    has_more: bool = False


class ShownDiff(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that differ. The first column of each says what became of it."""

    rows: ShownRows
    added: int
    removed: int
    changed: int
    added_columns: tuple[str, ...] = ()
    removed_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    """Those that both sides have, which may identify a row."""


class ShownBounds(msgspec.Struct, frozen=True):
    """What statistics say of a column in a file."""

    column: str
    lowest: str = ""
    highest: str = ""
    nulls: str = ""


class ShownFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table."""

    path: str
    size_bytes: int | None = None
    rows: int | None = None
    partition: str = ""
    bounds: tuple[ShownBounds, ...] = ()
    change: str = ""
    """In a difference: ``+``, ``-`` or ``~``."""


class ShownFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a table, and how many there are."""

    files: tuple[ShownFile, ...] = ()
    total: int = 0
    total_bytes: int = 0
    sizes: tuple[SizeCount, ...] = ()
    are_all: bool = True


class ShownVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a table."""

    version: int
    time: str = ""
    operation: str = ""
    details: str = ""
    size_bytes: int | None = None


class ShownTable(msgspec.Struct, frozen=True, kw_only=True):
    """What a table is."""

    columns: tuple[ShownColumn, ...] = ()
    rows: int | None = None
    facts: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    versions: tuple[ShownVersion, ...] = ()
    growth: tuple[VersionSize, ...] = ()
    files: ShownFiles = ShownFiles()


class ShownExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """What a query of an expectation finds."""

    problem: str = ""
    """Why it cannot be asked."""
    rows: ShownRows = ShownRows()
