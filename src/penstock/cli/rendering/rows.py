"""Rows of tables, in columns that line up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.cli.rendering.screen import Screen, clip_text, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.formats.rows.row_values import to_text

VALUE_MAX_CELLS = 60


def format_rows(screen: Screen, header: Sequence[str], values: Sequence[Sequence[Any]]) -> Iterator[str]:
    """A line of names, and one for each row. On a terminal, long values are shortened."""
    table: list[Row] = [[StyledText(escape_controls(name), "dim") for name in header]]
    table += [[_format_cell(screen, value) for value in row] for row in values]
    yield from align_columns(screen, table)
    if not values:
        yield "no rows"


def _format_cell(screen: Screen, value: Any) -> str:
    text = escape_controls(to_text(value))
    return text if screen.width is None else clip_text(text, VALUE_MAX_CELLS)
