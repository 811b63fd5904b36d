"""Tables that never came to be: folders in the warehouse whose job died, or was refused, before it landed;
and those that were created in a transaction, or on a branch, that is gone.

A table's place follows from its id, and its first files lie there before the lake is asked to create it. If
that does not happen, no commit knows of the folder; if it does where nothing is left of it, no kept one does,
and no version of the table was ever published. Nor does any commit here know of tables that another lake
has on its branches, and lakes may share a warehouse: a fork has that of its source. So whoever is about to
write leaves a note in the folder of which lake it is for, and only what has this lake's note is removed.
Whatever else looks the same is told, and stays. Folders of tables of other
formats have other notes, and are looked after by their own sweeps.

The rest is as in the sweep of tables: every file must be older than the grace time, which is twice as long as
a job may take, and all kept commits are looked at again right before anything goes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final
from uuid import UUID

import msgspec

from penstock.errors import Damaged, Denied, PenstockError, Unavailable
from penstock.formats.delta.lake.clone_needs import CloneNeeds
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.ownership.tables import DeltaTableStore
from penstock.formats.delta.protocol.names import LOG, VERSION_MAX, StagedName, parse_name
from penstock.formats.delta.publishing.leftovers import DeltaNeeds, judge_files
from penstock.formats.delta.publishing.side_files import CREATING
from penstock.kernel.description import read_description
from penstock.kernel.kernel import Kernel
from penstock.lake.answers import SweptTable
from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally
from penstock.model.keys import Key
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import make_own_place, parse_table_of_place
from penstock.storage.places import Place
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

FILES_MAX: Final = 100_000
"""A folder with more files is left to whoever looks after the warehouse."""
NOT_NOTED: Final = (
    "{url} has old files ({count}) of a table that no commit of this lake has, and nothing there says for "
    "which lake they were written: another lake may share the warehouse\n  If no lake has a table there, "
    "the folder can be removed."
)


class UnlandedTable(msgspec.Struct, frozen=True, kw_only=True):
    """All files of a table that no commit knows, each of them of a known kind and too old to be committed."""

    table: UUID
    place: Place
    entries: tuple[BucketEntry, ...]
    is_noted: bool
    """Whether it was to be this lake's."""


class UnlandedTableSweeper:
    """Finds them in a lake's warehouse, and removes them."""

    def __init__(
        self, kernel: Kernel, parts: DeltaServices, data_us: int, foreign_notes: Collection[str]
    ) -> None:
        """``data_us`` is the time before which a file must have been written to be judged;
        ``foreign_notes`` are files by which folders are known to be tables of other formats."""
        self._foreign_notes = foreign_notes
        lake = read_description(kernel.store)
        self._lake_id, self._warehouse = lake.id, lake.warehouse
        self._places, self._tables = parts.places, parts.owner.tables
        self._known = _ReferencedTables(CloneNeeds(kernel, parts), self._tables, lake.warehouse)
        # Where there is no log, whatever is staged is of no use to anybody.
        self._needs = DeltaNeeds(
            named=(), beside=(), published=VERSION_MAX, data_us=data_us, scratch_us=data_us
        )

    def sweep(self, most: int, engine: SweepEngine) -> Iterator[SweptTable]:
        """Remove some, or only tell of them."""
        for unlanded in [*islice(self._find_unlanded(), most)]:
            folder, tally, problem = _UnlandedFolder(unlanded, self._known, engine), SweepTally(), ""
            try:
                if unlanded.is_noted:
                    engine.sweep_folder(folder, tally)
                else:
                    folder.gather_new_references()
                    problem = NOT_NOTED.format(url=unlanded.place.url, count=len(unlanded.entries))
            except Damaged:
                raise
            except PenstockError as error:
                problem = error.message
            if not self._known.has_table(unlanded.table):
                answer = engine.make_swept_table(
                    Key(str(unlanded.table)), unlanded.place.location, tally, problem
                )
                is_removed = answer.data_removed and not problem
                yield msgspec.structs.replace(answer, data_removed=is_removed)

    def _find_unlanded(self) -> Iterator[UnlandedTable]:
        for table in self._list_unknown_tables():
            place = self._places.open_place(make_own_place(self._warehouse, table))
            with suppress(Denied, Unavailable):  # the next sweep comes here again
                unlanded = self._judge_folder(table, place, [*islice(place.entries(), FILES_MAX + 1)])
                if unlanded is not None:
                    yield unlanded

    def _list_unknown_tables(self) -> Iterator[UUID]:
        """The ids of all tables for which the warehouse has a folder, and the lake has no table."""
        identities: list[UUID] = []
        # A warehouse that cannot be listed is told of by the tables that are in it.
        with suppress(Denied, Unavailable):
            names = self._places.open_place(self._warehouse).folders() if self._warehouse else ()
            # The folder of a Delta table is its id alone, which its writer knows before the lake does.
            identities = [
                table for name in names if (table := parse_table_of_place(name)) and name == str(table)
            ]
        if identities:
            self._known.read_new_commits()
        yield from (table for table in identities if not self._known.has_table(table))

    def _judge_folder(
        self, table: UUID, place: Place, entries: Sequence[BucketEntry]
    ) -> UnlandedTable | None:
        """The files in a folder, if all of them belong to jobs that can no longer land."""
        going = {entry.entry.key for entry in judge_files(entries, self._needs) if entry.fate.is_to_go}
        is_whole = all(entry.key in going and _is_unpublished(entry.key) for entry in entries)
        notes = {entry.key for entry in entries if entry.key.startswith(CREATING)}
        is_anothers = bool(notes - {CREATING + self._lake_id}) or any(
            entry.key in self._foreign_notes for entry in entries
        )
        if not entries or len(entries) > FILES_MAX or not is_whole or is_anothers:
            return None
        # The note goes last: what an interrupted sweep leaves is still known to be this lake's.
        ordered = sorted(entries, key=lambda one: one.key in notes)
        return UnlandedTable(table=table, place=place, entries=tuple(ordered), is_noted=bool(notes))


class _UnlandedFolder:
    """The folder of such a table, as the engine sweeps it: all of it or nothing."""

    def __init__(self, unlanded: UnlandedTable, known: _ReferencedTables, engine: SweepEngine) -> None:
        self._unlanded, self._known, self._engine = unlanded, known, engine

    def gather_references(self) -> None:
        """Retained commits were looked at when the folder was found, and it was listed after that."""

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:  # noqa: ARG002
        *files, _ = self._unlanded.entries
        return (JudgedFile(entry, SweepDecision.DATA) for entry in files)

    def gather_new_references(self) -> None:
        self._known.read_new_commits()

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        return SweepDecision.KEPT if self._known.has_table(self._unlanded.table) else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._unlanded.place.delete([file.entry.key for file in files])

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        """The note goes last: what an interrupted sweep leaves is still known to be this lake's."""
        if self._engine.removes_fate(SweepDecision.DATA) and not tally.has_remaining_files:
            self._known.read_new_commits()
            if not self._known.has_table(self._unlanded.table):
                self._unlanded.place.delete([self._unlanded.entries[-1].key])
                self._unlanded.place.prune()


class _ReferencedTables:
    """The tables that any kept commit has, or had and dropped; or that lie where a folder of that name is; or
    whose files a clone has."""

    def __init__(self, clone_needs: CloneNeeds, tables: DeltaTableStore, warehouse: str) -> None:
        self._kept, self._tables, self._warehouse = clone_needs, tables, warehouse
        self._names: set[str] = set()

    def read_new_commits(self) -> None:
        for content in self._kept.walk_unseen_tables():
            self._names.update(content.location.lower().split("/"), (str(content.id),))
        for source in self._kept.sources:
            self._names.update(source.lower().split("/"))

    def has_table(self, table: UUID) -> bool:
        is_near = self._kept.neighbours.is_near(make_own_place(self._warehouse, table))
        return is_near or str(table) in self._names or self._tables.is_known(table)


def _is_unpublished(name: str) -> bool:
    """Whether a table has such a file of which no version is published: data, a commit's body, the note; and
    what is staged, or on a line, for commits that nothing leads to any more. The log itself has none."""
    return not name.startswith(LOG) or isinstance(parse_name(name), StagedName)
