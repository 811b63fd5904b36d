"""Writes new versions of a Lance table from files that are there already: the lake writes them, not a client.

A version of another chain comes as it is, rehomed; or what one side did comes on top of the other. Its
manifest is staged under a name that no other attempt has, before the version can count. What Lance would look
for in the new place by the number of a fragment, or would write to as if it were its own, is copied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID, uuid4

import msgspec

from penstock.errors import Damaged, OutcomeUnknown
from penstock.formats.lance.branch_chains import OwnedChain
from penstock.formats.lance.deletions import pack_deletions, read_deletions
from penstock.formats.lance.fragments import FolderVersion, list_fragments
from penstock.formats.lance.graft import (
    BaseState,
    FileCopy,
    GraftRefused,
    GraftResult,
    SideHistory,
    graft_changes,
    list_marks_between,
)
from penstock.formats.lance.lineage import LineageReaders, RowLineage, find_rewrites
from penstock.formats.lance.manifest_reader import ManifestReader
from penstock.formats.lance.manifests import Manifest, ManifestOperation, make_transaction
from penstock.formats.lance.merge_sides import NumberedVersion, SidesHistory
from penstock.formats.lance.names import LINES, MAIN, make_staged_path
from penstock.formats.lance.protobuf import ProtobufMessage
from penstock.formats.lance.relocation import (
    BASE_OF_INDEX,
    INDEX_NAME,
    INDEX_UUID,
    UnknownPlacement,
    is_copy,
    make_copy_id,
    make_index_id,
    move_to_folder,
    remove_idle_bases,
)
from penstock.formats.lance.removals import LaterChanges
from penstock.formats.lance.reversal import CommitRows, RevertStates, reverse_commit
from penstock.formats.lance.row_sets import Ranges, RowSet
from penstock.formats.lance.row_versions import renumber_row_versions
from penstock.formats.lance.state import (
    LanceTableVersion,
    MergeArrivals,
    RowTrace,
    VersionPointer,
    make_folder_url,
)
from penstock.formats.lance.version_pins import write_pin
from penstock.kernel.format import FormatRefused
from penstock.storage.places import Place, Places

INDEXES_MAX_BYTES: Final = 1024**3
"""How much of indexes is copied for a new version at most."""
TAKEN_MAX: Final = 4096
"""Of so many fragments one version remembers that they came by repeated commits."""
PIECE_BYTES: Final = 8 * 1024 * 1024


class VersionWriter:
    """Makes new versions of a table, in a chain of it and on one of Lance's own branches."""

    def __init__(
        self,
        places: Places,
        manifests: ManifestReader,
        location: str,
        chain: OwnedChain,
        attempt: str,
        now_us: int,
        *,
        is_dry: bool = False,
    ) -> None:
        """``is_dry`` tells that nothing is to be written, because it is only asked what would come of it."""
        self._place, self._manifests, self._location = places.open_place(location), manifests, location
        self._moved = places.moved
        self._chain, self._attempt, self._now_us = chain, f"{attempt}-{uuid4().hex}", now_us
        self._is_dry = is_dry

    def write_whole_version(
        self,
        source: NumberedVersion,
        newest: NumberedVersion | None,
        arrived: MergeArrivals | None,
        branch: str = MAIN,
        parted: int = 0,
    ) -> NumberedVersion:
        """A version as it is elsewhere or was earlier, as the next one here. ``FormatRefused`` if it cannot
        be.

        ``parted`` is the number, there, of the last version that both have.
        """
        old_side = self._read_folder_version(source, branch)
        before = None if newest is None else self._read_folder_version(newest, branch).manifest
        folder = make_folder_url(self._location, self._chain.folder, branch)
        try:
            manifest = move_to_folder(old_side.manifest, old_side.folder, folder)
            if old_side.folder != folder:
                manifest = renumber_row_versions(manifest, before, parted)
            if not self._chain.folder and branch == MAIN:
                manifest = self._move_indexes(manifest, before)
        except UnknownPlacement as problem:
            raise FormatRefused(f"{problem}, so it cannot be merged into another branch") from None
        if before is not None:
            manifest = manifest.continue_numbers(before)
            message = make_transaction(
                ManifestOperation.RESTORE,
                before.version,
                str(uuid4()),
                ProtobufMessage.from_fields((1, source.number)),
                {},
            )
        else:
            message = make_transaction(
                ManifestOperation.OVERWRITE, 0, str(uuid4()), manifest.make_overwrite_operation(), {}
            )
        self._pin_files(source, branch)
        return self._stage_version(manifest, newest, branch, message, arrived, source.state)

    def open_lineage(self, rewrites: Iterable[VersionPointer] | None, branch: str = MAIN) -> RowLineage:
        """Where rows are, as far as some versions moved them. ``FormatRefused`` if one of these cannot be
        read."""
        try:
            return self._read_lineage(rewrites, branch)
        except UnknownPlacement as problem:
            raise FormatRefused(f"was changed on both sides, and {problem}; {WAY_OUT}") from None

    def _read_lineage(self, rewrites: Iterable[VersionPointer] | None, branch: str) -> RowLineage:
        return RowLineage(
            LineageReaders(
                lambda version_at: self._read_folder_version_at(version_at, branch), self._read_deletions
            ),
            rewrites,
        )

    def trace_whole_version(
        self,
        source: NumberedVersion,
        newest: NumberedVersion | None,
        history: SidesHistory,
        apart: Iterable[NumberedVersion],
        branch: str,
    ) -> RowTrace | None:
        """Where rows went by what comes with another version as it is; ``None`` if that is not known.

        ``apart`` are the versions that only one of both sides has.
        """
        try:
            lineage = self._read_lineage(find_rewrites(apart), branch)
            if newest is not None:
                lineage.find_rows_of_one_side(
                    self._read_folder_version(source, branch), self._read_folder_version(newest, branch)
                )
            return lineage.trace_rows(history)
        except (UnknownPlacement, FormatRefused, Damaged):
            return None

    def write_graft(
        self,
        bases: Sequence[tuple[NumberedVersion, RowSet]],
        source: tuple[NumberedVersion, SideHistory],
        onto: tuple[NumberedVersion, SideHistory],
        newest: NumberedVersion,
        lineage: RowLineage,
        arrived: MergeArrivals,
        history: SidesHistory,
        branch: str = MAIN,
        *,
        is_reapplied: bool = False,
        strange: RowSet = MappingProxyType({}),
    ) -> NumberedVersion | None:
        """Write the next version: the changes of one side since the common versions, on top of the other
        side.

        That is the newest one here, or it is the other side's: then what was done here comes on top of that.
        ``history`` is what both sides did. Of each base the rows are given that it has
        removed and another one has. ``is_reapplied`` tells that a commit is repeated that was here, and was
        reverted, and ``strange`` are rows that a repeated revert may bring, but not to here.
        ``FormatRefused`` if it cannot be, ``None`` if a commit is repeated that is here already.
        """
        folder = make_folder_url(self._location, self._chain.folder, branch)
        ground = self._read_folder_version(onto[0], branch)
        try:
            ground = FolderVersion(move_to_folder(ground.manifest, ground.folder, folder), folder)
            parted = [BaseState(self._find_base(version, branch), removed) for version, removed in bases]
            receiver = None if arrived.id else onto[1] if onto[0] is newest else source[1]
            graft_result = graft_changes(
                parted,
                self._read_folder_version(source[0], branch),
                ground,
                lineage,
                source[1],
                onto[1],
                receiver=receiver,
                is_reapplied=is_reapplied,
                strange=strange,
            )
            manifest = graft_result.manifest
            if onto[0] is not newest and not self._chain.folder and branch == MAIN:
                manifest = self._move_indexes(manifest, self._read_folder_version(newest, branch).manifest)
        except UnknownPlacement as problem:
            raise FormatRefused(f"was changed on both sides, and {problem}; {WAY_OUT}") from None
        except GraftRefused as problem:
            raise make_refusal(problem, self._location) from None
        if not arrived.id and onto[0] is newest and not graft_result.is_changed:
            return None
        for version in (source[0], onto[0]):
            self._pin_files(version, branch)
        self._write_deletions(graft_result, folder)
        operation, what = graft_result.operation, graft_result.what
        if onto[0] is not newest:
            manifest = manifest.continue_numbers(self._read_folder_version(newest, branch).manifest)
            operation, what = ManifestOperation.RESTORE, ProtobufMessage.from_fields((1, newest.number))
        message = make_transaction(operation, newest.number, str(uuid4()), what, {})
        arrived = msgspec.structs.replace(arrived, trace=lineage.trace_rows(history))
        if not arrived.id:
            arrived = _add_marks(arrived, graft_result.added)
        return self._stage_version(manifest, newest, branch, message, arrived, b"")

    def read_side(self, version: NumberedVersion, branch: str = MAIN) -> FolderVersion:
        """A version, as it is stored. ``Damaged`` if its manifest is gone."""
        return self._read_folder_version(version, branch)

    def write_reversal(
        self,
        versions: tuple[NumberedVersion, NumberedVersion],
        newest: NumberedVersion,
        lineage: RowLineage,
        commit: CommitRows,
        later: LaterChanges,
        branch: str = MAIN,
    ) -> NumberedVersion | None:
        """Write the next version: the newest one without the changes between two earlier versions.

        As the next version here; ``None`` if nothing is left to be undone. ``IrreversibleCommit``,
        ``UnknownPlacement`` if it cannot be, ``Damaged`` if something that it needs is gone.
        """
        folder = make_folder_url(self._location, self._chain.folder, branch)
        before, after, now = (self._read_folder_version(version, branch) for version in (*versions, newest))
        graft_result = reverse_commit(
            RevertStates(
                before, after, FolderVersion(move_to_folder(now.manifest, now.folder, folder), folder)
            ),
            lineage,
            commit,
            later,
        )
        if not graft_result.is_changed:
            return None
        manifest = graft_result.manifest
        self._check_files(manifest, now, folder)
        if not self._chain.folder and branch == MAIN:
            manifest = self._move_indexes(manifest, now.manifest)
        for version in (versions[0], newest):
            self._pin_files(version, branch)
        self._write_deletions(graft_result, folder)
        message = make_transaction(graft_result.operation, newest.number, str(uuid4()), graft_result.what, {})
        return self._stage_version(manifest, newest, branch, message, None, b"")

    def _check_files(self, manifest: Manifest, now: FolderVersion, folder: str) -> None:
        """``Damaged`` if a data file that comes back is gone: its rows would be lost without a word."""
        current_files = {file for fragment in list_fragments(now) for file in fragment.files}
        coming = {
            file for fragment in list_fragments(FolderVersion(manifest, folder)) for file in fragment.files
        }
        for file in sorted(coming - current_files):
            if self._place.size(self._require_inside(file)) is None:
                raise Damaged(
                    f"{file}, whose rows would be restored, no longer exists", location=self._location
                )

    def _write_deletions(self, graft_result: GraftResult, folder: str) -> None:
        self._copy_files(graft_result.copies, folder)
        for name, places in () if self._is_dry else graft_result.deletions:
            _create_file(self._place, self._require_inside(f"{folder}/{name}"), pack_deletions(places))

    def _pin_files(self, version: NumberedVersion, branch: str) -> None:
        """See that files of another chain which the new version names are not cleaned up there."""
        if version.version.chain != self._chain.folder and not self._is_dry:
            write_pin(self._place, version, branch, self._now_us)

    def _read_folder_version(self, version: NumberedVersion, branch: str) -> FolderVersion:
        manifest = self._manifests.read_manifest(self._location, branch, version.number, version.version)
        return FolderVersion(manifest, make_folder_url(self._location, version.version.chain, branch))

    def _read_folder_version_at(self, version_at: VersionPointer, branch: str) -> FolderVersion:
        version = LanceTableVersion(
            chain=version_at.chain,
            staged=version_at.staged,
            size=version_at.size,
            sha256=version_at.sha256,
            is_v1=version_at.is_v1,
        )
        try:
            return self._read_folder_version(NumberedVersion(version_at.number, version), branch)
        except Damaged as problem:
            raise UnknownPlacement(problem.message) from None

    def _read_deletions(self, path: str) -> Ranges:
        (data,) = self._place.read([self._require_inside(path)])
        if data is None:
            raise UnknownPlacement(f"the deletion file {path} no longer exists")
        try:
            return read_deletions(path, data)
        except ValueError as problem:
            raise UnknownPlacement(f"the deletion file {path} cannot be read: {problem}") from None

    def _find_base(self, version: NumberedVersion, branch: str) -> FolderVersion:
        """Where the sides parted. Who let Lance clean up old versions may have lost it."""
        try:
            return self._read_folder_version(version, branch)
        except Damaged as problem:
            raise FormatRefused(f"was changed on both sides, and {problem.message}; {WAY_OUT}") from None

    def _stage_version(
        self,
        manifest: Manifest,
        newest: NumberedVersion | None,
        branch: str,
        message: ProtobufMessage,
        arrived: MergeArrivals | None,
        copied: bytes,
    ) -> NumberedVersion:
        number = 1 if newest is None else newest.number + 1
        manifest = remove_idle_bases(manifest, f"{self._location}/{LINES}")
        manifest = manifest.make_version(number, branch or None, message, self._now_us)
        if arrived is not None and not arrived.id:
            arrived = self._note_taken_marks(arrived, manifest, newest, branch)
        if arrived is not None and len(arrived.taken) > TAKEN_MAX:
            raise FormatRefused(
                f"would have {len(arrived.taken)} fragments from transplanted or rebased commits, and "
                f"at most {TAKEN_MAX} are supported; merge branches instead of transplanting or "
                "rebasing their commits"
            )
        data = manifest.encode(self._moved)
        name = make_staged_path(self._chain.folder, branch, self._attempt, number)
        if not self._is_dry:
            _create_file(self._place, name, data)
        version = LanceTableVersion(
            chain=self._chain.folder,
            staged=name,
            size=len(data),
            sha256=hashlib.sha256(data).digest(),
            time_us=self._now_us,
            operation=manifest.operation,
            is_v1=newest is not None and newest.version.is_v1 and newest.version.chain == self._chain.folder,
            arrived=arrived,
            copied=copied,
        )
        self._manifests.cache_manifest(version, data)  # of a dry run, too: what would change is told from it
        return NumberedVersion(number, version)

    def _note_taken_marks(
        self, arrived: MergeArrivals, manifest: Manifest, newest: NumberedVersion | None, branch: str
    ) -> MergeArrivals:
        """What came by a commit that was repeated, with the marks of the fragments that came with it."""
        before = None if newest is None else self._read_folder_version(newest, branch)
        after = FolderVersion(manifest, make_folder_url(self._location, self._chain.folder, branch))
        try:
            marks = list_marks_between(before, after)
        except (UnknownPlacement, GraftRefused):
            return arrived  # nothing will ever be grafted onto it
        return _add_marks(arrived, marks)

    # -- copies --------------------------------------------------------------------------------------------

    def _copy_files(self, copies: Iterable[FileCopy], folder: str) -> None:
        """Copy small files to below a folder."""
        for source, name in () if self._is_dry else copies:
            (data,) = self._place.read([self._require_inside(source)])
            if data is None:
                raise Damaged(
                    f"the deletion file {source} of a Lance table no longer exists", location=source
                )
            _create_file(self._place, self._require_inside(f"{folder}/{name}"), data)

    def _move_indexes(self, manifest: Manifest, before: Manifest | None) -> Manifest:
        """A manifest whose indexes all lie in the table's own folder, where this chain is.

        Compaction renews an index without bringing it home: what a table needs for filtered reads would be
        looked for at the old place, and not be there.
        """
        messages = () if before is None else before.indexes
        home = {make_index_id(message) for message in messages if message.get_number(BASE_OF_INDEX) is None}
        paths = {base.id: base.path for base in manifest.bases}
        copies: list[_IndexFile] = []
        indexes: list[ProtobufMessage] = []
        for index in manifest.indexes:
            base = index.get_number(BASE_OF_INDEX)
            if base is not None and make_index_id(index) not in home:
                copy = next((identity for identity in home if is_copy(identity, make_index_id(index))), None)
                new = make_copy_id(make_index_id(index)) if copy is None else copy
                if copy is None:
                    copies += self._list_index_files(index, paths.get(base, ""), new)
                index = index.replace_field(INDEX_UUID, ProtobufMessage.from_fields((1, new.bytes)).encode())
            indexes.append(index.replace_field(BASE_OF_INDEX))
        size = sum(copy.size for copy in copies)
        if size > INDEXES_MAX_BYTES:
            names = sorted({index.get_text(INDEX_NAME) or "" for index in manifest.indexes})
            raise FormatRefused(
                f"has indexes of {size} bytes ({', '.join(names)}) that would have to be copied, and at most "
                f"{INDEXES_MAX_BYTES} bytes are copied; drop them on the other side, and create them here "
                "later"
            )
        for index_file in () if self._is_dry else copies:
            self._place.put_pieces(
                index_file.name, _read_pieces(self._place, index_file.source, index_file.size)
            )
        return manifest.replace_parts(indexes=indexes)

    def _list_index_files(self, index: ProtobufMessage, base: str, new: UUID) -> list[_IndexFile]:
        folder, name = self._require_inside(f"{base}/_indices/{make_index_id(index)}/"), f"_indices/{new}/"
        index_files = [
            _IndexFile(entry.key, name + entry.key.removeprefix(folder), entry.size)
            for entry in self._place.list(folder)
        ]
        if not index_files:
            raise FormatRefused(
                f"has an index '{index.get_text(INDEX_NAME)}' on the other side whose files no longer exist; "
                "drop it there, and merge again"
            )
        return index_files

    def _require_inside(self, path: str) -> str:
        """The name of a file below the table's folder: no manifest makes the lake read any other."""
        name = path.removeprefix(f"{self._location}/")
        if name == path or ".." in name.split("/"):
            raise FormatRefused(f"has files at {path}, outside its own folder, so it cannot be merged")
        return name


class _IndexFile(NamedTuple):
    """A file of an index: where it is, where it belongs, and its size."""

    source: str
    name: str
    size: int


WAY_OUT: Final = "take one side with the mode 'force' or 'drop', or repeat the source's changes on the target"


TOLD_MAX: Final = 3
"""Of fragments that clash, so many are named."""


def make_refusal(problem: GraftRefused, location: str) -> FormatRefused:
    """Why two sides do not go together, with some of the fragments that both changed, by their data files.

    It is about the table as a whole: nobody takes one side of a fragment.
    """
    shown_files = shorten_names([name.removeprefix(f"{location}/") for name in sorted(problem.clashes)])
    way_out = f"{problem.way_out}, or {WAY_OUT}" if problem.way_out else WAY_OUT
    return FormatRefused(f"{problem.why}{f' ({shown_files})' if shown_files else ''}; {way_out}")


def shorten_names(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - TOLD_MAX} more" if len(names) > TOLD_MAX else ""
    return ", ".join(names[:TOLD_MAX]) + more


def _add_marks(arrived: MergeArrivals, marks: Iterable[bytes]) -> MergeArrivals:
    return msgspec.structs.replace(arrived, taken=tuple(dict.fromkeys((*arrived.taken, *sorted(marks)))))


def _create_file(place: Place, name: str, data: bytes) -> None:
    """Write a file whose name tells what is in it."""
    try:
        place.create(name, data)
    except OutcomeUnknown:
        if next(iter(place.read([name]))) != data:
            raise


def _read_pieces(place: Place, name: str, size: int) -> Iterator[bytes]:
    for start in range(0, size, PIECE_BYTES):
        piece = place.read_range(name, start, PIECE_BYTES)
        if piece is None:
            raise Damaged(f"{place.url}/{name}, a file of an index, no longer exists", location=place.url)
        yield piece
