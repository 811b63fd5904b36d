"""Where the tables of a commit are placed, and what is noted in their folders before the commit is sent.

Whose a table is, and that it is about to be deregistered, has to be in its folder before the commit lands:
its process may die right after. So it is taken back if the commit is refused, and looked at once more if not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.errors import InvalidRequest, PenstockError, TableNotFound
from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake import calls
from penstock.formats.lance.lake.calls import LanceOperation
from penstock.formats.lance.lake.folder_notes import note_intended, note_not_intended
from penstock.kernel.known_tables import NewTableId
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.ledger import LEDGER, find_table
from penstock.kernel.objects import read_content
from penstock.lake.table_places import check_apart, check_new_place
from penstock.model.content import AnyContent, ManagedTable
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.storage.locations import make_own_place
from penstock.storage.places import Place

if TYPE_CHECKING:
    from penstock.formats.lance.lake.services import LanceServices
    from penstock.lake.embedded import Embedded

logger = logging.getLogger("penstock")


class TablePlacement:
    """The places of one commit's tables. ``location_of`` tells where a table is that the branch has."""

    def __init__(
        self,
        lake: Embedded,
        parts: LanceServices,
        branch: str,
        location_of: Callable[[Key], str],
        reserve: Callable[[AbstractContextManager[NewTableId]], NewTableId],
        request_key: str | None,
    ) -> None:
        """``reserve_id`` keeps the given ids of new tables for the request until it is decided."""
        self._reserve, self._request_key = reserve, request_key
        self._lake, self._parts = lake, parts
        self._branch, self._location_of = branch, location_of
        self._known = lake.kernel.known_tables
        self._given: list[NewTableId] = []
        """Ids of new tables that were given, and are reserved."""
        self._placed: list[LanceTable] = []
        """New tables at places that were given."""
        self._taken: list[LanceTable] = []
        """Those of them that were nobody's before."""
        self._noted: list[Place] = []
        """Of tables of which it was not noted before that they are about to be deregistered."""

    def choose_place(self, identity: UUID, operation: calls.DeclareLance | calls.RegisterLance) -> str:
        """Where a new table is to be. One that was there already and nobody's is taken for the lake."""
        if isinstance(operation, calls.DeclareLance) and operation.id is not None:
            self._given.append(
                self._reserve(self._known.reserve_id(operation.id, self._branch, self._request_key))
            )
        if operation.location is None:
            # Who gave the id knows the place by that alone.
            name = (
                ".".join(operation.key)
                if isinstance(operation, calls.DeclareLance) and operation.id is None
                else ""
            )
            where = make_own_place(self._lake.warehouse, identity, name)
            # Noted before anything is written there, so that a sweep knows whose it is if this never lands.
            self._parts.ownership.claim_table(LanceTable(id=identity, location=where))
            return where
        if self._branch != self._lake.get_branch_or_default(None):
            raise InvalidRequest(
                f"the location of '{operation.key}' can be given on the default branch only: on others, the "
                "lake chooses it"
            )
        where = self._lake.check_and_normalise_location(operation.location)
        if isinstance(operation, calls.DeclareLance):
            check_new_place(where, self._lake.warehouse, self._lake.read_roots())
        others = self._places_of_tables(self._lake.resolve_commit(self._branch))
        check_apart(where, operation.key, others, self._lake.warehouse, self._known.is_entangled)
        self._known.require_format(where, LanceTable)
        if isinstance(operation, calls.DeclareLance):
            self._known.require_vacant(where)
        table = LanceTable(id=identity, location=where)
        if self._parts.ownership.require_or_claim(table):
            self._taken.append(table)
        self._placed.append(table)
        return where

    def note_deregistered(self, asked_for: list[tuple[int, LanceOperation]]) -> None:
        """Note that the files of tables which are about to be forgotten stay: no sweep takes them."""
        for _, operation in asked_for:
            if isinstance(operation, calls.DeregisterLance):
                with suppress(TableNotFound):  # its turn tells
                    place = self._parts.places.open_place(self._location_of(operation.key))
                    if note_intended(place):
                        self._noted.append(place)

    def note_request_sent(self) -> None:
        """Before the commit is sent: from then on its tables may land, whatever happens here."""
        for new in self._given:
            new.is_sent = True

    def withdraw_places(self) -> None:
        """Undo what was noted beside tables for a commit that was refused.

        Another request may have brought a table meanwhile, by the same note of whose it is: that note stays,
        or is put there once more. What cannot be undone now only keeps more than is needed.
        """
        try:
            for table in self._taken:
                self._release_place(table)
            for place in self._noted:
                note_not_intended(place)
        except PenstockError as problem:
            logger.warning(
                "marker files in the table folders of a refused commit could not be removed: %s", problem
            )

    def keep_owned(self) -> None:
        """Note once more whose tables are that came to a place: another request for the same place may have
        been refused meanwhile, and have taken the note away that both went by. For a request that was carried
        out long ago, and is repeated, no table is taken."""
        try:
            for table in self._placed:
                if self._parts.is_location_of_table(table.location):
                    self._parts.ownership.claim_table(table)
                elif table in self._taken:
                    self._release_place(table)
        except PenstockError as problem:
            logger.warning(
                "the lake could not be recorded as the owner in the folders of Lance tables that a "
                "commit brought: %s",
                problem,
            )

    def _release_place(self, table: LanceTable) -> None:
        """Let a place be nobody's where no branch has a table."""
        if not self._parts.is_location_of_table(table.location):
            self._parts.ownership.release_table(table)
            if self._parts.is_location_of_table(table.location):
                self._parts.ownership.claim_table(table)

    def _places_of_tables(self, commit: ObjectId) -> Iterator[tuple[Key, str]]:
        """Where every table is that a format of this lake manages."""
        if commit == NO_COMMIT:
            return
        look = partial(_read_content, self._lake, commit)
        for stored, _ in self._lake.kernel.read_state(commit).scan_entries(LEDGER, find_prefix_end(LEDGER)):
            key = find_table(look, UUID(hex=stored.removeprefix(LEDGER).decode()))
            content = None if key is None else look(key.encode())
            if key is not None and isinstance(content, ManagedTable) and content.location:
                yield key, content.location


def _read_content(lake: Embedded, commit: ObjectId, stored: bytes) -> AnyContent | None:
    return read_content(lake.kernel.objects, lake.kernel.read_state(commit).get(stored))
