"""Where a file is, written as one text: ``raw.events/day=1/part-0.parquet``, ``raw.events@dev/day=1``.

The table's key comes first, then a revision if one is meant, then the path in the table. A revision that has
a slash in its name cannot be written in this form, so functions that take a path also take a revision.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import InvalidRequest
from penstock.formats.files.files import check_prefix
from penstock.model.keys import Key


class FilesPath(NamedTuple):
    """A table, and a file or folder of it."""

    table: str
    """As it was written, with its revision."""
    key: Key
    ref: str | None
    path: str
    """Without a slash at its end; empty for the whole table."""
    is_folder: bool = False
    """Whether it was written as a folder, with a slash at its end, or is the whole table."""

    @property
    def prefix(self) -> str:
        """How the paths of the files in it begin, if it is a folder."""
        return normalise_folder(self.path)

    def replace_path(self, path: str) -> str:
        """The text ``TABLE/PATH`` of another path of the same table."""
        return f"{self.table}/{path}" if path else self.table


def check_folder(folder: str) -> str:
    """A folder of a table, with a slash at its end; ``InvalidRequest`` if it can be none."""
    return check_prefix(normalise_folder(folder))


def parse_path(text: str) -> FilesPath:
    """Parse a path of this form; ``InvalidRequest`` or ``InvalidKey`` if the text is invalid."""
    end = _find_outside_quotes(text, "/")
    table, path = (text, "") if end is None else (text[:end], text[end + 1 :])
    at = _find_outside_quotes(table, "@")
    key, ref = (table, None) if at is None else (table[:at], table[at + 1 :])
    if ref == "":
        raise InvalidRequest(f"{text!r}: no revision follows the '@'")
    return FilesPath(table, Key.parse(key), ref, path.rstrip("/"), not path or path.endswith("/"))


def normalise_folder(text: str) -> str:
    """A folder as the paths in it begin: the slash at its end may be left out. Nothing is the whole table."""
    return text if not text or text.endswith("/") else f"{text}/"


def quote_table_key(key: Key) -> str:
    """A key as it stands at the beginning of such a text: in quotes where it would be read otherwise."""
    return ".".join(
        '"' + element.replace('"', '""') + '"' if set(element) & set('."/@') else element for element in key
    )


def _find_outside_quotes(text: str, char: str) -> int | None:
    """Where a character stands for the first time that is in no quotes."""
    in_quotes = False
    for position, character in enumerate(text):
        if character == '"':
            in_quotes = not in_quotes  # a doubled one leaves and enters again
        elif character == char and not in_quotes:
            return position
    return None
