"""Removals: which later version removed rows that a commit had added, and whether others replaced them.

Rows that were deleted since are simply gone. Rows that were updated since are there as others, and what was
done to them would be lost, or be there twice, if the commit was undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from penstock.formats.lance.fragments import FolderVersion, list_fragments
from penstock.formats.lance.lineage import TRACED_MAX, RowChange, RowChanges, RowLineage, trace_arrived_rows
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.merge_sides import NumberedVersion, SidesHistory, has_version_returned
from penstock.formats.lance.names import is_revert
from penstock.formats.lance.relocation import UnknownPlacement
from penstock.formats.lance.row_sets import (
    RowSet,
    count_rows,
    intersect_row_sets,
    subtract_row_sets,
    unite_row_sets,
)
from penstock.formats.lance.state import LanceTableVersion, Step, VersionPointer

PLAIN_REMOVALS: Final = frozenset((ManifestOperation.DELETE,))
"""What removes rows and puts nothing in their place."""
_REPLACING: Final = frozenset(
    (
        ManifestOperation.UPDATE,
        ManifestOperation.OVERWRITE,
        ManifestOperation.RESTORE,
        ManifestOperation.CLONE,
        ManifestOperation.OTHER,
    )
)
_IN_PLACE: Final = frozenset((ManifestOperation.UPDATE, ManifestOperation.OTHER))
"""What may write columns of rows anew, and leave the rows where they are."""


class RowRemoval(NamedTuple):
    """Rows that are gone, and what removed them."""

    rows: RowSet
    version: NumberedVersion | None
    """``None`` if it is not known."""
    is_replacing: bool
    """Whether others are in their place, or may be."""
    is_by_revert: bool = False
    """Whether a revert did it."""


class LaterChanges(Protocol):
    """What was done to a table after a commit that is to be undone."""

    @property
    def has_replaced(self) -> bool:
        """Whether rows were updated or replaced, or may have been."""

    @property
    def has_reverts(self) -> bool:
        """Whether something was reverted, or may have been."""

    @property
    def is_one_line(self) -> bool:
        """Whether each version continues the one before it, so that no number was given to two rows."""

    def find_removals(self, rows: RowSet) -> list[RowRemoval]:
        """What removed rows that are not there now.

        Rows are left out that were not there at any time since the commit.
        """

    def find_insert(self) -> NumberedVersion | None:
        """A version by which a merge insert has inserted rows, or may have, unless all of these are gone."""

    def find_rewritten_rows(self) -> RowSet | None:
        """The rows whose columns were written anew where they are; ``None`` if that is not known."""


class LaterLanceVersions:
    """What was done by versions that follow one another.

    Few of their manifests are read: which version removed a row is found by bisection.
    """

    def __init__(
        self,
        versions: Sequence[NumberedVersion],
        lineage: RowLineage,
        side: Callable[[NumberedVersion], FolderVersion],
        *,
        is_undone: bool,
    ) -> None:
        """``versions`` are the one that the commit made, and all that build on it.

        ``is_undone`` tells that the first one is an earlier one: the table went back to what it was then.
        """
        self._versions, self._lineage, self._side = versions, lineage, side
        self._is_undone = is_undone
        self._starts = [place for place, version in enumerate(versions) if _may_bring_back(version)]

    @property
    def has_replaced(self) -> bool:
        return any(not _REPLACING.isdisjoint(_read_operations(version)) for version in self._versions[1:])

    @property
    def has_reverts(self) -> bool:
        return self._is_undone or any(map(_may_bring_back, self._versions[1:]))

    @property
    def is_one_line(self) -> bool:
        return not any(
            version.version.copied and version.version.arrived is None for version in self._versions[1:]
        )

    def find_removals(self, rows: RowSet) -> list[RowRemoval]:
        return self._find_removals_since(0, rows)

    def _find_removals_since(self, first_version: int, rows: RowSet) -> list[RowRemoval]:
        """What removed rows that were there at a place of the versions, or came back later.

        What a merge brought may have been here before it, where merges crossed. So rows that it says to have
        deleted are looked for further back, too: they may have come back since, and been updated.
        """
        removals: list[RowRemoval] = []
        end = len(self._versions) - 1
        for start in (*(place for place in reversed(self._starts) if place > first_version), first_version):
            if rows and (present := self._present_rows(rows, start)):
                removals += self._find_removing_version(present, start, end)
                rows = subtract_row_sets(rows, present)
            if rows and start > first_version and (passed := self._find_rows_removed_by_merge(rows, start)):
                explained = [*self._explain_removals(passed, start)]
                removals += explained
                rows = subtract_row_sets(
                    rows, *(removal.rows for removal in explained if removal.is_replacing)
                )
            end = start
        if rows and self._is_undone:
            removals.append(RowRemoval(rows, None, is_replacing=False, is_by_revert=True))
        return removals

    def _find_removing_version(self, rows: RowSet, start: int, end: int) -> Iterator[RowRemoval]:
        """Rows are there at one place of the versions, and not at a later one."""
        if end - start == 1:
            yield from self._explain_removals(rows, end)
            return
        middle = (start + end) // 2
        present = self._present_rows(rows, middle)
        if present:
            yield from self._find_removing_version(present, middle, end)
        if gone := subtract_row_sets(rows, present):
            yield from self._find_removing_version(gone, start, middle)

    def _present_rows(self, rows: RowSet, index: int) -> RowSet:
        return find_rows_in(self._side(self._versions[index]), rows, self._lineage)

    def _find_rows_removed_by_merge(self, rows: RowSet, index: int) -> RowSet:
        """The rows, of those given, that the merge at a place in the history has removed, or may have.

        The merge brought several changes at once: a row may have come back by one and be gone by another.
        """
        version = self._versions[index].version
        if version.arrived is None:
            return {}
        changes = self._lineage.find_row_changes(trace_arrived_rows(version.arrived))
        if changes is not None:
            return intersect_row_sets(rows, changes.list_removed_rows())
        return rows if has_version_returned(version) else {}

    def _explain_removals(self, rows: RowSet, index: int) -> Iterator[RowRemoval]:
        """How the version at a place has removed rows."""
        version = self._versions[index]
        arrived = version.version.arrived
        if arrived is None:
            is_replacing = version.version.operation not in PLAIN_REMOVALS
            yield RowRemoval(rows, version, is_replacing, is_revert(version.version.staged))
            return
        changes = self._lineage.find_row_changes(trace_arrived_rows(arrived))
        deleted = {} if changes is None else _find_deleted_rows(rows, changes)
        if deleted:
            yield RowRemoval(deleted, version, is_replacing=False)
        if rest := subtract_row_sets(rows, deleted):
            yield RowRemoval(rest, version, is_replacing=True)

    def find_insert(self) -> NumberedVersion | None:
        looked = 0
        for place, (before, version) in enumerate(zip(self._versions, self._versions[1:], strict=False), 1):
            arrived = version.version.arrived
            if arrived is None:
                if version.version.operation is not ManifestOperation.UPDATE or is_revert(
                    version.version.staged
                ):
                    continue
                looked += 1
                if looked > TRACED_MAX:
                    return version
                change = self._lineage.find_row_change(_make_step(before, version))
                inserted = change.added if _has_more_rows(change) else {}
            elif (changes := self._lineage.find_row_changes(trace_arrived_rows(arrived))) is not None:
                inserted = _find_inserted_rows(changes)
            elif ManifestOperation.UPDATE in arrived.operations:
                return version
            else:
                continue
            if inserted and self._are_still_there(inserted, place):
                return version
        return None

    def _are_still_there(self, rows: RowSet, since: int) -> bool:
        """Whether any of some rows is still there, or was updated and is there as another one."""
        return bool(self._present_rows(rows, -1)) or _is_replaced(
            rows, self._find_removals_since(since, rows)
        )

    def find_rewritten_rows(self) -> RowSet | None:
        steps: list[Step] = []
        traced: list[RowSet] = []
        for before, version in zip(self._versions, self._versions[1:], strict=False):
            arrived = version.version.arrived
            if arrived is not None:
                changes = self._lineage.find_row_changes(trace_arrived_rows(arrived))
                if changes is None:
                    return None
                traced += [change.rewritten for change in changes.updates.values()]
            elif version.version.operation in _IN_PLACE or is_revert(version.version.staged):
                steps.append(_make_step(before, version))
        if len(steps) > TRACED_MAX:
            return None
        try:
            return unite_row_sets(
                (*traced, *(self._lineage.find_row_change(step).rewritten for step in steps))
            )
        except UnknownPlacement:
            return None


class MergedChanges:
    """What was done on a side that the commit came to by a merge, as far as merges remember it."""

    def __init__(
        self, lineage: RowLineage, history: SidesHistory, own: SidesHistory, now: FolderVersion
    ) -> None:
        """``own`` is what the commit itself did: the history of the side has that, too."""
        self._lineage, self._now = lineage, now
        self._changes = lineage.find_row_changes(lineage.trace_rows(history))
        self._own = lineage.find_row_changes(lineage.trace_rows(own))
        self._newest = history.versions[0] if history.versions else None
        self.has_replaced = not _REPLACING.isdisjoint(history.operations)
        self.has_reverts = any(map(_may_bring_back, history.versions))
        self.is_one_line = False

    def find_removals(self, rows: RowSet) -> list[RowRemoval]:
        if self._changes is None:
            return [RowRemoval(rows, None, is_replacing=True)]
        others = self._changes if self._own is None else self._changes.subtract_changes(self._own)
        removals: list[RowRemoval] = []
        for step, change in (*others.updates.items(), *others.deletes.items()):
            if removed := intersect_row_sets(rows, change.removed):
                after, is_replacing = _find_version_at(step[1]), step in others.updates
                removals.append(RowRemoval(removed, after, is_replacing, is_revert(step[1].staged)))
        return removals

    def find_insert(self) -> NumberedVersion | None:
        if self._changes is None:
            return self._newest
        others = self._changes if self._own is None else self._changes.subtract_changes(self._own)
        if not (inserted := _find_inserted_rows(others)):
            return None
        is_there = find_rows_in(self._now, inserted, self._lineage)
        return self._newest if is_there or _is_replaced(inserted, self.find_removals(inserted)) else None

    def find_rewritten_rows(self) -> RowSet | None:
        if self._changes is None:
            return None
        others = self._changes if self._own is None else self._changes.subtract_changes(self._own)
        return unite_row_sets(change.rewritten for change in others.updates.values())


def find_rows_in(side: FolderVersion, rows: RowSet, lineage: RowLineage) -> RowSet:
    """Those of some rows that a version has."""
    mine = (
        fragment
        for fragment in list_fragments(side)
        if not lineage.find_origin_files(fragment).isdisjoint(rows)
    )
    return intersect_row_sets(rows, unite_row_sets(map(lineage.list_rows, mine)))


def _make_step(before: NumberedVersion, after: NumberedVersion) -> Step:
    return before.version.make_pointer(before.number), after.version.make_pointer(after.number)


def _find_inserted_rows(changes: RowChanges) -> RowSet:
    """The rows written by merge inserts that inserted rows, or may have."""
    updates = changes.updates.items()
    return unite_row_sets(
        change.added for step, change in updates if _has_more_rows(change) and not is_revert(step[1].staged)
    )


def _has_more_rows(change: RowChange) -> bool:
    return count_rows(change.added) != count_rows(change.removed)


def _is_replaced(rows: RowSet, removals: Sequence[RowRemoval]) -> bool:
    """Whether some rows that are gone may be there as others."""
    if subtract_row_sets(rows, *(removal.rows for removal in removals)):
        return True
    return any(removal.is_replacing and not removal.is_by_revert for removal in removals)


def _find_version_at(version_at: VersionPointer) -> NumberedVersion:
    return NumberedVersion(
        version_at.number,
        LanceTableVersion(chain=version_at.chain, staged=version_at.staged, sha256=version_at.sha256),
    )


def _read_operations(version: NumberedVersion) -> Sequence[ManifestOperation]:
    arrived = version.version.arrived
    return (version.version.operation,) if arrived is None else arrived.operations


def _find_deleted_rows(rows: RowSet, changes: RowChanges) -> RowSet:
    """Of some rows those that were deleted, and not updated."""
    deleted = intersect_row_sets(rows, unite_row_sets(delete.removed for delete in changes.deletes.values()))
    return subtract_row_sets(deleted, *(update.removed for update in changes.updates.values()))


def _may_bring_back(one: NumberedVersion) -> bool:
    """Whether a version may have rows that the one before it had not, and an earlier one had."""
    version = one.version
    is_restored = version.operation in (
        ManifestOperation.RESTORE,
        ManifestOperation.CLONE,
        ManifestOperation.OTHER,
    )
    return is_restored or version.arrived is not None or is_revert(version.staged)
