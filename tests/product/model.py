"""A lake as plain sets of rows: what every commit holds, and what a merge, a revert or a restore may come to.

A row is a number that is never written twice. What two sides come to follows from sets of rows, whatever a
format did with files; where a format is free to decide, ``Bounds`` say what must be there and what may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

Rows: TypeAlias = frozenset[int]
Tables: TypeAlias = Mapping[str, Rows]
"""The rows of each table. A table that does not exist is not in it."""


class ModelCommit(NamedTuple):
    """A commit of the model."""

    id: str
    """As the lake calls it."""
    tables: Tables
    parents: tuple[str, ...] = ()
    overwritten: frozenset[str] = frozenset()
    """Tables that it, or what it merged or repeated, replaced as a whole, whatever was in them."""


class Bounds(NamedTuple):
    """Rows that a table must hold, and rows that it may hold."""

    must: Rows
    may: Rows

    def allow(self, rows: Rows) -> bool:
        return self.must <= rows <= self.may


class History:
    """All commits of the model, by id."""

    def __init__(self, first: ModelCommit) -> None:
        self._commits = {first.id: first}

    def __getitem__(self, commit: str) -> ModelCommit:
        return self._commits[commit]

    def __contains__(self, commit: str) -> bool:
        return commit in self._commits

    def add(self, commit: ModelCommit) -> None:
        self._commits[commit.id] = commit

    def ids(self) -> frozenset[str]:
        return frozenset(self._commits)

    def rows_ever(self, table: str) -> Rows:
        """All rows that a table had at any commit."""
        return frozenset[int]().union(*(one.tables.get(table, frozenset()) for one in self._commits.values()))

    def first_parents(self, head: str) -> Iterator[ModelCommit]:
        """The commits of a branch, newest first."""
        commit = self[head]
        yield commit
        while commit.parents:
            commit = self[commit.parents[0]]
            yield commit

    def ancestors(self, *heads: str) -> frozenset[str]:
        """All commits that lead to some of them, these included."""
        found: set[str] = set()
        waiting = [*heads]
        while waiting:
            commit = waiting.pop()
            if commit not in found:
                found.add(commit)
                waiting += self[commit].parents
        return frozenset(found)

    def merge_bases(self, one: str, other: str) -> list[str]:
        """The newest commits that both come from."""
        common = self.ancestors(one) & self.ancestors(other)
        older = {parent for commit in common for parent in self[commit].parents}
        return sorted(common - self.ancestors(*(older & common)) if older & common else common)

    def is_overwritten(self, table: str, commits: Iterable[str]) -> bool:
        return any(table in self[commit].overwritten for commit in commits)

    # -- what two sides come to --------------------------------------------------------------------------

    def merge(self, table: str, target: str, source: str) -> Bounds:
        """What a table may hold after a source was merged into a target."""
        bases = [self[one].tables.get(table, frozenset()) for one in self.merge_bases(target, source)]
        between = self.ancestors(source) ^ self.ancestors(target)
        bounds = self._but_known(table, target, self._meet(table, target, source, bases, between))
        # Of a commit that both had, an undo on the source may stand as well: the line of one side goes on.
        return self._but_known(table, source, bounds)

    def repeat(self, table: str, target: str, commit: str) -> Bounds:
        """What a table may hold after one commit was repeated on a target."""
        base = self[self[commit].parents[0]].tables.get(table, frozenset())
        return self._but_known(table, target, self._meet(table, target, commit, [base], {commit}))

    def _but_known(self, table: str, side: str, bounds: Bounds) -> Bounds:
        """Rows that a side had may stay away: it has decided otherwise since. They may come again where
        that was a revert."""
        now = self[side].tables.get(table, frozenset())
        return bounds._replace(must=bounds.must - (self._rows_before(table, side) - now))

    def _rows_before(self, table: str, head: str) -> Rows:
        past = self.ancestors(head)
        return frozenset[int]().union(*(self[one].tables.get(table, frozenset()) for one in past))

    def _meet(
        self, table: str, target: str, source: str, bases: Sequence[Rows], between: Iterable[str]
    ) -> Bounds:
        here, there = (self[one].tables.get(table, frozenset()) for one in (target, source))
        known = frozenset[int]().union(*bases)
        """Rows that the sides had in common: one that is missing on a side was removed there."""
        certain = frozenset.intersection(*bases) if bases else frozenset[int]()
        must = (here & there) | ((here | there) - known)
        may = (here | there) - (certain - (here & there))
        if self.is_overwritten(table, between):
            must = frozenset()
            may = here | there
        return Bounds(must, may)

    def revert(self, table: str, head: str, commit: str) -> Bounds:
        """What a table may hold after one commit of its history was undone."""
        now, after = (self[one].tables.get(table, frozenset()) for one in (head, commit))
        before = self[self[commit].parents[0]].tables.get(table, frozenset())
        rest = now - (after - before)
        returned = rest | (before - after)
        past = self.ancestors(head)
        must, may = returned, returned
        if self.is_overwritten(table, past - self.ancestors(commit)):
            must, may = rest, returned | now  # what came later may have written its rows once more
        if table in self[commit].overwritten:
            # Without it, rows stay that other commits wrote, and that only it has removed where they met.
            may |= self._rows_before(table, head) - (after - before)
        return Bounds(must, may)
