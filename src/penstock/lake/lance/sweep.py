"""The sweep of Lance tables: removing files that nothing needs, while writers and commits go on.

A file goes if it is older than the grace time, by the storage's own clock, and if no version names it that a
kept commit of the lake has: at any reference, in any transaction, in any line of the table. That a file which
somebody commits never goes rests on two things.

1. Whoever writes a file commits it within half of the grace time, or not at all: a transaction does not live
   longer, and Lance's own clean-up rests on the same. The other half is what clocks may differ by.
2. What is named is gathered twice: before files are listed, and again before each removal, when only commits
   that came in between have to be looked at. So even a file that is committed later than it may be stays, if
   that was before the removal began.

A merge, a revert or a restored version names files of a version that was kept when names were gathered.

Versions that others than the lake have put where Lance looks stay, with what they name: all that Lance lists
of a table that was registered, and otherwise those that are newer than the lake's in the same chain. (In a
line these may be left of a branch that was moved back.) A version whose manifest is gone, because somebody
had Lance clean up, names nothing.

A table of which no kept commit has anything goes as a whole, if the lake gave it its place: one that was
dropped, or whose transaction never landed. One that was deregistered stays; a note in its folder says so. If
that was only intended, so far as the note tells, it stays as well, unless no branch ever had it.

If anything cannot be read that may name a file, nothing of that table is removed. Manifests go before the
files that they name, and a name that is gone is no mistake: a sweep that is killed is taken up by the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import UUID

from penstock.errors import Damaged, Denied, ManagedElsewhere, PenstockError, Unavailable
from penstock.formats.lance.names import MAIN, REFS_OF_BRANCHES, VERSIONS
from penstock.formats.lance.owning import OWNER
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.files.forks import ForkNotes
from penstock.lake.files.pool import pool_of
from penstock.lake.lance.kept import KeptLance, KnownTable
from penstock.lake.lance.leftovers import Fate, Found, Needs, is_data, judge, manifest_at
from penstock.lake.lance.named import Unclear
from penstock.lake.lance.notes import Stays, owner_of, stays
from penstock.lake.lance.pins import Pins
from penstock.model.keys import Key
from penstock.storage.buckets import Entry
from penstock.storage.locations import own_place
from penstock.storage.places import Place, Places

LANCE_DAYS: Final = 7.0
"""For so long Lance's own writers take for granted that their files stay, whatever the lake says."""
REMOVED_AT_ONCE: Final = 10_000
"""How many files are remembered, and removed, after one look at what has been committed meanwhile."""
FILES_MAX: Final = 100_000
"""A folder of a table that no commit has is left to whoever looks after the warehouse if it has more."""
NAMES_MAX: Final = 100
"""How many of a table's data files that go an answer tells by name."""
TOLD_EVERY: Final = 1000
NOT_OWN: Final = "{url} belongs to lake {owner}, and its files are swept there"


class LanceSweep:
    """Sweeps the Lance tables of a lake, as one call asks for it."""

    def __init__(
        self,
        kernel: Kernel,
        places: Places,
        lake_id: str,
        warehouse: str,
        call: SweepTables,
        progress: Progress = silent,
    ) -> None:
        self._kernel, self._places, self._lake_id, self._call = kernel, places, lake_id, call
        self._warehouse, self._progress = warehouse.rstrip("/"), progress
        self._before_us = kernel.clock() - kernel.graces.of_sweeps(LANCE_DAYS).data_us
        self._kept = KeptLance(kernel, places, progress)
        self._listed = 0
        self._is_looked = False

    def locations(self) -> list[str]:
        """Where there is something to sweep, as the call chooses it, sorted."""
        self._look()
        known = {one.location for one in self._kept.tables.values() if self._call.key in (None, one.key)}
        alone = set() if self._call.key is not None else {*self._alone()}
        return sorted(one for one in known | alone if one > self._call.after)

    def run(self, locations: Iterable[str]) -> Iterator[SweptTable]:
        """Sweep some of these places, and say of each what came of it.

        ``Damaged`` if history cannot be walked: then nothing was removed of tables that are not told.
        """
        self._look()
        for location in locations:
            table = self._kept.tables.get(location)
            yield self._sweep_alone(location) if table is None else self._sweep(table)

    def _look(self) -> None:
        if not self._is_looked:
            self._kept.look()
            self._is_looked = True

    # -- tables that the lake has --------------------------------------------------------------------------

    def _sweep(self, table: KnownTable) -> SweptTable:
        tally, problem = _Tally(), ""
        try:
            place = self._places.at(table.location)
            if self._is_swept(table, place):
                self._sweep_place(table, place, tally)
        except PenstockError as error:
            problem = error.message
        return self._answer(table.key, table.location, tally, problem)

    def _sweep_place(self, table: KnownTable, place: Place, tally: _Tally) -> None:
        foreign = _Foreign(self._kept, table, place)
        foreign.look()
        needs = Needs(table, self._kept.names, foreign.keys, self._before_us)
        doomed: list[_Doomed] = []
        for entry in self._entries(place):
            fate = judge(entry, needs)
            if fate in (Fate.KEPT, Fate.WAITING):
                tally.count(fate, entry)
                continue
            doomed.append(_Doomed(fate, entry))
            if len(doomed) == REMOVED_AT_ONCE:
                self._remove(table, place, foreign, needs, doomed, tally)
                doomed = []
        self._remove(table, place, foreign, needs, doomed, tally)
        if not self._call.dry_run:
            Pins(self._kept, table, place).sweep(self._pinned_us(), self._before_us)
            place.tidy(self._before_us)

    def _is_swept(self, table: KnownTable, place: Place) -> bool:
        """Whether files of a table may go; not of one that was never written to, or was deregistered."""
        if table.problem:
            raise Damaged(table.problem)
        self._kept.neighbours.check(table.location)
        owner = owner_of(place)
        if owner is None or (not table.is_there and stays(place) is not Stays.NO):
            return False
        if owner != self._lake_id:
            raise ManagedElsewhere(NOT_OWN.format(url=place.url, owner=owner))
        return True

    def _entries(self, place: Place) -> Iterator[Entry]:
        for entry in place.entries():
            self._listed += 1
            if not self._listed % TOLD_EVERY:
                self._progress("files", self._listed)
            yield entry

    def _remove(
        self,
        table: KnownTable,
        place: Place,
        foreign: _Foreign,
        needs: Needs,
        doomed: Sequence[_Doomed],
        tally: _Tally,
    ) -> None:
        """Look once more at what is named, and remove what still may go, as far as that was asked for."""
        if not doomed:
            return
        self._kept.look()
        foreign.look()
        if not self._is_swept(table, place):
            return
        pinned_us = self._pinned_us()
        going: list[_Doomed] = []
        for one in doomed:
            fate = judge(one.entry, needs)
            if fate in (Fate.KEPT, Fate.WAITING) or one.entry.modified_us <= pinned_us:
                tally.count(Fate.KEPT, one.entry)
            else:
                going.append(one)
        removed = [one.entry.key for one in going if self._removes(one.fate)]
        if removed:
            self._progress("removing", len(removed))
            removed.sort(key=_after_manifests)
            place.delete(removed)
        for one in going:
            tally.count(one.fate, one.entry)

    def _removes(self, fate: Fate) -> bool:
        return not self._call.dry_run and (fate is Fate.SCRATCH or self._call.remove_data)

    def _pinned_us(self) -> int:
        """Files that were written until then may be those of a fork."""
        if not self._warehouse:
            return -1
        return ForkNotes(self._places.at(pool_of(self._warehouse))).pinned_us(self._lake_id)

    # -- tables that no kept commit has --------------------------------------------------------------------

    def _alone(self) -> Iterator[str]:
        """Places that the lake gave to Lance tables, and that no kept commit names."""
        if not self._warehouse:
            return
        # A warehouse that cannot be listed is told of by the tables that are in it.
        with suppress(Denied, Unavailable):
            for name in self._places.at(self._warehouse).folders():
                if (table := _given_id(name)) is not None:
                    location = own_place(self._warehouse, table)
                    if location not in self._kept.tables and self._is_alone(location, table):
                        yield location

    def _is_alone(self, location: str, table: UUID) -> bool:
        place = self._places.at(location)
        with suppress(Damaged):  # a note that cannot be read is nobody's
            if owner_of(place) != self._lake_id or self._kept.neighbours.is_near(location):
                return False
            noted = stays(place)
            return noted is Stays.NO or (noted is Stays.INTENDED and not self._kept.was_had(table))
        return False

    def _sweep_alone(self, location: str) -> SweptTable:
        """Remove a table as a whole, if everything there is old enough."""
        place, tally, problem = self._places.at(location), _Tally(), ""
        key = Key(name := location.rpartition("/")[2])
        try:
            entries = [*islice(place.entries(), FILES_MAX + 1)]
            is_young = len(entries) > FILES_MAX or any(one.modified_us >= self._before_us for one in entries)
            self._kept.look()
            if location not in self._kept.tables and self._is_alone(location, UUID(name)):
                pinned_us = self._pinned_us()
                for one in entries:
                    is_needed = self._kept.names(f"{location}/{one.key}") or one.modified_us <= pinned_us
                    fate = Fate.KEPT if is_needed else Fate.WAITING if is_young else Fate.DATA
                    if one.key != OWNER:
                        tally.count(fate, one)
                if self._removes(Fate.DATA) and not is_young:
                    self._remove_whole(place, tally)
        except PenstockError as error:
            problem = error.message
        return self._answer(key, location, tally, problem)

    def _remove_whole(self, place: Place, tally: _Tally) -> None:
        place.delete(sorted(tally.going, key=_after_manifests))
        if not tally.files[Fate.KEPT] + tally.others:
            place.delete([OWNER])  # last: what an interrupted sweep leaves is still known to be the lake's
            place.prune()

    def _answer(self, key: Key, location: str, tally: _Tally, problem: str) -> SweptTable:
        return SweptTable(
            key=key,
            location=location,
            data_files=tally.files[Fate.DATA],
            data_bytes=tally.bytes[Fate.DATA],
            scratch_files=tally.files[Fate.SCRATCH],
            scratch_bytes=tally.bytes[Fate.SCRATCH],
            waiting=tally.files[Fate.WAITING],
            kept=tally.files[Fate.KEPT],
            names=tuple(tally.going[:NAMES_MAX]),
            problem=problem,
            data_removed=self._removes(Fate.DATA),
            dry_run=self._call.dry_run,
        )


class _Doomed(NamedTuple):
    """A file that nothing named, and what it is."""

    fate: Fate
    entry: Entry


class _Foreign:
    """Versions where Lance looks that the lake does not have."""

    def __init__(self, kept: KeptLance, table: KnownTable, place: Place) -> None:
        self._kept, self._table, self._place = kept, table, place
        self.keys: set[str] = set()
        """Their manifests, and the folders of their chains."""

    def look(self) -> None:
        """Find those that are new, and count what they name as named. ``Damaged`` if one cannot be read."""
        folders = [
            f"{chain}{folder}" for chain in sorted(self._table.lines) for folder in (VERSIONS, "tree/")
        ]
        listed = [one.key for folder in folders for one in self._place.entries(folder)]
        new = [key for key in listed if key not in self.keys and self._is_one(key)]
        for key, data in zip(new, self._place.read(new), strict=True):
            if data is None:
                continue  # whoever put it there has removed it
            folder = key.rpartition(VERSIONS)[0]
            try:
                self._kept.take_manifest(self._table, folder, data)
            except Unclear as problem:
                raise Damaged(f"{key} of the Lance table '{self._table.key}' {problem}") from None
            self.keys |= {key, folder}

    def _is_one(self, key: str) -> bool:
        found = manifest_at(key)
        if found is None or self._kept.names(f"{self._table.location}/{key}"):
            return False
        return (self._table.is_registered and not found.chain) or self._is_newer(found)

    def _is_newer(self, found: Found) -> bool:
        """Whether a version is newer than any that the lake has there. An older one was deleted."""
        own = self._table.numbers_of(found.branch, found.chain)
        if own:
            return found.number > max(own)
        # In a line that has no version of the lake, what is no copy of what its branch is at was put there
        # past the lake; of the copies, the branch needs all files itself.
        return found.branch == MAIN or self._is_own_branch(found)

    def _is_own_branch(self, found: Found) -> bool:
        """Whether Lance knows of a branch that the lake does not have."""
        names = {quote(found.branch, safe=""), found.branch}
        files = [f"{found.chain}{REFS_OF_BRANCHES}{name}.json" for name in sorted(names)]
        return any(size is not None for size in self._place.sizes(files))


class _Tally:
    """How many files there are of each fate, how large they are, and the names of data files that go."""

    def __init__(self) -> None:
        self.files: Counter[Fate] = Counter()
        self.bytes: Counter[Fate] = Counter()
        self.others = 0
        """Files that stay and are no data."""
        self.going: list[str] = []

    def count(self, fate: Fate, entry: Entry) -> None:
        if fate is Fate.KEPT and not is_data(entry.key):
            self.others += 1
            return
        self.files[fate] += 1
        self.bytes[fate] += entry.size
        if fate is Fate.DATA:
            self.going.append(entry.key)


def _given_id(name: str) -> UUID | None:
    """The id of the table to which a lake gives a folder of that name, if it would."""
    with suppress(ValueError):
        found = UUID(name)
        return found if str(found) == name else None
    return None


def _after_manifests(name: str) -> bool:
    """Manifests go first, so that none is listed whose files are gone."""
    return VERSIONS not in name
