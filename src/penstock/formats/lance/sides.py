"""Sides: what a table is on each side of a merge, and what was done there since the sides parted.

The state at which the sides parted may be of either side's chain, and each side has versions that the other
one has under another number: those that a merge has brought, and those that are copies. Both say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from penstock.formats.lance.manifests import Operation
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.state import (
    Arrived,
    LanceState,
    OwnBranch,
    Version,
    Versions,
    VersionsUntil,
    state_of,
)
from penstock.kernel.objects import Objects
from penstock.model.content import LanceTable


class Numbered(NamedTuple):
    """A version with its number."""

    number: int
    version: Version

    @property
    def id(self) -> bytes:
        return self.version.id(self.number)

    @property
    def state(self) -> bytes:
        return self.version.state(self.number)


class TableSide(NamedTuple):
    """A table on one side."""

    content: LanceTable
    state: LanceState
    versions: Versions

    @staticmethod
    def of(content: LanceTable, objects: Objects) -> TableSide:
        state = state_of(content)
        return TableSide(content, state, Versions(objects, state))

    def until(self, number: int, objects: Objects, branch: str = MAIN) -> TableSide:
        """The side as it was when a version was the newest one of one of Lance's branches."""
        return self._replace(versions=VersionsUntil(objects, self.state, branch, number))

    def newest(self, branch: str = MAIN) -> Numbered | None:
        found = self.versions.newest(branch)
        return None if found is None else Numbered(*found)

    def all(self, branch: str = MAIN) -> Iterator[Numbered]:
        """Newest first."""
        return (Numbered(*one) for one in self.versions.all(branch))

    def has(self, one: Numbered, branch: str = MAIN) -> bool:
        """Whether a version is one of this side's, under its own number."""
        found = self.versions.get(branch, one.number)
        return found is not None and found.id(one.number) == one.id

    def own(self, branch: str) -> tuple[OwnBranch | None, bytes]:
        """What is to be compared of one of Lance's own branches."""
        newest = self.newest(branch)
        return self.versions.branch(branch), b"" if newest is None else newest.id


def is_same(one: Numbered | None, other: Numbered | None) -> bool:
    """Whether two versions have the same rows, columns and indexes."""
    if one is None or other is None:
        return one is other
    return one.state == other.state


def includes(side: TableSide, other: TableSide, one: Numbered, branch: str = MAIN) -> bool:
    """Whether a side has all that a version of the other side is made of."""
    return side.has(one, branch) or (one.number, one.id) in _arrived(side, other, branch)


def comes_from(side: TableSide, base: TableSide, branch: str = MAIN) -> bool:
    """Whether a side has all that a base has had: no merge of it was settled by leaving it out."""
    newest = base.newest(branch)
    if newest is None or includes(side, base, newest, branch):
        return True
    return any(is_same(one, newest) for one in versions_apart(side, base, branch))


def beside(
    base: TableSide, one: TableSide, other: TableSide, objects: Objects, branch: str = MAIN
) -> list[TableSide]:
    """Each of two sides at its newest version that the other one has, too, if that is no part of a base.

    Where merges crossed there are several states that both sides come from, and a base is only one of them.
    """
    found: list[TableSide] = []
    for side, there in ((one, other), (other, one)):
        known = _arrived(there, side, branch)
        for each in side.all(branch):
            if there.has(each, branch) or (each.number, each.id) in known:
                if not includes(base, side, each, branch):
                    found.append(side.until(each.number, objects, branch))
                break
    return found


class OwnChange(NamedTuple):
    """A version that was made on a side itself, and the one before it."""

    before: Numbered | None
    """``None`` if it was the first one."""
    after: Numbered


class History(NamedTuple):
    """What was done on a side that is no part of a base, newest first."""

    operations: tuple[Operation, ...]
    own: tuple[OwnChange, ...]
    """The changes that were made there."""
    arrived: tuple[Arrived, ...]
    """What merges brought there."""
    versions: tuple[Numbered, ...]
    """All of these."""

    @property
    def taken(self) -> tuple[bytes, ...]:
        """Marks of the fragments that came by repeated commits."""
        return tuple(dict.fromkeys(mark for one in self.arrived for mark in one.taken))


def history_since(side: TableSide, base: TableSide, branch: str = MAIN) -> History:
    """What was done on a side that is no part of a base."""
    known, since = _arrived(base, side, branch), _since(side, base, branch)
    operations: list[Operation] = [] if since.is_whole else [Operation.OTHER]
    own: list[OwnChange] = []
    arrivals: list[Arrived] = []
    versions: list[Numbered] = []
    for place, one in enumerate(since.versions):
        arrived = one.version.arrived
        if arrived is None:
            operations.append(one.version.operation)
            before = since.versions[place + 1] if place + 1 < len(since.versions) else since.before
            own.append(OwnChange(before, one))
            versions.append(one)
        elif not _is_part(base, arrived.number, arrived.id, branch, known):
            operations += arrived.operations
            arrivals.append(arrived)
            versions.append(one)
    return History(tuple(operations), tuple(own), tuple(arrivals), tuple(versions))


def versions_apart(side: TableSide, other: TableSide, branch: str = MAIN) -> Iterator[Numbered]:
    """The versions of a side that another one does not have under the same number, newest first.

    That is further back than what was done there since they met: a merge brings rows, and each side keeps
    them in fragments as it had compacted its own.
    """
    return takewhile(lambda one: not other.has(one, branch), side.all(branch))


def parted_at(side: TableSide, base: TableSide, branch: str = MAIN) -> int:
    """The number of the newest version of a side that is part of a base; 0 if none is."""
    before = _since(side, base, branch).before
    return 0 if before is None else before.number


class _Since(NamedTuple):
    """The versions of a side that are no part of a base, newest first."""

    versions: list[Numbered]
    before: Numbered | None
    """The one before them, which is part of it, if any is."""
    is_whole: bool
    """Whether none of them was deleted since: what that one did is not known then."""


def _since(side: TableSide, base: TableSide, branch: str) -> _Since:
    found: list[Numbered] = []
    start, known = base.newest(branch), _arrived(base, side, branch)
    for one in side.all(branch):
        is_next = not found or found[-1].number == one.number + 1
        if base.has(one, branch) or (one.number, one.id) in known or is_same(one, start):
            return _Since(found, one, is_next)
        if not is_next:
            return _Since(found, None, is_whole=False)
        found.append(one)
    return _Since(found, None, is_whole=start is None)


def _arrived(side: TableSide, other: TableSide, branch: str) -> set[tuple[int, bytes]]:
    """The versions of other sides that merges have brought to a side since it parted from another."""
    found: set[tuple[int, bytes]] = set()
    for one in side.all(branch):
        if other.has(one, branch):
            break
        if (arrived := one.version.arrived) is not None and arrived.id:
            found.add((arrived.number, arrived.id))
    return found


def _is_part(base: TableSide, number: int, one: bytes, branch: str, known: set[tuple[int, bytes]]) -> bool:
    """Whether a base has a version, by its own number or by a merge."""
    if not one:
        return False
    found = base.versions.get(branch, number)
    return (found is not None and found.id(number) == one) or (number, one) in known
