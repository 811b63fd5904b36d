"""Tables of files, for an open lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.formats.files.content import FilesTable
from penstock.formats.files.files import USAGE, decode_state
from penstock.formats.files.format import FilesFormat
from penstock.formats.files.intents import NAME
from penstock.formats.files.lake.calls import CALLS
from penstock.formats.files.lake.pool import find_pool
from penstock.formats.files.lake.sweep_calls import CALLS as CARE_CALLS
from penstock.formats.files.lake.sweep_calls import SweepFiles
from penstock.formats.files.table_check import FilesCheck
from penstock.formats.plugin import DescribedTable, Flaws, FormatPlugin, NeededFolder, Rows, WorkerTable
from penstock.kernel.format import Format
from penstock.kernel.jobs import read_job_rows
from penstock.kernel.objects import Objects
from penstock.lake.answers import SweptFiles
from penstock.lake.call import Call
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.files.lake.dropped_erase import DroppedFilesErasure
    from penstock.formats.files.lake.erase import FilesErasure
    from penstock.formats.files.lake.handlers import FilesHandlers
    from penstock.formats.files.lake.missing_files import MissingPoolFiles
    from penstock.formats.files.lake.table_rows import FilesTableRows
    from penstock.kernel.checks import BranchProposal
    from penstock.kernel.reachable import Progress
    from penstock.lake.calls import EraseTable
    from penstock.lake.table import Table


class FilesPlugin(FormatPlugin):
    """Nothing is left to be done once a commit has landed: readers ask the lake for files."""

    name = NAME
    content_type = FilesTable.content_type
    calls = (*CALLS, *CARE_CALLS)
    usage = USAGE
    sweep_call = SweepFiles

    @cached_property
    def rules(self) -> Format:
        return FilesFormat(lambda: self.lake.places.open_place(find_pool(self.lake.warehouse)))

    @cached_property
    def answers(self) -> FilesHandlers:
        from penstock.formats.files.lake.handlers import FilesHandlers

        return FilesHandlers(self.lake, lambda: self.lake.places)

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return self.answers.ways

    def content_check(self, objects: Objects) -> Flaws:
        return FilesCheck(objects).find_flaws

    @classmethod
    def describe_version(cls, content: FilesTable) -> str:
        files = decode_state(content).files
        return f"{files:,} file" if files == 1 else f"{files:,} files"

    @classmethod
    def describe_table(cls, table: Table) -> DescribedTable:
        from penstock.formats.files.lake.table_facts import describe_table

        return describe_table(table)

    @classmethod
    def open_rows(cls, table: Table) -> FilesTableRows:
        from penstock.formats.files.lake.table_rows import open_rows

        return open_rows(table)

    def proposed_rows(self, proposal: BranchProposal, key: Key, content: FilesTable) -> Rows:
        lake = self.lake
        return self.rows_in_worker(
            WorkerTable(key, content, None, proposal.objects, lake.places, lake.warehouse)
        )

    @classmethod
    def rows_in_worker(cls, table: WorkerTable) -> Rows:
        from penstock.formats.files.lake.audit_rows import FileRows
        from penstock.formats.files.lake.proposed_files import ProposedFiles

        state = decode_state(table.content)
        files = ProposedFiles(table.objects, table.places, table.warehouse, table.key, state.root)
        return FileRows(table.key, files, state.layout).begin_reading

    def needed_folders(self, problems: list[str], progress: Progress) -> Iterator[NeededFolder]:
        from penstock.formats.files.lake.needed_files import make_needed_folder

        if self.lake.warehouse:
            pool = self.lake.places.open_place(find_pool(self.lake.warehouse))
            yield make_needed_folder(self.lake.kernel, pool, problems, progress)

    def missing_files(self) -> MissingPoolFiles:
        from penstock.formats.files.lake.missing_files import MissingPoolFiles

        return MissingPoolFiles(self.lake.places)

    def erasure(self, call: EraseTable) -> FilesErasure:
        from penstock.formats.files.lake.erase import FilesErasure

        return FilesErasure(self.lake, call.key, call.who)

    def dropped_erasure(self, call: EraseTable, content: FilesTable) -> DroppedFilesErasure:
        from penstock.formats.files.lake.dropped_erase import DroppedFilesErasure

        return DroppedFilesErasure(self.lake, call.key, call.who, content)

    @property
    def long_handlers(self) -> Mapping[type[Call[Any]], Callable[[Any, Progress], Any]]:
        return {SweepFiles: self._sweep_pool}

    def _sweep_pool(self, call: SweepFiles, progress: Progress) -> SweptFiles:
        lake = self.lake
        if not lake.warehouse or not self._may_have_files():
            return SweptFiles(dry_run=call.dry_run)
        from penstock.formats.files.lake.sweep import FilesSweep

        return FilesSweep(lake.kernel, lake.places, lake.id, lake.warehouse, call, progress).sweep_pool()

    def _may_have_files(self) -> bool:
        """Whether a table of files, or a job that writes one, may ever have been begun.

        If not, a sweep does not fail when the storage does not answer.
        """
        if any(True for _ in read_job_rows(self.lake.kernel.store)) or self.lake.has_any_tables():
            return True
        from penstock.formats.files.lake.sweep import has_slices

        try:
            return has_slices(self.lake.places, self.lake.id, self.lake.warehouse)
        except PenstockError:
            return False
