"""Whether a Lance table's folder has what the lake knows: looked at once, before a process commits to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from threading import Lock
from typing import Final
from uuid import UUID

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.names import MAIN, make_manifest_path
from penstock.formats.lance.promoter import Promoter
from penstock.formats.sync import SyncCheck, SyncState, out_of_sync
from penstock.model.keys import Key

IN_SYNC_MAX: Final = 10_000
"""Of how many tables is remembered that their folders are what the lake knows."""

FindLast = Callable[[UUID], LanceTable | None]
"""A table as the default branch has it now, or had it when it was dropped; ``None`` if it never had it."""


class FolderCheck(SyncCheck[LanceTable]):
    """Compares folders with what the lake knows. Used by many threads at once."""

    def __init__(self, promoter: Promoter, find_last: FindLast, require_unmoved: Callable[[], None]) -> None:
        super().__init__(find_last, require_unmoved)
        self._promoter = promoter
        self._in_sync: OrderedDict[UUID, None] = OrderedDict()
        self._lock = Lock()

    def is_checked(self, identity: UUID) -> bool:
        """Whether a table was found to be in sync by this process, and nothing has told otherwise since."""
        with self._lock:
            is_known = identity in self._in_sync
        return is_known and not self._promoter.has_foreign_manifest(identity)

    def require_in_sync(
        self, key: Key, content: LanceTable, *, is_default: bool, written: Collection[str] = ()
    ) -> None:
        """``OutOfSync`` unless a table's folder is what the lake knows. Looks once for a table that is.

        ``content`` is the table as the branch has it that is about to be written to, ``written`` are the
        manifests that whoever asks has put somewhere.
        """
        assert content.id is not None, "a managed table has an id"
        if self.is_checked(content.id):
            return
        state = self.compare(content.id, content.location, content if is_default else None)
        if state.other < 0 and state.beyond == state.known + 1:
            names = (make_manifest_path("", MAIN, state.beyond, is_v1=is_v1) for is_v1 in (False, True))
            if any(name in written for name in names):
                return  # it is about to be the next one
        if not state.is_in_sync:
            raise out_of_sync(key, content.location, state)
        self._promoter.forget_replaced(content.id, content.location)
        with self._lock:
            self._in_sync[content.id] = None
            self._in_sync.move_to_end(content.id)
            if len(self._in_sync) > IN_SYNC_MAX:
                self._in_sync.popitem(last=False)

    def _compare_with_storage(self, location: str, content: LanceTable | None) -> SyncState:
        return self._promoter.compare_with_folder(location, content)
