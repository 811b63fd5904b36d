"""The port: all that Penstock asks of a database.

A store keeps immutable *objects* by id and a few *rows* by name, and can replace one row on the condition
that it is still what the caller saw. That one conditional replacement is the only instant at which anything
becomes visible. Every adapter passes ``penstock.testing.StoreContract`` without an assertion of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeAlias

from penstock.errors import Denied
from penstock.model.encoding import ObjectId


class Row(NamedTuple):
    """One row: a name, unique over all kinds, the kind it is listed under, and its bytes."""

    name: str
    kind: str
    data: bytes


class StoredObject(NamedTuple):
    """An object as a scan finds it. ``referenced_us`` is when it was last stored, by anyone."""

    id: ObjectId
    referenced_us: int
    size: int


class AdvanceResult(NamedTuple):
    """What came of an advance: whether the row was swapped, and which fresh ids were there already."""

    swapped: bool
    present: frozenset[ObjectId] = frozenset()


Written: TypeAlias = Callable[[], None]


def do_not_wait() -> None:
    """Nothing to wait for between the objects and the swap."""


class Turn(ABC):
    """One chance to move one row: the row as it is, and the way to replace it."""

    row: Row | None
    """The row, ``None`` if there is none."""
    is_certain: bool = True
    """Whether the row was read within this turn. If not, only a swap tells whether it still is so."""
    written: Written = staticmethod(do_not_wait)
    """Called by a store that writes objects before it swaps: when it has, right before the swap. It may wait,
    and may raise, then nothing is swapped. The row is compared after it: one that the caller remembers may
    have been stored only while it waited."""

    @abstractmethod
    def advance(
        self, objects: Mapping[ObjectId, bytes], row: Row | None, fresh: Collection[ObjectId] = ()
    ) -> AdvanceResult:
        """Make ``objects`` durable, then replace the row by ``row`` (``None`` removes it) if it is unchanged.

        Nothing is swapped if another process replaced the row first, or if one of the ``fresh`` objects
        was stored before by anyone. Objects may stay behind then; the sweep finds them. To be called once.

        Raises ``OutcomeUnknown`` if the store cannot say whether the row was replaced, ``Unavailable`` if
        it surely was not.
        """


class Store(ABC):
    """A database that Penstock can live in. All methods may be called by many threads at once."""

    url: str
    """Where the store is, without secrets."""
    resolution_us: int = 1
    """How far apart two moments are, at most, that ``referenced_us`` does not tell apart."""
    batch_max_bytes: int = 0
    """Up to how many bytes of objects cost less if one call stores them; 0 where that does not matter."""

    @property
    def is_read_only(self) -> bool:
        """Whether this process surely has no right to change anything."""
        return False

    def require_writable(self) -> None:
        """``Denied`` if this process surely has no right to change anything."""
        if self.is_read_only:
            raise Denied(
                f"the lake at {self.url} is read-only: this process has no permission to write there. "
                "Nothing was changed.",
                url=self.url,
            )

    @property
    def has_room(self) -> bool:
        """Whether its disk has room left, as far as that shows without a write; yes if it is elsewhere."""
        return True

    @property
    def uncached(self) -> Store:
        """The store without caches in front of it, for those who ask what it really holds."""
        return self

    @abstractmethod
    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        """The objects with these ids; those that do not exist are left out."""

    @abstractmethod
    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        """Make objects durable. One that is there already keeps its bytes and is marked as just stored."""

    @abstractmethod
    def turn(self, name: str, remembered: Row | None = None) -> AbstractContextManager[Turn]:
        """A chance to move the row ``name``.

        A store with transactions holds a lock on the row until the context ends, so that the writers of
        several processes wait for each other instead of undoing each other's work. One without may take the
        row that the caller remembers instead of reading it, and say so by ``Turn.is_certain``.
        """

    @abstractmethod
    def reference(self, name: str) -> Row | None:
        """The row as it is now; never a stale one."""

    @abstractmethod
    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        """Rows of one kind in the order of their names, after the name ``after``, without reading others.

        Each row is as it was at some moment of the call, not necessarily all of them at the same one. A row
        that is there all the while is never missed, not even just after it was made.
        """

    @abstractmethod
    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        """Some objects, and the token from which to go on, here or in another process; an empty token begins,
        and says it ended."""

    def scan_data(
        self,
        after: bytes,
        limit: int,
        max_bytes: int,  # noqa: ARG002 - for those that have bytes at hand
    ) -> tuple[dict[ObjectId, bytes], list[StoredObject], bytes]:
        """Some objects as a scan finds them: the bytes of those that cost next to nothing more to read, up to
        ``max_bytes`` and one object; others, which are to be fetched; and the token from which to go on."""
        page, token = self.scan(after, limit)
        return {}, page, token

    @abstractmethod
    def delete(self, objects: Sequence[StoredObject]) -> int:
        """Delete those that were not stored again since they were scanned, and say how many."""

    def tidy(self, before_us: int) -> int:  # noqa: ARG002 - for those that have something to tidy
        """Remove what swaps left behind before a time, other than objects; say how many pieces."""
        return 0

    def scrub(self) -> str:
        """Overwrite what deleted objects and rows left in the database's own files, as far as this can.

        Says what is left to whoever runs the database, in one sentence; nothing if nothing is.
        """
        return "The database decides when it overwrites what was deleted in it: see its own documentation."

    @abstractmethod
    def erase(self) -> None:
        """Delete everything."""

    def check(self) -> list[str]:
        """What the database finds wrong with itself, one line each; nothing if it cannot tell."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections."""
