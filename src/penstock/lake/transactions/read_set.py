"""What is read in a transaction is remembered with it, before the reader has it.

Every public way of reading comes by here. What a write has to look at for itself is no read: two programs
that append to a table have not seen each other's rows, nor missed them.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from penstock.errors import TransactionNotFound, TransactionOver
from penstock.lake.transactions.calls import GetTransaction, NoteReads
from penstock.model.keys import Key
from penstock.model.reads import PARTS_MAX, Read
from penstock.model.transactions import PREFIX, Isolation, is_transaction_branch_name

if TYPE_CHECKING:
    from penstock.lake.lake import Lake

T = TypeVar("T")

ID_CHARS: Final = 32
TRANSACTIONS_MAX: Final = 256
"""Of how many transactions it is remembered here what is noted already. Others are asked for again."""


def note_reads(lake: Lake, ref: str | None, via: str | None, *reads: Read) -> None:
    """Remember what is read at a reference, or at a commit that one led to; nothing outside transactions.

    It is durable when this returns. A transaction that takes no more writes takes no more reads either: what
    is seen of it then changes nothing that it lands, and whether it can be seen is for others to say.
    """
    transaction = find_transaction_read(ref, via)
    if transaction is None:
        return
    new = lake.noted.list_missing_reads(transaction, reads)
    if not new:
        return
    try:
        lake.do(NoteReads(id=transaction, reads=new))
    except (TransactionNotFound, TransactionOver):
        return
    lake.noted.add_reads(transaction, new)


def is_serializable(lake: Lake, ref: str | None, via: str | None = None) -> bool:
    """Whether a transaction is read at a revision in which all that is looked at counts, whatever for."""
    transaction = find_transaction_read(ref, via)
    if transaction is None:
        return False
    isolation = lake.noted.get_isolation(transaction)
    if isolation is None:
        try:
            isolation = lake.do(GetTransaction(id=transaction)).isolation
        except TransactionNotFound:
            return False
        lake.noted.set_isolation(transaction, isolation)
    return isolation is Isolation.SERIALIZABLE


def find_transaction_read(ref: str | None, via: str | None) -> str | None:
    """The id of the transaction that is read at a revision, if one is."""
    name = ref if via is None else via
    if name is None or not name.startswith(PREFIX):
        return None
    branch = name[: len(PREFIX) + ID_CHARS]  # steps back, or a commit of it, may follow
    return branch.removeprefix(PREFIX) if is_transaction_branch_name(branch) else None


class NotedReads:
    """What this process knows to be noted already, by transaction."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, set[Read]] = OrderedDict()
        self._isolations: OrderedDict[str, Isolation] = OrderedDict()
        self._lock = Lock()

    def get_isolation(self, transaction: str) -> Isolation | None:
        """That of a transaction, which never changes; ``None`` if it is not known here."""
        with self._lock:
            return self._isolations.get(transaction)

    def set_isolation(self, transaction: str, isolation: Isolation) -> None:
        with self._lock:
            _put_in_cache(self._isolations, transaction, isolation)

    def list_missing_reads(self, transaction: str, reads: tuple[Read, ...]) -> tuple[Read, ...]:
        """Those of some reads that are yet to be noted, each once."""
        with self._lock:
            known_reads = self._known.get(transaction, set())
            wanted_reads = dict.fromkeys(_widen_read(read, known_reads) for read in reads)
            return tuple(read for read in wanted_reads if not _is_covered(known_reads, read))

    def add_reads(self, transaction: str, reads: tuple[Read, ...]) -> None:
        with self._lock:
            _put_in_cache(self._known, transaction, self._known.get(transaction, set()).union(reads))


def _put_in_cache(cache: OrderedDict[str, T], transaction: str, value: T) -> None:
    cache[transaction] = value
    cache.move_to_end(transaction)
    while len(cache) > TRANSACTIONS_MAX:
        cache.popitem(last=False)


def _widen_read(read: Read, known_reads: set[Read]) -> Read:
    """A part of a table of which so many are noted that it counts as read as a whole."""
    if (
        read.part is None
        or sum(known_read.key == read.key and known_read.part is not None for known_read in known_reads)
        < PARTS_MAX
    ):
        return read
    return msgspec.structs.replace(read, part=None)


def _is_covered(known_reads: set[Read], read: Read) -> bool:
    if read in known_reads or (read.part is not None and Read(key=read.key) in known_reads):
        return True
    if not read.is_listing:
        return False
    above: list[Key | None] = [None, *(() if read.key is None else read.key.parents)]
    return any(Read(key=place, is_listing=True) in known_reads for place in above)
