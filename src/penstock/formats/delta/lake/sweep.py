"""The sweep of Delta tables: which files retained commits reference, and which of the others may go.

``lake.sweep_engine`` says when references are gathered and when files are removed, and why that is safe. If
anything cannot be read that may reference a file, nothing of that table is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from penstock.errors import PenstockError, ReferenceNotFound
from penstock.formats.delta import metrics
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.lake.clone_needs import CloneNeeds
from penstock.formats.delta.lake.retained_files import RetainedFiles
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.lake.unlanded_tables import UnlandedTableSweeper
from penstock.formats.delta.log.cleanup import GRACE_MS
from penstock.formats.delta.publishing.leftovers import DeltaNeeds, is_needed, judge_files
from penstock.kernel.kernel import Kernel
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.fork_notes import ForkNotes
from penstock.lake.sweep_engine import Listing, SweepEngine, SweepTally
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.sweep_decisions import JudgedFile, SweepDecision

NAMED_AT_ONCE: Final = 1_000_000
"""How many names are in memory, about, unless one table alone has more. The lake's history is walked for as
many tables together as have so many."""
UNLANDED_MAX: Final = 1000
"""How many folders of tables that were never created are looked after at once."""


class DeltaSweep:
    """Sweeps the Delta tables of a lake, as one call asks for it."""

    def __init__(
        self,
        kernel: Kernel,
        parts: DeltaServices,
        call: SweepTables,
        progress: Progress = show_no_progress,
        foreign_notes: Collection[str] = (),
    ) -> None:
        """``foreign_notes`` are the files by which folders are known to be tables of other formats."""
        self._foreign_notes = foreign_notes
        self._kernel, self._parts, self._call, self._progress = kernel, parts, call, progress
        self._tables = parts.owner.tables
        self._now_us = kernel.clock()
        self._data_us = self._now_us - kernel.graces.find_sweep_grace().data_us
        self._engine = SweepEngine(
            remove_data=call.remove_data,
            dry_run=call.dry_run,
            pinned_us=ForkNotes(kernel.store, parts.places).find_pinned_time_us,
            progress=progress,
        )

    def list_locations(self) -> list[str]:
        """Where the tables are that were asked for, sorted."""
        return [
            location
            for location, (key, _, _) in sorted(self._find_managed_tables().items())
            if location > self._call.after and self._call.key in (None, key)
        ]

    def sweep_locations(self, locations: Iterable[str]) -> Iterator[SweptTable]:
        """Sweep some of these tables, and say of each what came of it.

        ``Damaged`` if history cannot be walked: then nothing was removed of tables that are not told.
        """
        managed = self._find_managed_tables()
        group: list[RetainedFiles] = []
        for location in locations:
            if location in managed:
                key, content, is_default = managed[location]
                group.append(RetainedFiles(self._parts, key, content, is_default=is_default))
            if sum(len(retained.named) for retained in group) >= NAMED_AT_ONCE:
                yield from self._sweep_tables(group)
                group = []
        yield from self._sweep_tables(group)

    def sweep_unlanded(self, limit: int | None) -> Iterator[SweptTable]:
        """Sweep folders of tables that were never created, at most so many."""
        unlanded = UnlandedTableSweeper(self._kernel, self._parts, self._data_us, self._foreign_notes)
        return unlanded.sweep(UNLANDED_MAX if limit is None else limit, self._engine)

    def needs_of_one(self) -> DeltaNeeds:
        """What is needed of the table that was asked for. Raises what stands against knowing it."""
        (location,) = self.list_locations()
        key, content, is_default = self._find_managed_tables()[location]
        word = RetainedFiles(self._parts, key, content, is_default=is_default)
        look = self._make_retained_reader([word])
        look.read_once()
        look.require_complete(word)
        return self._find_needs(word, look)

    # -- which tables --------------------------------------------------------------------------------------

    def _find_managed_tables(self) -> dict[str, tuple[Key, DeltaTable, bool]]:
        """The tables that the lake owns, by location: of the default branch, or else of any other reference.

        One that was released belongs to the file system, whatever an older branch has of it, and one that is
        dropped everywhere is for who dropped it to remove.
        """
        tables: dict[str, tuple[Key, DeltaTable, bool]] = {}
        default = NO_COMMIT
        with suppress(ReferenceNotFound):
            default = self._tables.find_head()
        heads = {head for _, head in self._kernel.references.list_heads()} - {default, NO_COMMIT}
        for head in (*({default} - {NO_COMMIT}), *sorted(heads)):
            for key, content in self._tables.list_tables(head):
                if content.location not in tables and self._is_owned(default, content):
                    tables[content.location] = key, content, head == default
        return tables

    def _is_owned(self, default: ObjectId, content: DeltaTable) -> bool:
        last = content
        if default != NO_COMMIT:
            holder = self._tables.find_holder(default, content.location)
            last = (None if holder is None else self._tables.find_last_state(default, holder)) or content
        return (
            decode_branch_log(last).phase is OwnershipPhase.OWNED
            and decode_branch_log(content).phase is OwnershipPhase.OWNED
        )

    # -- sweeping ------------------------------------------------------------------------------------------

    def _sweep_tables(self, words: Sequence[RetainedFiles]) -> Iterator[SweptTable]:
        """Sweep some tables, whose logs have been read, one after the other."""
        if not words:
            return
        look = self._make_retained_reader(words)
        for word in words:
            yield self._sweep_table(word, look)

    def _make_retained_reader(self, words: Sequence[RetainedFiles]) -> _RetainedFilesReader:
        return _RetainedFilesReader(CloneNeeds(self._kernel, self._parts, self._progress), words)

    def _sweep_table(self, retained: RetainedFiles, look: _RetainedFilesReader) -> SweptTable:
        tally, problem = SweepTally(), ""
        look.read_once()
        try:
            self._engine.sweep_folder(
                _SweptTableFolder(self._kernel, retained, look, self._find_needs(retained, look)), tally
            )
        except PenstockError as error:
            problem = error.message
        return self._engine.make_swept_table(retained.key, retained.content.location, tally, problem)

    def _find_needs(self, retained: RetainedFiles, look: _RetainedFilesReader) -> DeltaNeeds:
        return DeltaNeeds(
            named=_AnyReferencedFiles(retained, look.clone_needs),
            beside=retained.beside,
            published=retained.published,
            data_us=self._data_us,
            scratch_us=max(self._data_us, self._now_us - GRACE_MS * 1000),
            prefix_length=retained.prefix_length,
            former=retained.former,
        )


class _SweptTableFolder:
    """The folder of a table, as the engine sweeps it."""

    def __init__(
        self, kernel: Kernel, retained: RetainedFiles, look: _RetainedFilesReader, needs: DeltaNeeds
    ) -> None:
        self._meter, self._word, self._look, self._needs = kernel.meter, retained, look, needs

    def gather_references(self) -> None:
        self._look.require_complete(self._word)

    def judge_files(self, listing: Listing) -> Iterator[JudgedFile]:
        return judge_files(listing(self._word.place, ""), self._needs)

    def gather_new_references(self) -> None:
        self._look.read_again()
        self._look.require_complete(self._word)

    def judge_file_again(self, candidate: JudgedFile) -> SweepDecision:
        return SweepDecision.KEPT if is_needed(candidate, self._needs) else candidate.fate

    def delete_files(self, files: Sequence[JudgedFile]) -> None:
        self._word.place.delete([file.entry.key for file in files])
        for file in files:
            kind = file.fate.name.lower()
            self._meter.count(metrics.SWEPT_FILES, kind=kind)
            self._meter.count(metrics.SWEPT_BYTES, file.entry.size, kind=kind)

    def tidy_after_sweep(self, tally: SweepTally) -> None:  # noqa: ARG002
        self._word.place.tidy(self._needs.scratch_us)


class _AnyReferencedFiles:
    """The files that retained versions of a table reference, and those of its clones."""

    def __init__(self, retained: RetainedFiles, clone_needs: CloneNeeds) -> None:
        self._word, self._clone_needs = retained, clone_needs

    def __contains__(self, name: object) -> bool:
        if name in self._word.named:
            return True
        return isinstance(name, str) and self._clone_needs.is_needed_file(self._word.content.location, name)


class _RetainedFilesReader:
    """A look at all that kept commits name of some tables; each further one costs what came in between."""

    def __init__(self, clone_needs: CloneNeeds, words: Sequence[RetainedFiles]) -> None:
        self.clone_needs = clone_needs
        self._words = {_get_folder(word.content): word for word in words}
        self._is_begun = False

    def read_once(self) -> None:
        """Look, unless that was done: the tables of a group are looked at together before the first one."""
        if not self._is_begun:
            self.read_again()
            self._is_begun = True

    def read_again(self) -> None:
        for content in self.clone_needs.walk_unseen_tables():
            if (word := self._words.get(_get_folder(content))) is not None:
                word.add_content(content)
        for word in self._words.values():
            word.read_deferred_commits()

    def require_complete(self, retained: RetainedFiles) -> None:
        """Raise what stands against knowing everything that is needed in a table's folder, if anything."""
        self.clone_needs.neighbours.check_location(_get_folder(retained.content))
        self.clone_needs.check_clones(retained.content.location)
        retained.check_completeness()


def _get_folder(content: DeltaTable) -> str:
    return content.location.rstrip("/")
