"""The log of a reference: a chain of entries, one for each swap, that the swap itself extends.

So it can neither lag nor lie. It also tells what became of a request: every entry names the requests that
its swap landed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.errors import Damaged, IdempotencyKeyReused
from penstock.kernel import skip_pointers
from penstock.kernel.description import require_unmoved
from penstock.kernel.objects import Objects, check_object
from penstock.kernel.request import GeneratedKey
from penstock.kernel.time_limits import check_read_may_go_on
from penstock.model.commits import remove_key_owner
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, hash_object, hash_parts
from penstock.model.objects import Landed, LogEntry, Receipt
from penstock.model.references import Event, Reference
from penstock.stores.port import Store

BEFORE_FIRST: Final = NO_COMMIT
"""What the first entry of a log follows."""

ASKED_AFTER: Final = (Event.SEAL, Event.CREATE, Event.DELETE)
"""Entries after which only the lake's description tells whether a log goes on.

A seal holds for as long as the description says so. A name that was made, or made anew, while the lake was
being sealed may have been overlooked; but whoever reads the description after the row and finds no seal there
knows that the name will be found when the sealing begins.
"""

RECEIPT_WINDOW_US: Final = 15 * 60 * 1_000_000
"""A request lands within this time of its receipt, or never: much longer than any write may take."""


class RefLog:
    """Reads and extends the logs of references."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def _read_entry(self, entry_id: ObjectId) -> LogEntry | None:
        entry: LogEntry | None = self._objects.find((entry_id,)).get(entry_id)
        return entry

    def make_entry(
        self,
        before: Reference | None,
        event: Event,
        *,
        name: str,
        incarnation: bytes,
        head: ObjectId,
        now_us: int,
        who: str = "",
        key: str = "",
        landed: tuple[Landed, ...] = (),
    ) -> tuple[ObjectId, bytes, LogEntry]:
        """The entry that a swap from ``before`` adds to its log: id, bytes and value.

        ``LakeMoved`` if the lake is sealed. To be asked for after the row was read.
        """
        last = before.log if before else BEFORE_FIRST
        previous = self._read_entry(last) if before else None
        if event is not Event.SEAL:
            self._require_unsealed_after(previous)
        entry = LogEntry(
            previous=last,
            jump=skip_pointers.find_next_jump(self._read_entry, last) if before else BEFORE_FIRST,
            position=before.position + 1 if before else 1,
            time_us=max(now_us, previous.time_us + 1) if previous else now_us,
            kind=event.value,
            name=name,
            incarnation=incarnation,
            before=before.head if before else NO_COMMIT,
            after=head,
            who=who,
            key=key,
            landed=landed,
        )
        data = encode(entry)
        return hash_object(data), data, entry

    def require_unsealed(self, reference: Reference) -> None:
        """``LakeMoved`` if nothing may follow in a reference's log."""
        self._require_unsealed_after(self._read_entry(reference.log))

    def _require_unsealed_after(self, newest: LogEntry | None) -> None:
        if newest is not None and newest.kind in ASKED_AFTER:
            require_unmoved(self._objects.store)

    def walk_entries(self, newest: ObjectId) -> Iterator[tuple[ObjectId, LogEntry]]:
        """Entries from a given one backwards, as far as they are kept."""
        while newest != BEFORE_FIRST:
            check_read_may_go_on()
            entry = self._read_entry(newest)
            if entry is None:
                return
            if not isinstance(entry, LogEntry):
                raise Damaged(f"object {newest.hex()} is not a ref log entry", objects=[newest.hex()])
            yield newest, entry
            newest = entry.previous

    def find_entry_before(self, reference: Reference, position: int) -> ObjectId:
        """The newest entry before a position."""
        if position <= 1:
            return BEFORE_FIRST
        if position > reference.position:
            return reference.log
        return skip_pointers.walk_back_to_depth(self._read_entry, reference.log, position - 1)[0]

    def find_request(
        self,
        reference: Reference,
        key: str,
        after: int,
        not_after_us: int | None = None,
        incarnation: bytes | None = None,
    ) -> tuple[ObjectId, LogEntry] | None:
        """The entry after a position that landed the request with an idempotency key, and its id.

        A request lands soon after its receipt was written, so positions near that are looked at first.
        """
        start, width = after, 16
        while start < reference.position:
            stop = min(start + width, reference.position)
            newest_id, _ = skip_pointers.walk_back_to_depth(self._read_entry, reference.log, stop)
            oldest: LogEntry | None = None
            for entry_id, entry in self.walk_entries(newest_id):
                if entry.position <= start:
                    break
                is_it = entry.key == key or any(landed.key == key for landed in entry.landed)
                if is_it and incarnation in (None, entry.incarnation):
                    return entry_id, entry
                oldest = entry
            if not_after_us is not None and oldest is not None and oldest.time_us > not_after_us:
                return None
            start, width = stop, width * 4
        return None

    def find_commit_made(
        self, reference: Reference, generated_key: GeneratedKey
    ) -> tuple[ObjectId, LogEntry] | None:
        """The entry that landed a request under a key that Penstock made: soon after it was made."""
        if generated_key.position >= reference.position:
            return None
        _, first = skip_pointers.walk_back_to_depth(
            self._read_entry, reference.log, generated_key.position + 1
        )
        since_us = max(generated_key.time_us, first.time_us if first is not None else 0)
        _, before = skip_pointers.walk_back_to(
            self._read_entry,
            reference.log,
            lambda entry: entry.time_us <= generated_key.time_us - RECEIPT_WINDOW_US,
        )
        start = max(generated_key.position, before.depth if before is not None else 0)
        return self.find_request(
            reference, str(generated_key), start, since_us + RECEIPT_WINDOW_US, reference.incarnation
        )


def make_receipt_id(scope: bytes, key: str, number: int) -> ObjectId:
    """Under which id the receipt of a request is kept. ``number`` counts receipts that came to nothing."""
    return hash_parts("receipt", scope, key, number.to_bytes(4, "big"))


def find_earlier_request(
    store: Store, log: RefLog, reference: Reference | None, scope: bytes, key: str, request: bytes | None
) -> tuple[tuple[ObjectId, LogEntry] | None, dict[ObjectId, bytes]]:
    """What the request with an idempotency key came to before, and receipts of tries that came to nothing.

    They are numbered, and a look-up ends where a number is missing. So whoever stores the next one stores
    them again with it: then a sweep forgets none of them before it. ``IdempotencyKeyReused`` if the key was
    used for another ``request``.
    """
    failed: dict[ObjectId, bytes] = {}
    made_key = GeneratedKey.parse_key(key)
    if made_key is not None and reference is not None and scope == reference.incarnation:
        if request is not None and not made_key.is_for(request):
            raise make_key_reused_error(key)
        if (first := log.find_commit_made(reference, made_key)) is not None:
            return first, failed
    while True:
        receipt = make_receipt_id(scope, key, len(failed))
        data = store.fetch((receipt,)).get(receipt)
        if data is None:
            return None, failed
        receipt_object = check_object(receipt, data)
        if not isinstance(receipt_object, Receipt):
            raise Damaged(f"object {receipt.hex()} is not a receipt", objects=[receipt.hex()])
        if request is not None and receipt_object.request != request:
            raise make_key_reused_error(key)
        limit_us = receipt_object.time_us + RECEIPT_WINDOW_US
        located_entry = (
            log.find_request(reference, key, receipt_object.position, limit_us)
            if reference is not None
            else None
        )
        if located_entry is not None:
            return located_entry, failed
        failed[receipt] = data


def make_key_reused_error(key: str) -> IdempotencyKeyReused:
    key = remove_key_owner(key)
    return IdempotencyKeyReused(f"idempotency key '{key}' was used before, for another request", key=key)


def encode_receipt(request: bytes, position: int, now_us: int) -> bytes:
    return encode(Receipt(request, position, now_us))
