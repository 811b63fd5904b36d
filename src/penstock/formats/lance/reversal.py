"""Reversal: a version of a table without what one commit did to it, whatever came after.

Three versions meet: the one *before* the commit, the one *after* it, and the one that is there *now*. What
the commit added goes, as far as it is still there, and what it removed comes back: rows, columns, values that
were written anew in place, settings and indexes, each by itself. Rows are compared by where they were first
written (``rows``), so that it does not matter what was compacted since.

Rows that come back do so in fragments of their own, with new numbers, though their data files stay where they
are. No index covers these, also none that somebody begins to build at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from penstock.formats.lance.columns import (
    ColumnsClash,
    explain_unreadable_columns,
    has_more_columns,
    list_column_numbers,
    revert_fields,
)
from penstock.formats.lance.fragments import FolderVersion, Fragment, list_fragments
from penstock.formats.lance.graft import GraftResult, RowGraft, RowMoves
from penstock.formats.lance.lineage import RowLineage, trace_arrived_rows
from penstock.formats.lance.manifests import Manifest, ManifestFlag, ManifestOperation
from penstock.formats.lance.merge_sides import NumberedVersion, SidesHistory
from penstock.formats.lance.protobuf import ProtobufMessage, unpack_numbers
from penstock.formats.lance.relocation import (
    FILES,
    FRAGMENT_ID,
    INDEX_NAME,
    check_movable,
    make_index_id,
    move_fragment,
    move_index,
)
from penstock.formats.lance.removals import LaterChanges, RowRemoval, find_rows_in
from penstock.formats.lance.row_sets import (
    RowSet,
    count_rows,
    intersect_row_sets,
    subtract_row_sets,
    unite_row_sets,
)
from penstock.formats.roaring import pack_numbers, read_numbers

_FIELDS_OF_FILE: Final = 2
_FIELDS_OF_INDEX: Final = 2
_BITMAP_OF_INDEX: Final = 5
_OWN_INDEXES: Final = "__lance_"
"""How the names of indexes begin that Lance keeps for itself."""
_WITHOUT_ROWS: Final = frozenset(
    (
        ManifestOperation.REWRITE,
        ManifestOperation.RESERVE,
        ManifestOperation.CREATE_INDEX,
        ManifestOperation.MERGE,
        ManifestOperation.PROJECT,
        ManifestOperation.CONFIG,
    )
)
_PLAIN: Final = frozenset((ManifestOperation.APPEND, ManifestOperation.DELETE))


class IrreversibleCommit(Exception):
    """What a commit did cannot be undone, for what came after it. The reason continues a sentence.

    ``files`` are the data files of rows at which it cannot be, ``versions`` those that are in the way.
    """

    def __init__(
        self, why: str, files: Iterable[str] = (), versions: Iterable[NumberedVersion | None] = ()
    ) -> None:
        super().__init__(why)
        self.why, self.files = why, tuple(sorted(files))
        self.versions = tuple(
            {version.number: version for version in versions if version is not None}.values()
        )


class CommitRows(NamedTuple):
    """What a commit did to rows, as far as its versions tell more than the states before and after it."""

    replaced: RowSet | None
    """Rows that it removed and put others in their place; ``None`` if that is not known, and may be any."""
    replacing: RowSet | None
    """Those that it put in their place; likewise."""
    operations: frozenset[ManifestOperation]


class RevertStates(NamedTuple):
    """The three versions that meet."""

    before: FolderVersion
    after: FolderVersion
    now: FolderVersion


def find_commit_rows(lineage: RowLineage, history: SidesHistory) -> CommitRows:
    """What a commit did to rows, by what its versions did. Raises as ``RowLineage.find_row_change``."""
    operations = frozenset(history.operations)
    removed: list[RowSet] = []
    added: list[RowSet] = []
    for before, after, operation in history.own:
        if operation in _PLAIN | _WITHOUT_ROWS:
            continue
        if before is None:
            return CommitRows(None, None, operations)
        change = lineage.find_row_change(
            (before.version.make_pointer(before.number), after.version.make_pointer(after.number))
        )
        # A merge insert may delete what its source does not have: there are fewer rows then, most often.
        is_update = count_rows(change.removed) <= count_rows(change.added)
        removed.append(change.removed if is_update else {})
        added.append(change.added)
    for arrived in history.arrived:
        changes = lineage.find_row_changes(trace_arrived_rows(arrived))
        if changes is None:
            return CommitRows(None, None, operations)
        removed += [change.removed for change in changes.updates.values()]
        added += [change.added for change in changes.updates.values()]
    return CommitRows(unite_row_sets(removed), unite_row_sets(added), operations)


def reverse_commit(
    states: RevertStates, lineage: RowLineage, commit: CommitRows, later: LaterChanges
) -> GraftResult:
    """The version that is there now without what the commit did. ``IrreversibleCommit``, ``UnknownPlacement``
    if not."""
    for side in states:
        check_movable(side.manifest)
    return _CommitReversal(states, lineage, commit, later).reverse_commit()


class _CommitReversal:
    def __init__(
        self, states: RevertStates, lineage: RowLineage, commit: CommitRows, later: LaterChanges
    ) -> None:
        self._states, self._lineage, self._commit, self._later = states, lineage, commit, later
        self._before, self._after, self._now = map(list_fragments, states)
        deletion_keys, made = (
            {fragment.identity for fragment in fragments} for fragments in (self._before, self._after)
        )
        old_rows = self._rows_of_fragments(
            fragment for fragment in self._before if fragment.identity not in made
        )
        rows = self._rows_of_fragments(
            fragment for fragment in self._after if fragment.identity not in deletion_keys
        )
        self._added, self._removed = subtract_row_sets(rows, old_rows), subtract_row_sets(old_rows, rows)
        files = self._added.keys() | self._removed.keys()
        self._holding = [
            fragment for fragment in self._now if not lineage.find_origin_files(fragment).isdisjoint(files)
        ]
        """Fragments that may have rows which the commit added or removed."""
        rows_now = self._rows_of_fragments(self._holding)
        self._goes = intersect_row_sets(self._added, rows_now)
        self._gone = subtract_row_sets(self._added, rows_now)
        self._comes = subtract_row_sets(self._removed, rows_now)

    def _rows_of_fragments(self, fragments: Iterable[Fragment]) -> RowSet:
        return unite_row_sets(map(self._lineage.list_rows, fragments))

    def reverse_commit(self) -> GraftResult:
        if self._added or self._removed:
            self._check_rows()
        manifest = self._restore_fields(self._states.now.manifest)
        has_other_fields = manifest is not self._states.now.manifest
        self._check_columns(manifest, has_other_fields)
        swaps = self._find_swaps(manifest)
        grafting = RowGraft(self._states.before, self._states.now, self._lineage, self._make_row_moves())
        grafted = grafting.graft_rows()
        if has_other_fields:
            grafted = grafted._replace(manifest=grafted.manifest.replace_fields(manifest.fields))
        manifest = _replace_files(grafted.manifest, swaps, grafting)
        manifest, new, dropped = self._restore_indexes(manifest, grafting)
        manifest, has_other_maps = self._restore_maps(manifest)
        operation, what = _make_row_operation(grafted)
        parts = [
            bool(grafted.is_changed),
            bool(has_other_fields or swaps),
            bool(new or dropped),
            has_other_maps,
        ]
        if sum(parts) > 1 or (swaps and not has_other_fields):
            operation, what = (
                ManifestOperation.RESTORE,
                ProtobufMessage.from_fields((1, self._states.now.manifest.version)),
            )
        elif has_other_fields:
            # Columns that go take their data files along, as if somebody had dropped them.
            operation, what = _make_column_operation(self._states.now.manifest, manifest)
        elif new or dropped:
            fields = (
                *((1, message.encode()) for message in new),
                *((2, message.encode()) for message in dropped),
            )
            operation, what = ManifestOperation.CREATE_INDEX, ProtobufMessage.from_fields(*fields)
        elif has_other_maps:
            operation, what = (
                ManifestOperation.CONFIG,
                _make_config_operation(self._states.now.manifest, manifest),
            )
        return grafted._replace(manifest=manifest, operation=operation, what=what, is_changed=any(parts))

    def _make_row_moves(self) -> RowMoves:
        holding = {fragment.number for fragment in self._holding}
        fragments = [fragment for fragment in self._now if fragment.number not in holding]
        return RowMoves(
            fragments, self._find_fragments_of_restored_rows(), self._holding, self._comes, self._goes
        )

    def _find_fragments_of_restored_rows(self) -> Sequence[Fragment]:
        """Fragments from before the commit that have rows which come back."""
        if not self._comes:
            return ()
        made = {fragment.identity for fragment in self._after}
        return [fragment for fragment in self._before if fragment.identity not in made]

    # -- rows ----------------------------------------------------------------------------------------------

    def _check_rows(self) -> None:
        """``IrreversibleCommit`` if rows that the commit added or removed were updated since, or may have
        been."""
        if (self._gone or self._comes) and not self._lineage.is_whole:
            raise IrreversibleCommit(
                "was compacted after the commit to be reverted, on another branch too, and the "
                "history no longer "
                "says which rows are in which file",
                chain(self._gone, self._comes),
            )
        self._check_gone()
        removals = self._later.find_removals(self._comes) if self._comes else []
        if replaced := [removal for removal in removals if removal.is_replacing]:
            raise _irreversible_error(
                "that the commit had removed, and a later commit restored, {} updated", replaced
            )
        if passed := [removal for removal in removals if removal.version is None and removal.is_by_revert]:
            # What is there now may be what they had taken the place of: it would be there twice.
            raise IrreversibleCommit(
                "was restored, after the commit to be reverted, to a state from before it, "
                "without rows that the "
                "revert would bring back",
                unite_row_sets(removal.rows for removal in passed),
            )
        self._check_parts()
        self._check_inserts()
        self._check_values()
        self._check_row_ids()

    def _check_gone(self) -> None:
        removals = self._later.find_removals(self._gone) if self._gone else []
        if unknown := subtract_row_sets(self._gone, *(removal.rows for removal in removals)):
            raise _irreversible_error(
                "that the commit added {} removed or rewritten", [RowRemoval(unknown, None, True)]
            )
        is_undone = not self._goes and not self._comes
        """All that the commit removed is there, and nothing that it added."""
        replaced = [
            removal
            for removal in removals
            if removal.is_replacing and not (is_undone and removal.is_by_revert)
        ]
        if replaced:
            raise _irreversible_error("that the commit added {} updated or rewritten", replaced)
        replacing = {} if is_undone else self._commit.replacing
        deleted = [
            removal._replace(
                rows=removal.rows if replacing is None else intersect_row_sets(removal.rows, replacing)
            )
            for removal in removals
        ]
        if deleted := [removal for removal in deleted if removal.rows]:
            raise _irreversible_error("that the commit had updated {} deleted", deleted)

    def _check_parts(self) -> None:
        """``IrreversibleCommit`` if rows are there that the commit put in the place of others, and removed
        again.

        A merge or a transaction brings several changes, and one of them may have been reverted on its own.
        """
        if not self._comes:
            return
        if self._commit.replacing is None:
            if self._later.has_reverts:
                raise IrreversibleCommit(
                    "had later changes reverted, possibly a part of the commit to be reverted",
                    self._comes,
                )
            return
        passing = subtract_row_sets(self._commit.replacing, self._added)
        if rows := find_rows_in(self._states.now, passing, self._lineage):
            raise IrreversibleCommit(
                "already had a part of the commit reverted, so it has rows that the commit had removed",
                rows,
            )

    def _check_inserts(self) -> None:
        """A later merge insert has not seen the keys of rows that the commit had deleted."""
        replaced = self._commit.replaced
        deleted = self._comes if replaced is None else subtract_row_sets(self._comes, replaced)
        if deleted and (inserting := self._later.find_insert()) is not None:
            raise IrreversibleCommit(
                "got rows by a merge insert (upsert) after the commit to be reverted, possibly "
                "with the same keys "
                "as rows that this commit deleted: those keys would be duplicated",
                deleted,
                [inserting],
            )

    def _check_values(self) -> None:
        """``IrreversibleCommit`` if columns of rows that are to go were written anew since."""
        after = {fragment.first_data_file: fragment for fragment in self._after}
        columns = list_column_numbers(self._states.after.manifest) & list_column_numbers(
            self._states.now.manifest
        )
        is_moved, clashes = False, set[str]()
        for fragment in self._holding:
            mine = intersect_row_sets(self._goes, self._lineage.list_rows(fragment))
            if not mine:
                continue
            then = after.get(fragment.first_data_file)
            if then is None:
                is_moved = True
            elif any(
                _map_columns_to_files(then).get(column) != _map_columns_to_files(fragment).get(column)
                for column in columns
            ):
                clashes |= mine.keys()
        if is_moved:
            rewritten = self._later.find_rewritten_rows()
            clashes |= (self._goes if rewritten is None else intersect_row_sets(self._goes, rewritten)).keys()
        if clashes:
            raise IrreversibleCommit(
                "had columns rewritten, by a later commit, in rows that the commit to be reverted added",
                clashes,
            )

    def _check_row_ids(self) -> None:
        """Rows that come back have the numbers that they had, which others must not have been given."""
        is_numbered = any(side.manifest.flags & ManifestFlag.STABLE_ROW_IDS for side in self._states)
        if self._comes and is_numbered and not self._later.is_one_line:
            raise IrreversibleCommit(
                "has stable row ids, and got the state of another branch after the commit to be "
                "reverted: that "
                "branch may have given the same ids to other rows",
                self._comes,
            )

    # -- columns -------------------------------------------------------------------------------------------

    def _restore_fields(self, now: Manifest) -> Manifest:
        before, after = self._states.before.manifest, self._states.after.manifest
        try:
            fields = revert_fields(before, after, now)
        except ColumnsClash as clash:
            raise IrreversibleCommit(
                f"had its column '{clash.name}' changed again by a later commit"
            ) from None
        return now if fields is None else now.replace_fields(fields)

    def _check_columns(self, result: Manifest, has_other_fields: bool) -> None:
        """``IrreversibleCommit`` if rows that are there, or come, do not fit the columns that are to be."""
        before, now = self._states.before.manifest, self._states.now.manifest
        if self._comes:
            if (why := explain_unreadable_columns(before, result)) is not None:
                raise IrreversibleCommit(f"had its columns changed by a later commit: {why}", self._comes)
            replaced = self._commit.replaced
            updated = self._comes if replaced is None else intersect_row_sets(self._comes, replaced)
            if updated and has_more_columns(result, before):
                raise IrreversibleCommit(
                    "got a new column by a later commit, and rows that the commit to be "
                    "reverted updated would "
                    "lose their values in that column",
                    updated,
                )
        if not has_other_fields:
            return
        files = {fragment.first_data_file for fragment in self._before}
        new = [fragment for fragment in self._now if fragment.first_data_file not in files]
        if new and (why := explain_unreadable_columns(now, result)) is not None:
            raise IrreversibleCommit(
                f"got rows by a later commit that do not fit the columns that the table had before: {why}",
                _list_files(new),
            )
        if list_column_numbers(result) - list_column_numbers(now):
            self._check_not_rewritten(new, "a column that the commit had dropped")

    def _find_swaps(self, result: Manifest) -> Mapping[int, tuple[Fragment, Sequence[int]]]:
        """Fragments that get the data files which they had before the commit.

        By the number of a fragment: the fragment as it was, and which of the files that it has now it keeps.
        """
        after = {fragment.first_data_file: fragment for fragment in self._after}
        changed = {
            fragment.first_data_file: (fragment, after[fragment.first_data_file])
            for fragment in self._before
            if fragment.first_data_file in after
            and _list_data_file_parts(fragment) != _list_data_file_parts(after[fragment.first_data_file])
        }
        columns = list_column_numbers(result)
        lost = {
            file
            for file, (old_fragment, fragment) in changed.items()
            if any(
                _map_columns_to_files(old_fragment).get(column) != _map_columns_to_files(fragment).get(column)
                for column in columns
            )
            and columns & _map_columns_to_files(old_fragment).keys()
        }
        files = {fragment.first_data_file for fragment in self._before}
        moved = [
            fragment
            for fragment in self._now
            if fragment.first_data_file not in files
            and not self._lineage.find_origin_files(fragment).isdisjoint(lost)
        ]
        if lost:
            self._check_not_rewritten(moved, "values that the commit had rewritten")
        swaps: dict[int, tuple[Fragment, Sequence[int]]] = {}
        for fragment in self._now:
            if fragment.first_data_file not in changed:
                continue
            old_fragment, finished_fragment = changed[fragment.first_data_file]
            here, made = _list_data_file_parts(fragment), _list_data_file_parts(finished_fragment)
            if set(made) <= set(here):
                swaps[fragment.number] = (
                    old_fragment,
                    [at for at, file in enumerate(here) if file not in made],
                )
            elif not set(_list_data_file_parts(old_fragment)) <= set(here):
                raise IrreversibleCommit(
                    "had the same columns rewritten again by a later commit", [fragment.first_data_file]
                )
        return swaps

    def _check_not_rewritten(self, fragments: Iterable[Fragment], subject: str) -> None:
        """``IrreversibleCommit`` if rows from before the commit were written to other files since."""
        files = {fragment.first_data_file for fragment in self._before}
        moved = [
            fragment
            for fragment in fragments
            if not self._lineage.find_origin_files(fragment).isdisjoint(files)
        ]
        if moved or self._later.has_replaced:
            raise IrreversibleCommit(
                f"had rows compacted or updated by a later commit, and these files lack {subject}",
                _list_files(moved),
            )

    # -- settings ------------------------------------------------------------------------------------------

    def _restore_maps(self, manifest: Manifest) -> tuple[Manifest, bool]:
        old_maps, new_maps, now = (side.manifest.maps for side in self._states)
        changed: dict[str, dict[str, bytes]] = {}
        for kind in old_maps:
            entries = dict(now[kind])
            for name in old_maps[kind].keys() | new_maps[kind].keys():
                data, made, here = (maps[kind].get(name) for maps in (old_maps, new_maps, now))
                if data in (made, here):
                    continue
                if here != made:
                    raise IrreversibleCommit(f"had its {kind} '{name}' changed again by a later commit")
                if data is None:
                    del entries[name]
                else:
                    entries[name] = data
            if entries != now[kind]:
                changed[kind] = entries
        return (manifest.replace_maps(changed) if changed else manifest), bool(changed)

    # -- indexes -------------------------------------------------------------------------------------------

    def _restore_indexes(
        self, manifest: Manifest, grafting: RowGraft
    ) -> tuple[Manifest, list[ProtobufMessage], list[ProtobufMessage]]:
        """The manifest with the indexes that it is to have, those that come and those that go."""
        old_indexes, new_indexes, now = (
            _group_indexes_by_name(side.manifest.indexes) for side in self._states
        )
        indexes = list(manifest.indexes)
        for name in old_indexes.keys() | new_indexes.keys():
            if name.startswith(_OWN_INDEXES) or _list_index_ids(old_indexes.get(name, ())) == _list_index_ids(
                new_indexes.get(name, ())
            ):
                continue
            here = now.get(name, [])
            if (
                name in old_indexes
                and name in new_indexes
                and ManifestOperation.CREATE_INDEX not in self._commit.operations
            ):
                continue  # compaction or an update has renewed it
            if (
                name in new_indexes
                and name in old_indexes
                and _list_index_ids(here)
                not in (_list_index_ids(new_indexes[name]), _list_index_ids(old_indexes[name]))
            ):
                raise IrreversibleCommit(f"had its index '{name}' changed again by a later commit")
            if (name not in new_indexes and here) or (
                here and _list_index_ids(here) == _list_index_ids(old_indexes.get(name, ()))
            ):
                continue
            indexes = [message for message in indexes if (message.get_text(INDEX_NAME) or "") != name]
            indexes += self._find_indexes_to_restore(old_indexes.get(name, ()), manifest, grafting)
        columns, fragment_ids = (
            list_column_numbers(manifest),
            {fragment.get_number(FRAGMENT_ID) or 0 for fragment in manifest.fragments},
        )
        removed = {fragment.number for fragment in self._now} - fragment_ids
        indexes = [
            _remove_fragments(message, removed)
            for message in indexes
            if columns >= _list_index_columns(message)
        ]
        identities, kept_ids = {*map(make_index_id, manifest.indexes)}, {*map(make_index_id, indexes)}
        new = [message for message in indexes if make_index_id(message) not in identities]
        dropped = [index for index in manifest.indexes if make_index_id(index) not in kept_ids]
        bases = grafting.bases if new else None
        return manifest.replace_parts(indexes=indexes, bases=bases), new, dropped

    def _find_indexes_to_restore(
        self, indexes: Iterable[ProtobufMessage], manifest: Manifest, grafting: RowGraft
    ) -> list[ProtobufMessage]:
        """Indexes from before the commit, for those fragments that are still what they were then."""
        after = {fragment.get_number(FRAGMENT_ID) or 0: fragment for fragment in manifest.fragments}
        then = {fragment.number: fragment for fragment in self._before}
        messages: list[ProtobufMessage] = []
        for index in indexes:
            covered = [
                fragment.number
                for fragment in self._now
                if fragment.number in _list_covered_fragments(index)
                and fragment.number in after
                and fragment.number in then
                and self._holds_all_rows_of(fragment, then[fragment.number], _list_index_columns(index))
            ]
            if covered:
                moved = move_index(index, grafting.base_moves)
                messages.append(moved.replace_field(_BITMAP_OF_INDEX, pack_numbers(covered)))
        return messages

    def _holds_all_rows_of(self, fragment: Fragment, other: Fragment, columns: Collection[int]) -> bool:
        """Whether all rows of a fragment are in another one too, with the same values of some columns."""
        mine, others = _map_columns_to_files(fragment), _map_columns_to_files(other)
        if fragment.first_data_file != other.first_data_file or any(
            mine.get(each) != others.get(each) for each in columns
        ):
            return False
        if fragment.deletions == other.deletions:
            return True
        return not subtract_row_sets(self._lineage.list_rows(fragment), self._lineage.list_rows(other))


def _irreversible_error(which: str, removals: Sequence[RowRemoval]) -> IrreversibleCommit:
    gone = unite_row_sets(removal.rows for removal in removals)
    number = count_rows(gone)
    rows, were = ("row", "was") if number == 1 else ("rows", "were")
    why = f"was changed by a later commit: {number} {rows} {which.format(were)} since"
    return IrreversibleCommit(why, gone, [removal.version for removal in removals])


def _list_files(fragments: Iterable[Fragment]) -> list[str]:
    return [fragment.first_data_file for fragment in fragments]


def _list_data_file_parts(fragment: Fragment) -> list[tuple[str, bytes]]:
    """The data files of a fragment, each with the numbers of its columns."""
    files = map(ProtobufMessage.decode, fragment.message.get_values(FILES))
    return [
        (path, b"".join(message.get_values(_FIELDS_OF_FILE)))
        for path, message in zip(fragment.files, files, strict=True)
    ]


def _map_columns_to_files(fragment: Fragment) -> dict[int, str]:
    """In which data file each column of a fragment is."""
    return {
        number: path for path, fields in _list_data_file_parts(fragment) for number in unpack_numbers(fields)
    }


def _replace_files(
    manifest: Manifest, swaps: Mapping[int, tuple[Fragment, Sequence[int]]], grafting: RowGraft
) -> Manifest:
    if not swaps:
        return manifest
    fragments: list[ProtobufMessage] = []
    for fragment in manifest.fragments:
        swap = swaps.get(fragment.get_number(FRAGMENT_ID) or 0)
        if swap is not None:
            old_fragment, kept_places = swap
            here = fragment.get_values(FILES)
            files = move_fragment(old_fragment.message, grafting.base_moves).get_values(FILES)
            fragment = fragment.replace_field(FILES, *files, *(here[at] for at in kept_places))
        fragments.append(fragment)
    return manifest.replace_parts(fragments=fragments, bases=grafting.bases)


def _group_indexes_by_name(indexes: Iterable[ProtobufMessage]) -> dict[str, list[ProtobufMessage]]:
    by_name: dict[str, list[ProtobufMessage]] = {}
    for index in indexes:
        by_name.setdefault(index.get_text(INDEX_NAME) or "", []).append(index)
    return by_name


def _list_index_ids(indexes: Iterable[ProtobufMessage]) -> frozenset[object]:
    return frozenset(map(make_index_id, indexes))


def _list_index_columns(index: ProtobufMessage) -> frozenset[int]:
    return frozenset(number for data in index.get_values(_FIELDS_OF_INDEX) for number in unpack_numbers(data))


def _list_covered_fragments(index: ProtobufMessage) -> frozenset[int]:
    """The fragments that an index covers; none if it does not say."""
    try:
        return frozenset(
            number for data in index.get_values(_BITMAP_OF_INDEX) for number in read_numbers(data)
        )
    except ValueError:
        return frozenset()


def _remove_fragments(index: ProtobufMessage, removed: Collection[int]) -> ProtobufMessage:
    covered = _list_covered_fragments(index)
    if covered.isdisjoint(removed):
        return index
    return index.replace_field(_BITMAP_OF_INDEX, pack_numbers(sorted(covered.difference(removed))))


def _make_row_operation(grafted: GraftResult) -> tuple[ManifestOperation, ProtobufMessage]:
    """Rows that come back are no new ones: whoever merges must know that they were there before."""
    if grafted.operation is not ManifestOperation.APPEND:
        return grafted.operation, grafted.what
    return ManifestOperation.UPDATE, ProtobufMessage.from_fields(
        *((3, data) for data in grafted.what.get_values(1))
    )


def _make_column_operation(before: Manifest, after: Manifest) -> tuple[ManifestOperation, ProtobufMessage]:
    fields = ((1, field) for field in after.fields)
    if list_column_numbers(after) <= list_column_numbers(before):
        return ManifestOperation.PROJECT, ProtobufMessage.from_fields(*fields)
    fragments = ((1, fragment.encode()) for fragment in after.fragments)
    return ManifestOperation.MERGE, ProtobufMessage.from_fields(
        *fragments, *((2, field) for field in after.fields)
    )


def _make_config_operation(before: Manifest, after: Manifest) -> ProtobufMessage:
    old_config, now = before.maps["config"], after.maps["config"]
    changed = [(name, value) for name, value in sorted(now.items()) if old_config.get(name) != value]
    entries = ((1, ProtobufMessage.from_fields((1, name), (2, value)).encode()) for name, value in changed)
    return ProtobufMessage.from_fields(
        *entries, *((2, name) for name in sorted(old_config.keys() - now.keys()))
    )
