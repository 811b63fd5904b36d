"""The sweep of the pool: removing files of tables of files that nothing needs, while jobs and commits go on.

A file goes if no kept commit of the lake names it, at any reference, and if it is older than the grace time
by the storage's own clock. That a file which somebody commits never goes rests on three things.

1. A job commits what it wrote within half of the grace time after it began, or not at all: the lake refuses
   it. The other half is what clocks may differ by. Until then, and for a grace time more, nothing in the
   folder of its attempt goes, whatever its files look like.
2. What is named is gathered twice: before files are listed, and again before each removal, when only commits
   that came in between have to be looked at.
3. A folder in which a named file is not found is left alone, and told: either it was damaged, or the storage
   lists names otherwise than they were given, and nobody can tell what is named there.

Files of an attempt that was aborted never land, so they go sooner, an hour after. Only folders that this
lake gave to attempts are looked at: each has the day and the lake in its name. Those of days within the
grace time are not even listed.

If anything cannot be read that may name a file, nothing is removed. Files are removed by name, and one that
is gone is no mistake: a sweep that is killed is taken up by the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from penstock.errors import PenstockError
from penstock.formats.files.files import slice_of
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.settings import DAY_US
from penstock.lake.answers import SweptFiles
from penstock.lake.files.care_calls import SweepFiles
from penstock.lake.files.ended import ABORTED_US, Claims, Ended, EndedJobs
from penstock.lake.files.forks import ForkNotes
from penstock.lake.files.named import FOLDER_CHARS, NamedFiles, name_hash
from penstock.lake.files.pool import pool_of
from penstock.metrics import table as metrics
from penstock.model.jobs import ID
from penstock.storage.buckets import Entry
from penstock.storage.places import SCRATCH, Place, Places

REMOVED_AT_ONCE: Final = 10_000
"""How many files are remembered, and removed, after one look at what has been committed meanwhile; more only
of a folder in which some files are named."""
NAMES_MAX: Final = 100
"""How many of the files that go an answer tells by name."""
TOLD_MAX: Final = 10
"""How many things an answer tells that are wrong."""
TOLD_EVERY: Final = 1000
READS: Final = f"{SCRATCH}/reads"
"""Below the warehouse: lists of files that readers made for Spark, each in a folder of its own."""

MISSING: Final = "{url} does not have all files that commits name: {count} are missing, so nothing goes there"
_SUM: Final = re.compile(r"(?P<folder>(?:.*/)?)\.(?P<name>[^/]+)\.crc", re.DOTALL)
"""The checksum that Hadoop keeps beside a file on a disk."""


class FilesSweep:
    """Sweeps the pool of a lake, as one call asks for it."""

    def __init__(
        self,
        kernel: Kernel,
        places: Places,
        lake_id: str,
        warehouse: str,
        call: SweepFiles,
        progress: Progress = silent,
    ) -> None:
        self._kernel, self._lake_id, self._call, self._progress = kernel, lake_id, call, progress
        self._places, self._pool, self._warehouse = places, pool_of(warehouse), warehouse.rstrip("/")
        self._now_us = kernel.clock()
        self._data_us = self._now_us - kernel.graces.of_sweeps().data_us
        self._tally = _Tally()

    def run(self) -> SweptFiles:
        """Sweep the pool, and say what came of it; also why nothing more was removed, if so."""
        self._kernel.graces.require_agreed()
        ended = Ended()
        try:
            ended = EndedJobs(self._kernel, self._lake_id, dry_run=self._call.dry_run).look()
            place = self._places.at(self._pool)
            days = [name for name in place.folders() if self._is_old(name)]
            self._sweep(place, days, ended.claims)
            if not self._call.dry_run:
                place.tidy(self._now_us - DAY_US)
                self._sweep_reads()
        except PenstockError as error:
            self._tally.problems.append(error.message)
        return self._tally.answer(ended, self._call)

    def _is_old(self, name: str) -> bool:
        """Whether a folder of the pool is that of a day on which files may be old enough to be judged."""
        try:
            day = datetime.strptime(name[:8], "%Y%m%d").replace(tzinfo=UTC)
        except ValueError:
            return False
        return name == slice_of(self._lake_id, name[:8]) and day.timestamp() * 1e6 < self._data_us

    def _sweep_reads(self) -> None:
        """Remove what readers made for themselves more than a day ago; they make it again if they need it."""
        place = self._places.at(f"{self._warehouse}/{READS}")
        old = [
            entry.key
            for entry in place.entries()
            if entry.modified_us < self._now_us - DAY_US and ID.fullmatch(entry.key.partition("/")[0])
        ]
        if old:
            place.delete(old)
            place.prune()

    def _sweep(self, place: Place, days: Sequence[str], claims: Claims) -> None:
        """Sweep the folders of old days, and those of aborted attempts, as many at a time as can be named."""
        early = {one for one in claims.aborted if one.partition("/")[0] not in days}
        law = _Law(
            claims=claims,
            data_us=self._data_us,
            aborted_us=self._now_us - ABORTED_US,
            removes=self._call.remove_data and not self._call.dry_run,
        )
        after: str | None = "" if days or early else None
        while after is not None:
            named = NamedFiles(
                self._kernel,
                lambda folder: folder.partition("/")[0] in days or folder in early,
                after,
                self._progress,
            )
            part = _Part(self._kernel, place, self._lake_id, named, law, self._tally, self._progress)
            part.look()
            for one in sorted([*days, *early]):
                part.sweep(one)
            part.remove()
            after = named.before
        for day in sorted(self._tally.emptied & {*days}) if law.removes else ():
            # No attempt of that day can be writing any more.
            self._places.at(f"{self._pool}{day}").prune()


def has_slices(places: Places, lake_id: str, warehouse: str) -> bool:
    """Whether anybody has written a file for a table of the lake, though none may have been committed."""
    names = places.at(pool_of(warehouse)).folders()
    return any(name == slice_of(lake_id, name[:8]) for name in names)


class _Law(msgspec.Struct, frozen=True, kw_only=True):
    """When a file that nobody names may go."""

    claims: Claims
    data_us: int
    aborted_us: int
    removes: bool

    def is_ripe(self, folder: str, modified_us: int) -> bool:
        if folder in self.claims.held:
            return False
        return modified_us < (self.aborted_us if folder in self.claims.aborted else self.data_us)


class _Doomed(NamedTuple):
    """A file that nobody named, and the folder of its attempt."""

    folder: str
    entry: Entry


class _Part:
    """Some folders of attempts, of which is known what is named there."""

    def __init__(
        self,
        kernel: Kernel,
        place: Place,
        lake_id: str,
        named: NamedFiles,
        law: _Law,
        tally: _Tally,
        progress: Progress,
    ) -> None:
        self._kernel, self._place, self._lake_id, self._named = kernel, place, lake_id, named
        self._law, self._tally, self._progress = law, tally, progress
        self._forks, self._pinned_us = ForkNotes(place), -1
        self._doomed: list[_Doomed] = []

    def look(self) -> None:
        """Look at what is named now, and which forks there are."""
        self._named.look()
        self._pinned_us = self._forks.pinned_us(self._lake_id)

    def sweep(self, chosen: str) -> None:
        """Judge all files below a day's folder, or below an attempt's, and remove most that may go."""
        found: set[str] = set()
        for folder, entries in groupby(self._entries(chosen), _folder_of):
            if folder and self._named.covers(folder):
                found.add(folder)
                self._judge(folder, entries)
        for folder in self._named.folders:
            if f"{folder}/".startswith(f"{chosen}/") and folder not in found:
                self._miss(folder, len(self._named.inside(folder)))
        if not found:
            self._tally.emptied.add(chosen)

    def remove(self) -> None:
        """Look once more at what is named, and remove what still may go, as far as that was asked for."""
        doomed, self._doomed = self._doomed, []
        if not doomed:
            return
        self.look()
        going: list[_Doomed] = []
        for one in doomed:
            if _is_named(one.entry.key, self._named.inside(one.folder)):
                self._tally.kept += 1
            elif one.entry.modified_us <= self._pinned_us:
                self._tally.forked += 1
            else:
                going.append(one)
        if self._law.removes and going:
            self._progress("removing", len(going))
            self._place.delete([one.entry.key for one in going])
            self._kernel.meter.count(metrics.FILES_SWEPT_FILES, len(going))
            self._kernel.meter.count(metrics.FILES_SWEPT_BYTES, sum(one.entry.size for one in going))
        for one in going:
            self._tally.count(one)

    def _entries(self, folder: str) -> Iterator[Entry]:
        for entry in self._place.entries(folder):
            self._tally.listed += 1
            if not self._tally.listed % TOLD_EVERY:
                self._progress("files", self._tally.listed)
            yield entry

    def _judge(self, folder: str, entries: Iterator[Entry]) -> None:
        """Judge the files of an attempt. If none is named, some may go before all of them are listed."""
        named = self._named.inside(folder)
        kept = waiting = 0
        doomed: list[_Doomed] = []
        for entry in entries:
            if name_hash(entry.key[FOLDER_CHARS + 1 :]) in named:
                kept += 1
            elif _is_named(entry.key, named):
                continue  # the checksum of one that stays
            elif self._law.is_ripe(folder, entry.modified_us):
                doomed.append(_Doomed(folder, entry))
            else:
                waiting += 1
            if not named and len(doomed) + len(self._doomed) >= REMOVED_AT_ONCE:
                self._doomed += doomed
                doomed = []
                self.remove()
        self._tally.kept += kept
        self._tally.waiting += waiting
        if kept < len(named):
            self._miss(folder, len(named) - kept)
            return
        self._doomed += doomed
        if len(self._doomed) >= REMOVED_AT_ONCE:
            self.remove()

    def _miss(self, folder: str, count: int) -> None:
        if folder in self._law.claims.held:
            return  # its job may have written them since the folder was listed
        self._tally.missing += count
        self._tally.problems.append(MISSING.format(url=f"{self._place.url}/{folder}", count=count))


def _folder_of(entry: Entry) -> str:
    """The folder of the attempt that a file below a day's folder is of; none for what is somebody else's."""
    _, fence, name = (*entry.key.split("/", 2), "", "")[:3]
    return entry.key[:FOLDER_CHARS] if name and ID.fullmatch(fence) else ""


def _is_named(key: str, named: set[bytes] | frozenset[bytes]) -> bool:
    """Whether a file is named, or is the checksum of one that is."""
    name = key[FOLDER_CHARS + 1 :]
    beside = _SUM.fullmatch(name)
    return name_hash(name) in named or (
        beside is not None and name_hash(beside["folder"] + beside["name"]) in named
    )


class _Tally:
    """What was found and done."""

    def __init__(self) -> None:
        self.files = self.bytes = self.kept = self.waiting = self.forked = self.missing = self.listed = 0
        self.names: list[str] = []
        self.problems: list[str] = []
        self.emptied: set[str] = set()
        """Folders of days of which something went, or in which nothing is."""

    def count(self, one: _Doomed) -> None:
        self.files += 1
        self.bytes += one.entry.size
        self.emptied.add(one.folder.partition("/")[0])
        if len(self.names) < NAMES_MAX:
            self.names.append(one.entry.key)

    def answer(self, ended: Ended, call: SweepFiles) -> SweptFiles:
        more = len(self.problems) - TOLD_MAX
        told = [*self.problems[:TOLD_MAX], *([f"and {more} more like these"] if more > 0 else ())]
        return SweptFiles(
            data_files=self.files,
            data_bytes=self.bytes,
            waiting=self.waiting,
            kept=self.kept,
            forked=self.forked,
            missing=self.missing,
            names=tuple(self.names),
            jobs_settled=ended.settled,
            jobs_forgotten=ended.forgotten,
            branches=ended.branches,
            problem="\n".join(told),
            data_removed=call.remove_data and not call.dry_run,
            dry_run=call.dry_run,
        )
