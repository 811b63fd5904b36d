"""Resync of Delta tables: versions that a table's log has and the lake does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.errors import TableNotFound
from penstock.formats.delta.lake.services import DeltaServices
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.ownership.resync import DeltaResynced
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.names import LOG
from penstock.lake.resync_calls import Resync, ResyncedTable, resync_meta
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place


class DeltaSync:
    """Resyncs Delta tables, as one call asks for it."""

    def __init__(self, parts: DeltaServices, call: Resync) -> None:
        self._tables, self._logs, self._call = parts.owner.tables, parts.resync, call

    def list_tables(self) -> Iterator[tuple[Key, str]]:
        return (
            (key, content.location) for key, content in self._tables.list_tables(self._tables.find_head())
        )

    def resync_table(self, key: Key) -> ResyncedTable | None:
        how = {"leave_own": self._call.leave_own, "dry_run": self._call.dry_run}
        resynced = self._logs.resync_table(key, self._make_table_request(key), **how)
        return None if resynced.is_in_sync else _make_answer(resynced)

    def restore_dropped_table(self, key: Key, before: DeltaTable) -> ResyncedTable | None:
        how = {"leave_own": self._call.leave_own, "dry_run": self._call.dry_run}
        resynced = self._logs.resync_dropped(key, before, self._make_table_request(key), **how)
        return None if resynced is None else _make_answer(resynced)

    def adopt_unknown_table(
        self, place: Place, free_key: Callable[[str | None], Key]
    ) -> ResyncedTable | None:
        try:
            name = load_snapshot(PlaceFiles(place)).metadata.name if place.list(LOG) else None
        except TableNotFound:
            return None
        if not place.list(LOG):
            return None
        key = free_key(name)
        resynced = self._logs.resync_unknown(
            key, place.location, self._make_table_request(key), dry_run=self._call.dry_run
        )
        return None if resynced is None else _make_answer(resynced)

    def _make_table_request(self, key: Key) -> TableRequest:
        return TableRequest(resync_meta(key, self._call))


def _make_answer(resynced: DeltaResynced) -> ResyncedTable:
    return ResyncedTable(
        key=resynced.key,
        location=resynced.location,
        known=resynced.known,
        version=resynced.version,
        own=(resynced.own[0], resynced.own[-1]) if resynced.own else (),
        repeated=resynced.repeated,
        commit="" if resynced.before is None else resynced.before.hex(),
        doubtful=resynced.doubtful,
    )
