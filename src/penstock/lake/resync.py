"""Resync: bringing a lake that is older than its tables up to what their logs and folders have.

Each table is one commit of the lake, or none, so that the next resync goes on where one was stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import msgspec

from penstock.errors import (
    InvalidKey,
    InvalidRequest,
    KeyNotFound,
    ManagedElsewhere,
    NotManaged,
    OutOfSync,
    PenstockError,
    TableNotFound,
    VersionTaken,
)
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.owner.resync import DeltaResynced
from penstock.formats.delta.owner.tables import Asked
from penstock.formats.delta.protocol.names import LOG
from penstock.formats.lance import intents as lance_intents
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.owning import OWNER, read_owner
from penstock.formats.lance.registering import versions_at
from penstock.formats.lance.state import NAME as LANCE
from penstock.formats.lance.state import is_managed
from penstock.formats.sync import own_versions_left
from penstock.kernel.reachable import Progress, silent
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.call import Said
from penstock.lake.delta_plugin import DeltaPlugin
from penstock.lake.dropped_tables import dropped_tables
from penstock.lake.lance.plugin import LancePlugin
from penstock.lake.resync_calls import Resync, Resynced, ResyncedTable
from penstock.model.commits import CommitMeta
from penstock.model.content import DeltaTable, LanceTable
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.storage.locations import table_of_place
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

TRIES_MAX = 8
"""How often a resync is tried on a table that is committed to meanwhile."""


class TableResync:
    """Resyncs the tables of a lake, as one call asks for it."""

    def __init__(self, lake: Embedded, call: Resync, progress: Progress = silent) -> None:
        self._lake, self._call, self._progress = lake, call, progress
        self._delta, self._lance = lake.plugin(DeltaPlugin).parts, lake.plugin(LancePlugin).parts
        self._logs = self._delta.resync

    def run(self) -> Resynced:
        """Resync what was asked for. Of all tables, what stands against one keeps no other from going on."""
        tables, in_sync = list[ResyncedTable](), 0
        if self._call.key is not None:
            found = self._resync(self._call.key)
            tables = [] if found is None else [found]
            return Resynced(tables=tuple(tables), in_sync=1 - len(tables), dry_run=self._call.dry_run)
        for count, (key, location) in enumerate(self._keys(), 1):
            self._progress("tables", count)
            try:
                found = self._resync(key)
            except (ManagedElsewhere, KeyNotFound):
                continue  # it is another lake's to decide about, or it left this one just now
            except (PenstockError, OSError) as problem:
                found = _failed(key, location, problem)
            in_sync += found is None
            tables += () if found is None else (found,)
        tables += self._resync_dropped()
        tables += self._resync_unknown()
        return Resynced(tables=tuple(tables), in_sync=in_sync, dry_run=self._call.dry_run)

    def find(self) -> Iterator[ResyncedTable]:
        """The tables of the default branch that are out of sync, each with what a resync would say of it."""
        for key, location in self._keys():
            try:
                found = self._resync(key)
            except OutOfSync as problem:
                found = _failed(key, location, problem)
            except (PenstockError, OSError):
                continue  # told by whoever looks whether tables can be read
            if found is not None:
                yield found
        # Whether one that was dropped can be read, nobody has to be told.
        yield from (one for one in self._resync_dropped() if not one.problem)

    def _keys(self) -> list[tuple[Key, str]]:
        head = self._delta.owner.tables.head()
        delta = [(key, one.location) for key, one in self._delta.owner.tables.all(head)]
        return sorted((*delta, *((key, one.location) for key, one in self._lance.tables())))

    def _resync(self, key: Key) -> ResyncedTable | None:
        content = self._content(key)
        if content is None:
            for _, was in self._dropped(key):
                if (found := self._bring_back(key, was)) is not None:
                    return found
        if isinstance(content, LanceTable) and is_managed(content):
            return self._resync_lance(key)
        if content is not None and not isinstance(content, DeltaTable | LanceTable):
            raise NotManaged(
                f"'{key}' cannot be out of sync: it is no Delta or Lance table, and has no versions but those"
                " of the lake's commits",
                key=str(key),
            )
        asked = Asked(self._meta(key))
        done = self._logs.resync(key, asked, leave_own=self._call.leave_own, dry_run=self._call.dry_run)
        return None if done.is_in_sync else _answer(done)

    def _content(self, key: Key) -> object:
        return self._lake.content_at(self._delta.owner.tables.head(), key)

    def _meta(self, key: Key) -> CommitMeta:
        from penstock.lake.embedded import commit_meta

        return commit_meta(Said(), self._call.who, f"resync {key} with the versions that it has")

    # -- Lance ---------------------------------------------------------------------------------------------

    def _resync_lance(self, key: Key) -> ResyncedTable | None:
        for _ in range(TRIES_MAX):
            head = self._delta.owner.tables.head()
            content = self._lake.content_at(head, key)
            if not isinstance(content, LanceTable) or not is_managed(content) or content.id is None:
                raise KeyNotFound(f"there is no Lance table '{key}' any more", key=str(key))
            self._lance.ownership.check(content)
            state = self._lance.folder_check.compare(content.id, content.location, content)
            if state.is_in_sync:
                return None
            newest = max(0, *versions_at(self._lake.places.at(content.location), MAIN))
            found = ResyncedTable(key=key, location=content.location, known=state.known, version=newest)
            step = lance_intents.Resync(id=content.id, location=content.location, known=state.known)
            if state.other >= 0:
                if not self._call.leave_own:
                    raise own_versions_left(key, content.location, state.other, state.known, head.hex())
                found = msgspec.structs.replace(found, own=(state.other, state.known), commit=head.hex())
                step = msgspec.structs.replace(step, id=uuid4(), replaced=content.id)
            if self._call.dry_run:
                return found
            try:
                self._commit_lance(key, step)
            except VersionTaken:
                continue
            if step.replaced is not None:
                self._lance.promoter.forget(step.replaced)
            return found
        raise InvalidRequest(f"'{key}' was changed by others all the time; try again", key=str(key))

    def _commit_lance(self, key: Key, step: lance_intents.Resync) -> None:
        steps = lance_intents.Steps((lance_intents.Placed(0, step),))
        self._lake.kernel.commit(
            self._lake.or_default(None),
            [Change(key, LANCE, lance_intents.encode_steps(steps))],
            self._meta(key),
            create_namespaces=True,
        )

    # -- tables that the lake dropped ----------------------------------------------------------------------

    def _resync_dropped(self) -> Iterator[ResyncedTable]:
        """Tables that came back after the lake was as it is now, and were written to."""
        for key, was in self._dropped():
            place = self._lake.places.at(was.location)
            free = key if self._content(key) is None else self._free_key(None, place)
            try:
                found = self._bring_back(free, was)
            except (ManagedElsewhere, NotManaged):
                continue  # it is another lake's by now, or nobody's
            except (PenstockError, OSError) as problem:
                found = _failed(key, was.location, problem)
            if found is not None:
                yield found

    def _dropped(self, key: Key | None = None) -> list[tuple[Key, DeltaTable | LanceTable]]:
        """Tables with a place that were dropped, at a key if one is given, and not erased since."""
        store = self._lake.kernel.store
        return [
            (at, was)
            for at, was in dropped_tables(self._lake)
            if isinstance(was, DeltaTable | LanceTable) and was.state and was.id is not None
            if key in (None, at) and find_horizon(store, was.id) is None
        ]

    def _bring_back(self, key: Key, was: DeltaTable | LanceTable) -> ResyncedTable | None:
        """A table that was dropped, at a key where nothing is; ``None`` if it has not changed since."""
        if isinstance(was, LanceTable):
            return self._bring_back_lance(key, was)
        how = {"leave_own": self._call.leave_own, "dry_run": self._call.dry_run}
        done = self._logs.resync_dropped(key, was, Asked(self._meta(key)), **how)
        return None if done is None else _answer(done)

    def _bring_back_lance(self, key: Key, was: LanceTable) -> ResyncedTable | None:
        if not is_managed(was) or was.id is None:
            return None
        self._lance.ownership.check(was)
        state = self._lance.folder_check.compare(was.id, was.location, was)
        if state.is_in_sync:
            return None
        newest = max(0, *versions_at(self._lake.places.at(was.location), MAIN))
        found = ResyncedTable(key=key, location=was.location, known=state.known, version=newest)
        step = lance_intents.Resync(id=was.id, location=was.location, known=0)
        if state.other >= 0:
            head = self._delta.owner.tables.head().hex()
            if not self._call.leave_own:
                raise own_versions_left(key, was.location, state.other, state.known, head)
            found = msgspec.structs.replace(found, own=(state.other, state.known), commit=head)
            step = msgspec.structs.replace(step, id=uuid4(), replaced=was.id)
        if not self._call.dry_run:
            self._commit_lance(key, step)
            if step.replaced is not None:
                self._lance.promoter.forget(step.replaced)
        return found

    # -- tables that the lake never had --------------------------------------------------------------------

    def _resync_unknown(self) -> Iterator[ResyncedTable]:
        """Tables of the warehouse that were created after the lake was as it is now."""
        if not self._lake.warehouse:
            return
        known = self._delta.owner.tables
        for name in self._lake.places.at(self._lake.warehouse).folders():
            identity = table_of_place(name)
            if identity is None or known.is_known(identity):
                continue
            place = self._lake.places.at(f"{self._lake.warehouse.rstrip('/')}/{name}")
            try:
                found = self._take_delta(place) or self._take_lance(place, name)
            except (PenstockError, OSError) as problem:
                found = _failed(Key(name), place.location, problem)
            if found is not None:
                yield found

    def _take_delta(self, place: Place) -> ResyncedTable | None:
        try:
            name = load_snapshot(PlaceFiles(place)).metadata.name if place.list(LOG) else None
        except TableNotFound:
            return None
        if not place.list(LOG):
            return None
        key = self._free_key(name, place)
        asked = Asked(self._meta(key))
        done = self._logs.resync_unknown(key, place.location, asked, dry_run=self._call.dry_run)
        return None if done is None else _answer(done)

    def _take_lance(self, place: Place, name: str) -> ResyncedTable | None:
        (data,) = place.read([OWNER])
        owner = None if data is None else read_owner(place.location, data)
        versions = versions_at(place, MAIN)
        if owner is None or owner.lake != self._lake.id or not versions:
            return None
        if find_horizon(self._lake.kernel.store, UUID(owner.table)) is not None:
            return None  # it was erased, and nothing of it is taken over
        key = self._free_key(name.partition("_")[2] or None, place)
        if not self._call.dry_run:
            identity = UUID(owner.table)
            self._commit_lance(key, lance_intents.Resync(id=identity, location=place.location, known=0))
        return ResyncedTable(key=key, location=place.location, known=-1, version=max(versions))

    def _free_key(self, name: str | None, place: Place) -> Key:
        """The key that a table was created under; another one, if that holds something else by now."""
        own = Key(place.location.rpartition("/")[2])
        try:
            key = Key.parse(name) if name else own
        except InvalidKey:
            return own
        return own if self._content(key) is not None else key


def _answer(done: DeltaResynced) -> ResyncedTable:
    return ResyncedTable(
        key=done.key,
        location=done.location,
        known=done.known,
        version=done.version,
        own=(done.own[0], done.own[-1]) if done.own else (),
        repeated=done.repeated,
        commit="" if done.before is None else done.before.hex(),
        doubtful=done.doubtful,
    )


def _failed(key: Key, location: str, problem: Exception) -> ResyncedTable:
    details = problem.details if isinstance(problem, PenstockError) else {}
    return ResyncedTable(
        key=key,
        location=location,
        known=int(details.get("known", -1)),
        version=int(details.get("version", -1)),
        problem=str(problem),
    )
