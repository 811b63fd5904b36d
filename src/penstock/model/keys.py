"""Keys: where in the lake something is.

A key is a path of elements, such as ``sales.orders``. Stored, the elements are joined by a zero byte, so
that keys sort by their UTF-8 bytes and everything below a namespace follows it directly. (Nessie sorts by
UTF-16 code units; the order differs only for characters beyond the basic plane.)
"""

from __future__ import annotations

from typing import Final

from penstock.errors import InvalidKey

ELEMENTS_MAX: Final = 20
LENGTH_MAX_CHARS: Final = 500

RESERVED: Final = b"\x01"
"""Stored keys that begin with this byte belong to Penstock itself. No key of a user can."""


class Key(tuple[str, ...]):
    """A path of one to twenty elements.

    >>> Key("sales", "orders")
    Key('sales.orders')
    >>> Key.parse('sales."2026.11"').elements
    ('sales', '2026.11')
    """

    __slots__ = ()

    def __new__(cls, *elements: str) -> Key:
        _check_elements(elements)
        return super().__new__(cls, elements)

    @classmethod
    def parse(cls, text: str | Key) -> Key:
        """Read ``a.b.c``; an element that contains a dot or a quote stands in double quotes."""
        return text if isinstance(text, Key) else cls(*_split_elements(text))

    @classmethod
    def decode(cls, stored: bytes) -> Key:
        """The key behind stored bytes; it was checked when it was stored."""
        return tuple.__new__(cls, stored.decode().split("\0"))

    def encode(self) -> bytes:
        """The bytes under which the key is stored and sorted."""
        return "\0".join(self).encode()

    @property
    def elements(self) -> tuple[str, ...]:
        return tuple(self)

    @property
    def parents(self) -> tuple[Key, ...]:
        """The namespaces that must exist for this key, outermost first."""
        return tuple(tuple.__new__(Key, self[:end]) for end in range(1, len(self)))

    def __str__(self) -> str:
        return ".".join(_quote_element(element) for element in self)

    def __repr__(self) -> str:
        return f"Key({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Key, tuple(self))


def _check_elements(elements: tuple[str, ...]) -> None:
    if not elements:
        raise InvalidKey("a key needs at least one element")
    if len(elements) > ELEMENTS_MAX:
        raise InvalidKey(f"a key can have at most {ELEMENTS_MAX} elements, got {len(elements)}")
    length = 0
    for element in elements:
        if not isinstance(element, str):
            raise InvalidKey(f"the elements of a key must be strings, got {type(element).__name__}")
        if not element:
            raise InvalidKey(f"key {elements!r} has an empty element")
        length += len(element)
        if not element.isprintable() and any(ord(char) < 0x20 or ord(char) == 0x7F for char in element):
            raise InvalidKey(f"key {elements!r} contains a control character")
    try:
        "".join(elements).encode()
    except UnicodeEncodeError:
        raise InvalidKey(f"key {elements!a} is not valid Unicode") from None
    if length + len(elements) - 1 > LENGTH_MAX_CHARS:
        raise InvalidKey(
            f"a key can have at most {LENGTH_MAX_CHARS} characters; this one begins with {elements[0][:40]!r}"
        )


def _quote_element(element: str) -> str:
    if "." in element or '"' in element:
        return '"' + element.replace('"', '""') + '"'
    return element


def _split_elements(text: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidKey(f"a key must be a string, got {type(text).__name__}")
    if '"' not in text:
        return text.split(".")
    elements, position = [], 0
    while True:
        if text[position : position + 1] == '"':
            element, position = _read_quoted(text, position)
        else:
            end = text.find(".", position)
            end = len(text) if end < 0 else end
            element, position = text[position:end], end
        elements.append(element)
        if position == len(text):
            return elements
        if text[position] != ".":
            raise InvalidKey(f"key {text!r}: expected a dot after a quoted element")
        position += 1


def _read_quoted(text: str, start: int) -> tuple[str, int]:
    """The element in quotes that begins at ``start``, and the position after it."""
    position = start + 1
    while True:
        end = text.find('"', position)
        if end < 0:
            raise InvalidKey(f"key {text!r}: a quote is not closed")
        if text[end + 1 : end + 2] != '"':
            return text[start + 1 : end].replace('""', '"'), end + 1
        position = end + 2
