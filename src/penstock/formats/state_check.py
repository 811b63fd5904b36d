"""Checks what formats have in common that keep a table's state in its content, and the rest in a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from penstock.errors import Damaged
from penstock.model.content import ManagedTable

C = TypeVar("C", bound=ManagedTable)
S = TypeVar("S", bound=msgspec.Struct)


def check_state(
    key: str, content: C, read: Callable[[C], S], write: Callable[[C, S], C]
) -> tuple[S | None, list[tuple[str, str]]]:
    """The state of a table, and what is wrong with it, by the key. Without a state it cannot be read."""
    try:
        state = read(content)
    except Damaged as damaged:
        return None, [(key, damaged.message)]
    if write(content, state).held != content.held:
        return state, [(key, "does not hold the tree of its state")]
    return state, []
