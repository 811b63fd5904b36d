"""Writability: whether writes to a lake land, as far as a server can tell without making any.

While all is well nothing is written and storage is not asked. A request that failed for want of the database,
or of the storage of tables, raises a suspicion, and so does a disk without a free block. Then one small write
is made, or storage is asked about one file, now and then, until that works: one table whose bucket is away
does not make a server unfit.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

from penstock.errors import OutcomeUnknown, PenstockError, StorageRefused, Unavailable
from penstock.kernel.reference_rows import decode_reference_row
from penstock.lake.calls import GetAbout
from penstock.lake.embedded import Embedded
from penstock.storage.disk_space import has_room, storage_full_error

LOOK_EVERY_S: Final = 5.0
"""How often a suspicion is looked into, however often somebody asks."""

DATABASE: Final = "database"
STORAGE: Final = "storage"
_FILE: Final = "_penstock/ready"
"""A file of the warehouse that nobody writes: that it is not there is an answer."""


class Writability:
    """What is known of the writes to one lake. May be used by many threads."""

    def __init__(self, lake: Embedded) -> None:
        self._lake = lake
        self._lock = Lock()
        self._suspected: set[str] = set()
        self._problems: dict[str, PenstockError] = {}
        self._looked_s: dict[str, float] = {}

    def note_error(self, error: PenstockError) -> None:
        """Take notice of an error that a request was answered with."""
        if isinstance(error, Unavailable | OutcomeUnknown | StorageRefused):
            with self._lock:
                self._suspected.add(STORAGE if error.details.get("part") == STORAGE else DATABASE)

    def require_writable(self) -> None:
        """Raise why writes do not land; a lake that can only be read needs none."""
        store = self._lake.kernel.store
        if store.is_read_only:
            return
        if self._is_suspected(DATABASE) or not store.has_room:
            self._check_if_due(DATABASE)
        if self._is_suspected(STORAGE) or not self._warehouse_has_room():
            self._check_if_due(STORAGE)

    def _is_suspected(self, component: str) -> bool:
        with self._lock:
            return component in self._suspected

    def _check_if_due(self, component: str) -> None:
        """Find out whether a part works, unless that was done just now; raise why it does not."""
        with self._lock:
            is_due = monotonic() - self._looked_s.get(component, -LOOK_EVERY_S) >= LOOK_EVERY_S
            if is_due:
                self._suspected.discard(component)  # whoever fails from now on suspects it anew
                self._looked_s[component] = monotonic()
        if is_due:
            problem = None
            try:
                self._write_again() if component == DATABASE else self._ask_storage()
            except PenstockError as error:
                error.details["part"] = component
                problem = error
            with self._lock:
                self._problems.pop(component, None)
                if problem is not None:
                    self._problems[component] = problem
                    self._suspected.add(component)
        with self._lock:
            known_problem = self._problems.get(component)
        if known_problem is not None:
            raise known_problem

    def _write_again(self) -> None:
        """Store what is stored already: it changes nothing, and needs what any write needs."""
        store = self._lake.kernel.store
        row = store.reference(self._lake.do(GetAbout()).default_branch)
        if row is not None:
            store.store(store.fetch([decode_reference_row(row).log]))

    def _ask_storage(self) -> None:
        warehouse = self._lake.warehouse
        if not warehouse:
            return
        if not self._warehouse_has_room():
            raise storage_full_error(warehouse, "its disk is full")
        place = self._lake.places.open_place(warehouse)
        place.size(_FILE)
        place.require_writable(_FILE)

    def _warehouse_has_room(self) -> bool:
        warehouse = self._lake.moved.map_to_storage(self._lake.warehouse)
        return not warehouse or "://" in warehouse or has_room(Path(warehouse))
