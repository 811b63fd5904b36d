"""The sweep of all tables that have places of their own: a page of them, by location."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InvalidRequest
from penstock.kernel.reachable import Progress
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


def sweep_tables(lake: Embedded, call: SweepTables, progress: Progress) -> tuple[SweptTable, ...]:
    """Sweep the tables of a page. ``Damaged`` if history cannot be walked."""
    lake.kernel.graces.require_agreed()
    if call.limit is not None and call.limit < 0:
        raise InvalidRequest(f"limit must be 0 or greater, got {call.limit}")
    candidates = (plugin.table_sweep(call, progress) for plugin in lake.plugins)
    sweeps = {sweep: sweep.locations() for sweep in candidates if sweep is not None}
    page = {*sorted(location for locations in sweeps.values() for location in locations)[: call.limit]}
    swept: list[SweptTable] = []
    for sweep, locations in sweeps.items():
        swept += sweep.run(location for location in locations if location in page)
    is_last = call.limit is None or len(page) < call.limit
    if is_last and call.key is None:
        for sweep in sweeps:
            # As many more as leave this page the last.
            swept += sweep.run_unlanded(None if call.limit is None else max(0, call.limit - 1 - len(swept)))
    return tuple(sorted(swept, key=lambda table: table.location))
