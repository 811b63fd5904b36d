"""What was sent to a branch, and what came of it: told by the branch's log, whatever another row says.

A job or a transaction has a row of its own, and no swap moves that and the branch's row at once. What holds
them together is an idempotency key. Whoever must know what came of a request asks the branch's log for its
key; and whoever must be sure that nothing will come of it any more *calls it off*: one swap of the branch's
row writes the key into the log, with no commit. A request that is in flight loses its swap by that, looks for
its key, and finds that it was called off. One that was never sent finds its key used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import IdempotencyKeyReused, NotFound
from penstock.kernel.batch import is_called_off, read_request_outcome
from penstock.kernel.records import KeepRow
from penstock.kernel.reference_rows import decode_live_reference, decode_reference_row
from penstock.kernel.references import ReferenceDecision
from penstock.kernel.reflog import RefLog, encode_receipt, find_earlier_request, make_receipt_id
from penstock.model.encoding import ObjectId, encode, hash_object
from penstock.model.objects import Landed, LogEntry
from penstock.model.references import Event, Kind, Reference
from penstock.stores.port import Row

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel


class SubmittedRequest(NamedTuple):
    """A request that was sent to a branch."""

    key: str
    branch: str
    incarnation: bytes
    """Of the branch that it was sent to."""
    position: int
    """Of the branch's log, when it was first sent."""
    until_us: int
    """After that, by any clock, it does not land any more."""
    who: str = ""
    digest: bytes | None = None
    """What tells it from another request under its key, if anything does."""


class OutcomeLookup:
    """Looks after what was sent to the branches of a lake."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._log = kernel, RefLog(kernel.objects)

    def find_commit(self, sent: SubmittedRequest) -> ObjectId | None:
        """The commit that a request has come to, by the log of its branch; ``None`` if to none so far."""
        row = self._kernel.store.reference(sent.branch)
        if row is None or row.kind == Kind.TAG:
            return None
        try:
            return self._find_commit_in(sent, self._find_log_entry(sent, decode_reference_row(row)))
        except IdempotencyKeyReused:
            return None

    def call_off(self, sent: SubmittedRequest) -> ObjectId | None:
        """Make sure that a request does not land any more; returns its commit if it has."""

        def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[LogEntry | None]:
            reference = decode_live_reference(row)
            if row is None or reference is None or reference.incarnation != sent.incarnation:
                # No commit lands on a branch that is gone; what did before, its log may tell.
                return KeepRow(
                    self._find_log_entry(sent, decode_reference_row(row)) if row is not None else None
                )
            entry = self._find_log_entry(sent, reference)
            if entry is not None:
                return KeepRow(entry)
            return ReferenceDecision(
                reference,
                Event.ABORT,
                self._write_blocking_receipt(sent, reference),
                (_called_off_entry(sent, reference),),
            )

        try:
            moved = self._kernel.references.swap_reference(sent.branch, decide_change)
        except (NotFound, IdempotencyKeyReused):
            return None
        return self._find_commit_in(sent, moved) if isinstance(moved, LogEntry) else None

    def _find_commit_in(self, sent: SubmittedRequest, entry: LogEntry | None) -> ObjectId | None:
        if entry is None or is_called_off(entry, sent.key):
            return None
        return read_request_outcome(self._kernel.objects, entry, sent.key).head

    def _find_log_entry(self, sent: SubmittedRequest, reference: Reference) -> LogEntry | None:
        """The entry of the log that names the request's key: it landed, or was called off.

        A receipt leads there. They are not kept for ever: without one, the log is read from where it was.
        """
        located_entry, failed_receipts = find_earlier_request(
            self._kernel.store, self._log, reference, sent.incarnation, sent.key, sent.digest
        )
        if located_entry is None and not failed_receipts:
            located_entry = self._log.find_request(
                reference, sent.key, sent.position, sent.until_us, sent.incarnation
            )
        return located_entry[1] if located_entry is not None else None

    def _write_blocking_receipt(self, sent: SubmittedRequest, reference: Reference) -> dict[ObjectId, bytes]:
        """A receipt as if another request had used the key: who comes with it later finds it."""
        key = sent.key
        _, failed_receipts = find_earlier_request(
            self._kernel.store, self._log, reference, sent.incarnation, key, None
        )
        data = encode_receipt(
            hash_object(encode(("called off", key))), reference.position, self._kernel.clock()
        )
        return {**failed_receipts, make_receipt_id(sent.incarnation, key, len(failed_receipts)): data}


def _called_off_entry(sent: SubmittedRequest, reference: Reference) -> Landed:
    """How a log entry names a request that was called off: with no commit."""
    return Landed(Event.ABORT.value, sent.key, sent.who, reference.head, 0)
