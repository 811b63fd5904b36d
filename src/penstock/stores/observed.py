"""A store that is observed: how often, how long, how much, and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

from penstock.errors import OutcomeUnknown, PenstockError, Unavailable
from penstock.metrics import table
from penstock.metrics.meter import Meter
from penstock.model.encoding import ObjectId
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.wrapped import Advance, WrappedStore, WrappedTurn

T = TypeVar("T")


class ObservedStore(WrappedStore):
    """Tells a meter about every call of another store, and changes nothing about it.

    What was counted is what this store was asked for: put it outside of a cache to see what the kernel does,
    inside to see what reaches the database.
    """

    def __init__(self, inner: Store, meter: Meter) -> None:
        super().__init__(inner)
        self._meter = meter

    def _time_call(self, operation: str, call: Callable[[], T]) -> T:
        start = perf_counter()
        try:
            result = call()
        except BaseException as error:
            self._count_failure(operation, start, error)
            raise
        self._observe_duration(operation, start)
        return result

    def _observe_duration(self, operation: str, start: float) -> None:
        self._meter.observe(table.STORE_SECONDS, perf_counter() - start, operation=operation)

    def _count_failure(self, operation: str, start: float, error: BaseException) -> None:
        self._observe_duration(operation, start)
        code = error.code if isinstance(error, PenstockError) else type(error).__name__
        if isinstance(error, Unavailable):
            error.details.setdefault("part", "database")
        self._meter.count(table.STORE_ERRORS, operation=operation, error=code)

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        data_by_id = self._time_call("fetch", lambda: self.inner.fetch(ids))
        self._meter.count(table.STORE_OBJECTS_READ, len(data_by_id))
        self._meter.count(table.STORE_READ_BYTES, _count_bytes(data_by_id.values()))
        return data_by_id

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._time_call("store", lambda: self.inner.store(objects))
        self._count_written(objects)

    def _count_written(self, objects: Mapping[ObjectId, bytes], row: Row | None = None) -> None:
        self._meter.count(table.STORE_OBJECTS_WRITTEN, len(objects))
        self._meter.count(
            table.STORE_WRITTEN_BYTES,
            _count_bytes(objects.values()) + (len(row.data) if row is not None else 0),
        )

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        """Timed is how long it takes to begin: the wait for a lock, or the reading of the row."""
        start, is_begun = perf_counter(), False
        try:
            with self.inner.turn(name, remembered) as turn:
                is_begun = True
                self._observe_duration("turn", start)
                if turn.is_certain:
                    self._read_rows([turn.row])
                yield WrappedTurn(self, name, turn)
        except BaseException as error:
            if not is_begun:
                self._count_failure("turn", start, error)
            raise

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        outcome = "unknown"
        try:
            advanced = self._time_call("advance", lambda: advance.advance_turn(turn))
            outcome = "swapped" if advanced.swapped else "present" if advanced.present else "lost"
        except OutcomeUnknown:
            raise
        except Exception:  # of the store, or of the batch before this one: nothing was swapped
            outcome = "failed"
            raise
        finally:
            self._meter.count(table.STORE_SWAPS, branch=advance.name, outcome=outcome)
        self._count_written(advance.objects, advance.row)
        return advanced

    def reference(self, name: str) -> Row | None:
        row = self._time_call("reference", lambda: self.inner.reference(name))
        self._read_rows([row])
        return row

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        rows = self._time_call("references", lambda: self.inner.references(kind, prefix, after, limit))
        self._read_rows(rows)
        return rows

    def _read_rows(self, rows: Sequence[Row | None]) -> None:
        self._meter.count(table.STORE_READ_BYTES, _count_bytes(row.data for row in rows if row is not None))

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        return self._time_call("scan", lambda: self.inner.scan(after, limit))

    def delete(self, objects: Sequence[StoredObject]) -> int:
        deleted = self._time_call("delete", lambda: self.inner.delete(objects))
        self._meter.count(table.STORE_OBJECTS_DELETED, deleted)
        return deleted

    def tidy(self, before_us: int) -> int:
        return self._time_call("tidy", lambda: self.inner.tidy(before_us))

    def check(self) -> list[str]:
        return self._time_call("check", self.inner.check)

    def scrub(self) -> str:
        return self._time_call("scrub", self.inner.scrub)

    def erase(self) -> None:
        self._time_call("erase", self.inner.erase)


def _count_bytes(parts: Iterable[bytes]) -> int:
    return sum(map(len, parts))
