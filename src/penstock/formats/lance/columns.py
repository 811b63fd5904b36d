"""Columns: whether rows that were written for the columns of one version can be read with those of another.

Lance finds a column in a data file by its number. A file without it has nulls there, and one with a column
that the table does not have any more is read without it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.wire import Message

_NAME: Final = 2
_ID: Final = 3
_PARENT: Final = 4
_NULLABLE: Final = 6
_NO_PARENT: Final = 2**64 - 1


class _Column(NamedTuple):
    name: str
    parent: int
    is_nullable: bool
    rest: Message
    """Whatever else is said of it."""


def why_not_read(written: Manifest, read: Manifest) -> str | None:
    """Why rows that were written for the columns of one version do not fit those of another, if so.

    The reason continues a sentence about one of two sides.
    """
    then, now = _columns(written), _columns(read)
    dropped = {then[number].name for number in then.keys() - now.keys()}
    for number, column in now.items():
        before = then.get(number)
        if before is not None:
            if before._replace(name=column.name) != column:
                return f"its column '{column.name}' is another one"
        elif column.name in dropped:
            return f"its column '{column.name}' was replaced"
        elif column.parent in then or not column.is_nullable:
            return f"it got a column '{column.name}' that other rows cannot be without"
    return None


def has_more_columns(one: Manifest, other: Manifest) -> bool:
    return bool(_columns(one).keys() - _columns(other).keys())


def _columns(manifest: Manifest) -> dict[int, _Column]:
    found: dict[int, _Column] = {}
    for field in map(Message.read, manifest.schema[0]):
        parent = field.number(_PARENT)
        found[field.number(_ID) or 0] = _Column(
            field.text(_NAME) or "",
            _NO_PARENT if parent is None else parent,
            bool(field.number(_NULLABLE)),
            field.having(_NAME),
        )
    return found
