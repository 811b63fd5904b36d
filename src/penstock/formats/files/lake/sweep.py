"""The sweep of the pool: which files of tables of files retained commits name, and which others may go.

``lake.sweep_engine`` says when references are gathered and when files are removed, and why that is safe. A
job commits what it wrote within half of the grace period after it began, or the lake refuses it; until then,
and for a grace period more, nothing in the folder of its attempt goes, whatever its files look like.

A folder in which a named file is not found is left alone, and told: either it was damaged, or the storage
lists names otherwise than they were given, and nobody can tell what is named there.

Files of an attempt that was aborted never land, so they go sooner, an hour after. Only folders that this
lake gave to attempts are looked at: each has the day and the lake in its name. Those of days within the
grace period are not even listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final

import msgspec

from penstock.errors import PenstockError
from penstock.formats.files import metrics
from penstock.formats.files.files import find_slice
from penstock.formats.files.lake.ended_jobs import ABORTED_US, EndedJobs, EndedJobsResult, FolderClaims
from penstock.formats.files.lake.pool import find_pool
from penstock.formats.files.lake.referenced_files import FOLDER_CHARS, ReferencedFiles
from penstock.formats.files.lake.sweep_calls import SweepFiles
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.settings import DAY_US
from penstock.lake.answers import SweptFiles
from penstock.lake.fork_notes import ForkNotes
from penstock.lake.read_lists import sweep_reads
from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally
from penstock.model.jobs import ID
from penstock.storage.buckets import BucketEntry
from penstock.storage.name_hashes import hash_name
from penstock.storage.places import Place, Places
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

TOLD_MAX: Final = 10
"""How many things an answer tells that are wrong."""

MISSING: Final = "{url} lacks {count} of the files that commits reference, so nothing is removed there"
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
        progress: Progress = show_no_progress,
    ) -> None:
        self._kernel, self._lake_id, self._call, self._progress = kernel, lake_id, call, progress
        self._places, self._pool, self._warehouse = places, find_pool(warehouse), warehouse.rstrip("/")
        self._now_us = kernel.clock()
        self._data_us = self._now_us - kernel.graces.find_sweep_grace().data_us
        self._engine = SweepEngine(
            remove_data=call.remove_data,
            dry_run=call.dry_run,
            pinned_us=ForkNotes(kernel.store, places).find_pinned_time_us,
            progress=progress,
        )
        self._tally = _PoolTally()

    def sweep_pool(self) -> SweptFiles:
        """Sweep the pool, and say what came of it; also why nothing more was removed, if so."""
        self._kernel.graces.require_agreed()
        ended = EndedJobsResult()
        try:
            ended = EndedJobs(self._kernel, self._lake_id, dry_run=self._call.dry_run).settle_ended_jobs()
            place = self._places.open_place(self._pool)
            days = [name for name in place.folders() if self._is_old(name)]
            self._sweep_folders(place, days, ended.claims)
            if not self._call.dry_run:
                place.tidy(self._now_us - DAY_US)
                sweep_reads(self._places, self._warehouse, self._now_us - DAY_US)
        except PenstockError as error:
            self._tally.problems.append(error.message)
        return self._tally.make_swept_files(ended, self._call)

    def _is_old(self, name: str) -> bool:
        """Whether a folder of the pool is that of a day on which files may be old enough to be judged."""
        try:
            day = datetime.strptime(name[:8], "%Y%m%d").replace(tzinfo=UTC)
        except ValueError:
            return False
        return name == find_slice(self._lake_id, name[:8]) and day.timestamp() * 1e6 < self._data_us

    def _sweep_folders(self, place: Place, days: Sequence[str], claims: FolderClaims) -> None:
        """Sweep the folders of old days, and those of aborted attempts, as many at a time as can be named."""
        early = {folder for folder in claims.aborted if folder.partition("/")[0] not in days}
        law = _SweepRules(
            claims=claims,
            data_us=self._data_us,
            aborted_us=self._now_us - ABORTED_US,
        )
        after: str | None = "" if days or early else None
        while after is not None:
            named = ReferencedFiles(
                self._kernel,
                lambda folder: folder.partition("/")[0] in days or folder in early,
                after,
                self._progress,
            )
            chosen = sorted([*days, *early])
            folders = _AttemptFolders(self._kernel, place, named, law, chosen, self._tally)
            self._engine.sweep_folder(folders, self._tally)
            after = named.before
        for day in (
            sorted(self._tally.emptied & {*days}) if self._engine.removes_fate(SweepDecision.DATA) else ()
        ):
            # No attempt of that day can be writing any more.
            self._places.open_place(f"{self._pool}{day}").prune()


def has_slices(places: Places, lake_id: str, warehouse: str) -> bool:
    """Whether anybody has written a file for a table of the lake, though none may have been committed."""
    names = places.open_place(find_pool(warehouse)).folders()
    return any(name == find_slice(lake_id, name[:8]) for name in names)


class _SweepRules(msgspec.Struct, frozen=True, kw_only=True):
    """When an unreferenced file may be removed."""

    claims: FolderClaims
    data_us: int
    aborted_us: int

    def is_ripe(self, folder: str, modified_us: int) -> bool:
        if folder in self.claims.held:
            return False
        return modified_us < (self.aborted_us if folder in self.claims.aborted else self.data_us)


class _AttemptFolders:
    """Some folders of attempts, of which is known what is named there, as the engine sweeps them."""

    def __init__(
        self,
        kernel: Kernel,
        place: Place,
        named: ReferencedFiles,
        law: _SweepRules,
        chosen: Sequence[str],
        tally: _PoolTally,
    ) -> None:
        """``chosen`` are folders of days, or of single attempts."""
        self._meter, self._place, self._named = kernel.meter, place, named
        self._law, self._chosen, self._tally = law, chosen, tally

    def gather_references(self) -> None:
        self._named.read_new_commits()

    def gather_new_references(self) -> None:
        self._named.read_new_commits()

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        for chosen in self._chosen:
            folders: set[str] = set()
            for folder, entries in groupby(listing(self._place, chosen), _get_attempt_folder):
                if folder and self._named.covers_folder(folder):
                    folders.add(folder)
                    yield from self._judge_files(folder, entries)
            for folder in self._named.folders:
                if f"{folder}/".startswith(f"{chosen}/") and folder not in folders:
                    self._report_missing(folder, len(self._named.name_hashes_in(folder)))
            if not folders:
                self._tally.emptied.add(chosen)

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        key = candidate.entry.key
        is_named = _is_named(key, self._named.name_hashes_in(key[:FOLDER_CHARS]))
        return SweepDecision.KEPT if is_named else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._place.delete([file.entry.key for file in files])
        self._meter.count(metrics.SWEPT_FILES, len(files))
        self._meter.count(metrics.SWEPT_BYTES, sum(file.entry.size for file in files))
        self._tally.emptied.update(file.entry.key.partition("/")[0] for file in files)

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        """Folders of days are pruned when all attempts have been swept."""

    def _judge_files(self, folder: str, entries: Iterator[BucketEntry]) -> Iterator[JudgedFile]:
        """Judge the files of an attempt. If none is named, some may go before all of them are listed."""
        named = self._named.name_hashes_in(folder)
        kept_files, candidates = 0, list[JudgedFile]()
        for entry in entries:
            if hash_name(entry.key[FOLDER_CHARS + 1 :]) in named:
                kept_files += 1
                yield JudgedFile(entry, SweepDecision.KEPT)
            elif _is_named(entry.key, named):
                continue  # the checksum of one that stays
            elif not self._law.is_ripe(folder, entry.modified_us):
                yield JudgedFile(entry, SweepDecision.WAITING)
            elif named:
                candidates.append(JudgedFile(entry, SweepDecision.DATA))
            else:
                yield JudgedFile(entry, SweepDecision.DATA)
        if kept_files < len(named):
            self._report_missing(folder, len(named) - kept_files)
        else:
            yield from candidates

    def _report_missing(self, folder: str, count: int) -> None:
        if folder in self._law.claims.held:
            return  # its job may have written them since the folder was listed
        self._tally.missing += count
        self._tally.problems.append(MISSING.format(url=f"{self._place.url}/{folder}", count=count))


def _get_attempt_folder(entry: BucketEntry) -> str:
    """The folder of the attempt that a file below a day's folder is of; none for what is somebody else's."""
    _, fence, name = (*entry.key.split("/", 2), "", "")[:3]
    return entry.key[:FOLDER_CHARS] if name and ID.fullmatch(fence) else ""


def _is_named(key: str, named: set[bytes] | frozenset[bytes]) -> bool:
    """Whether a file is named, or is the checksum of one that is."""
    name = key[FOLDER_CHARS + 1 :]
    beside = _SUM.fullmatch(name)
    return hash_name(name) in named or (
        beside is not None and hash_name(beside["folder"] + beside["name"]) in named
    )


class _PoolTally(SweepTally):
    """What was found and done."""

    def __init__(self) -> None:
        super().__init__()
        self.missing = 0
        self.problems: list[str] = []
        self.emptied: set[str] = set()
        """Folders of days of which something went, or in which nothing is."""

    def make_swept_files(self, ended: EndedJobsResult, call: SweepFiles) -> SweptFiles:
        more = len(self.problems) - TOLD_MAX
        shown_problems = [*self.problems[:TOLD_MAX], *([f"and {more} more like these"] if more > 0 else ())]
        return SweptFiles(
            data_files=self.files[SweepDecision.DATA],
            data_bytes=self.bytes[SweepDecision.DATA],
            waiting=self.files[SweepDecision.WAITING],
            kept=self.files[SweepDecision.KEPT],
            forked=self.files[SweepDecision.FORKED],
            missing=self.missing,
            names=tuple(self.names),
            jobs_settled=ended.settled,
            jobs_forgotten=ended.forgotten,
            branches=ended.branches,
            problem="\n".join(shown_problems),
            data_removed=call.remove_data and not call.dry_run,
            dry_run=call.dry_run,
        )
