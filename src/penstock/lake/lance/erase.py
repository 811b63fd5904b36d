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
from penstock.formats.lance.erasure import (
    REUSED,
    SYSTEM,
    first_version,
    fragments_with_deletions,
    fragments_with_old_columns,
    index_names,
)
from penstock.formats.lance.intents import Erase, Placed, Steps, encode_steps
from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.names import MAIN, staged_name
from penstock.formats.lance.rehoming import INDEX_NAME, INDEX_VERSION, Immovable, check_movable, index_id
from penstock.formats.lance.state import NAME, LanceState, Versions, folder_at, is_managed, state_of
from penstock.kernel.conflict import content_of
from penstock.kernel.reachable import Progress, silent
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.erase import Holder, Leftovers, Settled, left_of
from penstock.lake.lance.leftovers import is_data
from penstock.lake.lance.named import ManifestNames, spellings
from penstock.lake.lance.sweep import LANCE_DAYS, LanceSweep
from penstock.model.commits import CommitMeta
from penstock.model.content import LanceTable, ManagedTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.storage.locations import normalise
from penstock.storage.places import SCRATCH, Place

if TYPE_CHECKING:
    from penstock.kernel.table_horizons import TableHorizon
    from penstock.lake.embedded import Embedded
    from penstock.lake.lance.rewriting import Rewriting

TRIES_MAX: Final = 10
"""How often something is done again because others change the table at the same time."""
PROMOTE_S: Final = 30.0
"""How long it may take until the version with which history begins is where every reader of Lance looks."""
_WITH_ROWS: Final = (".lance", ".blob", ".arrow", ".bin", ".idx", ".parquet", ".txn", ".manifest", ".tmp")
"""How files end that may have rows, or values of them."""


class LanceErasure:
    """What an erase does to a Lance table of the default branch."""

    def __init__(self, lake: Embedded, key: Key, who: str, *, all_references: bool) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, lake.lance
        self._key, self._who, self._all_references = key, who, all_references
        self._branch = lake.kernel.formats.default_branch
        self._sound: tuple[int, frozenset[UUID]] | None = None
        """The version at which all indexes were made anew, and these."""

    @property
    def content(self) -> LanceTable:
        return self._at(self._kernel.references.get(self._branch).head)

    def _at(self, commit: ObjectId) -> LanceTable:
        found = content_of(self._kernel.objects, self._kernel.state(commit).get(self._key.encode()))
        if not isinstance(found, LanceTable) or not is_managed(found):
            raise KeyNotFound(f"there is no Lance table '{self._key}' any more", key=str(self._key))
        return found

    @property
    def _place(self) -> Place:
        return self._lake.places.at(self.content.location)

    @property
    def _state(self) -> LanceState:
        return state_of(self.content)

    def _newest(self) -> tuple[Manifest, str]:
        """The newest version, and the folder that it is at."""
        content = self.content
        newest = Versions(self._kernel.objects, state_of(content)).newest()
        if newest is None:
            raise TableStateRefused(
                f"'{self._key}' is only declared, and has no rows that could be erased", key=str(self._key)
            )
        manifest = self._parts.manifests.manifest(content.location, MAIN, *newest)
        return manifest, folder_at(content.location, newest[1].chain)

    def latest(self) -> int:
        return self._state.newest

    def has_own_changes(self, content: ManagedTable, head: ObjectId) -> bool:  # noqa: ARG002
        """Whether a branch has versions of the table that the default branch does not have."""
        return isinstance(content, LanceTable) and state_of(content).owner != b""

    def holders(self, first: int | None) -> Iterator[Holder]:
        """Lance's own branches and tags of the table, and tables that share files with it."""
        versions = Versions(self._kernel.objects, self._state)
        for name in versions.branches():
            way = "it has versions of its own; delete it (delete_table_branch of the Lance namespace)"
            yield Holder(f"Lance's own branch '{name}' of the table", False, way)
        for name, tag in versions.tags().items():
            if first is None or tag.version < first:
                way = (
                    "delete it (delete_table_tag of the Lance namespace); --all-references deletes it as well"
                )
                yield Holder(f"Lance's own tag '{name}' of the table", True, way)
        yield from self._sharing()

    def _sharing(self) -> Iterator[Holder]:
        location = normalise(self.content.location)
        yield from clones_of(self._lake, location)
        sweep = self._sweep(dry_run=True)
        sweep.look()
        known = sweep.kept.tables.get(location)
        for base in sorted(known.bases) if known is not None else ():
            way = (
                "the table has files there, and rows that are deleted here are still in them; erase them "
                "there as well; --all-references goes on without"
            )
            yield Holder(f"the table at {base}, which this one is a clone of", True, way)

    # -- before anything goes --------------------------------------------------------------------------------

    def files_to_rewrite(self) -> int:
        """How many fragments hold deleted rows or columns beside others."""
        manifest, _ = self._newest()
        if fragments_with_old_columns(manifest):
            return len(manifest.fragments)
        return fragments_with_deletions(manifest)

    def rewrite(self) -> int:
        """Write fragments anew that hold deleted rows or columns, and all indexes; how many fragments.

        ``UnsupportedFeature`` if the table has something that cannot be written anew here.
        """
        from penstock.lake.lance.installed import require_lance

        require_lance()
        from penstock.lake.lake import Lake
        from penstock.lake.lance.rewriting import Rewriting

        rewriting = Rewriting(Lake(self._lake, author=self._who), self._key, self._branch)
        self._require_known(rewriting)
        count = self.files_to_rewrite()
        for _ in range(TRIES_MAX):
            manifest, _ = self._newest()
            try:
                if fragments_with_old_columns(manifest):
                    rewriting.write_rows()
                elif fragments_with_deletions(manifest):
                    rewriting.compact()
                else:
                    self._make_indexes(rewriting)
                    return count
            except (CommitConflict, VersionTaken):
                continue
        raise self._overtaken()

    def _require_known(self, rewriting: Rewriting) -> None:
        """``UnsupportedFeature`` for a table in which values may be where nobody looks for them here."""
        manifest, _ = self._newest()
        why = ""
        try:
            check_movable(manifest)
        except Immovable as problem:
            why = f"it {problem}; write its rows to a new table, and drop this one"
        own = {one.text(INDEX_NAME) or "" for one in manifest.indexes}
        if others := sorted(one for one in own if one.startswith(SYSTEM) and one != REUSED):
            why = f"it has an index '{others[0]}' of Lance's own, which may have rows"
        if why:
            raise UnsupportedFeature(f"'{self._key}' cannot be erased: {why}", key=str(self._key))
        if index_names(manifest):
            rewriting.check_indexes()

    def _make_indexes(self, rewriting: Rewriting) -> None:
        for name in index_names(self._newest()[0]):
            rewriting.make_index(name)
        manifest, _ = self._newest()
        self._sound = manifest.version, frozenset(map(index_id, manifest.indexes))

    def _are_indexes_sound(self, manifest: Manifest) -> bool:
        """Whether all indexes of a version are those that were made anew, or were made after that."""
        assert self._sound is not None
        version, made = self._sound
        return all(
            index_id(one) in made or (one.number(INDEX_VERSION) or 0) >= version for one in manifest.indexes
        )

    def begin_at(self, start: ManagedTable, moment_us: int) -> int | None:
        raise NotImplementedError

    def spares(self, content: ManagedTable) -> bool:  # noqa: ARG002
        return False

    def settle(self, erase: str) -> Settled:
        """Commit the version with which the history begins, once however often it is asked; its number."""
        for _ in range(TRIES_MAX):
            manifest, folder = self._newest()
            if not self._are_indexes_sound(manifest):  # an index came that others made of an earlier version
                self.rewrite()
                continue
            try:
                content, is_new = self._commit_first(manifest, folder, erase)
                is_clean = not fragments_with_deletions(manifest) and not fragments_with_old_columns(manifest)
                first = state_of(content).first
                return Settled(first, content=content if is_new and is_clean else None)
            except VersionTaken:
                continue
        raise self._overtaken()

    def _commit_first(self, manifest: Manifest, folder: str, erase: str) -> tuple[LanceTable, bool]:
        content, time_us = self.content, self._kernel.clock()
        first = first_version(manifest, folder, content.location, str(UUID(erase)), time_us)
        data = first.pack(self._lake.moved)
        name = staged_name("", MAIN, f"erase-{hashlib.sha256(data).hexdigest()[:16]}", first.version)
        try:
            self._place.create(name, data)
        except OutcomeUnknown:
            if [*self._place.read([name])] != [data]:
                raise
        step = Erase(version=first.version, path=name, size=len(data), drops_tags=self._all_references)
        authors = (self._who,) if self._who else ()
        outcome = self._kernel.commit(
            self._branch,
            [Change(self._key, NAME, encode_steps(Steps((Placed(0, step),))))],
            CommitMeta(message=f"erase deleted rows of {self._key}", committer=self._who, authors=authors),
            key=f"erase-{erase}",
            asked=erase.encode,
        )
        is_new = bool(outcome.commits)
        return self._at(outcome.commits[-1] if is_new else outcome.head), is_new

    def _overtaken(self) -> Unavailable:
        return Unavailable(
            f"'{self._key}' was changed by others {TRIES_MAX} times while it was written anew; erase it when "
            "less is written to it",
            key=str(self._key),
        )

    # -- what goes -------------------------------------------------------------------------------------------

    def earlier_log_files(self) -> int:
        """How many manifests would go."""
        return sum(1 for _ in Versions(self._kernel.objects, self._state).all(MAIN))

    def unneeded_files(self) -> list[int]:
        """The sizes of files with rows, deletions and indexes that the newest version does not need."""
        manifest, folder = self._newest()
        location = normalise(self.content.location)
        named = set(ManifestNames().of(manifest, normalise(folder)))
        return [
            one.size
            for one in self._place.entries()
            if is_data(one.key) and named.isdisjoint(spellings(f"{location}/{one.key}"))
        ]

    def cut(self, first: int) -> tuple[int, int, str]:  # noqa: ARG002 - the sweep removes manifests
        """See that every reader of Lance finds the newest version before earlier ones go."""
        content = self.content
        self._parts.promoter.promote(content, monotonic() + PROMOTE_S, self._key)
        if left := self._parts.promoter.unpromoted(content):
            raise Unavailable(
                f"version {left[0].number} of '{self._key}' is not where every reader of Lance looks yet; "
                "erase it again"
            )
        return 0, 0, ""

    def _sweep(self, progress: Progress = silent, *, dry_run: bool = False) -> LanceSweep:
        call = SweepTables(key=self._key, remove_data=True, dry_run=dry_run, limit=None)
        places, warehouse = self._lake.places, self._lake.warehouse
        return LanceSweep(self._kernel, places, self._lake.id, warehouse, call, progress)

    def sweep(self, progress: Progress) -> SweptTable:
        """Remove files that no retained version names and that nobody can be about to commit."""
        (swept,) = self._sweep(progress).run([normalise(self.content.location)])
        self._place.remove_empty_folders()
        return swept

    def left(self, horizon: TableHorizon) -> Leftovers:  # noqa: ARG002 - files tell it by their own times
        """Files that no retained version names and that are there still."""
        found = self._sweep(dry_run=True).unneeded(normalise(self.content.location))
        grace_us = self._kernel.graces.of_sweeps(LANCE_DAYS).data_us
        strangers = tuple(one.key for one in found.kept if _may_have_rows(one.key))
        times_us = [one.modified_us for one in found.to_go]
        return left_of(times_us, found.pinned_us, grace_us)._replace(strangers=strangers)


def clones_of(lake: Embedded, location: str) -> Iterator[Holder]:
    """Tables of the lake that have files in the folder of another one."""
    call = SweepTables(dry_run=True, limit=None)
    sweep = LanceSweep(lake.kernel, lake.places, lake.id, lake.warehouse, call)
    sweep.look()
    where = normalise(location)
    for table in sweep.kept.tables.values():
        is_clone = any(one == where or one.startswith(f"{where}/") for one in table.bases)
        if is_clone and table.location != where:
            way = (
                "it has files of this table; overwrite it with its own rows, and erase it first "
                f"(penstock erase {table.key} --all-references)"
            )
            yield Holder(f"the clone '{table.key}'", False, way)


def _may_have_rows(name: str) -> bool:
    """Whether a file that is not known here may have values of rows."""
    return not name.startswith(f"{SCRATCH}/") and name.endswith(_WITH_ROWS)
