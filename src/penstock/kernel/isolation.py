"""Isolation: whether what a transaction has read is still so where it lands.

It is asked at the merge's turn, on the very head that the merge is applied to and before the merge's own
changes: against what the target was when the transaction began, which is what the transaction has seen. What
is as it was then is found by comparing values; of a table that is not, its format tells whether that matters
for what was read of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from penstock.kernel.edit import Edit, describe_difference
from penstock.kernel.format import READ_AND_CHANGED, FormatRefused, Formats
from penstock.kernel.history import History
from penstock.kernel.lake_state import Difference, find_prefix_end, iterate_differences, open_state
from penstock.kernel.transaction_reads import ReadEntry, TransactionReads
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, Namespace
from penstock.model.keys import RESERVED, Key
from penstock.model.objects import CommitObject, Value
from penstock.model.transactions import Isolation

CREATED: Final = "did not exist when this transaction looked for it, but was created since"
GONE: Final = "was read by this transaction, but was deleted since"
CAME: Final = "was added to {where} after this transaction had listed the names there"
WENT: Final = "was removed from {where} after this transaction had listed the names there"
NAMES_MAX: Final = 20
"""So many names that came or went are told of what was listed."""


def check_reads(
    history: History,
    formats: Formats,
    edit: Edit,
    reads: TransactionReads,
    changed: Difference,
    head: CommitObject,
) -> None:
    """Note in an edit without changes, on a target's ``head``, what was read and is not so any more.

    ``changed`` is what the transaction changed. ``PrepareAgain`` of a format goes through.
    """
    check = _ReadsCheck(history, formats, edit, reads, changed)
    is_serializable = reads.isolation is Isolation.SERIALIZABLE
    opened = [stored for stored, read in reads.entries.items() if read.is_opened]
    check.check_keys([stored for stored in opened if is_serializable or stored in changed])
    if is_serializable:
        for stored, read in reads.entries.items():
            if read.is_listed:
                check.check_names(stored, head)


class _ReadsCheck:
    def __init__(
        self, history: History, formats: Formats, edit: Edit, reads: TransactionReads, changed: Difference
    ) -> None:
        self._history, self._formats, self._edit = history, formats, edit
        self._reads, self._changed = reads, changed
        self._base = history.read_commit(reads.base)

    def check_keys(self, read: Collection[bytes]) -> None:
        """Whether these hold still what was read of them."""
        if not read:
            return
        before = open_state(self._history.objects, self._base).get_many(read)  # with one request a level
        after = self._edit.view.get_many(read)
        for stored in read:
            old_value, now = before.get(stored), after.get(stored)
            if old_value != now and not self._is_shared(stored, old_value, now):
                self._check_key(Key.decode(stored), self._reads.entries[stored], old_value, now)

    def _is_shared(self, stored: bytes, before: Value | None, now: Value | None) -> bool:
        """Whether both sides made a namespace where none was. They meet in one, and nothing is lost."""
        if before is not None or self._reads.isolation is Isolation.SERIALIZABLE:
            return False
        sides = self._changed[stored][1], now
        return all(isinstance(self._edit.decode_value(side), Namespace) for side in sides)

    def _check_key(self, key: Key, read: ReadEntry, old_value: Value | None, now: Value | None) -> None:
        before, after = self._edit.decode_value(old_value), self._edit.decode_value(now)
        managing = self._formats.find_managing_format(after)
        is_one = before is not None and after is not None and before.id == after.id
        if managing is None or not is_one or self._formats.find_managing_format(before) is not managing:
            self._edit.conflicts.append(_find_conflict(key, before, after))
            return
        assert before is not None
        try:
            managing.check_read(self._edit.open_table(key, after), before, read.parts)
        except FormatRefused as refused:
            self._edit.refuse_key(key, refused)

    def check_names(self, stored: bytes, head: CommitObject) -> None:
        """Whether the same keys are at and below one that was listed, as on a target's head."""
        start, stop = stored, find_prefix_end(stored + b"\0")
        where = f"'{Key.decode(stored)}'" if stored else "the lake"
        if not stored:
            start, stop = find_prefix_end(RESERVED) or b"", None
        count = 0
        for at, before, now in iterate_differences(self._history.objects, self._base, head, start, stop):
            if (before is None) == (now is None):
                continue
            count += 1
            if count > NAMES_MAX:
                return
            kind = ConflictKind.KEY_EXISTS if before is None else ConflictKind.KEY_DOES_NOT_EXIST
            reason = (CAME if before is None else WENT).format(where=where)
            self._edit.conflicts.append(Conflict(kind, Key.decode(at), why=reason))


def _find_conflict(key: Key, before: AnyContent | None, now: AnyContent | None) -> Conflict:
    reason = CREATED if before is None else GONE if now is None else READ_AND_CHANGED
    return msgspec.structs.replace(describe_difference(key, before, now), why=reason)
