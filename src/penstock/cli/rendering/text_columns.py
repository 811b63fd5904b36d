"""Rows of text in columns that line up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from penstock.cli.rendering.screen import Screen, clip_text, measure_width

GAP = "  "
FLEXIBLE_MIN_CELLS = 12


class StyledText(NamedTuple):
    """Some text and how it is painted."""

    text: str
    style: str = ""


Row: TypeAlias = Sequence[StyledText | str]


def align_columns(
    screen: Screen,
    rows: Sequence[Row],
    *,
    indent: str = "",
    flexible: int | None = None,
) -> Iterator[str]:
    """Lines of which each column starts at the same place in all.

    Where they are wider than the screen, the ``flexible`` column is shortened. A column that is empty in all
    rows is left out.
    """
    table = [[cell if isinstance(cell, StyledText) else StyledText(cell) for cell in row] for row in rows]
    if not table:
        return
    widths = [max(measure_width(row[column].text) for row in table) for column in range(len(table[0]))]
    shown = [column for column, width in enumerate(widths) if width]
    if flexible is not None and screen.width is not None:
        flexible %= len(widths)
        used = measure_width(indent) + sum(widths[column] for column in shown) + len(GAP) * (len(shown) - 1)
        room = widths[flexible] - max(0, used - screen.width)
        widths[flexible] = min(widths[flexible], max(room, FLEXIBLE_MIN_CELLS))
    for row in table:
        yield screen.replace_unsupported(indent) + _format_line(
            screen, [row[column] for column in shown], [widths[i] for i in shown]
        )


def _format_line(screen: Screen, row: Sequence[StyledText], widths: Sequence[int]) -> str:
    while row and not row[-1].text:
        row = row[:-1]
    parts = []
    for number, (cell, width) in enumerate(zip(row, widths, strict=False)):
        text = screen.replace_unsupported(clip_text(cell.text, width))
        blanks = "" if number == len(row) - 1 else " " * (width - measure_width(text))
        parts.append(screen.style(text, cell.style) + blanks)
    return GAP.join(parts)


def fit_items_on_line(
    screen: Screen, items: Sequence[StyledText], *, indent: int = 0, gap: str = "   ", rest: str = "more"
) -> str:
    """Items one after the other on one line; as many as fit, then how many there are besides."""
    width = (screen.width if screen.width is not None else 120) - indent
    shown: list[StyledText] = []
    used = 0
    for number, item in enumerate(items):
        remaining = len(items) - number - 1
        needed = measure_width(item.text) + len(gap)
        if shown and used + needed + (len(f"… {remaining} {rest}") if remaining else 0) > width:
            break
        shown.append(item)
        used += needed
    line = gap.join(
        screen.style(screen.replace_unsupported(clip_text(item.text, max(width, 20))), item.style)
        for item in shown
    )
    remaining = len(items) - len(shown)
    return line + (gap + screen.replace_unsupported(f"… {remaining} {rest}") if remaining else "")
