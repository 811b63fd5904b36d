"""The sweep of all tables that have places of their own: a page of them, by location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidRequest
from penstock.formats.delta.lake.sweep import TableSweep
from penstock.formats.delta.plugin import DeltaPlugin
from penstock.formats.lance.lake.sweep import LanceSweep
from penstock.kernel.reachable import Progress
from penstock.lake.answers import SweptTable
from penstock.lake.calls import SweepTables

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


def sweep_tables(lake: Embedded, call: SweepTables, progress: Progress) -> tuple[SweptTable, ...]:
    """Sweep the tables of a page. ``Damaged`` if history cannot be walked."""
    lake.kernel.graces.require_agreed()
    if call.limit is not None and call.limit < 0:
        raise InvalidRequest(f"a limit is not below nothing: {call.limit}")
    lance = LanceSweep(lake.kernel, lake.places, lake.id, lake.warehouse, call, progress)
    of_lance, of_delta = lance.locations(), _delta(lake, call, progress).locations()
    page = sorted((*of_lance, *of_delta))[: call.limit]
    own = [one for one in of_lance if one in {*page}]
    found = [*lance.run(own)]
    if len(page) > len(own) or _is_last(page, call):
        # On the last page, as many more may be told as there is room for: folders that no table has.
        left: int | None = len(page) - len(own)
        if _is_last(page, call):
            left = None if call.limit is None else call.limit - len(own)
        found += _delta(lake, msgspec.structs.replace(call, limit=left), progress).run()
    return tuple(sorted(found, key=lambda one: one.location))


def _delta(lake: Embedded, call: SweepTables, progress: Progress) -> TableSweep:
    return TableSweep(lake.kernel, lake.plugin(DeltaPlugin).parts, call, progress)


def _is_last(page: Sequence[str], call: SweepTables) -> bool:
    return call.limit is None or len(page) < call.limit
