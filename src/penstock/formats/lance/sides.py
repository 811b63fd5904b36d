"""Sides: what a table is on each side of a merge, and what was done there since the sides parted.

The state at which the sides parted may be of either side's chain, and each side has versions that the other
one has under another number: those that a merge has brought, and those that are copies. Both say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, permutations, takewhile
from typing import Final, NamedTuple

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.names import MAIN, is_revert
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

_WITHOUT_RETURN: Final = frozenset(
    (ManifestOperation.APPEND, ManifestOperation.DELETE, ManifestOperation.RESERVE)
)
"""What brings no row back that was there before."""


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


def has_arrived(one: Numbered, other: Numbered) -> bool:
    """Whether a version is what a merge made of another one, which it brought."""
    arrived = one.version.arrived
    return arrived is not None and (arrived.number, arrived.id) == (other.number, other.id)


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


def newest_states(states: Sequence[TableSide], branch: str = MAIN) -> list[TableSide]:
    """Those of some states that no other one of them comes from.

    What both sides of a merge come from is what they have had last in common: a row that was gone then may
    have come back on one of them since, by a revert.
    """

    def is_part(one: TableSide, other: TableSide) -> bool:
        mine, others = one.newest(branch), other.newest(branch)
        return mine is not None and not is_same(mine, others) and includes(other, one, mine, branch)

    return [one for one in states if not any(is_part(one, other) for other in states if other is not one)]


class OwnChange(NamedTuple):
    """A version that was made on a side itself, and the one before it."""

    before: Numbered | None
    """``None`` if it was the first one."""
    after: Numbered
    operation: ManifestOperation
    """What it did. To go back to an earlier version is an update: rows go, and others come."""


class SidesHistory(NamedTuple):
    """What was done on a side that is no part of a base, newest first."""

    operations: tuple[ManifestOperation, ...]
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


def history_since(side: TableSide, base: TableSide, branch: str = MAIN) -> SidesHistory:
    """What was done on a side that is no part of a base."""
    known, since = _arrived(base, side, branch), _since(side, base, branch)
    operations: list[ManifestOperation] = [] if since.is_whole else [ManifestOperation.OTHER]
    own: list[OwnChange] = []
    arrivals: list[Arrived] = []
    versions: list[Numbered] = []
    for place, one in enumerate(since.versions):
        arrived = one.version.arrived
        if arrived is None:
            before = since.versions[place + 1] if place + 1 < len(since.versions) else since.before
            is_back = _find_copied(side, one, branch) is not None
            own.append(OwnChange(before, one, ManifestOperation.UPDATE if is_back else one.version.operation))
            operations.append(own[-1].operation)
            versions.append(one)
        elif not _is_part(base, arrived.number, arrived.id, branch, known):
            operations += arrived.operations
            arrivals.append(arrived)
            versions.append(one)
    return SidesHistory(tuple(operations), tuple(own), tuple(arrivals), tuple(versions))


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


class StandingVersion(NamedTuple):
    """A version that the newest one of a side builds on."""

    version: Numbered
    is_next: bool
    """Whether no version is missing between it and the one before it in the iteration."""


def standing_versions(
    side: TableSide, branch: str = MAIN, is_kept: Callable[[Numbered], bool] = lambda _: False
) -> Iterator[StandingVersion]:
    """The versions that the newest one of a side builds on, newest first.

    Where a version is a copy of an earlier one of the side, because what came between was undone, neither the
    copy nor what came between is among them; unless one of that is to be kept.
    """
    expected, skipped_to = None, None
    for one in side.all(branch):
        if skipped_to is not None and one.number > skipped_to:
            continue
        if skipped_to is not None:
            expected, skipped_to = one.number, None
        if expected in (None, one.number):
            skipped_to = _find_copied(side, one, branch, is_kept)
        if skipped_to is None:
            yield StandingVersion(one, expected in (None, one.number))
            expected = one.number - 1


def _find_copied(
    side: TableSide, copy: Numbered, branch: str, is_kept: Callable[[Numbered], bool] = lambda _: False
) -> int | None:
    """The earlier version of a side that one is a copy of, if none is to be kept from there on."""
    if not copy.version.copied or copy.version.arrived is not None or is_kept(copy):
        return None
    for number, version in side.versions.all(branch, copy.number):
        one = Numbered(number, version)
        if one.state == copy.state:
            return number
        if is_kept(one):
            return None
    return None


def has_undone(side: TableSide, one: Numbered, branch: str = MAIN) -> bool:
    """Whether a side may have undone a version that it had: something was reverted since."""
    has_own = side.has(one, branch)
    for each, _ in standing_versions(side, branch):
        if has_arrived(each, one) or (has_own and is_same(each, one)):
            return False
        if has_own and each.number < one.number:
            return True  # it is among those that a copy of an earlier version has undone
        if has_returned(each.version):
            return True
    return True  # likewise


def compared_versions(sides: Sequence[TableSide], branch: str = MAIN) -> list[Numbered]:
    """The versions that have to be known so that the rows of some sides can be compared.

    Those that only one of them has; or all, if rows may have come back on one of them: such a row is in the
    file that it was in when it was removed, and may have been compacted to others before they parted.
    """
    apart = [*chain(*(versions_apart(*pair, branch) for pair in permutations(sides, 2)))]
    if not any(has_returned(one.version) for one in apart):
        return apart
    return [*chain(*(side.all(branch) for side in sides))]


def has_returned(version: Version) -> bool:
    """Whether a version has rows of earlier, or may have."""
    if is_revert(version.staged) or version.operation is ManifestOperation.RESTORE:
        return True
    if version.arrived is None:
        return False
    trace = version.arrived.trace
    if trace is None:
        return not _WITHOUT_RETURN.issuperset(version.arrived.operations)
    return any(is_revert(after.staged) for _, after in (*trace.updates, *trace.deletes))


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

    def is_part(one: Numbered) -> bool:
        return base.has(one, branch) or (one.number, one.id) in known or is_same(one, start)

    for one, is_next in standing_versions(side, branch, is_part):
        if is_part(one):
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
