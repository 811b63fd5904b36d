"""Grafting: what one side did to the rows of a table since the sides parted, on top of the other side.

Rows are compared one by one, by where each was first written (``rows``), so that it does not matter what was
compacted on either side. Rows that one side added come in its own fragments, with numbers of their own here,
and their files stay where they are. Rows that it removed are deleted in the fragments of the other side,
whatever else was deleted there. A fragment that holds other rows too, because it was compacted, comes with
those rows deleted.

An update removes rows and adds others. It is grafted if the other side has not touched the same rows.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from penstock.formats.lance.columns import has_more_columns, why_not_read
from penstock.formats.lance.fragments import FRESH, SUFFIXES, Fragment, Side, fragments_of, mark_of
from penstock.formats.lance.lineage import Lineage, RowChanges
from penstock.formats.lance.manifests import Base, Flag, Manifest, ManifestOperation
from penstock.formats.lance.rehoming import (
    BASE_OF_FILE,
    DELETION_FILE,
    FRAGMENT_ID,
    Moved,
    check_movable,
    move_fragment,
    rebased,
)
from penstock.formats.lance.rows import (
    Ranges,
    RowSet,
    all_rows,
    count,
    difference,
    other_rows,
    places_of,
    shared_rows,
    union,
)
from penstock.formats.lance.state import Step
from penstock.formats.lance.wire import Message, packed_numbers

PLAIN: Final = frozenset((ManifestOperation.APPEND, ManifestOperation.DELETE, ManifestOperation.RESERVE))
"""What neither replaces rows nor writes them to other files."""
OF_ROWS: Final = frozenset((*PLAIN, ManifestOperation.UPDATE, ManifestOperation.REWRITE))
GRAFTED: Final = frozenset((*OF_ROWS, ManifestOperation.MERGE, ManifestOperation.PROJECT))
"""What can come on top of something else, columns only if both sides have the same ones in the end."""
UNGROUNDED: Final = frozenset(
    (ManifestOperation.OVERWRITE, ManifestOperation.RESTORE, ManifestOperation.CLONE, ManifestOperation.OTHER)
)
"""What nothing can be grafted onto: the other side may have meant rows that are not there any more."""
_BITMAP: Final = 1
"""The kind of a file of deleted rows that is written here."""
_BLOBS: Final = b"lance.blob.v2"
"""Columns whose rows may name the numbers of bases."""


class Ungraftable(Exception):
    """Two sides of a table do not go together. The reason continues a sentence; clashes name data files.

    ``way_out`` is what helps beside what always does.
    """

    def __init__(self, why: str, clashes: Collection[str] = (), way_out: str = "") -> None:
        super().__init__(why)
        self.why, self.clashes, self.way_out = why, tuple(clashes), way_out


class Copy(NamedTuple):
    """A file that has to be copied for a grafted version to be read."""

    source: str
    """Its whole path or URL."""
    name: str
    """Below the folder of the target."""


class NewDeletions(NamedTuple):
    """A file of deleted rows that has to be written for a grafted version to be read."""

    name: str
    """Below the folder of the target."""
    places: Ranges


class Grafted(NamedTuple):
    """The other side with what was grafted, and what that was, for the transaction of the version."""

    manifest: Manifest
    operation: ManifestOperation
    what: Message
    copies: tuple[Copy, ...]
    deletions: tuple[NewDeletions, ...]
    added: frozenset[bytes]
    """Marks of the data files that rows came from."""
    is_changed: bool
    """Whether it is not as it was."""


class SideHistory(NamedTuple):
    """What was done on a side since the sides parted."""

    operations: frozenset[ManifestOperation]
    changes: RowChanges | None
    """What was done to rows; ``None`` if that is not known."""
    has_inserts: bool
    """Whether a merge insert has inserted rows, or may have."""
    taken: frozenset[bytes]
    """Marks of the fragments that came by repeated commits."""
    comes_from_bases: bool
    """Whether it has had all rows of the states that both sides come from: none of them was left out."""
    left_out: RowSet | None
    """Rows of such states that it never had, and that were put in the place of others, which it has
    therefore; ``None`` if that is not known."""

    @property
    def has_replaced(self) -> bool:
        """Whether rows that are gone may be there still, as others or in other fragments."""
        return not PLAIN.issuperset(self.operations)

    @property
    def has_added(self) -> bool:
        return ManifestOperation.APPEND in self.operations or self.has_inserts


class BaseState(NamedTuple):
    """A state that both sides come from."""

    side: Side
    removed: RowSet
    """Rows that it has removed, and that another such state has."""


def check_operations(grafted: Collection[ManifestOperation], ground: Collection[ManifestOperation]) -> None:
    """``Ungraftable`` if what was done on one side cannot come on top of what was done on the other."""
    if others := _told({*grafted} - GRAFTED):
        raise Ungraftable(
            f"was changed on both sides, and by {_listed(others)} on the one whose changes would come on top"
            " of the other's, which cannot be done again"
        )
    if others := _told({*ground} & UNGROUNDED):
        raise Ungraftable(
            f"was changed on both sides, and by {_listed(others)} on one of them, which nothing can be put on"
            " top of"
        )


def graft(
    bases: Sequence[BaseState],
    source: Side,
    target: Side,
    lineage: Lineage,
    source_done: SideHistory,
    target_done: SideHistory,
    *,
    receiver: SideHistory | None = None,
    is_again: bool = False,
    strange: RowSet = MappingProxyType({}),
) -> Grafted:
    """What became of ``bases`` at ``source``, done to ``target``. ``Ungraftable``, ``Immovable`` if not.

    Both sides come from every base: rows that one of them has are not new, and a row that one side does not
    have any more has been removed there, since rows that were removed do not come back.
    ``receiver`` is the side that one commit is repeated on, if so: it may never have had such rows.
    ``is_again`` tells that it had the commit, and may have reverted it. ``strange`` are rows that came and
    went where a revert was made that is repeated: what they replaced may be here still.
    """
    states = [base.side for base in bases]
    for side in (*states, source, target):
        check_movable(side.manifest)
        if side.manifest.flags & Flag.STABLE_ROW_IDS:
            raise Ungraftable("was changed on both sides, and its rows have numbers of their own on each")
    _check_columns(states[0].manifest, source.manifest, target.manifest, source_done)
    _check_inserts(source_done, target_done)
    rows = _Rows([fragments_of(side) for side in (*states, source, target)], lineage)
    _check_values(rows, source_done, target_done)
    _check_known(rows, bases, source_done, target_done)
    known = {} if receiver is None or receiver.changes is None else receiver.changes.removed()
    if unknown := other_rows(shared_rows(rows.added, strange), known):
        raise Ungraftable("never had rows that the revert brings back", unknown)
    _check_returned(rows, source_done, target_done)
    if rows.added or rows.removed or not is_again:
        _check_rows(rows, bases, source_done, target_done, receiver, is_again=is_again)
    moves = RowMoves(rows.kept, rows.source, rows.target, rows.added, rows.removed)
    return Grafting(source, target, lineage, moves).grafted()


class _Rows:
    """The rows of all states that differ, and what follows from them."""

    def __init__(self, states: list[list[Fragment]], lineage: Lineage) -> None:
        self.lineage = lineage
        same = set.intersection(*({one.key for one in fragments} for fragments in states))
        self.kept = [one for one in states[-1] if one.key in same]
        """Fragments of the target that are the same everywhere."""
        rest = [[one for one in fragments if one.key not in same] for fragments in states]
        *self.bases, self.source, self.target = rest
        self.of_bases = [self._rows(one) for one in self.bases]
        self.base = all_rows(self.of_bases)
        self.of_source, self.of_target = self._rows(self.source), self._rows(self.target)
        self.added = other_rows(self.of_source, self.base, self.of_target)
        """What the source has, and has to come."""
        self.removed = shared_rows(other_rows(self.base, self.of_source), self.of_target)
        """What the target has, and has to go."""

    def _rows(self, fragments: Iterable[Fragment]) -> RowSet:
        return all_rows(map(self.lineage.rows, fragments))


def _check_known(rows: _Rows, bases: Sequence[BaseState], source: SideHistory, target: SideHistory) -> None:
    """``Ungraftable`` if rows are gone of which nothing says that they were removed.

    They would be there still, as others: it is not known then how the rows of both sides are to be compared.
    """
    for done, present in ((source, rows.of_source), (target, rows.of_target)):
        if done.changes is None or not done.comes_from_bases:
            continue
        gone = other_rows(rows.base, present)
        if lost := other_rows(gone, done.changes.removed(), *(one.removed for one in bases)):
            raise Ungraftable("has rows on both sides that cannot be compared", lost)


def _check_rows(
    rows: _Rows,
    bases: Sequence[BaseState],
    source: SideHistory,
    target: SideHistory,
    receiver: SideHistory | None,
    *,
    is_again: bool,
) -> None:
    """``Ungraftable`` if both sides have done something to one row that is not the same, or may have."""
    twice = other_rows(rows.base, rows.of_source, rows.of_target)
    for base, of_base in zip(bases, rows.of_bases, strict=True):
        # Both sides have it from a common state that such a row is gone.
        twice = other_rows(twice, shared_rows(other_rows(twice, of_base), base.removed))
    one, other = source.changes, target.changes
    if one is None or other is None:
        has_replaced = any(done.has_replaced or _undone(twice, done) for done in (source, target))
        if twice and (has_replaced or not rows.lineage.is_whole):
            raise Ungraftable(
                "had rows of the same data files updated, compacted or deleted on both sides, and which rows"
                " these were is not known",
                twice,
            )
        if source.taken or target.taken:
            raise Ungraftable(
                "got commits on one side by repeating them there, and where the rows of these commits went"
                " since is not known, so that rows might be there twice"
            )
        return
    known = {} if receiver is None or receiver.changes is None else receiver.changes.removed()
    if receiver is not None and (missing := other_rows(twice, known)):
        raise Ungraftable("does not have rows that the commit removes, or has them updated", missing)
    # A commit that was reverted comes back, and what was deleted or updated since does not.
    for_good = {} if receiver is None or receiver.changes is None else receiver.changes.removed_for_good()
    if back := shared_rows(rows.added, for_good):
        raise Ungraftable("had rows of the commit deleted or updated, which would come back", back)
    common = set() if is_again else one.updates.keys() & other.updates.keys()
    """Updates that both sides have, by whatever way, and that stand."""
    own = [
        {step: change for step, change in side.updates.items() if step not in common} for side in (one, other)
    ]
    replaced = all_rows(change.removed for updates in own for change in updates.values())
    if clashes := shared_rows(twice, replaced):
        raise Ungraftable("had the same rows updated or deleted on both sides", clashes)
    if clashes := all_rows(_undone(twice, done) for done in (source, target)):
        raise Ungraftable(
            "had rows updated or deleted on one side, and on the other one the former rows are there, since"
            " what replaced them was reverted or left out",
            clashes,
        )
    # Else a row is on both sides by a common state, or on one of them alone.
    is_whole = receiver is not None or (source.comes_from_bases and target.comes_from_bases)
    if source.taken or target.taken or not is_whole or (one.has_reverts and other.has_reverts):
        _check_repeated(rows, one, other, common, may_return=receiver is not None)


def _undone(rows: RowSet, done: SideHistory) -> RowSet:
    """Of rows that a side does not have, those in whose place it has others, though it did nothing to them.

    What both come from was merged to it after it had been reverted, or was left out.
    """
    if done.comes_from_bases:
        return {}
    removed = {} if done.changes is None else done.changes.removed()
    never_had = other_rows(rows, removed)
    return never_had if done.left_out is None else shared_rows(never_had, done.left_out)


def _check_repeated(
    rows: _Rows, source: RowChanges, target: RowChanges, common: Collection[Step], *, may_return: bool
) -> None:
    """``Ungraftable`` if a row that came to a side by a repeated commit would be there twice, or come back.

    So would one that reverts have brought back on both sides.

    It is in no state that both sides come from, so that only what was done to it tells that both had it.
    ``may_return`` tells that a row may come back that a revert has removed: its commit is repeated.
    """
    removed = target.removed_for_good() if may_return else target.removed()
    left = other_rows(rows.of_target, rows.of_source, rows.base)
    again = {*shared_rows(rows.added, removed)}
    for step, update in source.updates.items():
        again |= shared_rows(left, update.removed).keys()
        if step in common:  # what it made is gone on one side
            again |= shared_rows(left, update.added).keys()
        else:
            again |= shared_rows(other_rows(update.removed, rows.base, rows.of_target), removed).keys()
    if again:
        raise Ungraftable(
            "has rows that came to one side by a repeated commit or a revert, and were deleted or updated on"
            " the other one, so that they would be there twice or come back",
            again,
            way_out="transplant the commits that are missing",
        )


def _check_returned(rows: _Rows, source: SideHistory, target: SideHistory) -> None:
    """``Ungraftable`` if a revert brought rows back on one side that only some of the common states have.

    By one of these they are new there, and by another one the other side has removed them.
    """
    everywhere = rows.base
    for of_base in rows.of_bases:
        everywhere = shared_rows(everywhere, of_base)
    doubtful = other_rows(rows.base, everywhere)
    for done, mine, others in (
        (source, rows.of_source, rows.of_target),
        (target, rows.of_target, rows.of_source),
    ):
        returned = {} if done.changes is None else done.changes.returned()
        if clashes := other_rows(shared_rows(shared_rows(doubtful, mine), returned), others):
            raise Ungraftable(
                "has rows that a revert brought back on one side, and which the other side does not have",
                clashes,
            )


def _check_inserts(source: SideHistory, target: SideHistory) -> None:
    """A merge insert that comes on top of other rows has not looked whether its keys are among them."""
    if source.has_inserts and target.has_added:
        raise Ungraftable(
            "got rows on both sides, on one of them by a merge insert, which may have inserted what the other"
            " side has too"
        )


def _check_columns(base: Manifest, source: Manifest, target: Manifest, done: SideHistory) -> None:
    """``Ungraftable`` if rows that were written on one side do not fit the columns of the other."""
    if not source.has_settings_of(base) and not source.has_settings_of(target):
        raise Ungraftable("was changed on both sides, and its settings were on the other one")
    if source.has_schema_of(target):
        if (
            not source.has_schema_of(base)
            and {ManifestOperation.MERGE, ManifestOperation.REWRITE} <= done.operations
        ):
            raise Ungraftable("got the same columns on both sides, and the values of one cannot be told")
        return
    if not source.has_schema_of(base):
        if not target.has_schema_of(base):
            raise Ungraftable("was changed on both sides, and so were its columns")
        raise Ungraftable(
            "was changed on both sides, and its columns on the one whose changes would come on top of the"
            " other's",
            way_out="merge the other way first, and then this way",
        )
    if (why := why_not_read(source, target)) is not None:
        raise Ungraftable(f"was changed on both sides, and {why} on one of them")
    if ManifestOperation.UPDATE in done.operations and has_more_columns(target, source):
        raise Ungraftable(
            "got a column on one side, and had rows updated on the other, which would lose their values of"
            " that column"
        )


def _check_values(rows: _Rows, source: SideHistory, target: SideHistory) -> None:
    """``Ungraftable`` if rows of one side got other values where they are, and the other side has them too.

    Lance can write a column of a fragment anew, and leave the others where they are.
    """
    known = {one.files for fragments in rows.bases for one in fragments} | {one.files for one in rows.target}
    first = {files[0] for files in known}
    clashes = {one.file for one in rows.source if one.file in first and one.files not in known}
    if source.changes is None or target.changes is None:
        is_hidden = {ManifestOperation.UPDATE, ManifestOperation.REWRITE} <= source.operations
        clashes |= {*rows.of_source} if is_hidden else set()
        clashes |= {*rows.removed} if ManifestOperation.UPDATE in target.operations else set()
    else:
        one, other = (
            all_rows(change.rewritten for step, change in mine.updates.items() if step not in others.updates)
            for mine, others in ((source.changes, target.changes), (target.changes, source.changes))
        )
        clashes |= shared_rows(one, all_rows((rows.base, rows.of_target))).keys()
        clashes |= shared_rows(other, rows.removed).keys()
    if clashes:
        raise Ungraftable(
            "was changed on both sides, and had columns written anew on one of them, in data files of which"
            " the other one has rows, or removed some",
            clashes,
        )


class RowMoves(NamedTuple):
    """Which rows come to a target, which go, and the fragments of both sides that have them."""

    kept: Sequence[Fragment]
    """Fragments of the target that stay as they are."""
    source: Sequence[Fragment]
    target: Sequence[Fragment]
    added: RowSet
    removed: RowSet


class Grafting:
    """The target while fragments and deletions of the source come to it."""

    def __init__(self, source: Side, target: Side, lineage: Lineage, rows: RowMoves) -> None:
        self._source, self._target, self._rows = source, target, rows
        self._lineage = lineage
        self._bases, self._moved = rebased(
            source.manifest.bases, source.folder, target.folder, target.manifest.bases
        )
        is_renumbered = any(old not in (None, new) for old, new in self._moved.items())
        if is_renumbered and any(_BLOBS in field for field in source.manifest.schema[0]):
            raise Ungraftable("was changed on both sides, and its blobs name places by other numbers on each")
        self._copies: list[Copy] = []
        self._written: list[NewDeletions] = []

    @property
    def bases(self) -> tuple[Base, ...]:
        """The bases of the target, with those that the source's files need there."""
        return self._bases

    @property
    def moved(self) -> Moved:
        """Which base of the source is which of the target."""
        return self._moved

    def grafted(self) -> Grafted:
        target = self._target.manifest
        kept: dict[int, Message] = {one.number: one.message for one in self._rows.kept}
        updated: list[Message] = []
        removed: list[int] = []
        for fragment in self._rows.target:
            found = self._after_removal(fragment)
            if found is None:
                removed.append(fragment.number)
                continue
            kept[fragment.number] = found
            if found is not fragment.message:
                updated.append(found)
        first = target.max_fragment_id + 1
        new = [
            self._as_number(one, wanted, first + place) for place, (one, wanted) in enumerate(self._coming())
        ]
        ordered = [
            kept[number] for one in target.fragments if (number := one.number(FRAGMENT_ID) or 0) in kept
        ]
        manifest = target.with_parts(
            fragments=[*ordered, *new],
            bases=self._bases if new or updated else None,
            max_fragment_id=first + len(new) - 1,
        )
        said = _said(new, updated, packed_numbers(sorted(removed)))
        marks = frozenset(map(mark_of, self._rows.added))
        is_changed = bool(new or updated or removed)
        return Grafted(manifest, *said, tuple(self._copies), tuple(self._written), marks, is_changed)

    def _after_removal(self, fragment: Fragment) -> Message | None:
        """A fragment of the target without the rows that have to go; ``None`` if it has no others."""
        layout = self._lineage.layout(fragment)
        gone = places_of(layout, self._rows.removed)
        if not gone:
            return fragment.message
        places = union(self._lineage.deletions(fragment), gone)
        if count(places) == fragment.physical_rows:
            return None
        for one in self._rows.source:
            if one.file == fragment.file and self._lineage.deletions(one) == places:
                return self._having(fragment.message, self._deletion(one, fragment.number))
        return self._having(fragment.message, self._write(fragment.number, places))

    def _coming(self) -> list[tuple[Fragment, Ranges]]:
        """Fragments of the source that have rows which have to come, and the places of these."""
        found = ((one, self._wanted(one)) for one in self._rows.source)
        return [(one, wanted) for one, wanted in found if wanted]

    def _wanted(self, fragment: Fragment) -> Ranges:
        places = places_of(self._lineage.layout(fragment), self._rows.added)
        return difference(places, self._lineage.deletions(fragment))

    def _as_number(self, fragment: Fragment, wanted: Ranges, number: int) -> Message:
        """A fragment of the source as a new one of the target, with the rows that have to come."""
        moved = move_fragment(fragment.message, self._moved).having(FRAGMENT_ID, number)
        places = difference(((0, fragment.physical_rows),), wanted)
        if not places:
            return self._having(moved, None)
        if places == self._lineage.deletions(fragment):
            return self._having(moved, self._deletion(fragment, number))
        return self._having(moved, self._write(number, places))

    @staticmethod
    def _having(fragment: Message, deletion: bytes | None) -> Message:
        return fragment.having(DELETION_FILE, *(() if deletion is None else (deletion,)))

    def _deletion(self, fragment: Fragment, number: int) -> bytes:
        """The file of a fragment's deleted rows for the target, whose number of the fragment is given.

        It is named by the number of its fragment: where that becomes another one, the file is copied.
        """
        found = fragment.message.message(DELETION_FILE)
        assert found is not None
        assert fragment.deletion_file is not None
        if number == fragment.number:
            return move_fragment(fragment.message, self._moved).all(DELETION_FILE)[-1]
        chance = (found.number(3) or 0) & ~FRESH | secrets.randbits(FRESH.bit_length())
        suffix = SUFFIXES[found.number(1) or 0]
        self._copies.append(
            Copy(fragment.deletion_file, f"_deletions/{number}-{found.number(2) or 0}-{chance}.{suffix}")
        )
        return found.having(BASE_OF_FILE).having(3, chance).pack()

    def _write(self, number: int, places: Ranges) -> bytes:
        """A new file of deleted rows for a fragment of the target."""
        version, chance = self._target.manifest.version, secrets.randbits(64)
        name = f"_deletions/{number}-{version}-{chance}.{SUFFIXES[_BITMAP]}"
        self._written.append(NewDeletions(name, places))
        return Message.of((1, _BITMAP), (2, version), (3, chance), (4, count(places))).pack()


def marks_between(before: Side | None, after: Side) -> list[bytes]:
    """Marks of the data files that one version has and another has not. Raises as ``graft``."""
    known = {one.file for one in fragments_of(before)} if before is not None else set()
    return [mark_of(one.file) for one in fragments_of(after) if one.file not in known]


def _said(new: list[Message], updated: list[Message], removed: bytes) -> tuple[ManifestOperation, Message]:
    """What was done, in the words that tell other writers what they may do at the same time."""
    if not updated and not removed:
        return ManifestOperation.APPEND, Message.of(*((1, one.pack()) for one in new))
    if not new:
        ids = ((2, removed),) if removed else ()
        return ManifestOperation.DELETE, Message.of(*((1, one.pack()) for one in updated), *ids, (3, "true"))
    gone = ((1, removed),) if removed else ()
    return ManifestOperation.UPDATE, Message.of(
        *gone, *((2, one.pack()) for one in updated), *((3, one.pack()) for one in new)
    )


def _told(operations: Iterable[ManifestOperation]) -> list[str]:
    unknown = "something that is not known, since versions were deleted or a newer Lance made them"
    return sorted(unknown if one is ManifestOperation.OTHER else one.value for one in operations)


def _listed(names: Collection[str]) -> str:
    return " and ".join(names)
