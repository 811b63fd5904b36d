"""Lance tables, for an open lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.calls import CALLS
from penstock.formats.lance.lake.lance_requirement import require_lance
from penstock.formats.lance.names import OWNER, USAGE
from penstock.formats.plugin import (
    DescribedTable,
    Flaws,
    NeededFolder,
    PublishingPlugin,
    Rows,
    RowSource,
    WorkerTable,
)
from penstock.kernel.format import Format
from penstock.kernel.fsck import Damage
from penstock.kernel.objects import Objects
from penstock.lake.call import Call
from penstock.lake.lazy_formats import LazyFormat
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.formats.lance.lake.dropped_erase import DroppedLanceErasure
    from penstock.formats.lance.lake.erase import LanceErasure
    from penstock.formats.lance.lake.handlers import LanceHandlers
    from penstock.formats.lance.lake.missing_files import MissingLanceFiles
    from penstock.formats.lance.lake.proposed_rows import LanceRows
    from penstock.formats.lance.lake.resync import LanceSync
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.formats.lance.lake.sweep import LanceSweep
    from penstock.formats.lance.lake.table_rows import LanceTableRows
    from penstock.kernel.checks import BranchProposal
    from penstock.kernel.reachable import Progress
    from penstock.lake.calls import EraseTable, SweepTables
    from penstock.lake.resync_calls import Resync
    from penstock.lake.table import Table


class LancePlugin(PublishingPlugin["LanceServices"]):
    """Versions that landed are promoted to where every reader of Lance looks."""

    name = "lance"
    content_type = LanceTable.content_type
    calls = CALLS
    usage = USAGE
    folder_notes = (OWNER,)

    @cached_property
    def rules(self) -> Format:
        return LazyFormat(self.name, LanceTable, lambda: self.parts.format, takes_any_base=True)

    def make_parts(self) -> LanceServices:
        from penstock.formats.lance.lake.services import LanceServices

        return LanceServices(self.lake.kernel, self.lake.places, self.lake.id)

    @cached_property
    def answers(self) -> LanceHandlers:
        from penstock.formats.lance.lake.handlers import LanceHandlers

        return LanceHandlers(self.lake, self.parts)

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return self.answers.ways

    def content_check(self, objects: Objects) -> Flaws:
        from penstock.formats.lance.lake.table_check import LanceCheck

        return LanceCheck(objects).find_flaws

    def unreadable_tables(self) -> Iterator[Damage]:
        from penstock.formats.lance.lake.readability import LanceReadability

        readability = LanceReadability(self.lake.kernel, self.lake.places, with_files=True)
        return (
            Damage(unreadable.reference_text, str(unreadable))
            for unreadable in readability.find_unreadable_tables()
        )

    @classmethod
    def describe_version(cls, content: LanceTable) -> str:
        from penstock.formats.lance.state import decode_state

        newest = decode_state(content).newest
        return f"v{newest}" if newest else ""

    @classmethod
    def describe_table(cls, table: Table) -> DescribedTable:
        from penstock.formats.lance.lake.table_facts import describe_table

        return describe_table(table)

    @classmethod
    def open_rows(cls, table: Table) -> LanceTableRows:
        require_lance()
        from penstock.formats.lance.lake.table_rows import LanceTableRows

        return LanceTableRows(table)

    def proposed_rows(self, proposal: BranchProposal, key: Key, content: LanceTable) -> Rows:
        return self._open_rows(proposal, key, content).begin_reading

    def row_source(self, proposal: BranchProposal, key: Key, content: LanceTable) -> RowSource:
        rows = self._open_rows(proposal, key, content)
        return RowSource(rows.version, rows)

    @classmethod
    def rows_in_worker(cls, table: WorkerTable) -> Rows:
        from penstock.formats.lance.lake.proposed_rows import open_rows

        return open_rows(table.key, table.details)

    def _open_rows(self, proposal: BranchProposal, key: Key, content: LanceTable) -> LanceRows:
        require_lance()
        from penstock.formats.lance.lake.proposed_rows import LanceRows

        return LanceRows(self.lake, self.parts, proposal, key, content)

    def table_sync(self, call: Resync) -> LanceSync:
        from penstock.formats.lance.lake.resync import LanceSync

        return LanceSync(self.lake, self.parts, call)

    def table_sweep(self, call: SweepTables, progress: Progress) -> LanceSweep:
        from penstock.formats.lance.lake.sweep import LanceSweep

        lake = self.lake
        return LanceSweep(lake.kernel, lake.places, lake.id, lake.warehouse, call, progress)

    def needed_folders(self, problems: list[str], progress: Progress) -> Iterator[NeededFolder]:
        from penstock.formats.lance.lake.needed_files import list_needed_folders

        return list_needed_folders(self.lake.kernel, self.lake.places, problems, progress)

    def missing_files(self) -> MissingLanceFiles:
        from penstock.formats.lance.lake.missing_files import MissingLanceFiles

        return MissingLanceFiles(self.lake.kernel, self.lake.places)

    def erasure(self, call: EraseTable) -> LanceErasure:
        from penstock.formats.lance.lake.erase import LanceErasure

        return LanceErasure(self.lake, self.parts, call.key, call.who, all_references=call.all_references)

    def dropped_erasure(self, call: EraseTable, content: LanceTable) -> DroppedLanceErasure:
        from penstock.formats.lance.lake.dropped_erase import DroppedLanceErasure

        return DroppedLanceErasure(self.lake, self.parts, call.key, call.who, content)
