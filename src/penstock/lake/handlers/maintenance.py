"""Answering calls that sweep, check and resync a lake."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.kernel.description import require_unmoved
from penstock.kernel.fsck import CheckResult, Damage, fsck
from penstock.kernel.reachable import Progress
from penstock.kernel.sweep import SweepResult, sweep_objects
from penstock.lake import calls
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables
from penstock.lake.erase import erase_table
from penstock.lake.resync import TableResync
from penstock.lake.resync_calls import Resync, ResyncResult, describe_ahead

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


logger = logging.getLogger("penstock")


class MaintenanceHandlers:
    """Answers the calls that tell how far they are."""

    def __init__(self, lake: Embedded) -> None:
        self._lake, self._kernel = lake, lake.kernel
        self.by_call: dict[type[calls.Call[Any]], Callable[[Any, Progress], Any]] = {
            calls.Sweep: self._sweep_objects,
            calls.SweepTables: lake.refuse_if_moved(self._sweep_tables),
            calls.EraseTable: lake.refuse_if_moved(partial(erase_table, lake)),
            Resync: lake.refuse_if_moved(self._resync_tables),
            calls.Fsck: self._run_fsck,
        }

    def _sweep_objects(self, call: calls.Sweep, progress: Progress) -> SweepResult:
        require_unmoved(self._kernel.store)
        if not call.dry_run:
            self._lake.transactions.end_abandoned_transactions()
        return sweep_objects(self._kernel, dry_run=call.dry_run, progress=progress)

    def _sweep_tables(self, call: calls.SweepTables, progress: Progress) -> tuple[SweptTable, ...]:
        return sweep_tables(self._lake, call, progress) if self._lake.has_any_tables() else ()

    def _run_fsck(self, call: calls.Fsck, progress: Progress) -> CheckResult:  # noqa: ARG002
        checks = [
            check for plugin in self._lake.plugins if (check := plugin.content_check(self._kernel.objects))
        ]
        flaws = fsck(
            self._kernel,
            progress,
            lambda key, content: chain.from_iterable(check(key, content) for check in checks),
        )
        unreadable = (damage for plugin in self._lake.plugins for damage in plugin.unreadable_tables())
        return msgspec.structs.replace(
            flaws, damages=(*flaws.damages, *unreadable, *self._find_tables_out_of_sync())
        )

    def _find_tables_out_of_sync(self) -> Iterator[Damage]:
        """Tables of the default branch whose logs or folders are not what the lake knows."""
        if not self._has_tables_anywhere():
            return
        try:
            for table in TableResync(self._lake, Resync(dry_run=True)).find_tables_out_of_sync():
                yield Damage(str(table.key), table.problem or describe_ahead(table))
        except (PenstockError, AttributeError, TypeError, ValueError, LookupError) as problem:
            # Where an object of another kind is in the place of one, any of these may come of it.
            logger.debug("tables could not be compared with their logs", exc_info=problem)

    def _has_tables_anywhere(self) -> bool:
        try:
            return self._lake.has_any_tables()
        except (PenstockError, AttributeError, TypeError, ValueError, LookupError):
            return False  # what is damaged is told by the check of objects

    def _resync_tables(self, call: Resync, progress: Progress) -> ResyncResult:
        return TableResync(self._lake, call, progress).run_resync()


def sweep_tables(lake: Embedded, call: SweepTables, progress: Progress) -> tuple[SweptTable, ...]:
    """Sweep the tables of a page. ``Damaged`` if history cannot be walked."""
    lake.kernel.graces.require_agreed()
    if call.limit is not None and call.limit < 0:
        raise InvalidRequest(f"limit must be 0 or greater, got {call.limit}")
    candidates = (plugin.table_sweep(call, progress) for plugin in lake.plugins)
    sweeps = {sweep: sweep.list_locations() for sweep in candidates if sweep is not None}
    page = {*sorted(location for locations in sweeps.values() for location in locations)[: call.limit]}
    swept: list[SweptTable] = []
    for sweep, locations in sweeps.items():
        swept += sweep.sweep_locations(location for location in locations if location in page)
    is_last = call.limit is None or len(page) < call.limit
    if is_last and call.key is None:
        for sweep in sweeps:
            # As many more as leave this page the last.
            swept += sweep.sweep_unlanded(None if call.limit is None else max(0, call.limit - 1 - len(swept)))
    return tuple(sorted(swept, key=lambda table: table.location))
