"""What is written to: how wide it is, whether it has colours, which characters it knows, what time it is."""

from __future__ import annotations

import os
import shutil
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.environment import NO_COLOR

if TYPE_CHECKING:
    from typing import TextIO

STYLES: Final = {
    "id": "33",
    "name": "1;36",
    "added": "32",
    "removed": "31",
    "changed": "33",
    "dim": "2",
    "strong": "1",
    "good": "32",
    "warning": "33",
    "bad": "1;31",
}
_PLAIN: Final = {
    "●": "*",
    "│": "|",
    "─": "-",
    "╮": "\\",
    "╯": "/",
    "╭": "/",
    "╰": "\\",
    "├": "+",
    "┤": "+",
    "┬": "+",
    "┴": "+",
    "┼": "+",
    "→": "->",
    "…": "...",
}
_SPELLING: Final = str.maketrans(_PLAIN)


class Screen(NamedTuple):
    """Where text goes. ``width`` is ``None`` where lines may be as long as they like: a pipe or a file."""

    width: int | None = None
    colour: bool = False
    unicode: bool = True
    now: datetime = datetime(1970, 1, 1, tzinfo=UTC)

    @classmethod
    def of_stream(cls, stream: TextIO) -> Screen:
        """What a stream can show; colours are for terminals only, and only if nobody minds them."""
        terminal = stream.isatty()
        return cls(
            width=shutil.get_terminal_size().columns if terminal else None,
            colour=terminal and not os.environ.get(NO_COLOR) and os.environ.get("TERM") != "dumb",
            unicode=_can_encode(stream, "".join(_PLAIN)),
            now=datetime.now(UTC),
        )

    def style(self, text: str, style: str = "") -> str:
        """The text in a style, if there are colours."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour and style and text else text

    def replace_unsupported(self, text: str) -> str:
        """The text with lines and dots that the stream knows."""
        return text if self.unicode else text.translate(_SPELLING)


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def escape_controls(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey instead of show."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape_char(char) for char in text)


def _escape_char(char: str) -> str:
    return ascii(char)[1:-1]


def measure_width(text: str) -> int:
    """How many columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def pad_text(text: str, width: int) -> str:
    """The text with blanks up to a width."""
    return text + " " * (width - measure_width(text))


def clip_text(text: str, width: int) -> str:
    """The text, shortened to a width if it is longer."""
    if measure_width(text) <= width:
        return text
    clipped, room = "", width - 1
    for char in text:
        room -= measure_width(char)
        if room < 0:
            break
        clipped += char
    return clipped + "…"
