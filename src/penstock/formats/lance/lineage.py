"""Lineage: which rows the versions of a table have, and where the rows went that others do not have any more.

What compaction moved is told by its transaction: which fragments became which, and their rows stay in their
order. What was deleted is told by the files of deleted rows. Both are read where two sides have changed a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from penstock.formats.lance.fragments import (
    FolderVersion,
    Fragment,
    RewriteGroup,
    list_fragments,
    read_rewrites,
)
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.merge_sides import NumberedVersion, SidesHistory
from penstock.formats.lance.names import is_revert
from penstock.formats.lance.relocation import UnknownPlacement
from penstock.formats.lance.row_sets import (
    Layout,
    Ranges,
    RowSet,
    RowSpan,
    count_layout_rows,
    list_rows_of_layout,
    remove_places,
    split_layout,
    subtract_row_sets,
    unite_row_sets,
)
from penstock.formats.lance.state import MergeArrivals, RowTrace, Step, VersionPointer

TRACED_MAX: Final = 128
"""So many versions that compacted, so many that updated and so many that deleted rows are remembered by a
version that a merge makes."""
REWRITES_MAX: Final = 1024
"""So many versions that compacted fragments are looked up for a merge."""
_TRACELESS: Final = frozenset(
    (
        ManifestOperation.APPEND,
        ManifestOperation.RESERVE,
        ManifestOperation.CREATE_INDEX,
        ManifestOperation.MERGE,
        ManifestOperation.PROJECT,
        ManifestOperation.CONFIG,
    )
)
"""What neither removes rows nor writes them to other files."""


class LineageReaders(NamedTuple):
    """How manifests and files of deleted rows are read. Both raise ``UnknownPlacement`` for what is gone."""

    side: Callable[[VersionPointer], FolderVersion]
    deletions: Callable[[str], Ranges]
    """The deleted rows in a file, by its whole path."""


class RowChange(NamedTuple):
    """What a version did to rows."""

    removed: RowSet
    added: RowSet
    rewritten: RowSet
    """Those that are where they were, in a fragment that got other data files."""


class RowChanges(NamedTuple):
    """What was done to rows on a side, version by version."""

    updates: Mapping[Step, RowChange]
    deletes: Mapping[Step, RowChange]

    def list_removed_rows(self) -> RowSet:
        """All rows that were removed."""
        return unite_row_sets(
            row_change.removed for row_change in (*self.updates.values(), *self.deletes.values())
        )

    @property
    def has_reverts(self) -> bool:
        """Whether rows may have come back that were there before."""
        return any(is_revert(after.staged) for _, after in (*self.updates, *self.deletes))

    def list_returned_rows(self) -> RowSet:
        """The rows that reverts have restored."""
        steps = (*self.updates.items(), *self.deletes.items())
        return unite_row_sets(change.added for step, change in steps if is_revert(step[1].staged))

    def subtract_changes(self, other: RowChanges) -> RowChanges:
        """What was done beside what another side did."""
        return RowChanges(
            {step: change for step, change in self.updates.items() if step not in other.updates},
            {step: change for step, change in self.deletes.items() if step not in other.deletes},
        )

    def list_rows_removed_for_good(self) -> RowSet:
        """Those that something else than a revert has removed."""
        steps = (*self.updates.items(), *self.deletes.items())
        return unite_row_sets(change.removed for step, change in steps if not is_revert(step[1].staged))


class RowLineage:
    """Knows where rows are, as far as compaction in some versions moved them."""

    def __init__(self, sources: LineageReaders, rewrites: Iterable[VersionPointer] | None) -> None:
        """``UnknownPlacement`` if a version that compacted fragments is gone, or is not understood.

        ``rewrites`` are ``None`` if not all of them are known.
        """
        self.is_whole = rewrites is not None
        self._sources = sources
        self._groups: dict[str, RewriteGroup] = {}
        self._made_by: dict[str, VersionPointer] = {}
        self._used: dict[VersionPointer, None] = {}
        for version in dict.fromkeys(rewrites or ()):
            for group in read_rewrites(sources.side(version)):
                self._groups |= {fragment.first_data_file: group for fragment in group.after}
                self._made_by |= {fragment.first_data_file: version for fragment in group.after}
        self._layouts: dict[str, Layout] = {}
        self._origins: dict[str, frozenset[str]] = {}
        self._deletions: dict[str, Ranges] = {}
        self._changes: dict[Step, RowChange] = {}

    def lay_out_fragment(self, fragment: Fragment) -> Layout:
        """Which rows are where in a fragment, deleted ones too."""
        waiting, begun = [fragment], set[str]()
        while waiting:
            next_fragment = waiting[-1]
            group = self._groups.get(next_fragment.first_data_file)
            before = () if group is None else group.before
            further = [each for each in before if each.first_data_file not in self._layouts]
            if (
                next_fragment.first_data_file in self._layouts
                or next_fragment.first_data_file in begun
                or not further
            ):
                waiting.pop()
                if next_fragment.first_data_file not in self._layouts:
                    self._find_rows_of_fragment(next_fragment, group)
                continue
            begun.add(next_fragment.first_data_file)
            waiting += further
        return self._layouts[fragment.first_data_file]

    def _find_rows_of_fragment(self, fragment: Fragment, group: RewriteGroup | None) -> None:
        """Find the rows of a fragment, and of those that were written together with it."""
        if group is None:
            self._layouts[fragment.first_data_file] = (
                RowSpan(fragment.first_data_file, 0, fragment.physical_rows),
            )
            return
        self._used[self._made_by[fragment.first_data_file]] = None
        if any(fragment.first_data_file not in self._layouts for fragment in group.before):
            raise UnknownPlacement(
                "has a circular compaction history: a fragment was compacted into one that it came from"
            )
        moved = tuple(span for fragment in group.before for span in self.list_live_rows(fragment))
        counts = [fragment.physical_rows for fragment in group.after]
        if count_layout_rows(moved) != sum(counts):
            raise UnknownPlacement("has a different number of rows after a compaction than before it")
        for after_fragment, piece in zip(group.after, split_layout(moved, counts), strict=True):
            self._layouts[after_fragment.first_data_file] = piece

    def find_origin_files(self, fragment: Fragment) -> frozenset[str]:
        """The data files that rows of a fragment may have been written to first. Reads nothing."""
        waiting, origin_files, seen = [fragment.first_data_file], set[str](), set[str]()
        if fragment.first_data_file in self._origins:
            return self._origins[fragment.first_data_file]
        while waiting:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            group = self._groups.get(file)
            if group is None:
                origin_files.add(file)
            else:
                waiting += [fragment.first_data_file for fragment in group.before]
        self._origins[fragment.first_data_file] = frozenset(origin_files)
        return self._origins[fragment.first_data_file]

    def find_rows_of_one_side(self, side: FolderVersion, other: FolderVersion) -> None:
        """Find the rows of all fragments that only one of two versions has."""
        mine, others = list_fragments(side), list_fragments(other)
        both = {each.first_data_file for each in mine} & {each.first_data_file for each in others}
        for fragment in (*mine, *others):
            if fragment.first_data_file not in both:
                self.lay_out_fragment(fragment)

    def read_deletions(self, fragment: Fragment) -> Ranges:
        """At which places of a fragment rows are deleted."""
        path = fragment.deletion_file
        if path is None:
            return ()
        if path not in self._deletions:
            self._deletions[path] = self._sources.deletions(path)
        return self._deletions[path]

    def list_live_rows(self, fragment: Fragment) -> Layout:
        """The rows of a fragment that are not deleted, in their order."""
        return remove_places(self.lay_out_fragment(fragment), self.read_deletions(fragment))

    def list_rows(self, fragment: Fragment) -> RowSet:
        """The rows of a fragment that are not deleted."""
        return list_rows_of_layout(self.list_live_rows(fragment))

    def find_row_change(self, step: Step) -> RowChange:
        """What a version did to rows. ``UnknownPlacement`` if that is not known any more."""
        if (row_change := self._changes.get(step)) is not None:
            return row_change
        then, now = (list_fragments(self._sources.side(version_at)) for version_at in step)
        same = {fragment.identity for fragment in then} & {fragment.identity for fragment in now}
        old_rows, remaining_rows = (
            unite_row_sets(
                self.list_rows(fragment) for fragment in fragments if fragment.identity not in same
            )
            for fragments in (then, now)
        )
        files = {fragment.first_data_file: fragment.files for fragment in then}
        others = [
            fragment
            for fragment in now
            if files.get(fragment.first_data_file, fragment.files) != fragment.files
        ]
        rewritten = unite_row_sets(map(self.list_rows, others))
        self._changes[step] = row_change_of_step = RowChange(
            subtract_row_sets(old_rows, remaining_rows),
            subtract_row_sets(remaining_rows, old_rows),
            rewritten,
        )
        return row_change_of_step

    def find_row_changes(self, trace: RowTrace | None) -> RowChanges | None:
        """What all versions of a trace did to rows; ``None`` if that is not known."""
        if trace is None:
            return None
        try:
            return RowChanges(
                *(
                    {step: self.find_row_change(step) for step in steps}
                    for steps in (trace.updates, trace.deletes)
                )
            )
        except UnknownPlacement:
            return None

    def trace_rows(self, history: SidesHistory) -> RowTrace | None:
        """Where rows went by what was done on a side; ``None`` if that is not known, or is too much.

        It has all versions that compacted what was looked at so far: who comes later finds here how the
        fragments of both sides belong together.
        """
        if not self.is_whole:
            return None
        traces = [trace_arrived_rows(arrived) for arrived in history.arrived]
        own = [own_change for own_change in history.own if own_change.operation not in _TRACELESS]
        rewrites = find_rewrites(history.versions)
        updates, deletes = dict[Step, None](), dict[Step, None]()
        has_inserts = False
        for trace in traces:
            if trace is None:
                return None
            updates |= dict.fromkeys(trace.updates)
            deletes |= dict.fromkeys(trace.deletes)
            has_inserts = has_inserts or trace.has_inserts
        for before, after, operation in own:
            if operation is ManifestOperation.REWRITE:
                continue
            if before is None or operation not in (ManifestOperation.UPDATE, ManifestOperation.DELETE):
                return None
            step = before.version.make_pointer(before.number), after.version.make_pointer(after.number)
            (updates if operation is ManifestOperation.UPDATE else deletes)[step] = None
            if operation is ManifestOperation.UPDATE and not has_inserts and not after.version.copied:
                has_inserts = self._has_inserts(step)
        if rewrites is None:
            return None
        moved = tuple(dict.fromkeys((*rewrites, *self._used)))
        if max(map(len, (moved, updates, deletes))) > TRACED_MAX:
            return None
        return RowTrace(
            rewrites=moved, updates=tuple(updates), deletes=tuple(deletes), has_inserts=has_inserts
        )

    def _has_inserts(self, step: Step) -> bool:
        """Whether a version has other than as many rows as the one before it, or that is not known.

        A revert brings rows back that were there before, and looks for no keys.
        """
        if is_revert(step[1].staged):
            return False
        try:
            before, after = (
                sum(fragment.live_rows for fragment in list_fragments(self._sources.side(each)))
                for each in step
            )
        except UnknownPlacement:
            return True
        return before != after


def trace_arrived_rows(arrived: MergeArrivals) -> RowTrace | None:
    """Where rows went by what a merge brought; ``None`` if that is not known."""
    if arrived.trace is None and _TRACELESS.issuperset(arrived.operations):
        return RowTrace()
    return arrived.trace


def find_rewrites(versions: Iterable[NumberedVersion]) -> tuple[VersionPointer, ...] | None:
    """Those that compacted fragments, of what some versions brought; ``None`` if not all are known."""
    rewrites: dict[VersionPointer, None] = {}
    for version in versions:
        arrived = version.version.arrived
        if arrived is None:
            if version.version.operation is ManifestOperation.REWRITE:
                rewrites[version.version.make_pointer(version.number)] = None
            continue
        trace = trace_arrived_rows(arrived)
        if trace is None and ManifestOperation.REWRITE in arrived.operations:
            return None
        rewrites |= dict.fromkeys(() if trace is None else trace.rewrites)
    return tuple(rewrites) if len(rewrites) <= REWRITES_MAX else None
