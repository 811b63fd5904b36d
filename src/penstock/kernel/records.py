"""Records: small values, one in a row each, changed by compare-and-swap.

Whoever changes a row gives a function that decides from the row as it is: replace it, remove it, or keep it.
The function runs within the store's turn. It runs again where another process was faster, where the store did
not answer, and where the store cannot say whether it swapped the row; so it has no effect but its decision.
Tries are bounded in number and in time.

After a swap whose outcome is unknown, the row tells: if it is what that swap would have made of it, the swap
counts as done, and its answer is returned. Otherwise the function decides anew. If no try comes to an end,
``OutcomeUnknown`` says what to do.

Commits do not pass here: a branch's queue swaps its row for many requests at once (see ``kernel.batch``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.errors import Damaged, OutcomeUnknown, TryAgainError, Unavailable
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import WriteRetries, describe_reason, paced_reads
from penstock.model.encoding import ObjectId
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

PAGE: Final = 1000
"""How many rows are read with one request."""

A = TypeVar("A")
V = TypeVar("V")
A_co = TypeVar("A_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class KeepRow(msgspec.Struct, Generic[A_co], frozen=True):
    """The decision to leave a row as it is."""

    answer: A_co
    """What the caller gets."""


class ReplaceRow(msgspec.Struct, Generic[V_co], frozen=True):
    """The decision to have a row hold a value, which is also the answer."""

    value: V_co
    objects: Mapping[ObjectId, bytes] = {}
    """What is stored before the row is swapped."""
    is_counted: bool = False
    """Whether two processes that put the same value must both be counted by it. Then a row that holds the
    value does not tell whose it is: after an unknown outcome, the value is put once more."""


class RemoveRow(msgspec.Struct, Generic[V_co], frozen=True):
    """The decision to remove a row. The answer is the value that it held."""

    value: V_co


class RowSwap(msgspec.Struct, Generic[A_co], frozen=True):
    """The decision about a row as it is stored: what it becomes, ``None`` to remove it."""

    row: Row | None
    answer: A_co
    objects: Mapping[ObjectId, bytes] = {}
    fresh: Collection[ObjectId] = ()
    """Nothing is swapped if one of these objects was stored before (see ``Turn.advance``)."""
    is_counted: bool = False
    """See ``ReplaceRow.is_counted``."""


Decision: TypeAlias = ReplaceRow[V] | RemoveRow[V] | KeepRow[A]


class RowSubject(NamedTuple):
    """What a row stands for, as errors name it."""

    label: str
    advice: str
    """What to do if it is unknown whether the row was changed."""
    details: Mapping[str, Any] = {}
    verb: str = "changed"

    def describe_lost_change(self) -> str:
        return f"another process {self.verb} {self.label}"

    def make_outcome_unknown(self, store: Store, reason: str) -> OutcomeUnknown:
        """The error for a row of which it is unknown whether it was changed."""
        return OutcomeUnknown(
            f"it is not known whether {self.label} was {self.verb} in {store.url}: {reason}\n  {self.advice}",
            **self.details,
        )


def swap_row(
    store: Store,
    settings: Settings,
    name: str,
    subject: RowSubject,
    decide_change: Callable[[Row | None, bool], RowSwap[A] | KeepRow[A]],
) -> A:
    """Change one row as ``decide_change`` says: it gets the row, and whether an earlier try may have swapped
    it.

    ``RetriesExhausted`` if other processes are always faster, ``Unavailable`` if the store stays away: then
    nothing was changed. ``OutcomeUnknown`` if the row may have been changed.
    """
    tries, in_doubt = WriteRetries(settings), False
    doubtful: dict[Row | None, A] = {}
    reason: str | Unavailable | OutcomeUnknown
    while True:
        decision: RowSwap[A] | KeepRow[A] | None = None
        try:
            with paced_reads(None), store.turn(name) as turn:
                if turn.row in doubtful:
                    return doubtful[turn.row]
                decision = decide_change(turn.row, in_doubt)
                if isinstance(decision, KeepRow):
                    return decision.answer
                if turn.advance(decision.objects, decision.row, decision.fresh).swapped:
                    return decision.answer
            reason = subject.describe_lost_change()
        except OutcomeUnknown as unknown:
            in_doubt, reason = True, unknown
            if isinstance(decision, RowSwap) and not decision.is_counted:
                doubtful[decision.row] = decision.answer
        except Unavailable as unavailable:
            reason = unavailable
        try:
            tries.wait_for_next_try(reason)
        except (TryAgainError, OutcomeUnknown) as exhausted:
            if not in_doubt:
                raise
            raise subject.make_outcome_unknown(store, describe_reason(exhausted)) from None


class RecordType(NamedTuple, Generic[V]):
    """What rows of one type hold: how they are named, listed, read, written and changed."""

    prefix: str
    """How the names of their rows begin; an id follows. No branch or tag has such a name."""
    kind: Callable[[V], str]
    """Under which kind a value is listed."""
    encode: Callable[[V], bytes]
    decode: Callable[[bytes], V]
    subject: Callable[[str], RowSubject]
    """What the row of an id stands for."""
    id: Callable[[V], str] | None = None
    """The id that a value holds itself, if it does."""

    def encode_row(self, id: str, value: V) -> Row:  # noqa: A002
        return Row(self.prefix + id, self.kind(value), self.encode(value))

    def decode_row(self, row: Row) -> V:
        """The value in a row; ``Damaged`` if there is none, or another row's."""
        try:
            value = self.decode(row.data)
        except (msgspec.MsgspecError, ValueError) as problem:
            raise Damaged(f"the row of '{row.name}' cannot be read: {problem}", name=row.name) from None
        own_id = row.name.removeprefix(self.prefix) if self.id is None else self.id(value)
        if (self.prefix + own_id, self.kind(value)) != (row.name, row.kind):
            raise Damaged(
                f"the store's row '{row.name}' of kind {row.kind} contradicts itself: by its content "
                f"it is {self.subject(own_id).label}, of kind {self.kind(value)}",
                name=row.name,
            )
        return value

    def find_record(self, store: Store, id: str) -> V | None:  # noqa: A002
        """The value of an id, if there is one."""
        row = store.reference(self.prefix + id)
        return None if row is None else self.decode_row(row)

    def update_record(
        self,
        store: Store,
        settings: Settings,
        id: str,  # noqa: A002
        decide_change: Callable[[V | None], Decision[V, A]],
    ) -> V | A:
        """Change the row of an id as ``decide_change`` says, which gets its value (see ``swap_row``)."""

        def decide_row(row: Row | None, _: bool) -> RowSwap[V | A] | KeepRow[V | A]:
            decision = decide_change(None if row is None else self.decode_row(row))
            if isinstance(decision, KeepRow):
                return decision
            if isinstance(decision, RemoveRow):
                return RowSwap(None, decision.value)
            value = decision.value
            return RowSwap(
                self.encode_row(id, value), value, decision.objects, is_counted=decision.is_counted
            )

        return swap_row(store, settings, self.prefix + id, self.subject(id), decide_row)


def list_row_pages(
    store: Store, kind: Kind, *, prefix: str = "", after: str = "", page_max: int = PAGE
) -> Iterator[list[Row]]:
    """All rows of one kind by name, some at a time."""
    while page := store.references(kind.value, prefix, after, page_max):
        yield page
        after = page[-1].name


def list_rows_of_kind(
    store: Store, kind: Kind, *, prefix: str = "", after: str = "", page_max: int = PAGE
) -> Iterator[Row]:
    """All rows of one kind by name."""
    for page in list_row_pages(store, kind, prefix=prefix, after=after, page_max=page_max):
        yield from page
