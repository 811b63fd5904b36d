"""The sweep engine: removes files that no retained commit references, while writers and commits go on.

Every format is swept by this engine. The engine decides when something is looked at and when files are
removed; the format says which files retained commits reference, and judges the others by name and age
(``SweptFolder``). That a file which somebody commits is never removed follows from this order:

1. References are gathered before files are listed (``begin``). What was committed by then is known.
2. A file without a reference is a candidate only if it is older than the grace period. A writer commits a
   file within half of the grace period after it began to write, or not at all; the lake refuses it later.
   The other half is what clocks may differ by. So nobody who wrote a candidate can still commit it.
3. References are gathered again right before each batch is removed (``look_again``), and each candidate is
   judged again. What a merge, a revert or a restore brings back comes from a retained commit: either that
   commit was retained when references were gathered, or the new commit is seen by this second look.
4. Forks of the lake have commits that it does not know. Notes of forks are read after that second look, and
   what was written before a fork stays (``lake.fork_notes``). The note of a fork is there before the fork
   copies a commit: if it is not seen here, the fork has no commit that the second look did not see, but for
   those that came since, as in 3.

Two sweeps at once are safe by construction: a sweep decides from retained commits and the clock alone, never
from what another sweep does, and it removes names, of which one that is gone is no mistake. A sweep that is
killed leaves nothing that the next one does not find. If anything cannot be read that may reference a file,
the format raises, and nothing more of that folder is removed.

``tests/sweep/test_engine_model.py`` tests this argument with random interleavings, and with engines that are
broken on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.answers import SweptTable
from penstock.model.keys import Key
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import Place
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

REMOVED_AT_ONCE: Final = 10_000
"""How many candidates are remembered, and removed, after one further look at references."""
NAMES_MAX: Final = 100
"""How many of the data files that go an answer names."""
TOLD_EVERY: Final = 1000

Listing = Callable[[Place, str], Iterator[BucketEntry]]
"""Lists all files below a folder of a place, in the order of their names."""


class SweptFolder(Protocol):
    """The format's half of a sweep: one folder, or several that are judged together."""

    def gather_references(self) -> None:
        """Gather all references of retained commits. Raises ``PenstockError`` if that is not possible."""

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        """List the files by ``listing``, and judge them by age and by the references gathered so far.

        A file may be held back until others have been listed. Files that are not the format's are left out.
        """

    def gather_new_references(self) -> None:
        """Gather references that came since. Raises ``PenstockError`` if that is not possible."""

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        """The fate of a candidate by the references that are known now."""

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        """Delete files, in the order that readers of the format need."""

    def tidy_after_sweep(self, tally: SweepTally) -> None:
        """Tidy up after the last removal. Not called in a dry run."""


class SweepTally:
    """How many files there are of each fate, how large they are, and the names of some data files that go."""

    def __init__(self) -> None:
        self.files: Counter[SweepDecision] = Counter()
        self.bytes: Counter[SweepDecision] = Counter()
        self.names: list[str] = []
        self.youngest_us = 0
        """When the youngest file was written that is too young to be judged."""

    @property
    def has_remaining_files(self) -> bool:
        """Whether any file stays."""
        return any(self.files[fate] for fate in SweepDecision if not fate.is_to_go)

    def count_file(self, file: JudgedFile) -> None:
        self.files[file.fate] += 1
        self.bytes[file.fate] += file.entry.size
        if file.fate is SweepDecision.WAITING:
            self.youngest_us = max(self.youngest_us, file.entry.modified_us)
        if file.fate is SweepDecision.DATA and len(self.names) < NAMES_MAX:
            self.names.append(file.entry.key)


class SweepEngine:
    """Sweeps folders one after the other."""

    def __init__(
        self,
        *,
        remove_data: bool,
        dry_run: bool,
        pinned_us: Callable[[], int],
        progress: Progress = show_no_progress,
        batch: int | None = None,
    ) -> None:
        """``pinned_us``: up to which time files may be a fork's (``ForkNotes.find_pinned_time_us``)."""
        self._remove_data, self._dry_run, self._progress = remove_data, dry_run, progress
        self._pinned_us = pinned_us
        self._batch = REMOVED_AT_ONCE if batch is None else batch
        self._listed = 0

    def removes_fate(self, fate: SweepDecision) -> bool:
        """Whether files of a fate are removed, or only counted."""
        return not self._dry_run and (
            fate is SweepDecision.SCRATCH or (fate is SweepDecision.DATA and self._remove_data)
        )

    def make_swept_table(self, key: Key, location: str, tally: SweepTally, problem: str) -> SweptTable:
        """What became of the files in the folder of a table."""
        return SweptTable(
            key=key,
            location=location,
            data_files=tally.files[SweepDecision.DATA],
            data_bytes=tally.bytes[SweepDecision.DATA],
            scratch_files=tally.files[SweepDecision.SCRATCH],
            scratch_bytes=tally.bytes[SweepDecision.SCRATCH],
            waiting=tally.files[SweepDecision.WAITING],
            kept=tally.files[SweepDecision.KEPT],
            forked=tally.files[SweepDecision.FORKED],
            names=tuple(tally.names),
            problem=problem,
            data_removed=self.removes_fate(SweepDecision.DATA),
            dry_run=self._dry_run,
        )

    def sweep_folder(self, folder: SweptFolder, tally: SweepTally) -> None:
        """Sweep a folder and count what became of its files; also of those before an error that is raised."""
        folder.gather_references()
        candidates: list[JudgedFile] = []
        for file in folder.judge_files(self._list_entries):
            if not file.fate.is_to_go:
                tally.count_file(file)
                continue
            candidates.append(file)
            if len(candidates) >= self._batch:
                self._remove_candidates(folder, candidates, tally)
                candidates = []
        self._remove_candidates(folder, candidates, tally)
        if not self._dry_run:
            folder.tidy_after_sweep(tally)

    def _list_entries(self, place: Place, folder: str) -> Iterator[BucketEntry]:
        for entry in place.entries(folder):
            self._listed += 1
            if not self._listed % TOLD_EVERY:
                self._progress("files", self._listed)
            yield entry

    def _remove_candidates(
        self, folder: SweptFolder, candidates: Sequence[JudgedFile], tally: SweepTally
    ) -> None:
        """Look once more at what is referenced, and remove what still may go, as far as that was asked."""
        if not candidates:
            return
        folder.gather_new_references()
        pinned_us = self._pinned_us()
        judged = [
            JudgedFile(candidate.entry, _judge_file_again(folder, candidate, pinned_us))
            for candidate in candidates
        ]
        going = [entry for entry in judged if self.removes_fate(entry.fate)]
        if going:
            self._progress("removing", len(going))
            folder.delete_files(going)
        for entry in judged:
            tally.count_file(entry)


def _judge_file_again(folder: SweptFolder, candidate: JudgedFile, pinned_us: int) -> SweepDecision:
    fate = folder.judge_file_again(candidate)
    return SweepDecision.FORKED if fate.is_to_go and candidate.entry.modified_us <= pinned_us else fate
