"""Delta tables, for an open lake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.formats.delta.lake.answers import BulkOwnershipResult
from penstock.formats.delta.lake.calls import CALLS, AdoptTables, ReleaseTables
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.plugin import DescribedTable, NeededFolder, PublishingPlugin, Rows, WorkerTable
from penstock.kernel.format import Format
from penstock.lake.call import Call
from penstock.lake.lazy_formats import LazyFormat
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.stores import get_place

if TYPE_CHECKING:
    from penstock.formats.delta.lake.dropped_erase import DroppedDeltaErasure
    from penstock.formats.delta.lake.erase import DeltaErasure
    from penstock.formats.delta.lake.handlers import DeltaHandlers
    from penstock.formats.delta.lake.missing_files import MissingDeltaFiles
    from penstock.formats.delta.lake.resync import DeltaSync
    from penstock.formats.delta.lake.services import DeltaServices
    from penstock.formats.delta.lake.sweep import DeltaSweep
    from penstock.formats.delta.lake.table_rows import DeltaTableRows
    from penstock.kernel.checks import BranchProposal
    from penstock.kernel.reachable import Progress
    from penstock.lake.calls import EraseTable, SweepTables
    from penstock.lake.resync_calls import Resync
    from penstock.lake.table import Table


class DeltaPlugin(PublishingPlugin["DeltaServices"]):
    """Versions that were ratified are published to the logs of their tables."""

    name = "delta"
    content_type = DeltaTable.content_type
    calls = CALLS
    usage = "a Delta table: use lake.table(…)"
    record_folders = (LOG.rstrip("/"),)

    @cached_property
    def rules(self) -> Format:
        return LazyFormat(
            self.name, DeltaTable, lambda: self.parts.format, repeats_states=True, may_lose_files=True
        )

    def make_parts(self) -> DeltaServices:
        from penstock.formats.delta.branch_log.ownership import OwnerIdentity
        from penstock.formats.delta.lake.services import DeltaServices

        identity = OwnerIdentity(self.lake.id, get_place(self.lake.kernel.store))
        return DeltaServices(
            self.lake.kernel, self.lake.places, identity, self.lake.check_and_normalise_location
        )

    def await_published(self, landed: Iterable[tuple[Key, AnyContent | None]], timeout_s: float) -> None:
        if self._parts is not None:
            self._parts.await_published(landed, timeout_s)

    @cached_property
    def answers(self) -> DeltaHandlers:
        from penstock.formats.delta.lake.handlers import DeltaHandlers

        return DeltaHandlers(self.lake, self.parts)

    @property
    def handlers(self) -> Mapping[type[Call[Any]], Callable[[Any], Any]]:
        return self.answers.ways

    @property
    def long_handlers(self) -> Mapping[type[Call[Any]], Callable[[Any, Progress], Any]]:
        return {AdoptTables: self._adopt_tables, ReleaseTables: self._release_tables}

    def _adopt_tables(self, call: AdoptTables, progress: Progress) -> BulkOwnershipResult:
        return self.answers.adopt_tables(call, progress)

    def _release_tables(self, call: ReleaseTables, progress: Progress) -> BulkOwnershipResult:
        return self.answers.release_tables(call, progress)

    @classmethod
    def describe_version(cls, content: DeltaTable) -> str:
        from penstock.formats.delta.branch_log.branch_log import decode_branch_log

        return f"v{decode_branch_log(content).latest}"

    @classmethod
    def describe_table(cls, table: Table) -> DescribedTable:
        from penstock.formats.delta.lake.table_facts import describe_table

        return describe_table(table)

    @classmethod
    def open_rows(cls, table: Table) -> DeltaTableRows:
        from penstock.formats.delta.lake.table_rows import DeltaTableRows

        return DeltaTableRows(table.key, table.snapshot())

    def proposed_rows(self, proposal: BranchProposal, key: Key, content: DeltaTable) -> Rows:
        from penstock.formats.delta.lake.proposed_rows import read_proposed

        return lambda: read_proposed(self.lake, self.parts.commits, proposal, key, content)

    @classmethod
    def rows_in_worker(cls, table: WorkerTable) -> Rows:
        from penstock.formats.delta.lake.proposed_rows import read_in_worker

        return lambda: read_in_worker(table.content, table.objects, table.places)

    def table_sync(self, call: Resync) -> DeltaSync:
        from penstock.formats.delta.lake.resync import DeltaSync

        return DeltaSync(self.parts, call)

    def table_sweep(self, call: SweepTables, progress: Progress) -> DeltaSweep:
        from penstock.formats.delta.lake.sweep import DeltaSweep

        notes = {note for other in self.lake.plugins if other is not self for note in other.folder_notes}
        return DeltaSweep(self.lake.kernel, self.parts, call, progress, notes)

    def needed_folders(self, problems: list[str], progress: Progress) -> Iterator[NeededFolder]:
        from penstock.formats.delta.lake.needed_files import needed_folders

        return needed_folders(self.lake.kernel, self.parts, problems, progress)

    def missing_files(self) -> MissingDeltaFiles:
        from penstock.formats.delta.lake.missing_files import MissingDeltaFiles

        return MissingDeltaFiles(self.parts)

    def erasure(self, call: EraseTable) -> DeltaErasure:
        from penstock.formats.delta.lake.erase import DeltaErasure

        return DeltaErasure(self.lake, self.parts, call.key, call.who)

    def dropped_erasure(self, call: EraseTable, content: DeltaTable) -> DroppedDeltaErasure:
        from penstock.formats.delta.lake.dropped_erase import DroppedDeltaErasure

        return DroppedDeltaErasure(self.lake, self.parts, call.key, call.who, content)
