"""Resync of Lance tables: versions that a table's folder has and the lake does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import InvalidRequest, KeyNotFound, VersionTaken
from penstock.formats.lance import intents
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake.services import LanceServices
from penstock.formats.lance.names import MAIN, OWNER
from penstock.formats.lance.ownership import read_owner
from penstock.formats.lance.registration import list_versions_at
from penstock.formats.lance.state import NAME, is_managed
from penstock.formats.sync import own_versions_left
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.resync_calls import Resync, ResyncedTable, resync_meta
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded

TRIES_MAX: Final = 8
"""How often a resync is tried on a table that is committed to meanwhile."""


class LanceSync:
    """Resyncs Lance tables, as one call asks for it."""

    def __init__(self, lake: Embedded, parts: LanceServices, call: Resync) -> None:
        self._lake, self._parts, self._call = lake, parts, call

    def list_tables(self) -> Iterator[tuple[Key, str]]:
        return ((key, content.location) for key, content in self._parts.list_tables())

    def resync_table(self, key: Key) -> ResyncedTable | None:
        for _ in range(TRIES_MAX):
            head = self._default_branch_head()
            content = self._lake.read_content_at(head, key)
            if not isinstance(content, LanceTable) or not is_managed(content):
                raise KeyNotFound(f"the Lance table '{key}' no longer exists", key=str(key))
            try:
                return self._take_over(key, content, head, is_dropped=False)
            except VersionTaken:
                continue
        raise InvalidRequest(f"'{key}' was changed by other writers too often; try again", key=str(key))

    def restore_dropped_table(self, key: Key, before: LanceTable) -> ResyncedTable | None:
        return self._take_over(key, before, self._default_branch_head(), is_dropped=True)

    def _take_over(
        self, key: Key, content: LanceTable, head: ObjectId, *, is_dropped: bool
    ) -> ResyncedTable | None:
        """Commit that a table has the versions of its folder; ``None`` if the lake knows them all."""
        assert content.id is not None, "a managed table has an id"
        self._parts.ownership.require_or_claim(content)
        state = self._parts.folder_check.compare(content.id, content.location, content)
        if state.is_in_sync:
            return None
        newest = max(0, *list_versions_at(self._lake.places.open_place(content.location), MAIN))
        resynced_table = ResyncedTable(key=key, location=content.location, known=state.known, version=newest)
        known_version = 0 if is_dropped else state.known
        step = intents.ResyncStep(id=content.id, location=content.location, known=known_version)
        if state.other >= 0:
            if not self._call.leave_own:
                raise own_versions_left(key, content.location, state.other, state.known, head.hex())
            resynced_table = msgspec.structs.replace(
                resynced_table, own=(state.other, state.known), commit=head.hex()
            )
            step = msgspec.structs.replace(step, id=uuid4(), replaced=content.id)
        if not self._call.dry_run:
            self._commit_step(key, step)
            if step.replaced is not None:
                self._parts.promoter.forget_table(step.replaced)
        return resynced_table

    def adopt_unknown_table(
        self, place: Place, free_key: Callable[[str | None], Key]
    ) -> ResyncedTable | None:
        (data,) = place.read([OWNER])
        owner = None if data is None else read_owner(place.location, data)
        versions = list_versions_at(place, MAIN)
        if owner is None or owner.lake != self._lake.id or not versions:
            return None
        identity = UUID(owner.table)
        if find_horizon(self._lake.kernel.store, identity) is not None:
            return None  # it was erased, and nothing of it is taken over
        key = free_key(place.location.rpartition("/")[2].partition("_")[2] or None)
        if not self._call.dry_run:
            self._commit_step(key, intents.ResyncStep(id=identity, location=place.location, known=0))
        return ResyncedTable(key=key, location=place.location, known=-1, version=max(versions))

    def _default_branch_head(self) -> ObjectId:
        return self._lake.kernel.references.get_reference(self._lake.get_branch_or_default(None)).head

    def _commit_step(self, key: Key, step: intents.ResyncStep) -> None:
        steps = intents.Steps((intents.NumberedStep(0, step),))
        self._lake.kernel.commit(
            self._lake.get_branch_or_default(None),
            [Change(key, NAME, intents.encode_steps(steps))],
            resync_meta(key, self._call),
            create_namespaces=True,
        )
