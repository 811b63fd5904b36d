"""Which commits and log entries of a lake a backup lacks that has the ones its references were at before."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from penstock.errors import Damaged
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import KINDS
from penstock.kernel.objects import check_object
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.reflog import BEFORE_FIRST, make_receipt_id
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import CommitObject, LogEntry
from penstock.stores.port import Row

ENTRIES_MAX: Final = 1000
"""How many entries of logs are handed out together."""
RECEIPTS_MAX: Final = 4
"""How many tries of one request are looked for. Before the last one, all came to nothing."""


def list_new_commits(
    kernel: Kernel,
    heads: Iterable[ObjectId],
    known_commits: Iterable[ObjectId],
    expired: Collection[ObjectId],
) -> list[tuple[ObjectId, bool]]:
    """The commits that some heads lead to and known ones do not, parents first; and whether the first parent
    of each has expired.

    As many others are looked at as have a higher generation than the oldest new one.
    """
    old: set[ObjectId] = set()
    seen: set[ObjectId] = {NO_COMMIT}
    waiting: list[tuple[int, ObjectId]] = []
    fresh = 0

    def visit_commit(commit_id: ObjectId, *, is_old: bool) -> None:
        nonlocal fresh
        if commit_id == NO_COMMIT:
            return
        if commit_id in seen:
            if is_old and commit_id not in old:
                old.add(commit_id)
                fresh -= 1  # it waits still: it has a lower generation than the one that leads to it
            return
        commit = kernel.objects.find((commit_id,)).get(commit_id)
        if commit is None:
            if is_old or commit_id in expired:
                return
            raise Damaged(f"commit {commit_id.hex()} is missing", objects=[commit_id.hex()])
        seen.add(commit_id)
        if is_old:
            old.add(commit_id)
        else:
            fresh += 1
        heapq.heappush(waiting, (-commit.generation, commit_id))

    for commit_id in known_commits:
        visit_commit(commit_id, is_old=True)
    for commit_id in heads:
        visit_commit(commit_id, is_old=False)
    new: list[tuple[ObjectId, bool]] = []
    while fresh:
        _, commit_id = heapq.heappop(waiting)
        commit: CommitObject = kernel.objects.get_many((commit_id,))[commit_id]
        is_old = commit_id in old
        if not is_old:
            fresh -= 1
        cut_off = {
            parent for parent in commit.parents if not is_old and parent in expired and parent not in old
        }
        for parent in commit.parents:
            if parent not in cut_off:
                visit_commit(parent, is_old=is_old)
        if not is_old:
            new.append((commit_id, commit.parent in cut_off))
    new.reverse()
    return new


def list_new_log_entries(
    kernel: Kernel, rows: Iterable[Row], known_rows: Iterable[Row]
) -> Iterator[dict[ObjectId, bytes]]:
    """The entries of ref logs that come after those that known rows are at, some at a time."""
    known_entries = {decode_reference_row(row).log for row in known_rows if row.kind in KINDS} | {
        BEFORE_FIRST
    }
    block: dict[ObjectId, bytes] = {}
    for row in rows:
        if row.kind not in KINDS:
            continue
        entry_id = decode_reference_row(row).log
        while entry_id not in known_entries:
            known_entries.add(entry_id)
            data = kernel.store.uncached.fetch((entry_id,)).get(entry_id)
            entry = None if data is None else check_object(entry_id, data)
            if data is None or not isinstance(entry, LogEntry):
                raise Damaged(
                    f"object {entry_id.hex()} is missing, or is not a ref log entry", objects=[entry_id.hex()]
                )
            block[entry_id] = data
            entry_id = entry.previous
            if len(block) >= ENTRIES_MAX:
                yield block
                block = {}
    yield block


def list_receipt_ids(entry: LogEntry) -> set[ObjectId]:
    """Where the receipts of the idempotency keys are that a log entry names."""
    keys = {entry.key, *(landed.key for landed in entry.landed)} - {""}
    scopes = (entry.incarnation, entry.name.encode())
    tries = range(RECEIPTS_MAX)
    return {make_receipt_id(scope, key, number) for key in keys for scope in scopes for number in tries}


def read_receipts(kernel: Kernel, entries: dict[ObjectId, bytes]) -> dict[ObjectId, bytes]:
    """The receipts of idempotency keys that log entries name."""
    receipts: set[ObjectId] = set()
    for entry_id, data in entries.items():
        entry = check_object(entry_id, data)
        assert isinstance(entry, LogEntry)
        receipts |= list_receipt_ids(entry)
    return kernel.store.uncached.fetch(receipts) if receipts else {}
