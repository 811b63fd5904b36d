"""The sweep: removing objects that nothing leads to any more, while commits go on.

Marks everything reachable, then deletes what is unmarked and was not stored within the grace period. An
object that a commit in flight stores again is not deleted: the store deletes only what has not been stored
since it was scanned. A commit that does not store an object again has it from the head it moves, which is
marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import Damaged
from penstock.kernel.description import HistoryRule, change_description, read_description
from penstock.kernel.objects import check_object
from penstock.kernel.reachable import Horizon, Progress, Reach, silent
from penstock.kernel.settings import DAY_US
from penstock.model.encoding import ObjectId
from penstock.model.objects import AnyObject, Receipt, decode_object
from penstock.model.references import Kind, Reference
from penstock.stores.port import Stored

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

SCAN_PAGE = 5000


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep found and did."""

    kept: int
    kept_bytes: int
    removed: int
    removed_bytes: int
    waiting: int
    """Unreachable objects that are still within the grace period."""
    receipts: int
    """Idempotency keys that were forgotten."""
    tombstones: int
    """Logs of deleted references that expired."""
    dry_run: bool


def sweep(kernel: Kernel, *, dry_run: bool = False, progress: Progress = silent) -> Swept:
    """Remove what is unreachable and older than the grace period; a dry run only counts."""
    settings, now_us = kernel.settings, kernel.clock()
    oldest_us = now_us - int(settings.grace_s * 1_000_000)
    tombstones = _expire_tombstones(kernel, now_us - int(settings.tombstone_days * DAY_US), dry_run)
    marked = _mark(kernel, oldest_us, progress)
    if marked.missing:
        names = sorted(one.hex() for one in marked.missing)
        raise Damaged(
            f"{len(names)} objects are missing, so nothing was removed; 'penstock fsck' lists them",
            objects=names,
        )
    if not dry_run:
        # Before anything goes: who meets a missing parent must be able to tell why.
        expired = tuple(sorted(marked.expired))
        change_description(
            kernel.store, settings, lambda lake: msgspec.structs.replace(lake, expired=expired)
        )
    receipts_until_us = now_us - int(settings.idempotency_days * DAY_US)
    return _collect(kernel, marked.seen, oldest_us, receipts_until_us, tombstones, dry_run, progress)


def _mark(kernel: Kernel, oldest_us: int, progress: Progress) -> Reach:
    lake = read_description(kernel.store)
    reach = Reach(_fetching(kernel, progress), lake.expired)
    references = kernel.references
    # Logs first: a reference that moves after this leaves its old head in a log entry that is young.
    reach.log(reference.log for reference in _all_references(kernel))
    heads: dict[Horizon, set[ObjectId]] = {}
    for name, head in chain(references.heads(), references.left_behind(oldest_us)):
        heads.setdefault(_horizon(lake.rule_for(name), oldest_us), set()).add(head)
    for horizon, some in heads.items():
        reach.commits(some, horizon)
    return reach


def _horizon(rule: HistoryRule | None, oldest_us: int) -> Horizon:
    """Later than the rule by the grace period, so that a writer who found a commit kept can still land."""
    if rule is None or rule.since_us > oldest_us:
        return Horizon()
    days_us = None if rule.max_days is None else oldest_us - int(rule.max_days * DAY_US)
    return Horizon(rule.max_commits, days_us, oldest_us)


def _all_references(kernel: Kernel) -> Iterator[Reference]:
    for kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED):
        yield from kernel.references.all(kind)


def _fetching(kernel: Kernel, progress: Progress) -> Callable[[list[ObjectId]], dict[ObjectId, AnyObject]]:
    read = 0

    def fetch(ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        nonlocal read
        read += len(ids)
        progress("read", read)
        return {one: check_object(one, data) for one, data in kernel.store.fetch(ids).items()}

    return fetch


def _expire_tombstones(kernel: Kernel, before_us: int, dry_run: bool) -> int:
    """Forget references that were deleted long ago, with their logs."""
    count = 0
    for reference in list(kernel.references.all(Kind.DELETED)):
        newest = next(kernel.references.log(reference.name), None)
        if newest is not None and newest[1].time_us < before_us:
            count += 1
            if not dry_run:
                _forget(kernel, reference)
    return count


def _forget(kernel: Kernel, reference: Reference) -> None:
    with kernel.store.turn(reference.name) as turn:
        if turn.row is not None and turn.row.kind == Kind.DELETED:
            turn.advance({}, None)


def _collect(
    kernel: Kernel,
    marked: set[ObjectId],
    oldest_us: int,
    receipts_until_us: int,
    tombstones: int,
    dry_run: bool,
    progress: Progress,
) -> Swept:
    kept = kept_bytes = removed = removed_bytes = waiting = receipts = 0
    token, scanned = b"", 0
    while True:
        page, token = kernel.store.scan(token, SCAN_PAGE)
        scanned += len(page)
        progress("scanned", scanned)
        unmarked = [one for one in page if one.id not in marked]
        kept += len(page) - len(unmarked)
        kept_bytes += sum(one.size for one in page if one.id in marked)
        waiting += sum(one.referenced_us >= oldest_us for one in unmarked)
        old = [one for one in unmarked if one.referenced_us < oldest_us]
        kinds = _receipts(kernel, old)
        doomed = [one for one in old if one.id not in kinds or one.referenced_us < receipts_until_us]
        kept += len(old) - len(doomed)
        receipts += sum(one.id in kinds for one in doomed)
        removed_bytes += sum(one.size for one in doomed)
        removed += len(doomed) if dry_run or not doomed else kernel.store.delete(doomed)
        if not token:
            return Swept(
                kept=kept,
                kept_bytes=kept_bytes,
                removed=removed,
                removed_bytes=removed_bytes,
                waiting=waiting,
                receipts=receipts,
                tombstones=tombstones,
                dry_run=dry_run,
            )


def _receipts(kernel: Kernel, objects: list[Stored]) -> set[ObjectId]:
    """Which of some objects are receipts: nothing leads to them, but they are kept for a while."""
    found = kernel.store.fetch([one.id for one in objects])
    return {one for one, data in found.items() if isinstance(decode_object(data), Receipt)}
