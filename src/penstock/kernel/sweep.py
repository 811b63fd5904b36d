"""The sweep: removing objects that nothing leads to any more, while commits go on.

Marks everything reachable, then deletes what is unmarked and was not stored within the grace period. An
object that a commit in flight stores again is not deleted: the store deletes only what has not been stored
since it was scanned. A commit that does not store an object again has it from the head it moves, which is
marked.

Several sweeps may go on at once. Each notes with the lake which commits it cuts off before it removes them,
and leaves what another has noted since it began: whoever meets a missing parent finds out why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penstock.errors import Damaged
from penstock.kernel.description import (
    HistoryRule,
    LakeDescription,
    RegisteredBackup,
    change_description,
    read_description,
)
from penstock.kernel.expired import ID_BYTES, list_blobs_of_lake, read_expired_commits, record_expired_commits
from penstock.kernel.objects import Objects, check_object
from penstock.kernel.reachable import HistoryHorizon, Progress, ReachableObjects, show_no_progress
from penstock.kernel.records import KeepRow, ReplaceRow, RowSubject, RowSwap, swap_row
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.settings import DAY_US
from penstock.kernel.table_horizons import TableHorizons
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import AnyObject, LogEntry, Receipt, decode_object
from penstock.model.references import Kind, Reference
from penstock.model.transactions import read_transaction
from penstock.stores.port import Row, StoredObject

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel

SCAN_PAGE = 5000
ATTEMPTS_MAX = 5
"""How often everything is marked again because another sweep cut history off meanwhile."""
DELETE_MAX = 50_000
"""How many objects are deleted by one request: some stores must wait before every deletion."""


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
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


def sweep_objects(
    kernel: Kernel, *, dry_run: bool = False, progress: Progress = show_no_progress
) -> SweepResult:
    """Remove what is unreachable and older than the grace period; a dry run only counts.

    ``Damaged`` if something reachable is missing or unreadable: nothing is removed then. ``InvalidRequest``
    if the grace period of this process is shorter than the lake's, without ``nobody_writes``.
    """
    kernel.graces.require_agreed()
    settings, now_us = kernel.settings, kernel.clock()
    oldest_us = now_us - kernel.graces.find_sweep_grace().objects_us
    # Not within the grace period either: what was left behind there can still be returned to.
    forget_us = min(oldest_us, now_us - int(settings.tombstone_days * DAY_US))
    attempt = 0
    while True:
        references, attempt = _list_all_references(kernel), attempt + 1
        tombstones = _find_expired_tombstones(kernel, references, forget_us)
        lake = read_description(kernel.store)
        marked = _mark_reachable(kernel, lake, references - tombstones, oldest_us, progress)
        # Another sweep says which commits it cuts off before it removes them.
        is_alone = read_description(kernel.store).horizon == lake.horizon
        if not marked.damaged or is_alone or attempt == ATTEMPTS_MAX:
            break
    if marked.damaged:
        names = sorted(object_id.hex() for object_id in marked.damaged)
        raise Damaged(
            f"{len(names)} objects are missing or unreadable, so nothing was removed; "
            "'penstock fsck' lists them",
            objects=names,
        )
    if not dry_run:
        # Before anything goes: who meets a missing parent must be able to tell why.
        noted = _note_expired(kernel, marked.expired_parents, lake)
        if noted is None:
            return sweep_objects(kernel, dry_run=dry_run, progress=progress)
        marked.seen.update(list_blobs_of_lake(noted))
        stayed = {tombstone for tombstone in tombstones if not _forget_tombstone(kernel, tombstone)}
        marked.mark_log_entries(
            reference.log for reference in stayed
        )  # whoever took up the name again goes on with its log
        tombstones -= stayed
    receipts_until_us = now_us - int(settings.idempotency_days * DAY_US)
    counts = _remove_unmarked(kernel, marked.seen, oldest_us, receipts_until_us, dry_run, progress)
    if not dry_run:
        kernel.store.tidy(oldest_us)
    return SweepResult(**counts, tombstones=len(tombstones), dry_run=dry_run)


def _note_expired(
    kernel: Kernel, expired: Collection[ObjectId], before: LakeDescription
) -> LakeDescription | None:
    """Note with the lake which commits a sweep cuts off, where ``before`` is the lake as the sweep began.

    ``None`` if a backup was registered since: what it counts on is to be marked too, before anything goes.
    If others are noted by now, another sweep goes on, or has ended meanwhile, and what it noted stays noted.
    The next sweep that is alone drops those that nothing leads to any more.
    """

    def update_description(lake: LakeDescription) -> ReplaceRow[LakeDescription] | KeepRow[None]:
        if {backup.id for backup in lake.backups} - {backup.id for backup in before.backups}:
            return KeepRow(None)
        others = () if lake.horizon == before.horizon else read_expired_commits(lake, kernel.objects)
        return ReplaceRow(*record_expired_commits(lake, (*expired, *others)))

    return change_description(kernel.store, kernel.settings, update_description)


def find_backed_up_heads(lake: LakeDescription, objects: Objects) -> set[ObjectId]:
    """The commits that registered backups count on: all that they lead to is kept for them."""
    counting = (backup for backup in lake.backups if backup.keeps_files)
    return {head for backup in counting for head in list_heads_of_backup(backup, objects)}


def list_heads_of_backup(backup: RegisteredBackup, objects: Objects) -> set[ObjectId]:
    """The commits that the branches and tags of a backup are at."""
    data = objects.read_value(backup.heads)
    return {data[start : start + ID_BYTES] for start in range(0, len(data), ID_BYTES)} - {NO_COMMIT}


class RetainedHeads(NamedTuple):
    """The commits from which all kept history can be walked."""

    live: set[ObjectId]
    """Where references are. Whatever they lead to is there, as far as it has not expired."""
    left: set[ObjectId]
    """Where references were within the grace period. A sweep with a shorter one may have taken any of it."""


def find_kept_heads(kernel: Kernel) -> RetainedHeads:
    """Where references are, and where they were, as a sweep of now would go by them."""
    oldest_us = kernel.clock() - kernel.graces.find_sweep_grace().objects_us
    references = _list_all_references(kernel)
    live = {reference.head for reference in references if reference.kind is not Kind.DELETED} - {NO_COMMIT}
    live |= find_backed_up_heads(read_description(kernel.store), kernel.objects)
    left_heads = {
        head
        for reference in references
        for head in kernel.references.list_past_heads_of(reference, oldest_us)
    }
    return RetainedHeads(live, left_heads - live - {NO_COMMIT})


def _list_all_references(kernel: Kernel) -> set[Reference]:
    """All references, in every state in which they were seen.

    They are not read at one instant: what lands on a branch that was read already, from one that is gone
    before it is read, is seen on neither. Where it landed is seen by the next pass; so there is one more
    after every pass in which a name was found to be gone. Deleted references are read before and after the
    others, since a name may be deleted or created meanwhile.
    """
    seen = before = _sweep_once(kernel)
    while True:
        now = _sweep_once(kernel)
        seen = seen | now
        if {reference.name for reference in before} <= {reference.name for reference in now}:
            return seen
        before = now


def _sweep_once(kernel: Kernel) -> set[Reference]:
    kinds = (Kind.DELETED, Kind.TRANSACTION, Kind.BRANCH, Kind.TAG, Kind.DELETED)
    return {reference for kind in kinds for reference in kernel.references.list_all_references(kind)}


def _mark_reachable(
    kernel: Kernel, lake: LakeDescription, references: set[Reference], oldest_us: int, progress: Progress
) -> ReachableObjects:
    """Everything that references lead to, and what they left behind within the grace period."""
    horizons = TableHorizons.read_horizons(kernel.store, kernel.formats)
    reach = ReachableObjects(
        _make_checked_fetch(kernel, progress),
        read_expired_commits(lake, kernel.objects),
        horizons.list_retained_objects,
    )
    reach.seen.update(
        list_blobs_of_lake(lake)
    )  # somebody may have read the row, and not yet the blobs that it names
    reach.mark_log_entries(reference.log for reference in references)
    reach.mark_log_entries(
        reference.log for reference in kernel.references.list_all_references(Kind.ENDED_TRANSACTION)
    )
    live: dict[HistoryHorizon, set[ObjectId]] = {}
    heads_by_horizon: dict[HistoryHorizon, set[ObjectId]] = {}
    begin_times = _begin_times(kernel, references)
    for reference in references:
        transaction = read_transaction(reference)
        name = reference.name if transaction is None else transaction.target
        of_transactions = HistoryHorizon(oldest_us=begin_times.get(name), young_us=oldest_us)
        horizon = _delay_horizon(lake.find_rule(name), oldest_us) if transaction is None else of_transactions
        if reference.kind is not Kind.DELETED:
            live.setdefault(horizon, set()).add(reference.head)
            if name in begin_times and horizon != HistoryHorizon():
                live.setdefault(of_transactions, set()).add(reference.head)
        heads_by_horizon.setdefault(horizon, set()).update(
            kernel.references.list_past_heads_of(reference, oldest_us)
        )
    live.setdefault(HistoryHorizon(), set()).update(find_backed_up_heads(lake, kernel.objects))
    for horizon, heads in live.items():
        reach.mark_commits(heads, horizon)
    damaged = dict(reach.damaged)
    for horizon, heads in heads_by_horizon.items():
        reach.mark_commits(heads, horizon)
    reach.damaged = damaged  # of what was left behind, a sweep with a shorter grace period may have been
    return reach


def _begin_times(kernel: Kernel, references: set[Reference]) -> dict[str, int]:
    """The branches that transactions land on, with the time of the commit at which the oldest one began.

    From there it is merged: so both sides are kept back to it, whatever the rule of the branch says. What
    came before is the branch's alone.
    """
    begin_times: dict[str, int] = {}
    for transaction in filter(None, map(read_transaction, references)):
        time_us = kernel.history.read_commit(transaction.base).time_us
        begin_times[transaction.target] = min(time_us, begin_times.get(transaction.target, time_us))
    return begin_times


def _delay_horizon(rule: HistoryRule | None, oldest_us: int) -> HistoryHorizon:
    """Later than the rule by the grace period, so that a writer who found a commit kept can still land."""
    if rule is None or rule.since_us > oldest_us:
        return HistoryHorizon()
    days_us = None if rule.max_days is None else oldest_us - int(rule.max_days * DAY_US)
    return HistoryHorizon(rule.max_commits, days_us, oldest_us)


def _make_checked_fetch(
    kernel: Kernel, progress: Progress
) -> Callable[[list[ObjectId]], dict[ObjectId, AnyObject]]:
    read = 0

    def fetch_objects(ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        nonlocal read
        read += len(ids)
        progress("read", read)
        objects: dict[ObjectId, AnyObject] = {}
        for object_id, data in kernel.store.uncached.fetch(ids).items():
            with suppress(Damaged):
                objects[object_id] = check_object(object_id, data)
        return objects

    return fetch_objects


def _find_expired_tombstones(kernel: Kernel, references: set[Reference], before_us: int) -> set[Reference]:
    """References that were deleted before a time: they are to be forgotten, with their logs."""
    deleted = [reference for reference in references if reference.kind is Kind.DELETED]
    newest = kernel.objects.find([reference.log for reference in deleted])
    return {
        reference
        for reference in deleted
        if isinstance(entry := newest.get(reference.log), LogEntry) and entry.time_us < before_us
    }


def _forget_tombstone(kernel: Kernel, tombstone: Reference) -> bool:
    """Remove a tombstone, unless its name was taken up again since it was seen; whether it is gone."""

    def decide_change(row: Row | None, _: bool) -> RowSwap[bool] | KeepRow[bool]:
        is_same = row is not None and decode_reference_row(row) == tombstone
        return RowSwap(None, True) if is_same else KeepRow(row is None)

    subject = RowSubject(f"the log of '{tombstone.name}'", "The next sweep removes it.", verb="removed")
    return swap_row(kernel.store, kernel.settings, tombstone.name, subject, decide_change)


def _remove_unmarked(
    kernel: Kernel,
    marked: set[ObjectId],
    oldest_us: int,
    receipts_until_us: int,
    dry_run: bool,
    progress: Progress,
) -> Counter[str]:
    """Remove what is unmarked and old, and count what became of every object."""
    counts = Counter(kept=0, kept_bytes=0, removed=0, removed_bytes=0, waiting=0, receipts=0)
    token, scanned = b"", 0
    doomed: list[StoredObject] = []
    while True:
        page, token = kernel.store.scan(token, SCAN_PAGE)
        scanned += len(page)
        progress("scanned", scanned)
        old = [
            stored_object
            for stored_object in page
            if stored_object.id not in marked and stored_object.referenced_us < oldest_us
        ]
        receipts = _find_receipts(kernel, old)
        young_receipts = {
            stored_object
            for stored_object in old
            if stored_object.id in receipts and stored_object.referenced_us >= receipts_until_us
        }
        going = [stored_object for stored_object in old if stored_object not in young_receipts]
        kept_objects = [
            stored_object
            for stored_object in page
            if stored_object.id in marked or stored_object in young_receipts
        ]
        counts.update(
            kept=len(kept_objects),
            kept_bytes=sum(stored_object.size for stored_object in kept_objects),
            waiting=len(page) - len(kept_objects) - len(going),
            receipts=sum(stored_object.id in receipts for stored_object in going),
        )
        doomed += going
        if doomed and (not token or len(doomed) >= DELETE_MAX):
            progress("removing", len(doomed))
            removed = doomed if dry_run else _delete_objects(kernel, doomed)
            counts.update(
                removed=len(removed),
                removed_bytes=sum(stored_object.size for stored_object in removed),
                waiting=len(doomed) - len(removed),
            )
            doomed = []
        if not token:
            return counts


def _delete_objects(kernel: Kernel, doomed: list[StoredObject]) -> list[StoredObject]:
    """Delete objects, and say which are gone: not those that somebody stored again meanwhile."""
    if not doomed or kernel.store.delete(doomed) == len(doomed):
        return doomed
    still_there = kernel.store.uncached.fetch([stored_object.id for stored_object in doomed])
    return [stored_object for stored_object in doomed if stored_object.id not in still_there]


def _find_receipts(kernel: Kernel, objects: list[StoredObject]) -> set[ObjectId]:
    """Which objects are receipts, or may have been: nothing leads to them, but they are kept for a while."""
    data_by_id = kernel.store.uncached.fetch([stored_object.id for stored_object in objects])
    return {object_id for object_id, data in data_by_id.items() if _may_be_receipt(data)}


def _may_be_receipt(data: bytes) -> bool:
    try:
        return isinstance(decode_object(data), Receipt)
    except (msgspec.MsgspecError, ValueError):
        return True  # if it was one, its request must not be done twice
