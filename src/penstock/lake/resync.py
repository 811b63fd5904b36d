"""Resync: bringing a lake that is older than its tables up to what their logs and folders have.

Each table is one commit of the lake, or none, so that the next resync goes on where one was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import (
    InvalidKey,
    KeyNotFound,
    ManagedElsewhere,
    NotManaged,
    OutOfSync,
    PenstockError,
)
from penstock.formats.plugin import TableSync
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.dropped_tables import list_dropped_tables
from penstock.lake.resync_calls import Resync, ResyncedTable, ResyncResult
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.keys import Key
from penstock.storage.locations import parse_table_of_place
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class TableResync:
    """Resyncs the tables of a lake, as one call asks for it."""

    def __init__(self, lake: Embedded, call: Resync, progress: Progress = show_no_progress) -> None:
        self._lake, self._call, self._progress = lake, call, progress
        self._syncs = {
            plugin.name: sync for plugin in lake.plugins if (sync := plugin.table_sync(call)) is not None
        }

    def run_resync(self) -> ResyncResult:
        """Resync what was asked for. Of all tables, what stands against one keeps no other from going on."""
        tables, in_sync = list[ResyncedTable](), 0
        if self._call.key is not None:
            resynced = self._resync_table(self._call.key)
            tables = [] if resynced is None else [resynced]
            return ResyncResult(tables=tuple(tables), in_sync=1 - len(tables), dry_run=self._call.dry_run)
        for count, (key, location) in enumerate(self._list_tables(), 1):
            self._progress("tables", count)
            try:
                resynced = self._resync_table(key)
            except (ManagedElsewhere, KeyNotFound):
                continue  # it is another lake's to decide about, or it left this one just now
            except (PenstockError, OSError) as problem:
                resynced = _make_failed_table(key, location, problem)
            in_sync += resynced is None
            tables += () if resynced is None else (resynced,)
        tables += self._resync_dropped()
        tables += self._resync_unknown()
        return ResyncResult(tables=tuple(tables), in_sync=in_sync, dry_run=self._call.dry_run)

    def find_tables_out_of_sync(self) -> Iterator[ResyncedTable]:
        """The tables of the default branch that are out of sync, each with what a resync would say of it."""
        for key, location in self._list_tables():
            try:
                resynced = self._resync_table(key)
            except OutOfSync as problem:
                resynced = _make_failed_table(key, location, problem)
            except (PenstockError, OSError):
                continue  # told by whoever looks whether tables can be read
            if resynced is not None:
                yield resynced
        # Whether one that was dropped can be read, nobody has to be told.
        yield from (resynced for resynced in self._resync_dropped() if not resynced.problem)

    def _list_tables(self) -> list[tuple[Key, str]]:
        return sorted(table for sync in self._syncs.values() for table in sync.list_tables())

    def _find_table_sync(self, content: AnyContent | ManagedTable | None) -> TableSync | None:
        plugin = self._lake.find_plugin(content)
        return None if plugin is None else self._syncs.get(plugin.name)

    def _resync_table(self, key: Key) -> ResyncedTable | None:
        content = self._read_content(key)
        if content is None:
            for _, dropped, format_sync in self._list_dropped_tables(key):
                if (resynced := format_sync.restore_dropped_table(key, dropped)) is not None:
                    return resynced
            raise KeyNotFound(
                f"there is no '{key}' on '{self._lake.get_branch_or_default(None)}'", key=str(key)
            )
        if (sync := self._find_table_sync(content)) is None:
            raise NotManaged(
                f"'{key}' cannot be out of sync: all its versions are in the lake's commits",
                key=str(key),
            )
        return sync.resync_table(key)

    def _read_content(self, key: Key) -> AnyContent | None:
        head = self._lake.kernel.references.get_reference(self._lake.get_branch_or_default(None)).head
        return self._lake.read_content_at(head, key)

    # -- tables that the lake dropped ----------------------------------------------------------------------

    def _resync_dropped(self) -> Iterator[ResyncedTable]:
        """Tables that came back after the lake was as it is now, and were written to."""
        for key, dropped, sync in self._list_dropped_tables():
            place = self._lake.places.open_place(dropped.location)
            free = key if self._read_content(key) is None else self._free_key(place, None)
            try:
                resynced = sync.restore_dropped_table(free, dropped)
            except (ManagedElsewhere, NotManaged):
                continue  # it is another lake's by now, or nobody's
            except (PenstockError, OSError) as problem:
                resynced = _make_failed_table(key, dropped.location, problem)
            if resynced is not None:
                yield resynced

    def _list_dropped_tables(self, key: Key | None = None) -> Iterator[tuple[Key, ManagedTable, TableSync]]:
        """Tables with a place that were dropped, at a key if one is given, and not erased since."""
        store = self._lake.kernel.store
        for at, table in list_dropped_tables(self._lake):
            sync = self._find_table_sync(table)
            if sync is None or table.id is None or key not in (None, at):
                continue
            if find_horizon(store, table.id) is None:
                yield at, table, sync

    # -- tables that the lake never had --------------------------------------------------------------------

    def _resync_unknown(self) -> Iterator[ResyncedTable]:
        """Tables of the warehouse that were created after the lake was as it is now."""
        if not self._lake.warehouse:
            return
        known_tables = self._lake.kernel.known_tables
        for name in self._lake.places.open_place(self._lake.warehouse).folders():
            identity = parse_table_of_place(name)
            if identity is None or known_tables.is_known(identity):
                continue
            place = self._lake.places.open_place(f"{self._lake.warehouse.rstrip('/')}/{name}")
            try:
                resynced = self._take_over_table(place)
            except (PenstockError, OSError) as problem:
                resynced = _make_failed_table(Key(name), place.location, problem)
            if resynced is not None:
                yield resynced

    def _take_over_table(self, place: Place) -> ResyncedTable | None:
        """Take over a table that lies at a place, of whatever format it is."""
        free_key = partial(self._free_key, place)
        attempts = (sync.adopt_unknown_table(place, free_key) for sync in self._syncs.values())
        return next((resynced for resynced in attempts if resynced is not None), None)

    def _free_key(self, place: Place, name: str | None) -> Key:
        """The key that a table was created under; another one, if that holds something else by now."""
        own = Key(place.location.rpartition("/")[2])
        try:
            key = Key.parse(name) if name else own
        except InvalidKey:
            return own
        return own if self._read_content(key) is not None else key


def _make_failed_table(key: Key, location: str, problem: Exception) -> ResyncedTable:
    details = problem.details if isinstance(problem, PenstockError) else {}
    return ResyncedTable(
        key=key,
        location=location,
        known=int(details.get("known", -1)),
        version=int(details.get("version", -1)),
        problem=str(problem),
    )
