"""Stores broken on purpose. Each breaks one promise of the port, as an adapter with a mistake in it would."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from penstock.model.encoding import ObjectId
from penstock.model.references import Kind, decode_reference, encode_reference
from penstock.stores.port import AdvanceResult, Row, Store, StoredObject, Turn
from penstock.stores.wrapped import Advance, WrappedStore


class AcknowledgesFirst(WrappedStore):
    """Says that a swap is done and does it later: with the next one, never if there is none."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._pending: Advance | None = None

    def _settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            with self.inner.turn(pending.name) as turn:
                pending.advance_turn(turn)

    @contextmanager
    def turn(self, name: str, remembered: Row | None = None) -> Iterator[Turn]:
        self._settle()
        with super().turn(name, remembered) as turn:
            yield turn

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        present = frozenset(self.inner.fetch(advance.fresh))
        if present or self.inner.reference(advance.name) != turn.row:
            return AdvanceResult(False, present)
        self._pending = advance
        return AdvanceResult(True)

    def reference(self, name: str) -> Row | None:
        pending = self._pending
        return pending.row if pending is not None and pending.name == name else self.inner.reference(name)

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        waiting = self._pending.objects if self._pending is not None else {}
        return {data: waiting[data] for data in ids if data in waiting} | self.inner.fetch(ids)


class SkipsTheCompare(WrappedStore):
    """Replaces a row whatever it is by now."""

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        advanced = advance.advance_turn(turn)
        while not advanced.swapped and not advanced.present:
            with self.inner.turn(advance.name) as again:
                advanced = advance._replace(fresh=()).advance_turn(again)
        return advanced


class SaysSwappedWhenLost(WrappedStore):
    """Reports a lost swap as done."""

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        advanced = advance.advance_turn(turn)
        return advanced if advanced.present else AdvanceResult(True)


class LosesTheLastBatch(WrappedStore):
    """Forgets the last swap when it is closed, as a write cache that was never flushed does."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._last: tuple[str, Row | None] | None = None

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        advanced = advance.advance_turn(turn)
        if advanced.swapped:
            self._last = advance.name, turn.row
        return advanced

    def close(self) -> None:
        if self._last is not None:
            name, row = self._last
            self._last = None
            with self.inner.turn(name) as turn:
                turn.advance({}, row)
        super().close()


class IgnoresFresh(WrappedStore):
    """Does not look whether a fresh object was there before."""

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        return advance._replace(fresh=()).advance_turn(turn)


class AnswersStaleRows(WrappedStore):
    """Reads a row from a replica that lags by one change."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._replica: dict[str, Row | None] = {}

    def reference(self, name: str) -> Row | None:
        newest = self.inner.reference(name)
        answer = self._replica.get(name, newest)
        self._replica[name] = newest
        return answer


class TruncatesObjects(WrappedStore):
    """Keeps only so many bytes of an object, as a column that is too short does."""

    most_bytes = 600

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        super().store(self._cut(objects))

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        return advance._replace(objects=self._cut(advance.objects)).advance_turn(turn)

    def _cut(self, objects: Mapping[ObjectId, bytes]) -> dict[ObjectId, bytes]:
        return {object_id: data[: self.most_bytes] for object_id, data in objects.items()}


class SwapsWithoutTheObjects(WrappedStore):
    """Swaps the row and then loses the last of the objects, as a crash between the two does."""

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        objects = dict(sorted(advance.objects.items())[: len(advance.objects) - 1])
        return advance._replace(objects=objects if len(objects) > 8 else advance.objects).advance_turn(turn)


class ForgetsTheLog(WrappedStore):
    """Moves a branch and leaves its log behind, as separate writes of the two do."""

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        if advance.row is not None and turn.row is not None and advance.row.kind == Kind.BRANCH:
            before, after = decode_reference(turn.row.data), decode_reference(advance.row.data)
            if after.position % 5 == 0:
                after = msgspec.structs.replace(after, log=before.log, position=before.position)
                advance = advance._replace(row=advance.row._replace(data=encode_reference(after)))
        return advance.advance_turn(turn)


class DeletesWhatWasStoredAgain(WrappedStore):
    """Deletes what it is told to, though it was stored again since the scan."""

    def delete(self, objects: Sequence[StoredObject]) -> int:
        ids = {stored.id for stored in objects}
        token, existing = b"", list[StoredObject]()
        while True:
            page, token = self.inner.scan(token, 1000)
            existing += [stored for stored in page if stored.id in ids]
            if not token:
                return self.inner.delete(existing)


class NeverRefreshes(WrappedStore):
    """Leaves an object that is stored again as it is, its time included."""

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        super().store(self._find_new_objects(objects))

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        return advance._replace(objects=self._find_new_objects(advance.objects)).advance_turn(turn)

    def _find_new_objects(self, objects: Mapping[ObjectId, bytes]) -> dict[ObjectId, bytes]:
        existing = self.inner.fetch(list(objects))
        return {object_id: data for object_id, data in objects.items() if object_id not in existing}


class ReplacesObjects(WrappedStore):
    """Lets the last bytes win where the first should stay."""

    def store(self, objects: Mapping[ObjectId, bytes]) -> None:
        self._drop(objects)
        super().store(objects)

    def advance(self, turn: Turn, advance: Advance) -> AdvanceResult:
        if not self.inner.fetch(advance.fresh):
            self._drop(advance.objects)
        return advance.advance_turn(turn)

    def _drop(self, objects: Mapping[ObjectId, bytes]) -> None:
        page, _ = self.inner.scan(b"", 1_000_000)
        self.inner.delete([stored for stored in page if stored.id in objects])


class SkipsInScans(WrappedStore):
    """Leaves out the object at which a page of a scan ends."""

    def scan(self, after: bytes, limit: int) -> tuple[list[StoredObject], bytes]:
        page, token = self.inner.scan(after, limit)
        return (page[:-1] if token else page), token


class ListsOtherKinds(WrappedStore):
    """Lists rows by prefix alone."""

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        kinds = [kind.value for kind in Kind]
        rows = [row for each in kinds for row in self.inner.references(each, prefix, after, limit)]
        return sorted(rows)[:limit] if kind in kinds else []
