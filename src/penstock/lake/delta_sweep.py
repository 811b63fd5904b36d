"""The sweep of tables: removing files of jobs that did not commit, while jobs and commits go on.

A data file goes if it is older than the grace time, by the storage's own clock, and if no kept commit of the
lake names it: at no reference, in no version that can be read from there. That a file which somebody commits
never goes rests on two things.

1. A job commits a file within half of the grace time after it began to write, or not at all. So a file that
   is older than the whole of it was committed half the grace time ago, or never will be. The other half is
   what clocks may differ by.
2. What is named is gathered twice: before files are listed, so that few of them have to be remembered, and
   again before each removal, when only commits that came in between have to be looked at. So even a file
   that is committed later than it may be stays, if that was before the removal began.

A commit that brings back files, as a merge or a revert does, takes them from a commit that was kept when the
names were gathered, or that came later and is seen by the second look.

If anything cannot be read that may name a file, nothing of that table is removed. Names are removed one by
one, and one that is gone is no mistake: a sweep that is killed is taken up by the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from penstock.errors import InvalidRequest, PenstockError, ReferenceNotFound
from penstock.formats.delta.lines.line import Phase, line_of
from penstock.formats.delta.log.cleanup import GRACE_MS
from penstock.formats.delta.log.leftovers import Fate, Judged, Needs, judge, still
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, silent
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.delta_kept import KeptTables
from penstock.lake.delta_parts import DeltaParts
from penstock.lake.delta_unlanded import UnlandedTables
from penstock.lake.delta_word import OwnersWord
from penstock.metrics import table as metrics
from penstock.model.content import DeltaTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.storage.buckets import Entry

REMOVED_AT_ONCE: Final = 10_000
"""How many files are remembered, and removed, after one look at what has been committed meanwhile."""
NAMED_AT_ONCE: Final = 1_000_000
"""How many names are in memory, about, unless one table alone has more. The lake's history is walked for as
many tables together as have so many."""
NAMES_MAX: Final = 100
"""How many of a table's data files that go an answer tells by name."""
UNLANDED_MAX: Final = 1000
"""How many folders of tables that were never created are looked after at once."""
TOLD_EVERY: Final = 1000


class TableSweep:
    """Sweeps the tables of a lake, as one call asks for it."""

    def __init__(
        self, kernel: Kernel, parts: DeltaParts, call: SweepTables, progress: Progress = silent
    ) -> None:
        self._kernel, self._parts, self._call, self._progress = kernel, parts, call, progress
        self._tables = parts.owner.tables
        self._now_us = kernel.clock()
        self._data_us = self._now_us - kernel.graces.of_sweeps().data_us
        self._listed = 0

    def locations(self) -> list[str]:
        """Where the tables are that were asked for, sorted, however many an answer may have."""
        return [content.location for _, content, _ in self._found()]

    def run(self) -> tuple[SweptTable, ...]:
        """Sweep the tables that were asked for, by their locations; say of each what came of it.

        ``Damaged`` if history cannot be walked: then nothing was removed of tables that are not told.
        """
        found: list[SweptTable] = []
        group: list[OwnersWord] = []
        for key, content, is_default in self._chosen():
            group.append(OwnersWord(self._parts, key, content, is_default=is_default))
            if sum(len(one.named) for one in group) >= NAMED_AT_ONCE:
                found += self._sweep(group)
                group = []
        found += self._sweep(group)
        return (*found, *self._sweep_unlanded(len(found)))

    # -- which tables --------------------------------------------------------------------------------------

    def _chosen(self) -> Iterator[tuple[Key, DeltaTable, bool]]:
        if self._call.limit is not None and self._call.limit < 0:
            raise InvalidRequest(f"a limit is not below nothing: {self._call.limit}")
        return islice(self._found(), self._call.limit)

    def _found(self) -> Iterator[tuple[Key, DeltaTable, bool]]:
        managed = self._managed()
        for location in sorted(managed):
            if location > self._call.after and self._call.key in (None, managed[location][0]):
                yield managed[location]

    def _managed(self) -> dict[str, tuple[Key, DeltaTable, bool]]:
        """The tables that the lake owns, by location: of the default branch, or else of any other reference.

        One that was released belongs to the file system, whatever an older branch has of it, and one that is
        dropped everywhere is for who dropped it to remove.
        """
        found: dict[str, tuple[Key, DeltaTable, bool]] = {}
        default = NO_COMMIT
        with suppress(ReferenceNotFound):
            default = self._tables.head()
        heads = {head for _, head in self._kernel.references.heads()} - {default, NO_COMMIT}
        for head in (*({default} - {NO_COMMIT}), *sorted(heads)):
            for key, content in self._tables.all(head):
                if content.location not in found and self._is_owned(default, content):
                    found[content.location] = key, content, head == default
        return found

    def _is_owned(self, default: ObjectId, content: DeltaTable) -> bool:
        last = content
        if default != NO_COMMIT:
            holder = self._tables.holder(default, content.location)
            last = (None if holder is None else self._tables.last(default, holder)) or content
        return line_of(last).phase is Phase.OWNED and line_of(content).phase is Phase.OWNED

    # -- sweeping ------------------------------------------------------------------------------------------

    def _sweep(self, words: Sequence[OwnersWord]) -> Iterator[SweptTable]:
        """Sweep some tables, whose logs have been read, one after the other."""
        if not words:
            return
        look = _Look(KeptTables(self._kernel, self._tables, self._progress), words)
        look.again()
        for word in words:
            yield self._sweep_table(word, look)

    def _sweep_unlanded(self, told: int) -> Iterator[SweptTable]:
        """Folders of tables that were never created: on the last page, as many as leave it the last."""
        limit = UNLANDED_MAX if self._call.limit is None else self._call.limit - 1 - told
        if self._call.key is None and limit > 0:
            found = UnlandedTables(self._kernel, self._parts, self._data_us)
            yield from found.sweep(limit, remove=self._call.remove_data, dry_run=self._call.dry_run)

    def _sweep_table(self, word: OwnersWord, look: _Look) -> SweptTable:
        tally = _Tally()
        problem = ""
        try:
            look.check(word)
            needs = Needs(
                named=word.named,
                beside=word.beside,
                published=word.published,
                data_us=self._data_us,
                scratch_us=self._now_us - GRACE_MS * 1000,
                prefix_length=word.prefix_length,
            )
            doomed: list[Judged] = []
            for one in judge(self._entries(word), needs):
                if one.fate in (Fate.KEPT, Fate.WAITING):
                    tally.count(one)
                    continue
                doomed.append(one)
                if len(doomed) == REMOVED_AT_ONCE:
                    self._remove(word, look, needs, doomed, tally)
                    doomed = []
            self._remove(word, look, needs, doomed, tally)
            if not self._call.dry_run:
                word.place.tidy(needs.scratch_us)
        except PenstockError as error:
            problem = error.message
        return SweptTable(
            key=word.key,
            location=word.content.location,
            data_files=tally.files[Fate.DATA],
            data_bytes=tally.bytes[Fate.DATA],
            scratch_files=tally.files[Fate.SCRATCH],
            scratch_bytes=tally.bytes[Fate.SCRATCH],
            waiting=tally.files[Fate.WAITING],
            kept=tally.files[Fate.KEPT],
            names=tuple(tally.names),
            problem=problem,
            data_removed=self._removes(Fate.DATA),
            dry_run=self._call.dry_run,
        )

    def _entries(self, word: OwnersWord) -> Iterator[Entry]:
        for entry in word.place.entries():
            self._listed += 1
            if not self._listed % TOLD_EVERY:
                self._progress("files", self._listed)
            yield entry

    def _remove(
        self, word: OwnersWord, look: _Look, needs: Needs, doomed: Sequence[Judged], tally: _Tally
    ) -> None:
        """Look once more at what is named, and remove what still may go, as far as that was asked for."""
        if not doomed:
            return
        look.again()
        look.check(word)
        going = [*still(doomed, needs)]
        removed = [one for one in going if self._removes(one.fate)]
        if removed:
            self._progress("removing", len(removed))
            word.place.delete([one.entry.key for one in removed])
        for one in going:
            tally.count(one)
        for one in removed:
            kind = one.fate.name.lower()
            self._kernel.meter.count(metrics.DELTA_SWEPT_FILES, kind=kind)
            self._kernel.meter.count(metrics.DELTA_SWEPT_BYTES, one.entry.size, kind=kind)

    def _removes(self, fate: Fate) -> bool:
        return not self._call.dry_run and (fate is Fate.SCRATCH or self._call.remove_data)


class _Look:
    """A look at all that kept commits name of some tables; each further one costs what came in between."""

    def __init__(self, kept: KeptTables, words: Sequence[OwnersWord]) -> None:
        self._kept = kept
        self._words = {_place(one.content): one for one in words}

    def again(self) -> None:
        for content in self._kept.news():
            if (word := self._words.get(_place(content))) is not None:
                word.take(content)
        for word in self._words.values():
            word.settle()

    def check(self, word: OwnersWord) -> None:
        """Raise what stands against knowing everything that is needed in a table's folder, if anything."""
        self._kept.neighbours.check(_place(word.content))
        word.check()


class _Tally:
    """How many files there are of each fate, how large they are, and the names of some data files that go."""

    def __init__(self) -> None:
        self.files: Counter[Fate] = Counter()
        self.bytes: Counter[Fate] = Counter()
        self.names: list[str] = []

    def count(self, one: Judged) -> None:
        self.files[one.fate] += 1
        self.bytes[one.fate] += one.entry.size
        if one.fate is Fate.DATA and len(self.names) < NAMES_MAX:
            self.names.append(one.entry.key)


def _place(content: DeltaTable) -> str:
    return content.location.rstrip("/")
