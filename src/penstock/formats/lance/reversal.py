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
    has_more_columns,
    numbers_of,
    revert_fields,
    why_not_read,
)
from penstock.formats.lance.fragments import FolderVersion, Fragment, fragments_of
from penstock.formats.lance.graft import GraftResult, RowGraft, RowMoves
from penstock.formats.lance.lineage import Lineage, arrived_trace
from penstock.formats.lance.manifests import Manifest, ManifestFlag, ManifestOperation
from penstock.formats.lance.merge_sides import NumberedVersion, SidesHistory
from penstock.formats.lance.protobuf import ProtobufMessage, unpacked_numbers
from penstock.formats.lance.relocation import (
    FILES,
    FRAGMENT_ID,
    INDEX_NAME,
    check_movable,
    index_id,
    move_fragment,
    move_index,
)
from penstock.formats.lance.removals import LaterChanges, RowRemoval, rows_in
from penstock.formats.lance.row_sets import RowSet, all_rows, count_rows, other_rows, shared_rows
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


def commit_rows(lineage: Lineage, history: SidesHistory) -> CommitRows:
    """What a commit did to rows, by what its versions did. Raises as ``Lineage.change``."""
    operations = frozenset(history.operations)
    removed: list[RowSet] = []
    added: list[RowSet] = []
    for before, after, operation in history.own:
        if operation in _PLAIN | _WITHOUT_ROWS:
            continue
        if before is None:
            return CommitRows(None, None, operations)
        change = lineage.change((before.version.at(before.number), after.version.at(after.number)))
        # A merge insert may delete what its source does not have: there are fewer rows then, most often.
        is_update = count_rows(change.removed) <= count_rows(change.added)
        removed.append(change.removed if is_update else {})
        added.append(change.added)
    for arrived in history.arrived:
        changes = lineage.changes(arrived_trace(arrived))
        if changes is None:
            return CommitRows(None, None, operations)
        removed += [change.removed for change in changes.updates.values()]
        added += [change.added for change in changes.updates.values()]
    return CommitRows(all_rows(removed), all_rows(added), operations)


def reverse(states: RevertStates, lineage: Lineage, commit: CommitRows, later: LaterChanges) -> GraftResult:
    """The version that is there now without what the commit did. ``IrreversibleCommit``, ``UnknownPlacement``
    if not."""
    for side in states:
        check_movable(side.manifest)
    return _Reversal(states, lineage, commit, later).reverse()


class _Reversal:
    def __init__(
        self, states: RevertStates, lineage: Lineage, commit: CommitRows, later: LaterChanges
    ) -> None:
        self._states, self._lineage, self._commit, self._later = states, lineage, commit, later
        self._before, self._after, self._now = map(fragments_of, states)
        deletion_keys, made = (
            {fragment.key for fragment in fragments} for fragments in (self._before, self._after)
        )
        old_rows = self._rows_of_fragments(fragment for fragment in self._before if fragment.key not in made)
        rows = self._rows_of_fragments(
            fragment for fragment in self._after if fragment.key not in deletion_keys
        )
        self._added, self._removed = other_rows(rows, old_rows), other_rows(old_rows, rows)
        files = self._added.keys() | self._removed.keys()
        self._holding = [
            fragment for fragment in self._now if not lineage.origins(fragment).isdisjoint(files)
        ]
        """Fragments that may have rows which the commit added or removed."""
        rows_now = self._rows_of_fragments(self._holding)
        self._goes = shared_rows(self._added, rows_now)
        self._gone = other_rows(self._added, rows_now)
        self._comes = other_rows(self._removed, rows_now)

    def _rows_of_fragments(self, fragments: Iterable[Fragment]) -> RowSet:
        return all_rows(map(self._lineage.rows, fragments))

    def reverse(self) -> GraftResult:
        if self._added or self._removed:
            self._check_rows()
        manifest = self._with_fields(self._states.now.manifest)
        has_other_fields = manifest is not self._states.now.manifest
        self._check_columns(manifest, has_other_fields)
        swaps = self._find_swaps(manifest)
        grafting = RowGraft(self._states.before, self._states.now, self._lineage, self._make_row_moves())
        grafted = grafting.graft()
        if has_other_fields:
            grafted = grafted._replace(manifest=grafted.manifest.with_fields(manifest.fields))
        manifest = _with_files(grafted.manifest, swaps, grafting)
        manifest, new, dropped = self._with_indexes(manifest, grafting)
        manifest, has_other_maps = self._with_maps(manifest)
        operation, what = _row_operation(grafted)
        parts = [
            bool(grafted.is_changed),
            bool(has_other_fields or swaps),
            bool(new or dropped),
            has_other_maps,
        ]
        if sum(parts) > 1 or (swaps and not has_other_fields):
            operation, what = (
                ManifestOperation.RESTORE,
                ProtobufMessage.of((1, self._states.now.manifest.version)),
            )
        elif has_other_fields:
            # Columns that go take their data files along, as if somebody had dropped them.
            operation, what = _column_operation(self._states.now.manifest, manifest)
        elif new or dropped:
            fields = (
                *((1, message.pack()) for message in new),
                *((2, message.pack()) for message in dropped),
            )
            operation, what = ManifestOperation.CREATE_INDEX, ProtobufMessage.of(*fields)
        elif has_other_maps:
            operation, what = ManifestOperation.CONFIG, _config_operation(self._states.now.manifest, manifest)
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
        made = {fragment.key for fragment in self._after}
        return [fragment for fragment in self._before if fragment.key not in made]

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
        removals = self._later.removals(self._comes) if self._comes else []
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
                all_rows(removal.rows for removal in passed),
            )
        self._check_parts()
        self._check_inserts()
        self._check_values()
        self._check_row_ids()

    def _check_gone(self) -> None:
        removals = self._later.removals(self._gone) if self._gone else []
        if unknown := other_rows(self._gone, *(removal.rows for removal in removals)):
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
            removal._replace(rows=removal.rows if replacing is None else shared_rows(removal.rows, replacing))
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
        passing = other_rows(self._commit.replacing, self._added)
        if rows := rows_in(self._states.now, passing, self._lineage):
            raise IrreversibleCommit(
                "already had a part of the commit reverted, so it has rows that the commit had removed",
                rows,
            )

    def _check_inserts(self) -> None:
        """A later merge insert has not seen the keys of rows that the commit had deleted."""
        replaced = self._commit.replaced
        deleted = self._comes if replaced is None else other_rows(self._comes, replaced)
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
        after = {fragment.file: fragment for fragment in self._after}
        columns = numbers_of(self._states.after.manifest) & numbers_of(self._states.now.manifest)
        is_moved, clashes = False, set[str]()
        for fragment in self._holding:
            mine = shared_rows(self._goes, self._lineage.rows(fragment))
            if not mine:
                continue
            then = after.get(fragment.file)
            if then is None:
                is_moved = True
            elif any(
                _column_files(then).get(column) != _column_files(fragment).get(column) for column in columns
            ):
                clashes |= mine.keys()
        if is_moved:
            rewritten = self._later.rewritten()
            clashes |= (self._goes if rewritten is None else shared_rows(self._goes, rewritten)).keys()
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

    def _with_fields(self, now: Manifest) -> Manifest:
        before, after = self._states.before.manifest, self._states.after.manifest
        try:
            fields = revert_fields(before, after, now)
        except ColumnsClash as clash:
            raise IrreversibleCommit(
                f"had its column '{clash.name}' changed again by a later commit"
            ) from None
        return now if fields is None else now.with_fields(fields)

    def _check_columns(self, result: Manifest, has_other_fields: bool) -> None:
        """``IrreversibleCommit`` if rows that are there, or come, do not fit the columns that are to be."""
        before, now = self._states.before.manifest, self._states.now.manifest
        if self._comes:
            if (why := why_not_read(before, result)) is not None:
                raise IrreversibleCommit(f"had its columns changed by a later commit: {why}", self._comes)
            replaced = self._commit.replaced
            updated = self._comes if replaced is None else shared_rows(self._comes, replaced)
            if updated and has_more_columns(result, before):
                raise IrreversibleCommit(
                    "got a new column by a later commit, and rows that the commit to be "
                    "reverted updated would "
                    "lose their values in that column",
                    updated,
                )
        if not has_other_fields:
            return
        files = {fragment.file for fragment in self._before}
        new = [fragment for fragment in self._now if fragment.file not in files]
        if new and (why := why_not_read(now, result)) is not None:
            raise IrreversibleCommit(
                f"got rows by a later commit that do not fit the columns that the table had before: {why}",
                _files_of(new),
            )
        if numbers_of(result) - numbers_of(now):
            self._check_not_rewritten(new, "a column that the commit had dropped")

    def _find_swaps(self, result: Manifest) -> Mapping[int, tuple[Fragment, Sequence[int]]]:
        """Fragments that get the data files which they had before the commit.

        By the number of a fragment: the fragment as it was, and which of the files that it has now it keeps.
        """
        after = {fragment.file: fragment for fragment in self._after}
        changed = {
            fragment.file: (fragment, after[fragment.file])
            for fragment in self._before
            if fragment.file in after and _data_file_parts(fragment) != _data_file_parts(after[fragment.file])
        }
        columns = numbers_of(result)
        lost = {
            file
            for file, (old_fragment, fragment) in changed.items()
            if any(
                _column_files(old_fragment).get(column) != _column_files(fragment).get(column)
                for column in columns
            )
            and columns & _column_files(old_fragment).keys()
        }
        files = {fragment.file for fragment in self._before}
        moved = [
            fragment
            for fragment in self._now
            if fragment.file not in files and not self._lineage.origins(fragment).isdisjoint(lost)
        ]
        if lost:
            self._check_not_rewritten(moved, "values that the commit had rewritten")
        swaps: dict[int, tuple[Fragment, Sequence[int]]] = {}
        for fragment in self._now:
            if fragment.file not in changed:
                continue
            old_fragment, finished_fragment = changed[fragment.file]
            here, made = _data_file_parts(fragment), _data_file_parts(finished_fragment)
            if set(made) <= set(here):
                swaps[fragment.number] = (
                    old_fragment,
                    [at for at, file in enumerate(here) if file not in made],
                )
            elif not set(_data_file_parts(old_fragment)) <= set(here):
                raise IrreversibleCommit(
                    "had the same columns rewritten again by a later commit", [fragment.file]
                )
        return swaps

    def _check_not_rewritten(self, fragments: Iterable[Fragment], subject: str) -> None:
        """``IrreversibleCommit`` if rows from before the commit were written to other files since."""
        files = {fragment.file for fragment in self._before}
        moved = [fragment for fragment in fragments if not self._lineage.origins(fragment).isdisjoint(files)]
        if moved or self._later.has_replaced:
            raise IrreversibleCommit(
                f"had rows compacted or updated by a later commit, and these files lack {subject}",
                _files_of(moved),
            )

    # -- settings ------------------------------------------------------------------------------------------

    def _with_maps(self, manifest: Manifest) -> tuple[Manifest, bool]:
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
        return (manifest.with_maps(changed) if changed else manifest), bool(changed)

    # -- indexes -------------------------------------------------------------------------------------------

    def _with_indexes(
        self, manifest: Manifest, grafting: RowGraft
    ) -> tuple[Manifest, list[ProtobufMessage], list[ProtobufMessage]]:
        """The manifest with the indexes that it is to have, those that come and those that go."""
        old_indexes, new_indexes, now = (
            _group_indexes_by_name(side.manifest.indexes) for side in self._states
        )
        indexes = list(manifest.indexes)
        for name in old_indexes.keys() | new_indexes.keys():
            if name.startswith(_OWN_INDEXES) or _index_ids(old_indexes.get(name, ())) == _index_ids(
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
                and _index_ids(here) not in (_index_ids(new_indexes[name]), _index_ids(old_indexes[name]))
            ):
                raise IrreversibleCommit(f"had its index '{name}' changed again by a later commit")
            if (name not in new_indexes and here) or (
                here and _index_ids(here) == _index_ids(old_indexes.get(name, ()))
            ):
                continue
            indexes = [message for message in indexes if (message.text(INDEX_NAME) or "") != name]
            indexes += self._find_indexes_to_restore(old_indexes.get(name, ()), manifest, grafting)
        columns, fragment_ids = (
            numbers_of(manifest),
            {fragment.number(FRAGMENT_ID) or 0 for fragment in manifest.fragments},
        )
        removed = {fragment.number for fragment in self._now} - fragment_ids
        indexes = [
            _without_fragments(message, removed) for message in indexes if columns >= _index_columns(message)
        ]
        identities, kept_ids = {*map(index_id, manifest.indexes)}, {*map(index_id, indexes)}
        new = [message for message in indexes if index_id(message) not in identities]
        dropped = [index for index in manifest.indexes if index_id(index) not in kept_ids]
        bases = grafting.bases if new else None
        return manifest.with_parts(indexes=indexes, bases=bases), new, dropped

    def _find_indexes_to_restore(
        self, indexes: Iterable[ProtobufMessage], manifest: Manifest, grafting: RowGraft
    ) -> list[ProtobufMessage]:
        """Indexes from before the commit, for those fragments that are still what they were then."""
        after = {fragment.number(FRAGMENT_ID) or 0: fragment for fragment in manifest.fragments}
        then = {fragment.number: fragment for fragment in self._before}
        messages: list[ProtobufMessage] = []
        for index in indexes:
            covered = [
                fragment.number
                for fragment in self._now
                if fragment.number in _covered_fragments(index)
                and fragment.number in after
                and fragment.number in then
                and self._has_rows_of(fragment, then[fragment.number], _index_columns(index))
            ]
            if covered:
                moved = move_index(index, grafting.base_moves)
                messages.append(moved.with_field(_BITMAP_OF_INDEX, pack_numbers(covered)))
        return messages

    def _has_rows_of(self, fragment: Fragment, other: Fragment, columns: Collection[int]) -> bool:
        """Whether all rows of a fragment are in another one too, with the same values of some columns."""
        mine, others = _column_files(fragment), _column_files(other)
        if fragment.file != other.file or any(mine.get(each) != others.get(each) for each in columns):
            return False
        if fragment.deletions == other.deletions:
            return True
        return not other_rows(self._lineage.rows(fragment), self._lineage.rows(other))


def _irreversible_error(which: str, removals: Sequence[RowRemoval]) -> IrreversibleCommit:
    gone = all_rows(removal.rows for removal in removals)
    number = count_rows(gone)
    rows, were = ("row", "was") if number == 1 else ("rows", "were")
    why = f"was changed by a later commit: {number} {rows} {which.format(were)} since"
    return IrreversibleCommit(why, gone, [removal.version for removal in removals])


def _files_of(fragments: Iterable[Fragment]) -> list[str]:
    return [fragment.file for fragment in fragments]


def _data_file_parts(fragment: Fragment) -> list[tuple[str, bytes]]:
    """The data files of a fragment, each with the numbers of its columns."""
    files = map(ProtobufMessage.read, fragment.message.all(FILES))
    return [
        (path, b"".join(message.all(_FIELDS_OF_FILE)))
        for path, message in zip(fragment.files, files, strict=True)
    ]


def _column_files(fragment: Fragment) -> dict[int, str]:
    """In which data file each column of a fragment is."""
    return {
        number: path for path, fields in _data_file_parts(fragment) for number in unpacked_numbers(fields)
    }


def _with_files(
    manifest: Manifest, swaps: Mapping[int, tuple[Fragment, Sequence[int]]], grafting: RowGraft
) -> Manifest:
    if not swaps:
        return manifest
    fragments: list[ProtobufMessage] = []
    for fragment in manifest.fragments:
        swap = swaps.get(fragment.number(FRAGMENT_ID) or 0)
        if swap is not None:
            old_fragment, kept_places = swap
            here = fragment.all(FILES)
            files = move_fragment(old_fragment.message, grafting.base_moves).all(FILES)
            fragment = fragment.with_field(FILES, *files, *(here[at] for at in kept_places))
        fragments.append(fragment)
    return manifest.with_parts(fragments=fragments, bases=grafting.bases)


def _group_indexes_by_name(indexes: Iterable[ProtobufMessage]) -> dict[str, list[ProtobufMessage]]:
    by_name: dict[str, list[ProtobufMessage]] = {}
    for index in indexes:
        by_name.setdefault(index.text(INDEX_NAME) or "", []).append(index)
    return by_name


def _index_ids(indexes: Iterable[ProtobufMessage]) -> frozenset[object]:
    return frozenset(map(index_id, indexes))


def _index_columns(index: ProtobufMessage) -> frozenset[int]:
    return frozenset(number for data in index.all(_FIELDS_OF_INDEX) for number in unpacked_numbers(data))


def _covered_fragments(index: ProtobufMessage) -> frozenset[int]:
    """The fragments that an index covers; none if it does not say."""
    try:
        return frozenset(number for data in index.all(_BITMAP_OF_INDEX) for number in read_numbers(data))
    except ValueError:
        return frozenset()


def _without_fragments(index: ProtobufMessage, removed: Collection[int]) -> ProtobufMessage:
    covered = _covered_fragments(index)
    if covered.isdisjoint(removed):
        return index
    return index.with_field(_BITMAP_OF_INDEX, pack_numbers(sorted(covered.difference(removed))))


def _row_operation(grafted: GraftResult) -> tuple[ManifestOperation, ProtobufMessage]:
    """Rows that come back are no new ones: whoever merges must know that they were there before."""
    if grafted.operation is not ManifestOperation.APPEND:
        return grafted.operation, grafted.what
    return ManifestOperation.UPDATE, ProtobufMessage.of(*((3, data) for data in grafted.what.all(1)))


def _column_operation(before: Manifest, after: Manifest) -> tuple[ManifestOperation, ProtobufMessage]:
    fields = ((1, field) for field in after.fields)
    if numbers_of(after) <= numbers_of(before):
        return ManifestOperation.PROJECT, ProtobufMessage.of(*fields)
    fragments = ((1, fragment.pack()) for fragment in after.fragments)
    return ManifestOperation.MERGE, ProtobufMessage.of(*fragments, *((2, field) for field in after.fields))


def _config_operation(before: Manifest, after: Manifest) -> ProtobufMessage:
    old_config, now = before.maps["config"], after.maps["config"]
    changed = [(name, value) for name, value in sorted(now.items()) if old_config.get(name) != value]
    entries = ((1, ProtobufMessage.of((1, name), (2, value)).pack()) for name, value in changed)
    return ProtobufMessage.of(*entries, *((2, name) for name in sorted(old_config.keys() - now.keys())))
