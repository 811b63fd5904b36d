"""Small pieces of HTML for notebooks: every value is escaped, and colours are those of the notebook.

Nothing is loaded from elsewhere, and no script is part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

VALUE_MAX_CHARS: Final = 80
LINE_MAX_CHARS: Final = 500
CELL: Final = "padding:2px 8px;text-align:left;vertical-align:top;white-space:pre-wrap;border:none"
TABLE: Final = "border-collapse:collapse;margin:4px 0;background:transparent;font-size:90%"
RULE: Final = "border-bottom:1px solid rgba(128,128,128,.35)"
LINES: Final = "white-space:pre-wrap;margin:4px 8px;font-size:90%"
FADED: Final = "opacity:.65"
MONOSPACE: Final = "font-family:monospace;line-height:1.25;margin:4px 0;background:transparent;color:inherit"


def escape_text(value: object, limit: int = VALUE_MAX_CHARS) -> str:
    """A value as text that HTML shows as it is, shortened if it is long."""
    from html import escape  # it knows all 2,000 names of characters, and few programs are notebooks

    shown = "".join(
        char if char.isprintable() or char == "\n" else "\ufffd" for char in str(value)[: limit + 1]
    )
    return escape(shown if len(shown) <= limit else f"{shown[: limit - 1]}…", quote=True)


def show_heading(title: object, more: object = "") -> str:
    """The first line."""
    faded = f' <span style="{FADED}">{escape_text(more, LINE_MAX_CHARS)}</span>' if str(more) else ""
    return f"<div><strong>{escape_text(title)}</strong>{faded}</div>"


def show_line(value: object) -> str:
    """A line of text."""
    return f"<div>{escape_text(value, LINE_MAX_CHARS)}</div>"


def show_lines(values: Iterable[object]) -> str:
    """Lines of text; what is indented stays so."""
    shown = "\n".join(escape_text(value, LINE_MAX_CHARS) for value in values)
    return f'<div style="{LINES}">{shown}</div>'


def show_table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table. A cell that is ``None`` is shown as ``null``."""
    names = "".join(f'<th style="{CELL};{RULE}">{escape_text(name)}</th>' for name in header)
    lines = "".join(f"<tr>{''.join(map(_format_cell, row))}</tr>" for row in rows)
    head = f"<thead><tr>{names}</tr></thead>" if header else ""
    return f'<table style="{TABLE}">{head}<tbody>{lines}</tbody></table>'


def _format_cell(value: object) -> str:
    if value is None:
        return f'<td style="{CELL};{FADED}">null</td>'
    return f'<td style="{CELL}">{escape_text(value)}</td>'


def show_monospace(lines: Iterable[str]) -> str:
    """Lines of which every character has the same width."""
    shown = "\n".join(escape_text(item, LINE_MAX_CHARS) for item in lines)
    return f'<pre style="{MONOSPACE}">{shown}</pre>'


def show_progress_bar(what: object, share: object, count: int, total: int) -> str:
    """How far long work is; as a bar where it is known how much there is in all."""
    bar = f'<progress value="{count}" max="{total}"></progress> ' if total else ""
    return f"<div>{bar}{escape_text(what)}{escape_text(share)}</div>"


def show_block(*parts: str) -> str:
    """Everything that is shown of one thing."""
    return f'<div class="penstock">{"".join(parts)}</div>'
