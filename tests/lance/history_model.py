"""What Lance tables on branches hold, by sets of rows: too simple to be wrong.

No row is ever written twice, so that of a row that one branch has and another has not, it is known which
of the two it is: added there, or deleted here. A merge needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias


class Held(NamedTuple):
    """A table on a branch."""

    rows: frozenset[int] = frozenset()
    seen: frozenset[int] = frozenset()
    """Every row that it ever had there."""

    def changed(self, added: Iterable[int], deleted: Iterable[int]) -> Held:
        added = frozenset(added)
        return Held((self.rows | added) - frozenset(deleted), self.seen | added)

    @property
    def gone(self) -> frozenset[int]:
        return self.seen - self.rows


Tables: TypeAlias = Mapping[str, Held]
"""All tables of a branch, by name."""


class Change(NamedTuple):
    """What a statement does to a table."""

    table: str
    added: frozenset[int] = frozenset()
    deleted: frozenset[int] = frozenset()


def applied(tables: Tables, changes: Iterable[Change]) -> Tables:
    found = dict(tables)
    for one in changes:
        found[one.table] = found.get(one.table, Held()).changed(one.added, one.deleted)
    return found


def merged(target: Tables, source: Tables) -> Tables:
    """The target with what the source has done."""
    found = {}
    for name in (*target, *(name for name in source if name not in target)):
        ours, theirs = target.get(name, Held()), source.get(name, Held())
        found[name] = Held((ours.rows | theirs.rows) - ours.gone - theirs.gone, ours.seen | theirs.seen)
    return found


def shown(tables: Tables) -> dict[str, list[int]]:
    """The rows of every table, as a reader finds them."""
    return {name: sorted(one.rows) for name, one in tables.items()}
