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
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    MergeArrivals,
    OwnBranch,
    VersionsUntil,
    decode_state,
)
from penstock.kernel.objects import Objects

_WITHOUT_RETURN: Final = frozenset(
    (ManifestOperation.APPEND, ManifestOperation.DELETE, ManifestOperation.RESERVE)
)
"""What brings no row back that was there before."""


class NumberedVersion(NamedTuple):
    """A version with its number."""

    number: int
    version: LanceTableVersion

    @property
    def id(self) -> bytes:
        return self.version.make_id(self.number)

    @property
    def state(self) -> bytes:
        return self.version.encode_comparable_state(self.number)


class TableSide(NamedTuple):
    """A table on one side."""

    content: LanceTable
    state: LanceState
    versions: LanceVersionReader

    @staticmethod
    def from_table(content: LanceTable, objects: Objects) -> TableSide:
        state = decode_state(content)
        return TableSide(content, state, LanceVersionReader(objects, state))

    def cut_at_version(self, number: int, objects: Objects, branch: str = MAIN) -> TableSide:
        """The side as it was when a version was the newest one of one of Lance's branches."""
        return self._replace(versions=VersionsUntil(objects, self.state, branch, number))

    def find_newest(self, branch: str = MAIN) -> NumberedVersion | None:
        newest = self.versions.find_newest(branch)
        return None if newest is None else NumberedVersion(*newest)

    def list_versions(self, branch: str = MAIN) -> Iterator[NumberedVersion]:
        """Newest first."""
        return (NumberedVersion(*numbered) for numbered in self.versions.list_versions(branch))

    def has_version(self, version: NumberedVersion, branch: str = MAIN) -> bool:
        """Whether a version is one of this side's, under its own number."""
        own_version = self.versions.get_version(branch, version.number)
        return own_version is not None and own_version.make_id(version.number) == version.id

    def get_own_state(self, branch: str) -> tuple[OwnBranch | None, bytes]:
        """What is to be compared of one of Lance's own branches."""
        newest = self.find_newest(branch)
        return self.versions.get_branch(branch), b"" if newest is None else newest.id


def is_same_version(version: NumberedVersion | None, other: NumberedVersion | None) -> bool:
    """Whether two versions have the same rows, columns and indexes."""
    if version is None or other is None:
        return version is other
    return version.state == other.state


def has_version_arrived(version: NumberedVersion, other: NumberedVersion) -> bool:
    """Whether a version is what a merge made of another one, which it brought."""
    arrived = version.version.arrived
    return arrived is not None and (arrived.number, arrived.id) == (other.number, other.id)


def includes_version(side: TableSide, other: TableSide, version: NumberedVersion, branch: str = MAIN) -> bool:
    """Whether a side has all that a version of the other side is made of."""
    return side.has_version(version, branch) or (version.number, version.id) in _list_merged_versions(
        side, other, branch
    )


def is_based_on(side: TableSide, base: TableSide, branch: str = MAIN) -> bool:
    """Whether a side has all that a base has had: no merge of it was settled by leaving it out."""
    newest = base.find_newest(branch)
    if newest is None or includes_version(side, base, newest, branch):
        return True
    return any(is_same_version(version, newest) for version in list_unshared_versions(side, base, branch))


def find_sides_at_common_versions(
    base: TableSide, one: TableSide, other: TableSide, objects: Objects, branch: str = MAIN
) -> list[TableSide]:
    """Each of two sides at its newest version that the other one has, too, if that is not a part of a base.

    Where merges crossed there are several states that both sides come from, and a base is only one of them.
    """
    sides: list[TableSide] = []
    for side, target_side in ((one, other), (other, one)):
        merged_versions = _list_merged_versions(target_side, side, branch)
        for each in side.list_versions(branch):
            if target_side.has_version(each, branch) or (each.number, each.id) in merged_versions:
                if not includes_version(base, side, each, branch):
                    sides.append(side.cut_at_version(each.number, objects, branch))
                break
    return sides


def select_newest_states(states: Sequence[TableSide], branch: str = MAIN) -> list[TableSide]:
    """Those of some states that no other one of them comes from.

    What both sides of a merge come from is what they have had last in common: a row that was gone then may
    have come back on one of them since, by a revert.
    """

    def is_part(side: TableSide, other: TableSide) -> bool:
        mine, others = side.find_newest(branch), other.find_newest(branch)
        return (
            mine is not None
            and not is_same_version(mine, others)
            and includes_version(other, side, mine, branch)
        )

    return [
        state for state in states if not any(is_part(state, other) for other in states if other is not state)
    ]


class OwnChange(NamedTuple):
    """A version that was made on a side itself, and the one before it."""

    before: NumberedVersion | None
    """``None`` if it was the first one."""
    after: NumberedVersion
    operation: ManifestOperation
    """What it did. To go back to an earlier version is an update: rows go, and others come."""


class SidesHistory(NamedTuple):
    """What was done on a side that is not a part of a base, newest first."""

    operations: tuple[ManifestOperation, ...]
    own: tuple[OwnChange, ...]
    """The changes that were made there."""
    arrived: tuple[MergeArrivals, ...]
    """What merges brought there."""
    versions: tuple[NumberedVersion, ...]
    """All of these."""

    @property
    def taken_marks(self) -> tuple[bytes, ...]:
        """Marks of the fragments that arrived by repeated commits."""
        return tuple(dict.fromkeys(mark for arrived in self.arrived for mark in arrived.taken))


def find_history_since(side: TableSide, base: TableSide, branch: str = MAIN) -> SidesHistory:
    """What was done on a side that is not a part of a base."""
    merged, since = _list_merged_versions(base, side, branch), _find_changes_since(side, base, branch)
    operations: list[ManifestOperation] = [] if since.is_whole else [ManifestOperation.OTHER]
    own: list[OwnChange] = []
    arrivals: list[MergeArrivals] = []
    versions: list[NumberedVersion] = []
    for place, version in enumerate(since.versions):
        arrived = version.version.arrived
        if arrived is None:
            before = since.versions[place + 1] if place + 1 < len(since.versions) else since.before
            is_back = _find_copied(side, version, branch) is not None
            own.append(
                OwnChange(before, version, ManifestOperation.UPDATE if is_back else version.version.operation)
            )
            operations.append(own[-1].operation)
            versions.append(version)
        elif not _is_part(base, arrived.number, arrived.id, branch, merged):
            operations += arrived.operations
            arrivals.append(arrived)
            versions.append(version)
    return SidesHistory(tuple(operations), tuple(own), tuple(arrivals), tuple(versions))


def list_unshared_versions(
    side: TableSide, other: TableSide, branch: str = MAIN
) -> Iterator[NumberedVersion]:
    """The versions of a side that another one does not have under the same number, newest first.

    That is further back than what was done there since they met: a merge brings rows, and each side keeps
    them in fragments as it had compacted its own.
    """
    return takewhile(lambda version: not other.has_version(version, branch), side.list_versions(branch))


def find_parting_version(side: TableSide, base: TableSide, branch: str = MAIN) -> int:
    """The number of the newest version of a side that is part of a base; 0 if none is."""
    before = _find_changes_since(side, base, branch).before
    return 0 if before is None else before.number


class UnderlyingVersion(NamedTuple):
    """A version that the newest one of a side builds on."""

    version: NumberedVersion
    is_next: bool
    """Whether no version is missing between it and the one before it in the iteration."""


def list_standing_versions(
    side: TableSide, branch: str = MAIN, is_kept: Callable[[NumberedVersion], bool] = lambda _: False
) -> Iterator[UnderlyingVersion]:
    """The versions that the newest one of a side builds on, newest first.

    Where a version is a copy of an earlier one of the side, because what came between was undone, neither the
    copy nor what came between is among them; unless one of that is to be kept.
    """
    expected, skipped_to = None, None
    for version in side.list_versions(branch):
        if skipped_to is not None and version.number > skipped_to:
            continue
        if skipped_to is not None:
            expected, skipped_to = version.number, None
        if expected in (None, version.number):
            skipped_to = _find_copied(side, version, branch, is_kept)
        if skipped_to is None:
            yield UnderlyingVersion(version, expected in (None, version.number))
            expected = version.number - 1


def _find_copied(
    side: TableSide,
    copy: NumberedVersion,
    branch: str,
    is_kept: Callable[[NumberedVersion], bool] = lambda _: False,
) -> int | None:
    """The earlier version of a side that one is a copy of, if none is to be kept from there on."""
    if not copy.version.copied or copy.version.arrived is not None or is_kept(copy):
        return None
    for number, version in side.versions.list_versions(branch, copy.number):
        candidate = NumberedVersion(number, version)
        if candidate.state == copy.state:
            return number
        if is_kept(candidate):
            return None
    return None


def has_undone_version(side: TableSide, version: NumberedVersion, branch: str = MAIN) -> bool:
    """Whether a side may have undone a version that it had: something was reverted since."""
    has_own = side.has_version(version, branch)
    for each, _ in list_standing_versions(side, branch):
        if has_version_arrived(each, version) or (has_own and is_same_version(each, version)):
            return False
        if has_own and each.number < version.number:
            return True  # it is among those that a copy of an earlier version has undone
        if has_version_returned(each.version):
            return True
    return True  # likewise


def list_versions_to_compare(sides: Sequence[TableSide], branch: str = MAIN) -> list[NumberedVersion]:
    """The versions that have to be known so that the rows of some sides can be compared.

    Those that only one of them has; or all, if rows may have come back on one of them: such a row is in the
    file that it was in when it was removed, and may have been compacted to others before they parted.
    """
    apart = [*chain(*(list_unshared_versions(*pair, branch) for pair in permutations(sides, 2)))]
    if not any(has_version_returned(version.version) for version in apart):
        return apart
    return [*chain(*(side.list_versions(branch) for side in sides))]


def has_version_returned(version: LanceTableVersion) -> bool:
    """Whether a version has rows of earlier, or may have."""
    if is_revert(version.staged) or version.operation is ManifestOperation.RESTORE:
        return True
    if version.arrived is None:
        return False
    trace = version.arrived.trace
    if trace is None:
        return not _WITHOUT_RETURN.issuperset(version.arrived.operations)
    return any(is_revert(after.staged) for _, after in (*trace.updates, *trace.deletes))


class _ChangesSince(NamedTuple):
    """The versions of a side that are no part of a base, newest first."""

    versions: list[NumberedVersion]
    before: NumberedVersion | None
    """The one before them, which is part of it, if any is."""
    is_whole: bool
    """Whether none of them was deleted since: what that one did is not known then."""


def _find_changes_since(side: TableSide, base: TableSide, branch: str) -> _ChangesSince:
    versions: list[NumberedVersion] = []
    start, merged = base.find_newest(branch), _list_merged_versions(base, side, branch)

    def is_part(version: NumberedVersion) -> bool:
        return (
            base.has_version(version, branch)
            or (version.number, version.id) in merged
            or is_same_version(version, start)
        )

    for version, is_next in list_standing_versions(side, branch, is_part):
        if is_part(version):
            return _ChangesSince(versions, version, is_next)
        if not is_next:
            return _ChangesSince(versions, None, is_whole=False)
        versions.append(version)
    return _ChangesSince(versions, None, is_whole=start is None)


def _list_merged_versions(side: TableSide, other: TableSide, branch: str) -> set[tuple[int, bytes]]:
    """The versions of other sides that were merged into a side since it parted from another."""
    merged: set[tuple[int, bytes]] = set()
    for version in side.list_versions(branch):
        if other.has_version(version, branch):
            break
        if (arrived := version.version.arrived) is not None and arrived.id:
            merged.add((arrived.number, arrived.id))
    return merged


def _is_part(base: TableSide, number: int, data: bytes, branch: str, merged: set[tuple[int, bytes]]) -> bool:
    """Whether a base has a version, by its own number or by a merge."""
    if not data:
        return False
    version = base.versions.get_version(branch, number)
    return (version is not None and version.make_id(number) == data) or (number, data) in merged
