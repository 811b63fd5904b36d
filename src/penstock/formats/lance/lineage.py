"""Lineage: which rows the versions of a table have, and where the rows went that others do not have any more.

What compaction moved is told by its transaction: which fragments became which, and their rows stay in their
order. What was deleted is told by the files of deleted rows. Both are read where two sides have changed a
table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from penstock.formats.lance.fragments import (
    Fragment,
    RewriteGroup,
    Side,
    fragments_of,
    mark_of,
    rewritten_in,
)
from penstock.formats.lance.manifests import Operation
from penstock.formats.lance.rehoming import Immovable
from penstock.formats.lance.rows import (
    Layout,
    Ranges,
    RowSet,
    Span,
    all_rows,
    other_rows,
    rows_of,
    size,
    split,
    without_places,
)
from penstock.formats.lance.sides import History, Numbered
from penstock.formats.lance.state import Arrived, Trace, VersionAt

TRACED_MAX: Final = 128
"""Of so many versions that compacted, updated or deleted rows what they did is remembered by a version that a
merge makes."""
REWRITES_MAX: Final = 1024
"""So many versions that compacted fragments are looked up for a merge."""
MARKS_MAX: Final = 4096
"""So many data files are remembered from which rows were taken."""
_TRACELESS: Final = frozenset(
    (
        Operation.APPEND,
        Operation.RESERVE,
        Operation.CREATE_INDEX,
        Operation.MERGE,
        Operation.PROJECT,
        Operation.CONFIG,
    )
)
"""What neither removes rows nor writes them to other files."""


class Sources(NamedTuple):
    """How manifests and files of deleted rows are read. Both raise ``Immovable`` for what is gone."""

    side: Callable[[VersionAt], Side]
    deletions: Callable[[str], Ranges]
    """The deleted rows in a file, by its whole path."""


class RowUpdate(NamedTuple):
    """What an update did to rows."""

    removed: RowSet
    added: RowSet


class Lineage:
    """Knows where rows are, as far as compaction in some versions moved them."""

    def __init__(self, sources: Sources, rewrites: Iterable[VersionAt] | None) -> None:
        """``Immovable`` if a version that compacted fragments is gone, or is not understood.

        ``rewrites`` are ``None`` if not all of them are known.
        """
        self.is_whole = rewrites is not None
        self._sources = sources
        self._groups: dict[str, RewriteGroup] = {}
        self._made_by: dict[str, VersionAt] = {}
        self._used: dict[VersionAt, None] = {}
        for version in dict.fromkeys(rewrites or ()):
            for group in rewritten_in(sources.side(version)):
                self._groups |= {fragment.file: group for fragment in group.after}
                self._made_by |= {fragment.file: version for fragment in group.after}
        self._layouts: dict[str, Layout] = {}
        self._deletions: dict[str, Ranges] = {}
        self._updates: dict[tuple[VersionAt, VersionAt], RowUpdate] = {}

    def layout(self, fragment: Fragment) -> Layout:
        """Which rows are where in a fragment, deleted ones too."""
        waiting, begun = [fragment], set[str]()
        while waiting:
            one = waiting[-1]
            group = self._groups.get(one.file)
            before = () if group is None else group.before
            further = [each for each in before if each.file not in self._layouts]
            if one.file in self._layouts or one.file in begun or not further:
                waiting.pop()
                if one.file not in self._layouts:
                    self._lay_out(one, group)
                continue
            begun.add(one.file)
            waiting += further
        return self._layouts[fragment.file]

    def _lay_out(self, fragment: Fragment, group: RewriteGroup | None) -> None:
        """Find the rows of a fragment, and of those that were written together with it."""
        if group is None:
            self._layouts[fragment.file] = (Span(fragment.file, 0, fragment.physical_rows),)
            return
        self._used[self._made_by[fragment.file]] = None
        if any(one.file not in self._layouts for one in group.before):
            raise Immovable("was compacted in a circle")
        moved = tuple(span for one in group.before for span in self.live(one))
        counts = [one.physical_rows for one in group.after]
        if size(moved) != sum(counts):
            raise Immovable("was compacted to another number of rows")
        for one, piece in zip(group.after, split(moved, counts), strict=True):
            self._layouts[one.file] = piece

    def compare(self, one: Side, other: Side) -> None:
        """Find the rows of all fragments that only one of two versions has."""
        mine, others = fragments_of(one), fragments_of(other)
        both = {each.file for each in mine} & {each.file for each in others}
        for fragment in (*mine, *others):
            if fragment.file not in both:
                self.layout(fragment)

    def deletions(self, fragment: Fragment) -> Ranges:
        """At which places of a fragment rows are deleted."""
        path = fragment.deletion_file
        if path is None:
            return ()
        if path not in self._deletions:
            self._deletions[path] = self._sources.deletions(path)
        return self._deletions[path]

    def live(self, fragment: Fragment) -> Layout:
        """The rows of a fragment that are not deleted, in their order."""
        return without_places(self.layout(fragment), self.deletions(fragment))

    def rows(self, fragment: Fragment) -> RowSet:
        """The rows of a fragment that are not deleted."""
        return rows_of(self.live(fragment))

    def update(self, before: VersionAt, after: VersionAt) -> RowUpdate:
        """What an update did. ``Immovable`` if that is not known any more."""
        if (known := self._updates.get((before, after))) is not None:
            return known
        then, now = (fragments_of(self._sources.side(one)) for one in (before, after))
        same = {one.key for one in then} & {one.key for one in now}
        was, left = (
            all_rows(self.rows(one) for one in fragments if one.key not in same) for fragments in (then, now)
        )
        self._updates[before, after] = found = RowUpdate(other_rows(was, left), other_rows(left, was))
        return found

    def marked(self, marks: Collection[bytes]) -> set[bytes]:
        """Marks of data files, and of those that rows in them were first written to.

        Marks are remembered, and rows may have been followed less far then.
        """
        found = set(marks)
        for one in (one for group in self._groups.values() for one in group.after):
            if mark_of(one.file) in marks:
                found |= {mark_of(span.file) for span in self.layout(one)}
        return found

    def trace(self, history: History) -> Trace | None:
        """Where rows went by what was done on a side; ``None`` if that is not known, or is too much.

        It has all versions that compacted what was looked at so far: who comes later finds here how the
        fragments of both sides belong together.
        """
        if not self.is_whole:
            return None
        if any(arrived_trace(one) is None for one in history.arrived):
            return None
        changes = [one for one in history.own if one.after.version.operation not in _TRACELESS]
        own = rewrites_in(history.versions)
        if own is None or len(changes) > TRACED_MAX:
            return None
        updated, deleted = dict[bytes, None](), dict[bytes, None]()
        updates: dict[tuple[VersionAt, VersionAt], None] = {}
        has_inserts = False
        for trace in map(arrived_trace, history.arrived):
            assert trace is not None
            updated |= dict.fromkeys(trace.updated)
            deleted |= dict.fromkeys(trace.deleted)
            updates |= dict.fromkeys(trace.updates)
            has_inserts = has_inserts or trace.has_inserts
        for before, after in changes:
            operation = after.version.operation
            if operation is Operation.REWRITE:
                continue
            if before is None or operation not in (Operation.UPDATE, Operation.DELETE):
                return None
            try:
                gone, rows = self._difference(before, after)
            except Immovable:
                return None
            if operation is Operation.UPDATE:
                updated |= dict.fromkeys(gone)
                updates[before.version.at(before.number), after.version.at(after.number)] = None
                has_inserts = has_inserts or rows != 0
            else:
                deleted |= dict.fromkeys(gone)
        rewrites = tuple(dict.fromkeys((*own, *self._used)))
        is_long = len(updated) + len(deleted) > MARKS_MAX or max(len(updates), len(rewrites)) > TRACED_MAX
        if is_long:
            return None
        return Trace(
            rewrites=rewrites,
            updates=tuple(updates),
            updated=tuple(updated),
            deleted=tuple(deleted),
            has_inserts=has_inserts,
        )

    def _difference(self, before: Numbered, after: Numbered) -> tuple[set[bytes], int]:
        """Marks of the data files from which a version has taken rows, and how many rows more it has."""
        then, now = (fragments_of(self._sources.side(one.version.at(one.number))) for one in (before, after))
        kept = {one.key for one in now}
        changed = [one for one in then if one.key not in kept]
        files = {file for one in changed for file in (one.file, *(span.file for span in self.layout(one)))}
        return set(map(mark_of, files)), sum(one.live_rows for one in now) - sum(
            one.live_rows for one in then
        )


def arrived_trace(arrived: Arrived) -> Trace | None:
    """Where rows went by what a merge brought; ``None`` if that is not known."""
    if arrived.trace is None and _TRACELESS.issuperset(arrived.operations):
        return Trace()
    return arrived.trace


def rewrites_in(versions: Iterable[Numbered]) -> tuple[VersionAt, ...] | None:
    """Those that compacted fragments, of what some versions brought; ``None`` if not all are known."""
    found: dict[VersionAt, None] = {}
    for one in versions:
        arrived = one.version.arrived
        if arrived is None:
            if one.version.operation is Operation.REWRITE:
                found[one.version.at(one.number)] = None
            continue
        trace = arrived_trace(arrived)
        if trace is None and Operation.REWRITE in arrived.operations:
            return None
        found |= dict.fromkeys(() if trace is None else trace.rewrites)
    return tuple(found) if len(found) <= REWRITES_MAX else None
