"""The sweep of Lance tables: which files retained versions name, and which of the others may go.

``lake.sweep_engine`` says when references are gathered and when files are removed, and why that is safe: a
Lance transaction does not live longer than half of the grace period, and Lance's own clean-up rests on that.

Versions that others than the lake have put where Lance looks stay, with what they name: all that Lance lists
of a table that was registered, and otherwise those that are newer than the lake's in the same chain. (In a
line these may be left of a branch that was moved back.) A version whose manifest is gone, because somebody
had Lance clean up, names nothing.

A table of which no kept commit has anything goes as a whole, if the lake gave it its place: one that was
dropped, or whose transaction never landed. One that was deregistered stays; a note in its folder says so. If
that was only intended, so far as the note tells, it stays as well, unless no branch ever had it.

If anything cannot be read that may name a file, nothing of that table is removed, and nothing of any other
table if it was registered: it may share files with them. Manifests go before the
files that they name, and a name that is gone is no mistake: a sweep that is killed is taken up by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote

from penstock.errors import Damaged, Denied, ManagedElsewhere, PenstockError, Unavailable
from penstock.formats.lance.lake.folder_notes import DeregisteredNote, read_deregistered_note, read_owner_id
from penstock.formats.lance.lake.leftovers import (
    FoundFile,
    LanceNeeds,
    is_data,
    judge_file,
    parse_manifest_path,
)
from penstock.formats.lance.lake.manifest_files import UnclearManifest
from penstock.formats.lance.lake.pins import TablePins
from penstock.formats.lance.lake.retained_tables import RetainedTable, RetainedTables
from penstock.formats.lance.names import MAIN, OWNER, REFS_OF_BRANCHES, VERSIONS
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.fork_notes import FOREVER_US, ForkNotes
from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally
from penstock.model.keys import Key
from penstock.storage.buckets import BucketEntry
from penstock.storage.locations import normalise_location, parse_table_of_place
from penstock.storage.places import Place, Places
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

LANCE_DAYS: Final = 7.0
"""For so long Lance's own writers take for granted that their files stay, whatever the lake says."""
FILES_MAX: Final = 100_000
"""How many files of a table that no commit has are held in memory; a larger folder is listed repeatedly."""
NOT_OWN: Final = "{url} belongs to lake {owner}, and its files are swept there"


class UnreferencedFiles(NamedTuple):
    """Files in the folder of a table that no retained version names."""

    to_go: list[BucketEntry]
    kept: list[BucketEntry]
    """What is not known here, and stays."""
    pinned_us: int
    """Files that were written until then may be those of a fork, and stay."""


class LanceSweep:
    """Sweeps the Lance tables of a lake, as one call asks for it."""

    def __init__(
        self,
        kernel: Kernel,
        places: Places,
        lake_id: str,
        warehouse: str,
        call: SweepTables,
        progress: Progress = show_no_progress,
    ) -> None:
        self._kernel, self._places, self._lake_id, self._call = kernel, places, lake_id, call
        self._warehouse = warehouse.rstrip("/")
        self.pinned_us = ForkNotes(kernel.store, places).find_pinned_time_us
        """Files that were written until the time that this tells may be those of a fork."""
        self._engine = SweepEngine(
            remove_data=call.remove_data, dry_run=call.dry_run, pinned_us=self.pinned_us, progress=progress
        )
        self.before_us = kernel.clock() - kernel.graces.find_sweep_grace(LANCE_DAYS).data_us
        self.kept = RetainedTables(kernel, places, progress)
        self._is_looked = False

    def list_locations(self) -> list[str]:
        """Where there is something to sweep, as the call chooses it, sorted."""
        self.read_retained_tables()
        locations = {
            table.location for table in self.kept.tables.values() if self._call.key in (None, table.key)
        }
        alone = set() if self._call.key is not None else {*self._list_unreferenced_places()}
        return sorted(location for location in locations | alone if location > self._call.after)

    def sweep_locations(self, locations: Iterable[str]) -> Iterator[SweptTable]:
        """Sweep some of these places, and say of each what came of it.

        ``Damaged`` if history cannot be walked: then nothing was removed of tables that are not told.
        """
        self.read_retained_tables()
        for location in locations:
            table, tally, problem = self.kept.tables.get(location), SweepTally(), ""
            key = Key(location.rpartition("/")[2]) if table is None else table.key
            try:
                place = self._places.open_place(location)
                if table is None:
                    self._engine.sweep_folder(_UnreferencedFolder(self, self._engine, place, location), tally)
                elif self.is_swept(table, place):
                    self._engine.sweep_folder(_TableFolder(self, table, place), tally)
            except PenstockError as error:
                problem = error.message
            yield self._engine.make_swept_table(key, location, tally, problem)

    def sweep_unlanded(self, limit: int | None) -> Iterator[SweptTable]:  # noqa: ARG002
        """Folders of tables that no commit has are among the locations."""
        return iter(())

    def find_unreferenced(self, location: str) -> UnreferencedFiles:
        """The files in a table's folder that no retained version references, whatever their age."""
        self.read_retained_tables()
        table, place = self.kept.tables[location], self._places.open_place(location)
        foreign = _ForeignManifests(self.kept, table, place)
        foreign.note_new_manifests()
        needs = LanceNeeds(table, self.kept.is_file_named, foreign.keys, FOREVER_US)
        judged = [(judge_file(entry, needs), entry) for entry in place.entries()]
        return UnreferencedFiles(
            [entry for fate, entry in judged if fate.is_to_go],
            [
                entry
                for fate, entry in judged
                if fate is SweepDecision.KEPT and not self._is_known(location, entry.key, foreign)
            ],
            self.pinned_us(),
        )

    def _is_known(self, location: str, key: str, foreign: _ForeignManifests) -> bool:
        return (
            self.kept.is_file_named(f"{location}/{key}")
            or key in foreign.keys
            or parse_manifest_path(key) is not None
        )

    def read_retained_tables(self) -> None:
        """Take in what retained commits have, unless that was done."""
        if not self._is_looked:
            self.kept.read_new_commits()
            self._is_looked = True

    def is_swept(self, table: RetainedTable, place: Place) -> bool:
        """Whether files of a table may go; not of one that was never written to, or was deregistered."""
        if table.problem:
            raise Damaged(table.problem)
        self.kept.check_shared(table.location)
        self.kept.neighbours.check_location(table.location)
        owner = read_owner_id(place)
        if owner is None or (not table.is_there and read_deregistered_note(place) is not DeregisteredNote.NO):
            return False
        if owner != self._lake_id:
            raise ManagedElsewhere(NOT_OWN.format(url=place.url, owner=owner))
        return True

    def _list_unreferenced_places(self) -> Iterator[str]:
        """Places that the lake assigned to Lance tables and that no retained commit references."""
        if not self._warehouse:
            return
        # A warehouse that cannot be listed is told of by the tables that are in it.
        with suppress(Denied, Unavailable):
            for name in self._places.open_place(self._warehouse).folders():
                if parse_table_of_place(name) is not None:
                    location = normalise_location(f"{self._warehouse}/{name}")
                    if location not in self.kept.tables and self.is_alone(location):
                        yield location

    def is_alone(self, location: str) -> bool:
        """Whether a folder is that of a table which the lake had, and nobody has any more."""
        table = parse_table_of_place(location.rpartition("/")[2])
        place = self._places.open_place(location)
        with suppress(Damaged):  # a note that cannot be read is nobody's
            if read_owner_id(place) != self._lake_id or self.kept.neighbours.is_near(location):
                return False
            noted = read_deregistered_note(place)
            return noted is DeregisteredNote.NO or (
                noted is DeregisteredNote.INTENDED
                and table is not None
                and not self.kept.is_or_was_on_branch(table)
            )
        return False


class _TableFolder:
    """The folder of a table that the lake has, as the engine sweeps it."""

    def __init__(self, sweep: LanceSweep, table: RetainedTable, place: Place) -> None:
        self._sweep, self._table, self._place = sweep, table, place
        self._foreign = _ForeignManifests(sweep.kept, table, place)
        self._needs = LanceNeeds(table, sweep.kept.is_file_named, self._foreign.keys, sweep.before_us)
        self._is_swept = False

    def gather_references(self) -> None:
        self._foreign.note_new_manifests()

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        for entry in listing(self._place, ""):
            fate = judge_file(entry, self._needs)
            if fate is not SweepDecision.KEPT or is_data(entry.key):
                yield JudgedFile(entry, fate)

    def gather_new_references(self) -> None:
        self._sweep.kept.read_new_commits()
        self._foreign.note_new_manifests()
        self._is_swept = self._sweep.is_swept(self._table, self._place)

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        return judge_file(candidate.entry, self._needs) if self._is_swept else SweepDecision.KEPT

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._place.delete(sorted((file.entry.key for file in files), key=_order_manifests_first))

    def tidy_after_sweep(self, tally: SweepTally) -> None:  # noqa: ARG002
        pins = TablePins(self._sweep.kept, self._table, self._place)
        pins.update_pins(self._sweep.pinned_us(), self._sweep.before_us)
        self._place.tidy(self._sweep.before_us)


class _UnreferencedFolder:
    """The folder of a table that no retained commit has: it goes as a whole, once all of it is old."""

    def __init__(self, sweep: LanceSweep, engine: SweepEngine, place: Place, location: str) -> None:
        self._sweep, self._engine, self._place, self._location = sweep, engine, place, location
        self._is_alone = False

    def gather_references(self) -> None:
        """Retained commits were looked at when the folder was found."""

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        entries = [*islice(listing(self._place, ""), FILES_MAX + 1)]
        if len(entries) > FILES_MAX:
            yield from self._judge_many(listing)
            return
        is_young = any(map(self._is_young, entries))
        for entry in sorted(entries, key=lambda entry: (_order_manifests_first(entry.key), entry.key)):
            if entry.key != OWNER:
                yield JudgedFile(entry, SweepDecision.WAITING if is_young else SweepDecision.DATA)

    def _judge_many(self, listing: Listing) -> Iterator[JudgedFile]:
        """The same with one entry in memory at a time: the folder is listed anew for each step."""
        is_young = any(map(self._is_young, listing(self._place, "")))
        for is_after in (False, True):
            for entry in listing(self._place, ""):
                if entry.key != OWNER and _order_manifests_first(entry.key) is is_after:
                    is_waiting = is_young or self._is_young(entry)  # one may have come meanwhile
                    yield JudgedFile(entry, SweepDecision.WAITING if is_waiting else SweepDecision.DATA)

    def _is_young(self, entry: BucketEntry) -> bool:
        return entry.modified_us >= self._sweep.before_us

    def gather_new_references(self) -> None:
        self._sweep.kept.read_new_commits()
        self._sweep.kept.check_shared(self._location)
        is_known = self._location in self._sweep.kept.tables
        self._is_alone = not is_known and self._sweep.is_alone(self._location)

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        is_named = self._sweep.kept.is_file_named(f"{self._location}/{candidate.entry.key}")
        return SweepDecision.KEPT if not self._is_alone or is_named else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._place.delete([file.entry.key for file in files])

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        """The note of the owner goes last: what an interrupted sweep leaves is still the lake's."""
        self.gather_new_references()
        if self._engine.removes_fate(SweepDecision.DATA) and self._is_alone and not tally.has_remaining_files:
            self._place.delete([OWNER])
            self._place.prune()


class _ForeignManifests:
    """Versions where Lance looks that the lake does not have."""

    def __init__(self, retained_tables: RetainedTables, table: RetainedTable, place: Place) -> None:
        self._kept, self._table, self._place = retained_tables, table, place
        self.keys: set[str] = set()
        """Their manifests, and the folders of their chains."""

    def note_new_manifests(self) -> None:
        """Find those that are new, and count what they name as named. ``Damaged`` if one cannot be read."""
        folders = [
            f"{chain}{folder}" for chain in sorted(self._table.lines) for folder in (VERSIONS, "tree/")
        ]
        listed = [entry.key for folder in folders for entry in self._place.entries(folder)]
        new = [key for key in listed if key not in self.keys and self._is_one(key)]
        for key, data in zip(new, self._place.read(new), strict=True):
            if data is None:
                continue  # whoever put it there has removed it
            folder = key.rpartition(VERSIONS)[0]
            try:
                self._kept.take_manifest(self._table, folder, data)
            except UnclearManifest as problem:
                raise Damaged(f"{key} of the Lance table '{self._table.key}' {problem}") from None
            self.keys |= {key, folder}

    def _is_one(self, key: str) -> bool:
        manifest = parse_manifest_path(key)
        if manifest is None or self._kept.is_file_named(f"{self._table.location}/{key}"):
            return False
        if manifest.number < self._table.first and not manifest.chain and not manifest.branch:
            return False  # it is from before the table was erased
        return (self._table.is_registered and not manifest.chain) or self._is_newer(manifest)

    def _is_newer(self, manifest_file: FoundFile) -> bool:
        """Whether a version is newer than any that the lake has there. An older one was deleted."""
        own = self._table.list_version_numbers(manifest_file.branch, manifest_file.chain)
        if own:
            return manifest_file.number > max(own)
        # In a line that has no version of the lake, what is no copy of what its branch is at was put there
        # past the lake; of the copies, the branch needs all files itself.
        return manifest_file.branch == MAIN or self._is_own_branch(manifest_file)

    def _is_own_branch(self, manifest_file: FoundFile) -> bool:
        """Whether Lance knows of a branch that the lake does not have."""
        names = {quote(manifest_file.branch, safe=""), manifest_file.branch}
        files = [f"{manifest_file.chain}{REFS_OF_BRANCHES}{name}.json" for name in sorted(names)]
        return any(size is not None for size in self._place.sizes(files))


def _order_manifests_first(name: str) -> bool:
    """Manifests go first, so that none is listed whose files are gone."""
    return VERSIONS not in name
