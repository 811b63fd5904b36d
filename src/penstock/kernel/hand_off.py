"""The hand-off: how a job or a transaction sends its one commit to a branch, and learns what came of it.

Both are a row that goes from open to committing, and from there to committed or aborted. A job has a fence
as well, which says whose attempt counts; a transaction has a lease. The row and the branch's row are two
rows. What holds them together is the idempotency key of the commit: the row says *committing* before the
commit is sent, and from then on only the branch's log tells what came of it (see
``kernel.request_outcome``). So what is
said to be aborted never lands, and what has landed is never sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, Protocol, Self, TypeVar

from penstock.kernel.records import KeepRow
from penstock.kernel.request_outcome import OutcomeLookup, SubmittedRequest
from penstock.model.encoding import ObjectId


class CommittingValue(Protocol):
    """The value in the row of a job or a transaction."""

    @property
    def sends(self) -> int:
        """How often its commit was sent."""

    def mark_landed(self, commit: ObjectId, now_us: int) -> Self: ...
    def mark_aborted(self, why: str, now_us: int) -> Self: ...


class CommitInDoubt:
    """The answer that another sending of the same commit may still land."""


IN_DOUBT: Final = CommitInDoubt()

V = TypeVar("V", bound=CommittingValue)
K = TypeVar("K")


class CommittingRows(Protocol[V, K]):
    """The rows of jobs, or of transactions, as far as they are committing."""

    def change_committing(
        self, record: K, change: Callable[[V, int], V | KeepRow[CommitInDoubt]]
    ) -> K | CommitInDoubt:
        """Change the row of one that is committing, by a function that gets its value and the time.

        A row that is not committing any more, or is another attempt's, stays. Returns it as it is then.
        """

    def read_again(self, record: K) -> K:
        """The same as its row has it now."""

    def describe_sent(self, record: K) -> SubmittedRequest:
        """The commit that it sends."""


class CommitSettler(Generic[V, K]):
    """Ends what is committing: as committed if its commit has landed, or so that it never will."""

    def __init__(self, rows: CommittingRows[V, K], dispatch: OutcomeLookup) -> None:
        self._rows, self._dispatch = rows, dispatch

    def find_commit(self, record: K) -> ObjectId | None:
        """The commit that it has come to, by the log of its branch. Who looks changes nothing."""
        return self._dispatch.find_commit(self._rows.describe_sent(record))

    def note_landed(self, record: K, commit: ObjectId) -> K:
        """Note that its commit has landed."""
        return self._end_record(record, lambda item, now_us: item.mark_landed(commit, now_us))

    def note_refused(self, record: K, why: str, *, is_alone: bool = False, is_certain: bool = True) -> K:
        """Note that its commit was refused; it may have landed after all, by another sending.

        Where it was sent several times, one of the others may still be under way: that is called off first,
        unless the refusal holds for all of them (``is_alone``). So is one whose refusal may have come up
        after it landed (not ``is_certain``).
        """

        def decide_change(item: V, now_us: int) -> V | KeepRow[CommitInDoubt]:
            if not is_alone and (item.sends > 1 or not is_certain):
                return KeepRow(IN_DOUBT)
            return item.mark_aborted(why, now_us)

        ended = self._rows.change_committing(record, decide_change)
        return self.call_off(record, why) if isinstance(ended, CommitInDoubt) else ended

    def call_off(self, record: K, why: str) -> K:
        """End it, whoever is sending it."""
        record = self._rows.read_again(record)
        commit = self._dispatch.call_off(self._rows.describe_sent(record))
        if commit is not None:
            return self.note_landed(record, commit)
        return self._end_record(record, lambda item, now_us: item.mark_aborted(why, now_us))

    def _end_record(self, record: K, end: Callable[[V, int], V]) -> K:
        ended = self._rows.change_committing(record, end)
        assert not isinstance(ended, CommitInDoubt)
        return ended
