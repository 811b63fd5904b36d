"""Which commits and log entries of a lake a backup lacks that has the ones its references were at before."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from penstock.errors import Damaged
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import check_object
from penstock.kernel.reflog import BEFORE_FIRST, receipt_id
from penstock.kernel.rows import decoded_reference
from penstock.kernel.seal import KINDS
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject, LogEntry
from penstock.stores.port import Row

ENTRIES_MAX: Final = 1000
"""How many entries of logs are handed out together."""
RECEIPTS_MAX: Final = 4
"""How many tries of one request are looked for. Before the last one, all came to nothing."""


def new_commits(
    kernel: Kernel, heads: Iterable[ObjectId], known: Iterable[ObjectId], expired: Collection[ObjectId]
) -> list[tuple[ObjectId, bool]]:
    """The commits that some heads lead to and known ones do not, parents first; and whether the first parent
    of each has expired.

    As many others are looked at as have a higher generation than the oldest new one.
    """
    old: set[ObjectId] = set()
    seen: set[ObjectId] = {NO_COMMIT}
    waiting: list[tuple[int, ObjectId]] = []
    fresh = 0

    def visit(one: ObjectId, *, is_old: bool) -> None:
        nonlocal fresh
        if one == NO_COMMIT:
            return
        if one in seen:
            if is_old and one not in old:
                old.add(one)
                fresh -= 1  # it waits still: it has a lower generation than the one that leads to it
            return
        commit = kernel.objects.find((one,)).get(one)
        if commit is None:
            if is_old or one in expired:
                return
            raise Damaged(f"commit {one.hex()} is missing", objects=[one.hex()])
        seen.add(one)
        if is_old:
            old.add(one)
        else:
            fresh += 1
        heapq.heappush(waiting, (-commit.generation, one))

    for one in known:
        visit(one, is_old=True)
    for one in heads:
        visit(one, is_old=False)
    new: list[tuple[ObjectId, bool]] = []
    while fresh:
        _, one = heapq.heappop(waiting)
        commit: CommitObject = kernel.objects.many((one,))[one]
        is_old = one in old
        if not is_old:
            fresh -= 1
        cut_off = {
            parent for parent in commit.parents if not is_old and parent in expired and parent not in old
        }
        for parent in commit.parents:
            if parent not in cut_off:
                visit(parent, is_old=is_old)
        if not is_old:
            new.append((one, commit.parent in cut_off))
    new.reverse()
    return new


def new_log_entries(
    kernel: Kernel, rows: Iterable[Row], known_rows: Iterable[Row]
) -> Iterator[dict[ObjectId, bytes]]:
    """The entries of ref logs that come after those that known rows are at, some at a time."""
    known = {decoded_reference(row).log for row in known_rows if row.kind in KINDS} | {BEFORE_FIRST}
    block: dict[ObjectId, bytes] = {}
    for row in rows:
        if row.kind not in KINDS:
            continue
        one = decoded_reference(row).log
        while one not in known:
            known.add(one)
            data = kernel.store.uncached.fetch((one,)).get(one)
            entry = None if data is None else check_object(one, data)
            if data is None or not isinstance(entry, LogEntry):
                raise Damaged(f"object {one.hex()} is missing, or no ref log entry", objects=[one.hex()])
            block[one] = data
            one = entry.previous
            if len(block) >= ENTRIES_MAX:
                yield block
                block = {}
    yield block


def receipt_ids(entry: LogEntry) -> set[ObjectId]:
    """Where the receipts of the idempotency keys are that a log entry names."""
    keys = {entry.key, *(landed.key for landed in entry.landed)} - {""}
    scopes = (entry.incarnation, entry.name.encode())
    tries = range(RECEIPTS_MAX)
    return {receipt_id(scope, key, number) for key in keys for scope in scopes for number in tries}


def receipts_of_entries(kernel: Kernel, entries: dict[ObjectId, bytes]) -> dict[ObjectId, bytes]:
    """The receipts of idempotency keys that log entries name."""
    wanted: set[ObjectId] = set()
    for one, data in entries.items():
        entry = check_object(one, data)
        assert isinstance(entry, LogEntry)
        wanted |= receipt_ids(entry)
    return kernel.store.uncached.fetch(wanted) if wanted else {}
