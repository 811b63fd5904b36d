"""Content keys in paths and queries: Nessie's clients write them in three ways, all of which are read.

Elements are joined by dots. For a dot within an element older clients write the group separator (0x1D, or a
zero byte). Newer ones begin with a dot if an element contains a dot, a slash, a backslash or a percent sign,
and escape these with a star: ``.sales.2026*.11`` is the element ``2026.11`` below ``sales``.

Nessie sorts keys by UTF-16 code units, Penstock by UTF-8. The order of the two differs only for characters
beyond the basic plane.
"""

from __future__ import annotations

from typing import Final

from penstock.errors import InvalidKey
from penstock.model.keys import Key

_SEPARATORS: Final = str.maketrans({"\x1d": ".", "\0": "."})
_ESCAPES: Final = {".": ".", "*": "*", "{": "/", "}": "\\", "[": "%"}


def read_key(text: str) -> Key:
    """The key that a client wrote, in whichever way; ``InvalidKey`` if it cannot be one."""
    if text.startswith("."):
        return Key(*_split_escaped_elements(text))
    elements = text.removesuffix(".").split(".")
    return Key(*(element.translate(_SEPARATORS) for element in elements))


def write_separated_key(key: Key) -> str:
    """The key as older clients write it, and as filters see it."""
    return ".".join(element.replace(".", "\x1d") for element in key)


def quote_key(key: Key) -> str:
    """The key as messages name it."""
    return ".".join(key)


def _split_escaped_elements(text: str) -> list[str]:
    elements, element = [], ""
    characters = iter(text[1:])
    for char in characters:
        if char == ".":
            elements.append(element)
            element = ""
        elif char == "*":
            letter = next(characters, None)
            if letter is None:
                raise InvalidKey(f"Illegal escaping sequence at the end of encoded path: {text}")
            if letter not in _ESCAPES:
                raise InvalidKey(f"Illegal escaping sequence *{letter} in encoded path: {text}")
            element += _ESCAPES[letter]
        else:
            element += char
    return [*elements, element] if element else elements
