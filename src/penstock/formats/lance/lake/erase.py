"""Erasing a Lance table: rows that data files and indexes still hold, and all versions of earlier.

Fragments with deleted rows are compacted, and all indexes are made anew: one that is only renewed keeps parts
of what it was made of. Both are commits like any other, which Lance makes. Then a version is committed that
changes nothing. The history of the table begins with it: the lake lists no earlier version any more, and
every state from then on says so.

From then on the lake takes no version that restores an earlier one, and no index that was made of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final
from uuid import UUID

from penstock.errors import (
    CommitConflict,
    KeyNotFound,
    OutcomeUnknown,
    TableStateRefused,
    Unavailable,
    UnsupportedFeature,
    VersionTaken,
)
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.erasure import (
    REUSED,
    SYSTEM,
    count_fragments_with_deletions,
    count_fragments_with_old_columns,
    list_index_names,
    make_first_version,
)
from penstock.formats.lance.intents import EraseStep, NumberedStep, Steps, encode_steps
from penstock.formats.lance.lake.lance_requirement import require_lance
from penstock.formats.lance.lake.leftovers import is_data
from penstock.formats.lance.lake.manifest_files import ManifestFiles, list_spellings
from penstock.formats.lance.lake.removed_rows import RemovedRows, list_stale_indexes
from penstock.formats.lance.lake.retained_tables import list_tables_at
from penstock.formats.lance.lake.sweep import LANCE_DAYS, LanceSweep
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import MAIN, make_staged_path
from penstock.formats.lance.relocation import (
    INDEX_NAME,
    INDEX_VERSION,
    UnknownPlacement,
    check_movable,
    make_index_id,
)
from penstock.formats.lance.state import (
    NAME,
    LanceState,
    LanceTableVersion,
    LanceVersionReader,
    decode_state,
    is_managed,
    make_folder_url,
)
from penstock.kernel.objects import read_content
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.erase import (
    FirstVersionKept,
    LeftoverFiles,
    TableHolder,
    list_dated_states,
    make_leftover_files,
)
from penstock.lake.lake import Lake
from penstock.model.clock import to_utc_datetime
from penstock.model.commits import CommitMeta
from penstock.model.content import ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.model.references import Kind
from penstock.storage.locations import normalise_location
from penstock.storage.places import SCRATCH, Place

if TYPE_CHECKING:
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.formats.lance.lake.table_rewrite import TableRewrite
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded

TRIES_MAX: Final = 10
"""How often something is done again because others change the table at the same time."""
PROMOTE_S: Final = 30.0
"""How long it may take until the version with which history begins is where every reader of Lance looks."""
_WITH_ROWS: Final = (".lance", ".blob", ".arrow", ".bin", ".idx", ".parquet", ".txn", ".manifest", ".tmp")
"""How files end that may have rows, or values of them."""


class LanceErasure:
    """What an erase does to a Lance table of the default branch."""

    def __init__(
        self, lake: Embedded, parts: LanceServices, key: Key, who: str, *, all_references: bool
    ) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._key, self._who, self._all_references = key, who, all_references
        self._branch = lake.kernel.formats.default_branch
        self._sound: tuple[int, frozenset[UUID]] | None = None
        """The version at which all indexes were made anew, and these."""
        self._start: LanceTable | None = None
        """The state with whose newest version history is to begin, if that is one of the table's past."""

    @property
    def content(self) -> LanceTable:
        return self._read_table(self._kernel.references.get_reference(self._branch).head)

    def _read_table(self, commit: ObjectId) -> LanceTable:
        content = read_content(self._kernel.objects, self._kernel.read_state(commit).get(self._key.encode()))
        if not isinstance(content, LanceTable) or not is_managed(content):
            raise KeyNotFound(
                f"the Lance table '{self._key}' no longer exists on '{self._branch}'", key=str(self._key)
            )
        return content

    @property
    def _place(self) -> Place:
        return self._lake.places.open_place(self.content.location)

    @property
    def _state(self) -> LanceState:
        return decode_state(self.content)

    def _read_newest_manifest(self) -> tuple[Manifest, str]:
        """The newest version, and the folder that it is at."""
        content = self.content
        newest = LanceVersionReader(self._kernel.objects, decode_state(content)).find_newest()
        if newest is None:
            raise TableStateRefused(
                f"'{self._key}' is declared, but has no rows that could be erased", key=str(self._key)
            )
        manifest = self._parts.manifests.read_manifest(content.location, MAIN, *newest)
        return manifest, make_folder_url(content.location, newest[1].chain)

    def require_erasable(self) -> None:
        """``ManagedElsewhere`` for a table of another lake, ``OutOfSync`` for one whose folder has what the
        lake does not know."""
        content = self.content
        self._parts.ownership.require_own_or_free(content)
        self._parts.folder_check.require_in_sync(self._key, content, is_default=True)

    def _make_table_rewrite(self) -> TableRewrite:
        require_lance()
        from penstock.formats.lance.lake.table_rewrite import TableRewrite

        return TableRewrite(Lake(self._lake, author=self._who), self._key, self._branch)

    def read_latest_version(self) -> int:
        return self._state.newest

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:  # noqa: ARG002
        """Whether a branch has versions of the table that the default branch does not have."""
        return isinstance(content, LanceTable) and decode_state(content).owner != b""

    def find_holders(self, first: int | None) -> Iterator[TableHolder]:
        """Lance's own branches and tags of the table, and tables that share files with it."""
        versions = LanceVersionReader(self._kernel.objects, self._state)
        for name in versions.list_branches():
            way = "it has versions of its own; delete it (delete_table_branch of the Lance namespace)"
            yield TableHolder(f"Lance's own branch '{name}' of the table", False, way)
        for name, tag in versions.list_tags().items():
            if first is None or tag.version < first:
                way = (
                    "delete it (delete_table_tag of the Lance namespace); --all-references deletes it as well"
                )
                yield TableHolder(f"Lance's own tag '{name}' of the table", True, way)
        yield from self._find_sharing_tables()

    def _find_sharing_tables(self) -> Iterator[TableHolder]:
        location = normalise_location(self.content.location)
        yield from find_clones(self._lake, location)
        sweep = self._make_sweep(dry_run=True)
        sweep.read_retained_tables()
        table = sweep.kept.tables.get(location)
        for base in sorted(table.bases) if table is not None else ():
            way = (
                "the table has files there, and rows that are deleted here are still in them; erase them "
                "there as well; --all-references goes on without"
            )
            yield TableHolder(f"the table at {base}, which this one is a clone of", True, way)

    # -- a moment --------------------------------------------------------------------------------------------

    def find_first_kept_version(self, start: ManagedTable, moment_us: int) -> int | None:  # noqa: ARG002
        """Let history begin with a state that the table had: with which version. ``None`` if that is the
        table's first."""
        assert isinstance(start, LanceTable)
        self._start = start if decode_state(start).newest > 1 else None
        return self._first_kept_version

    @property
    def _first_kept_version(self) -> int | None:
        """The version with which history is to begin, if that is one of the table's past."""
        return None if self._start is None else decode_state(self._start).newest

    def is_state_kept(self, content: ManagedTable) -> bool:  # noqa: ARG002 - its states have versions
        return False

    def is_history_cut_at(self, content: ManagedTable, first_version: int) -> bool:
        """Whether a branch or transaction is at the version with which history is to begin, and nothing was
        written there: what is written next would not be told from what was written before the moment."""
        assert isinstance(content, LanceTable)
        state = decode_state(content)
        return (
            state.first < first_version
            and not state.owner
            and not state.fork
            and state.newest <= first_version
        )

    def _read_removed_rows(self, number: int, version: LanceTableVersion) -> RemovedRows:
        """What a version of the default branch holds of rows that were removed before it."""
        return RemovedRows.from_manifest(*self._read_manifest(number, version))

    def _read_manifest(self, number: int, version: LanceTableVersion) -> tuple[Manifest, str]:
        """A version of the default branch, and the folder that it is at."""
        location = self.content.location
        return self._parts.manifests.read_manifest(location, MAIN, number, version), make_folder_url(
            location, version.chain
        )

    def _find_rows_removed_before(self) -> RemovedRows | None:
        """What the version with which history is to begin holds of removed rows; ``None`` if it is one that
        is to be made."""
        if self._start is None:
            return None
        newest = LanceVersionReader(self._kernel.objects, decode_state(self._start)).find_newest()
        assert newest is not None
        return self._read_removed_rows(*newest)

    # -- before anything goes --------------------------------------------------------------------------------

    def count_files_to_rewrite(self) -> int:
        """How many fragments hold deleted rows or columns beside others.

        ``UnsupportedFeature`` if the table has something that cannot be written anew here.
        """
        self._require_known(self._make_table_rewrite())
        columns, deletions = self._count_fragments_to_rewrite()
        return columns or deletions

    def _count_fragments_to_rewrite(self) -> tuple[int, int]:
        """How many fragments are written anew because of columns that they hold, or else because of rows."""
        manifest, folder = self._read_newest_manifest()
        removed = self._find_rows_removed_before()
        if removed is None:
            columns, deletions = (
                count_fragments_with_old_columns(manifest),
                count_fragments_with_deletions(manifest),
            )
        else:
            columns, deletions = removed.count_fragments_to_rewrite(manifest, folder)
        return len(manifest.fragments) if columns else 0, deletions

    def rewrite_files(self) -> int:
        """Write fragments anew that hold deleted rows or columns, and all indexes; how many fragments.

        ``UnsupportedFeature`` if the table has something that cannot be written anew here.
        """
        rewriting = self._make_table_rewrite()
        count = self.count_files_to_rewrite()
        for _ in range(TRIES_MAX):
            columns, deletions = self._count_fragments_to_rewrite()
            try:
                if columns:
                    rewriting.write_rows()
                elif deletions:
                    rewriting.compact_fragments()
                else:
                    self._make_indexes(rewriting)
                    return count
            except (CommitConflict, VersionTaken):
                continue
        raise self._make_overtaken_error()

    def _require_known(self, rewriting: TableRewrite) -> None:
        """``UnsupportedFeature`` for a table in which values may be where nobody looks for them here."""
        manifest, _ = self._read_newest_manifest()
        why = ""
        try:
            check_movable(manifest)
        except UnknownPlacement as problem:
            why = f"it {problem}; write its rows to a new table, and drop this one"
        own = {index.get_text(INDEX_NAME) or "" for index in manifest.indexes}
        if others := sorted(name for name in own if name.startswith(SYSTEM) and name != REUSED):
            why = f"it has a system index '{others[0]}' of Lance, which may contain rows"
        if why:
            raise UnsupportedFeature(f"'{self._key}' cannot be erased: {why}", key=str(self._key))
        if names := self._list_indexes_to_make(manifest):
            rewriting.check_indexes(names)

    def _list_indexes_to_make(self, manifest: Manifest) -> list[str]:
        """The names of the indexes that are made anew: all, or those that may have values of rows which were
        removed before a moment."""
        if self._first_kept_version is None:
            return list_index_names(manifest)
        return list_stale_indexes(
            manifest, self._first_kept_version, LanceVersionReader(self._kernel.objects, self._state)
        )

    def _make_indexes(self, rewriting: TableRewrite) -> None:
        for name in self._list_indexes_to_make(self._read_newest_manifest()[0]):
            rewriting.create_index(name)
        manifest, _ = self._read_newest_manifest()
        self._sound = manifest.version, frozenset(map(make_index_id, manifest.indexes))

    def _are_indexes_sound(self, manifest: Manifest) -> bool:
        """Whether all indexes of a version are those that were made anew, or were made after that."""
        if self._first_kept_version is not None:
            return not self._list_indexes_to_make(manifest)
        assert self._sound is not None
        version, made = self._sound
        return all(
            make_index_id(index) in made or (index.get_number(INDEX_VERSION) or 0) >= version
            for index in manifest.indexes
        )

    def commit_first_version(self, erase: str) -> FirstVersionKept:
        """Commit the version with which the history begins, once however often it is asked; its number.

        Where history begins in the past, the version says only so, and gives a later erase one to begin with
        that deletes nothing.
        """
        for _ in range(TRIES_MAX):
            manifest, folder = self._read_newest_manifest()
            if not self._are_indexes_sound(manifest):  # an index came that others made of an earlier version
                self.rewrite_files()
                continue
            try:
                content, is_new = self._commit_first(manifest, folder, erase)
                if self._first_kept_version is not None:
                    return FirstVersionKept(self._first_kept_version)
                is_clean = not count_fragments_with_deletions(
                    manifest
                ) and not count_fragments_with_old_columns(manifest)
                first = decode_state(content).first
                return FirstVersionKept(first, content=content if is_new and is_clean else None)
            except VersionTaken:
                continue
        raise self._make_overtaken_error()

    def _commit_first(self, manifest: Manifest, folder: str, erase: str) -> tuple[LanceTable, bool]:
        content, time_us = self.content, self._kernel.clock()
        uuid = str(UUID(erase))
        first = make_first_version(
            manifest, folder, content.location, uuid, time_us, self._first_kept_version
        )
        data = first.encode(self._lake.moved)
        name = make_staged_path("", MAIN, f"erase-{hashlib.sha256(data).hexdigest()[:16]}", first.version)
        try:
            self._place.create(name, data)
        except OutcomeUnknown:
            if [*self._place.read([name])] != [data]:
                raise
        step = EraseStep(
            version=first.version,
            path=name,
            size=len(data),
            drops_tags=self._all_references,
            first=self._first_kept_version,
        )
        key = (
            f"erase-{erase}"
            if self._first_kept_version is None
            else f"erase-{erase}-{self._first_kept_version}"
        )
        authors = (self._who,) if self._who else ()
        outcome = self._kernel.commit(
            self._branch,
            [Change(self._key, NAME, encode_steps(Steps((NumberedStep(0, step),))))],
            CommitMeta(message=f"erase deleted rows of {self._key}", committer=self._who, authors=authors),
            key=key,
            fingerprint=erase.encode,
        )
        is_new = bool(outcome.commits)
        return self._read_table(outcome.commits[-1] if is_new else outcome.head), is_new

    def _make_overtaken_error(self) -> Unavailable:
        return Unavailable(
            f"'{self._key}' was changed by other writers {TRIES_MAX} times while it was rewritten; erase "
            "the table when there are fewer writes",
            key=str(self._key),
        )

    # -- what goes -------------------------------------------------------------------------------------------

    def count_earlier_log_files(self) -> int:
        """How many manifests would go."""
        return sum(
            1
            for _ in LanceVersionReader(self._kernel.objects, self._state).list_versions(
                MAIN, self._first_kept_version
            )
        )

    def list_unneeded_file_sizes(self) -> list[int]:
        """The sizes of files with rows, deletions and indexes that the newest version does not need, nor any
        from the first one on."""
        location = normalise_location(self.content.location)
        names, named = ManifestFiles(), set[str]()
        for manifest, folder in self._list_retained_manifests():
            named.update(names.list_new_files(manifest, normalise_location(folder)))
        return [
            entry.size
            for entry in self._place.entries()
            if is_data(entry.key) and named.isdisjoint(list_spellings(f"{location}/{entry.key}"))
        ]

    def _list_retained_manifests(self) -> Iterator[tuple[Manifest, str]]:
        """The manifests that are retained, each with its folder: the newest, or all from the first one that
        references have."""
        if self._first_kept_version is None:
            yield self._read_newest_manifest()
            return
        seen: set[ObjectId] = set()
        kinds = (Kind.BRANCH, Kind.TAG, Kind.TRANSACTION)
        heads = {
            reference.head
            for kind in kinds
            for reference in self._kernel.references.list_all_references(kind)
        } - {NO_COMMIT}
        for head in heads:
            for _, content in list_tables_at(self._kernel, head):
                if content.id != self.content.id:
                    continue
                for number, version in LanceVersionReader(
                    self._kernel.objects, decode_state(content)
                ).list_versions(MAIN):
                    if number >= self._first_kept_version and version.make_id(number) not in seen:
                        seen.add(version.make_id(number))
                        yield self._read_manifest(number, version)

    def cut_history(self, first_version: int) -> tuple[int, int, str]:  # noqa: ARG002 - the sweep removes manifests
        """See that every reader of Lance finds the newest version before earlier ones go."""
        content = self.content
        self._parts.promoter.promote_table(content, monotonic() + PROMOTE_S, self._key)
        if unpromoted := self._parts.promoter.find_unpromoted(content):
            raise Unavailable(
                f"older versions of '{self._key}' were not removed yet: the table's folder still "
                f"lacks version {unpromoted[0].number}, which the lake copies there for Lance's readers; "
                "erase again in a moment"
            )
        return 0, 0, ""

    def _make_sweep(self, progress: Progress = show_no_progress, *, dry_run: bool = False) -> LanceSweep:
        call = SweepTables(key=self._key, remove_data=True, dry_run=dry_run, limit=None)
        places, warehouse = self._lake.places, self._lake.warehouse
        return LanceSweep(self._kernel, places, self._lake.id, warehouse, call, progress)

    def sweep_unneeded_files(self, progress: Progress) -> SweptTable:
        """Remove files that no retained version names and that nobody can be about to commit."""
        (swept,) = self._make_sweep(progress).sweep_locations([normalise_location(self.content.location)])
        self._place.remove_empty_folders()
        return swept

    def find_leftovers(self, horizon: TableHorizon) -> LeftoverFiles:
        """Files that no retained version names and that are there still."""
        sweep, location = self._make_sweep(dry_run=True), normalise_location(self.content.location)
        unreferenced_files = sweep.find_unreferenced(location)
        grace_us = self._kernel.graces.find_sweep_grace(LANCE_DAYS).data_us
        strangers = tuple(entry.key for entry in unreferenced_files.kept if _may_have_rows(entry.key))
        needed: tuple[str, ...] = ()
        if horizon.moment_us is not None:
            at = sweep.kept.tables[location].history.get(("", MAIN), {})
            needed = tuple(self._find_needed_files(horizon.first, at.get(horizon.first)))
        times_us = [entry.modified_us for entry in unreferenced_files.to_go]
        remaining_leftovers = make_leftover_files(times_us, unreferenced_files.pinned_us, grace_us)
        return remaining_leftovers._replace(strangers=strangers, needed=needed)

    def _find_needed_files(
        self, first_version: int, known_version: LanceTableVersion | None
    ) -> Iterator[str]:
        """Describe files with rows removed before the first retained version that retained versions still
        need."""
        versions = LanceVersionReader(self._kernel.objects, self._state)
        version = versions.get_version(MAIN, first_version) or known_version
        if version is None:
            return
        removed, free = self._read_removed_rows(first_version, version), self._state.newest + 1
        if not removed:
            return
        for number, later in versions.list_versions(MAIN):
            manifest, folder = self._read_manifest(number, later)
            removed = removed.add_indexes_of(manifest)
            if number <= first_version or removed.is_in(manifest, folder):
                break
            free = number
        if removed:
            yield (
                f"{_describe_removed_rows(removed)} with rows that were deleted before that: "
                "retained versions need "
                f"them; an erase {self._find_time_of_version(free)}, or one without older_than, removes them"
            )

    def _find_time_of_version(self, version: int) -> str:
        """The moment from which on the default branch was at a version."""
        times = [
            time_us
            for time_us, content in list_dated_states(self._kernel, self.content.id)
            if isinstance(content, LanceTable) and _is_default_at(decode_state(content), version)
        ]
        if not times:
            return "of a later time"
        moment = to_utc_datetime(min(times) + 999_999).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"older than {moment} (version {version})"


def _is_default_at(state: LanceState, version: int) -> bool:
    """Whether a state is one of the default branch that has a version."""
    return not state.owner and not state.fork and state.newest >= version


def _describe_removed_rows(removed: RemovedRows) -> str:
    counts = ((len(removed.files), "data file", "data files"), (removed.index_count, "index", "indexes"))
    parts = [f"{count} {singular if count == 1 else many}" for count, singular, many in counts if count]
    if removed.is_deletion:
        parts.append(f"the manifest of version {removed.version_number}")
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


def find_clones(lake: Embedded, location: str) -> Iterator[TableHolder]:
    """Tables of the lake that have files in the folder of another one, or may have."""
    call = SweepTables(dry_run=True, limit=None)
    sweep = LanceSweep(lake.kernel, lake.places, lake.id, lake.warehouse, call)
    sweep.read_retained_tables()
    where = normalise_location(location)
    for table in sweep.kept.tables.values():
        is_clone = any(base == where or base.startswith(f"{where}/") for base in table.bases)
        if is_clone and table.location != where:
            way = (
                "it has files of this table; overwrite it with its own rows, and erase it first "
                f"(penstock erase {table.key} --all-references)"
            )
            yield TableHolder(f"the clone '{table.key}'", False, way)
    for table in sweep.kept.find_unclear(where):
        way = f"it may have files of this table, and cannot be read: {table.problem}"
        yield TableHolder(f"the Lance table '{table.key}'", False, way)


def _may_have_rows(name: str) -> bool:
    """Whether a file that is not known here may have values of rows."""
    return not name.startswith(f"{SCRATCH}/") and name.endswith(_WITH_ROWS)
