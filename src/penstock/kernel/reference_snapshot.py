"""A cut: the references of a lake as they all were at one moment, while others move them.

Rows are read one after the other. One that is the same in two passes over all of them did not move between
the two. Those that did are read once more between the next two passes: at that moment all the others were as
the passes found them. So one busy branch, however busy, is no obstacle, and of several only they have to be
found at rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from penstock.kernel.records import list_rows_of_kind
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

LOOKS_MAX: Final = 10
"""How often references are read, to find them all at rest once."""


def read_consistent_rows(store: Store, kinds: Collection[Kind]) -> dict[str, Row]:
    """All rows of some kinds as they were at one moment, by name.

    If several of them never rest, each of these is as it was at some moment within the last look.
    """
    before = read_rows(store, kinds)
    busy: set[str] = set()
    for _ in range(LOOKS_MAX):
        between = _read_unchanging_rows(store, busy)
        after = read_rows(store, kinds)
        moved = {name for name in {*before, *after} if before.get(name) != after.get(name)}
        if moved <= busy:
            still = {name: row for name, row in after.items() if name not in busy}
            return still | {name: row for name, row in between.items() if row.kind in {*kinds}}
        busy |= moved
        before = after
    return before


def read_rows(store: Store, kinds: Iterable[Kind]) -> dict[str, Row]:
    """All rows of some kinds, each as it was at some moment."""
    return {row.name: row for kind in kinds for row in list_rows_of_kind(store, kind)}


def _read_unchanging_rows(store: Store, names: Collection[str]) -> dict[str, Row]:
    """Some rows at one moment, as far as they rest; those that are gone are left out."""
    rows = _read_rows(store, names)
    if len(names) > 1:
        for _ in range(LOOKS_MAX):
            before, rows = rows, _read_rows(store, names)
            if before == rows:
                break
    return rows


def _read_rows(store: Store, names: Collection[str]) -> dict[str, Row]:
    return {name: row for name in names if (row := store.reference(name)) is not None}
