"""Grafts the row changes of one side, since the sides parted, on top of the other side.

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

from penstock.formats.lance.columns import explain_unreadable_columns, has_more_columns
from penstock.formats.lance.fragments import (
    FRESH,
    SUFFIXES,
    FolderVersion,
    Fragment,
    list_fragments,
    make_file_mark,
)
from penstock.formats.lance.lineage import RowChanges, RowLineage
from penstock.formats.lance.manifests import FileBase, Manifest, ManifestFlag, ManifestOperation
from penstock.formats.lance.protobuf import ProtobufMessage, pack_numbers
from penstock.formats.lance.relocation import (
    BASE_OF_FILE,
    DELETION_FILE,
    FRAGMENT_ID,
    Moved,
    check_movable,
    move_bases,
    move_fragment,
)
from penstock.formats.lance.row_sets import (
    Ranges,
    RowSet,
    count_numbers,
    find_places,
    intersect_row_sets,
    subtract_ranges,
    subtract_row_sets,
    unite_ranges,
    unite_row_sets,
)
from penstock.formats.lance.state import Step

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


class GraftRefused(Exception):
    """Two sides of a table do not go together. The reason continues a sentence; clashes name data files.

    ``way_out`` is what helps beside what always does.
    """

    def __init__(self, why: str, clashes: Collection[str] = (), way_out: str = "") -> None:
        super().__init__(why)
        self.why, self.clashes, self.way_out = why, tuple(clashes), way_out


class FileCopy(NamedTuple):
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


class GraftResult(NamedTuple):
    """The other side with what was grafted, and what that was, for the transaction of the version."""

    manifest: Manifest
    operation: ManifestOperation
    what: ProtobufMessage
    copies: tuple[FileCopy, ...]
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

    side: FolderVersion
    removed: RowSet
    """Rows that it has removed, and that another such state has."""


def check_operations(grafted: Collection[ManifestOperation], ground: Collection[ManifestOperation]) -> None:
    """``GraftRefused`` if what was done on one side cannot come on top of what was done on the other."""
    if others := _list_operation_names({*grafted} - GRAFTED):
        raise GraftRefused(
            f"was changed on both sides, and {_join_names(others)} on the source cannot be repeated on "
            "top of the target's changes"
        )
    if others := _list_operation_names({*ground} & UNGROUNDED):
        raise GraftRefused(
            f"was changed on both sides: the target has had {_join_names(others)}, after which Lance "
            "cannot apply the source's changes"
        )


def graft_changes(
    bases: Sequence[BaseState],
    source: FolderVersion,
    target: FolderVersion,
    lineage: RowLineage,
    source_done: SideHistory,
    target_done: SideHistory,
    *,
    receiver: SideHistory | None = None,
    is_reapplied: bool = False,
    strange: RowSet = MappingProxyType({}),
) -> GraftResult:
    """What became of ``bases`` at ``source``, done to ``target``. ``GraftRefused``, ``UnknownPlacement`` if
    not.

    Both sides come from every base: rows that one of them has are not new, and a row that one side does not
    have any more has been removed there, since rows that were removed do not come back.
    ``receiver`` is the side that one commit is repeated on, if so: it may never have had such rows.
    ``is_reapplied`` tells that it had the commit, and may have reverted it. ``strange`` are rows that came
    and went where a revert was made that is repeated: what they replaced may be here still.
    """
    states = [base.side for base in bases]
    for side in (*states, source, target):
        check_movable(side.manifest)
        if side.manifest.flags & ManifestFlag.STABLE_ROW_IDS:
            raise GraftRefused(
                "was changed on both sides, and has stable row ids: both sides gave the same ids to "
                "different new rows"
            )
    _check_columns(states[0].manifest, source.manifest, target.manifest, source_done)
    _check_inserts(source_done, target_done)
    rows = _GraftedRows([list_fragments(side) for side in (*states, source, target)], lineage)
    _check_values(rows, source_done, target_done)
    _check_known(rows, bases, source_done, target_done)
    removed_rows = (
        {} if receiver is None or receiver.changes is None else receiver.changes.list_removed_rows()
    )
    if unknown := subtract_row_sets(intersect_row_sets(rows.added, strange), removed_rows):
        raise GraftRefused("never had, on this branch, the rows that the revert would restore", unknown)
    _check_returned(rows, source_done, target_done)
    if rows.added or rows.removed or not is_reapplied:
        _check_rows(rows, bases, source_done, target_done, receiver, is_reapplied=is_reapplied)
    moves = RowMoves(rows.kept, rows.source, rows.target, rows.added, rows.removed)
    return RowGraft(source, target, lineage, moves).graft_rows()


class _GraftedRows:
    """The rows of all states that differ, and what follows from them."""

    def __init__(self, states: list[list[Fragment]], lineage: RowLineage) -> None:
        self.lineage = lineage
        same = set.intersection(*({fragment.identity for fragment in fragments} for fragments in states))
        self.kept = [state for state in states[-1] if state.identity in same]
        """Fragments of the target that are the same everywhere."""
        rest = [[fragment for fragment in fragments if fragment.identity not in same] for fragments in states]
        *self.bases, self.source, self.target = rest
        self.of_bases = [self._rows_of_fragments(base) for base in self.bases]
        self.base = unite_row_sets(self.of_bases)
        self.of_source, self.of_target = (
            self._rows_of_fragments(self.source),
            self._rows_of_fragments(self.target),
        )
        self.added = subtract_row_sets(self.of_source, self.base, self.of_target)
        """What the source has, and has to come."""
        self.removed = intersect_row_sets(subtract_row_sets(self.base, self.of_source), self.of_target)
        """What the target has, and has to go."""

    def _rows_of_fragments(self, fragments: Iterable[Fragment]) -> RowSet:
        return unite_row_sets(map(self.lineage.list_rows, fragments))


def _check_known(
    rows: _GraftedRows, bases: Sequence[BaseState], source: SideHistory, target: SideHistory
) -> None:
    """``GraftRefused`` if rows are gone of which nothing says that they were removed.

    They would be there still, as others: it is not known then how the rows of both sides are to be compared.
    """
    for history, present in ((source, rows.of_source), (target, rows.of_target)):
        if history.changes is None or not history.comes_from_bases:
            continue
        gone = subtract_row_sets(rows.base, present)
        if lost := subtract_row_sets(
            gone, history.changes.list_removed_rows(), *(base.removed for base in bases)
        ):
            raise GraftRefused(
                "was changed on both sides, and the history no longer says which rows of "
                "one side are rows of the other",
                lost,
            )


def _check_rows(
    rows: _GraftedRows,
    bases: Sequence[BaseState],
    source: SideHistory,
    target: SideHistory,
    receiver: SideHistory | None,
    *,
    is_reapplied: bool,
) -> None:
    """``GraftRefused`` if both sides have done something to one row that is not the same, or may have."""
    added_by_both = subtract_row_sets(rows.base, rows.of_source, rows.of_target)
    for base, of_base in zip(bases, rows.of_bases, strict=True):
        # Both sides have it from a common state that such a row is gone.
        added_by_both = subtract_row_sets(
            added_by_both, intersect_row_sets(subtract_row_sets(added_by_both, of_base), base.removed)
        )
    row_changes, other = source.changes, target.changes
    if row_changes is None or other is None:
        has_replaced = any(
            history.has_replaced or _find_undone(added_by_both, history) for history in (source, target)
        )
        if added_by_both and (has_replaced or not rows.lineage.is_whole):
            raise GraftRefused(
                "had the same data files changed on both sides (updated, compacted or deleted rows), and "
                "the history no longer says which rows",
                added_by_both,
            )
        if source.taken or target.taken:
            raise GraftRefused(
                "got transplanted or rebased commits on one side, and the history no longer says where "
                "their rows are: a merge might duplicate rows"
            )
        return
    removed_rows = (
        {} if receiver is None or receiver.changes is None else receiver.changes.list_removed_rows()
    )
    if receiver is not None and (missing := subtract_row_sets(added_by_both, removed_rows)):
        raise GraftRefused(
            "no longer has the rows that the commit deletes or updates, or has updated them since", missing
        )
    # A commit that was reverted comes back, and what was deleted or updated since does not.
    for_good = (
        {} if receiver is None or receiver.changes is None else receiver.changes.list_rows_removed_for_good()
    )
    if back := intersect_row_sets(rows.added, for_good):
        raise GraftRefused("has deleted or updated rows that the commit added: they would come back", back)
    common = set() if is_reapplied else row_changes.updates.keys() & other.updates.keys()
    """Updates that both sides have, by whatever way, and that stand."""
    own = [
        {step: change for step, change in side.updates.items() if step not in common}
        for side in (row_changes, other)
    ]
    replaced = unite_row_sets(change.removed for updates in own for change in updates.values())
    if clashes := intersect_row_sets(added_by_both, replaced):
        raise GraftRefused("had the same rows updated or deleted on both sides", clashes)
    if clashes := unite_row_sets(_find_undone(added_by_both, history) for history in (source, target)):
        raise GraftRefused(
            "had rows updated or deleted on one side; the other side still has the old rows, because the "
            "change was reverted or left out there",
            clashes,
        )
    # Else a row is on both sides by a common state, or on one of them alone.
    is_whole = receiver is not None or (source.comes_from_bases and target.comes_from_bases)
    if source.taken or target.taken or not is_whole or (row_changes.has_reverts and other.has_reverts):
        _check_repeated(rows, row_changes, other, common, may_return=receiver is not None)


def _find_undone(rows: RowSet, history: SideHistory) -> RowSet:
    """Of rows that a side does not have, those in whose place it has others, though it did nothing to them.

    What both come from was merged to it after it had been reverted, or was left out.
    """
    if history.comes_from_bases:
        return {}
    removed = {} if history.changes is None else history.changes.list_removed_rows()
    never_had = subtract_row_sets(rows, removed)
    return never_had if history.left_out is None else intersect_row_sets(never_had, history.left_out)


def _check_repeated(
    rows: _GraftedRows, source: RowChanges, target: RowChanges, common: Collection[Step], *, may_return: bool
) -> None:
    """``GraftRefused`` if a row that came to a side by a repeated commit would be there twice, or come back.

    So would one that reverts have brought back on both sides.

    It is in no state that both sides come from, so that only what was done to it tells that both had it.
    ``may_return`` tells that a row may come back that a revert has removed: its commit is repeated.
    """
    removed = target.list_rows_removed_for_good() if may_return else target.list_removed_rows()
    remaining_other_rows = subtract_row_sets(rows.of_target, rows.of_source, rows.base)
    again = {*intersect_row_sets(rows.added, removed)}
    for step, update in source.updates.items():
        again |= intersect_row_sets(remaining_other_rows, update.removed).keys()
        if step in common:  # what it made is gone on one side
            again |= intersect_row_sets(remaining_other_rows, update.added).keys()
        else:
            again |= intersect_row_sets(
                subtract_row_sets(update.removed, rows.base, rows.of_target), removed
            ).keys()
    if again:
        raise GraftRefused(
            "has rows that one side got from transplanted or reverted commits, and the other side "
            "deleted or updated: a merge would duplicate them or bring them back",
            again,
            way_out="transplant the commits that are missing",
        )


def _check_returned(rows: _GraftedRows, source: SideHistory, target: SideHistory) -> None:
    """``GraftRefused`` if a revert brought rows back on one side that only some of the common states have.

    By one of these they are new there, and by another one the other side has removed them.
    """
    everywhere = rows.base
    for of_base in rows.of_bases:
        everywhere = intersect_row_sets(everywhere, of_base)
    doubtful = subtract_row_sets(rows.base, everywhere)
    for history, mine, others in (
        (source, rows.of_source, rows.of_target),
        (target, rows.of_target, rows.of_source),
    ):
        returned = {} if history.changes is None else history.changes.list_returned_rows()
        if clashes := subtract_row_sets(
            intersect_row_sets(intersect_row_sets(doubtful, mine), returned), others
        ):
            raise GraftRefused(
                "has rows that a revert restored on one side, but that the other side no longer has",
                clashes,
            )


def _check_inserts(source: SideHistory, target: SideHistory) -> None:
    """A merge insert that comes on top of other rows has not looked whether its keys are among them."""
    if source.has_inserts and target.has_added:
        raise GraftRefused(
            "got new rows on both sides, on one of them by a merge insert (upsert), so both may have "
            "inserted rows with the same keys"
        )


def _check_columns(base: Manifest, source: Manifest, target: Manifest, history: SideHistory) -> None:
    """``GraftRefused`` if rows that were written on one side do not fit the columns of the other."""
    if not source.has_settings_of(base) and not source.has_settings_of(target):
        raise GraftRefused("was changed on both sides: its rows on one, its settings on the other")
    if source.has_schema_of(target):
        if (
            not source.has_schema_of(base)
            and {ManifestOperation.MERGE, ManifestOperation.REWRITE} <= history.operations
        ):
            raise GraftRefused("got the same columns on both sides, possibly with different values")
        return
    if not source.has_schema_of(base):
        if not target.has_schema_of(base):
            raise GraftRefused("was changed on both sides, and both changed its columns")
        raise GraftRefused(
            "was changed on both sides, and the source also changed its columns",
            way_out="merge the other way first, and then this way",
        )
    if (why := explain_unreadable_columns(source, target)) is not None:
        raise GraftRefused(f"was changed on both sides, and {why} on one of them")
    if ManifestOperation.UPDATE in history.operations and has_more_columns(target, source):
        raise GraftRefused(
            "got a new column on one side and updated rows on the other: the updated rows would lose "
            "their values in that column"
        )


def _check_values(rows: _GraftedRows, source: SideHistory, target: SideHistory) -> None:
    """``GraftRefused`` if rows of one side got other values where they are, and the other side has them too.

    Lance can write a column of a fragment anew, and leave the others where they are.
    """
    files_of_bases = {fragment.files for fragments in rows.bases for fragment in fragments} | {
        fragment.files for fragment in rows.target
    }
    first = {files[0] for files in files_of_bases}
    clashes = {
        fragment.first_data_file
        for fragment in rows.source
        if fragment.first_data_file in first and fragment.files not in files_of_bases
    }
    if source.changes is None or target.changes is None:
        is_hidden = {ManifestOperation.UPDATE, ManifestOperation.REWRITE} <= source.operations
        clashes |= {*rows.of_source} if is_hidden else set()
        clashes |= {*rows.removed} if ManifestOperation.UPDATE in target.operations else set()
    else:
        rewritten_by_source, other = (
            unite_row_sets(
                change.rewritten for step, change in mine.updates.items() if step not in others.updates
            )
            for mine, others in ((source.changes, target.changes), (target.changes, source.changes))
        )
        clashes |= intersect_row_sets(rewritten_by_source, unite_row_sets((rows.base, rows.of_target))).keys()
        clashes |= intersect_row_sets(other, rows.removed).keys()
    if clashes:
        raise GraftRefused(
            "was changed on both sides: one side rewrote columns of data files from which the other side "
            "kept or deleted rows",
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


class RowGraft:
    """The target while fragments and deletions of the source come to it."""

    def __init__(
        self, source: FolderVersion, target: FolderVersion, lineage: RowLineage, rows: RowMoves
    ) -> None:
        self._source, self._target, self._rows = source, target, rows
        self._lineage = lineage
        self._bases, self._moved = move_bases(
            source.manifest.bases, source.folder, target.folder, target.manifest.bases
        )
        is_renumbered = any(old not in (None, new) for old, new in self._moved.items())
        if is_renumbered and any(_BLOBS in field for field in source.manifest.schema[0]):
            raise GraftRefused(
                "was changed on both sides, and they store its blobs at different locations under the same id"
            )
        self._copies: list[FileCopy] = []
        self._written: list[NewDeletions] = []

    @property
    def bases(self) -> tuple[FileBase, ...]:
        """The bases of the target, with those that the source's files need there."""
        return self._bases

    @property
    def base_moves(self) -> Moved:
        """Maps base paths of the source to those of the target."""
        return self._moved

    def graft_rows(self) -> GraftResult:
        target = self._target.manifest
        messages: dict[int, ProtobufMessage] = {
            fragment.number: fragment.message for fragment in self._rows.kept
        }
        updated: list[ProtobufMessage] = []
        removed: list[int] = []
        for fragment in self._rows.target:
            after_removal = self._remove_rows_from_fragment(fragment)
            if after_removal is None:
                removed.append(fragment.number)
                continue
            messages[fragment.number] = after_removal
            if after_removal is not fragment.message:
                updated.append(after_removal)
        first = target.max_fragment_id + 1
        new = [
            self._renumber_fragment(fragment, ranges, first + place)
            for place, (fragment, ranges) in enumerate(self._find_incoming_fragments())
        ]
        ordered = [
            messages[number]
            for fragment in target.fragments
            if (number := fragment.get_number(FRAGMENT_ID) or 0) in messages
        ]
        manifest = target.replace_parts(
            fragments=[*ordered, *new],
            bases=self._bases if new or updated else None,
            max_fragment_id=first + len(new) - 1,
        )
        transaction = _describe_transaction(new, updated, pack_numbers(sorted(removed)))
        marks = frozenset(map(make_file_mark, self._rows.added))
        is_changed = bool(new or updated or removed)
        return GraftResult(
            manifest, *transaction, tuple(self._copies), tuple(self._written), marks, is_changed
        )

    def _remove_rows_from_fragment(self, fragment: Fragment) -> ProtobufMessage | None:
        """A fragment of the target without the rows that have to go; ``None`` if it has no others."""
        layout = self._lineage.lay_out_fragment(fragment)
        gone = find_places(layout, self._rows.removed)
        if not gone:
            return fragment.message
        places = unite_ranges(self._lineage.read_deletions(fragment), gone)
        if count_numbers(places) == fragment.physical_rows:
            return None
        for incoming in self._rows.source:
            if (
                incoming.first_data_file == fragment.first_data_file
                and self._lineage.read_deletions(incoming) == places
            ):
                return self._replace_deletion(
                    fragment.message, self._write_deletion_file(incoming, fragment.number)
                )
        return self._replace_deletion(fragment.message, self._write_deletions(fragment.number, places))

    def _find_incoming_fragments(self) -> list[tuple[Fragment, Ranges]]:
        """Fragments of the source that have rows which have to come, and the places of these."""
        fragments = ((fragment, self._find_live_places(fragment)) for fragment in self._rows.source)
        return [(fragment, ranges) for fragment, ranges in fragments if ranges]

    def _find_live_places(self, fragment: Fragment) -> Ranges:
        places = find_places(self._lineage.lay_out_fragment(fragment), self._rows.added)
        return subtract_ranges(places, self._lineage.read_deletions(fragment))

    def _renumber_fragment(self, fragment: Fragment, ranges: Ranges, number: int) -> ProtobufMessage:
        """A fragment of the source as a new one of the target, with the rows that have to come."""
        moved = move_fragment(fragment.message, self._moved).replace_field(FRAGMENT_ID, number)
        places = subtract_ranges(((0, fragment.physical_rows),), ranges)
        if not places:
            return self._replace_deletion(moved, None)
        if places == self._lineage.read_deletions(fragment):
            return self._replace_deletion(moved, self._write_deletion_file(fragment, number))
        return self._replace_deletion(moved, self._write_deletions(number, places))

    @staticmethod
    def _replace_deletion(fragment: ProtobufMessage, deletion: bytes | None) -> ProtobufMessage:
        return fragment.replace_field(DELETION_FILE, *(() if deletion is None else (deletion,)))

    def _write_deletion_file(self, fragment: Fragment, number: int) -> bytes:
        """The file of a fragment's deleted rows for the target, whose number of the fragment is given.

        It is named by the number of its fragment: where that becomes another one, the file is copied.
        """
        message = fragment.message.get_message(DELETION_FILE)
        assert message is not None
        assert fragment.deletion_file is not None
        if number == fragment.number:
            return move_fragment(fragment.message, self._moved).get_values(DELETION_FILE)[-1]
        chance = (message.get_number(3) or 0) & ~FRESH | secrets.randbits(FRESH.bit_length())
        suffix = SUFFIXES[message.get_number(1) or 0]
        self._copies.append(
            FileCopy(
                fragment.deletion_file, f"_deletions/{number}-{message.get_number(2) or 0}-{chance}.{suffix}"
            )
        )
        return message.replace_field(BASE_OF_FILE).replace_field(3, chance).encode()

    def _write_deletions(self, number: int, places: Ranges) -> bytes:
        """A new file of deleted rows for a fragment of the target."""
        version, chance = self._target.manifest.version, secrets.randbits(64)
        name = f"_deletions/{number}-{version}-{chance}.{SUFFIXES[_BITMAP]}"
        self._written.append(NewDeletions(name, places))
        return ProtobufMessage.from_fields(
            (1, _BITMAP), (2, version), (3, chance), (4, count_numbers(places))
        ).encode()


def list_marks_between(before: FolderVersion | None, after: FolderVersion) -> list[bytes]:
    """Marks of the data files that one version has and another has not. Raises as ``graft_changes``."""
    old_files = (
        {fragment.first_data_file for fragment in list_fragments(before)} if before is not None else set()
    )
    return [
        make_file_mark(fragment.first_data_file)
        for fragment in list_fragments(after)
        if fragment.first_data_file not in old_files
    ]


def _describe_transaction(
    new: list[ProtobufMessage], updated: list[ProtobufMessage], removed: bytes
) -> tuple[ManifestOperation, ProtobufMessage]:
    """The operation and the transaction message for Lance, by which other writers detect conflicts."""
    if not updated and not removed:
        return ManifestOperation.APPEND, ProtobufMessage.from_fields(
            *((1, message.encode()) for message in new)
        )
    if not new:
        ids = ((2, removed),) if removed else ()
        return ManifestOperation.DELETE, ProtobufMessage.from_fields(
            *((1, message.encode()) for message in updated), *ids, (3, "true")
        )
    gone = ((1, removed),) if removed else ()
    return ManifestOperation.UPDATE, ProtobufMessage.from_fields(
        *gone, *((2, message.encode()) for message in updated), *((3, message.encode()) for message in new)
    )


def _list_operation_names(operations: Iterable[ManifestOperation]) -> list[str]:
    unknown = "an unknown operation (versions were deleted, or a newer Lance made them)"
    return sorted(
        unknown if operation is ManifestOperation.OTHER else operation.value for operation in operations
    )


def _join_names(names: Collection[str]) -> str:
    return " and ".join(names)
