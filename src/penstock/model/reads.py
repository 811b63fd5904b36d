"""What a transaction has looked at: a table or a part of it, a key that holds nothing, names somewhere."""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.model.keys import Key

PARTS_MAX: Final = 32
"""Of so many parts of a table it is remembered that they were read, each by itself; beyond, that all was."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A read of a transaction: at a key, in the state that the transaction sees."""

    key: Key | None = None
    """``None`` for the lake as a whole, whose names were listed."""
    part: str | None = None
    """Which part of the table, in words of its format: a condition on its rows (Delta), a path inside of it
    (files). ``None`` if it was looked at as a whole, or if nothing was there."""
    is_listing: bool = False
    """Whether only the names at and below the key were read, not their contents."""
