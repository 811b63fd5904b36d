"""Sealing a lake, so that it can move: from some instant on it takes no more writes, from any process.

First the description says so; then every reference gets a last entry in its log, by the same swap that any
writer needs. Whoever was on the way loses that swap, looks again and finds the seal (see ``RefLog``). So no
write pays for a look at the description, and none slips through.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.description import (
    LakeDescription,
    Seal,
    change_description,
    lake_moved_error,
    read_description,
)
from penstock.kernel.records import KeepRow, list_row_pages
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.references import ReferenceDecision
from penstock.model.encoding import ObjectId
from penstock.model.objects import LogEntry
from penstock.model.references import Event, Kind
from penstock.stores.port import Row, Store

if TYPE_CHECKING:
    from penstock.kernel.kernel import Kernel
    from penstock.kernel.settings import Settings

KINDS: Final = (Kind.BRANCH, Kind.TAG, Kind.DELETED)
"""What goes along. Transactions end where they began: what has not landed never does."""


def seal_lake(kernel: Kernel, copy: str, target: str, who: str, workers: Executor) -> Iterator[int]:
    """Seal a lake for a copy, and tell again and again how many references have been.

    May be repeated. ``LakeMoved`` if it is sealed for another copy, ``InvalidRequest`` if the move was
    cancelled meanwhile.
    """

    def decide_change(lake: LakeDescription) -> LakeDescription:
        if lake.sealed is None:
            mark = Seal(copy=copy, target=target, since_us=kernel.clock())
            return msgspec.structs.replace(lake, sealed=mark)
        if lake.sealed.copy != copy:
            raise lake_moved_error(lake.sealed, kernel.store)
        return lake

    change_description(kernel.store, kernel.settings, decide_change, though_sealed=True)
    count, has_changed = 0, True
    while has_changed:
        has_changed = False
        # From now on a name changes its kind at most once more: who makes one anew reads the description
        # after the row. Read in this order, with branches and tags again, none is overlooked.
        for kind in (*KINDS, Kind.BRANCH, Kind.TAG, Kind.TRANSACTION):
            for page in list_row_pages(kernel.store, kind):
                open_names = [
                    row.name for row, entry in read_newest_entries(kernel, page) if not _is_seal(entry, copy)
                ]
                sealed = sum(workers.map(lambda name: _seal_reference(kernel, name, copy, who), open_names))
                has_changed, count = has_changed or sealed > 0, count + sealed
                yield count
    require_sealed(kernel.store, copy)


def _seal_reference(kernel: Kernel, name: str, copy: str, who: str) -> bool:
    """Seal a reference; whether that was left to do, as it is not where the reference is gone."""

    def decide_change(row: Row | None) -> ReferenceDecision | KeepRow[None]:
        if row is None:
            return KeepRow(None)
        reference = decode_reference_row(row)
        entry = kernel.objects.find((reference.log,)).get(reference.log)
        return KeepRow(None) if _is_seal(entry, copy) else ReferenceDecision(reference, Event.SEAL)

    return kernel.references.swap_reference(name, decide_change, who, copy) is not None


def _is_seal(entry: LogEntry | None, copy: str) -> bool:
    return entry is not None and entry.kind == Event.SEAL and entry.key == copy


def require_sealed(store: Store, copy: str) -> None:
    """``InvalidRequest`` if the move was cancelled."""
    if not _is_sealed_by(read_description(store), copy):
        raise _cancelled_error(store)


def finish_seal(store: Store, settings: Settings, copy: str) -> None:
    """Give the lake away for good. From here on its move can be completed, but not cancelled."""

    def decide_change(lake: LakeDescription) -> LakeDescription:
        if lake.sealed is None or not _is_sealed_by(lake, copy):
            raise _cancelled_error(store)
        return msgspec.structs.replace(lake, sealed=msgspec.structs.replace(lake.sealed, is_final=True))

    change_description(store, settings, decide_change, though_sealed=True)


def reopen_lake(store: Store, settings: Settings, copy: str) -> None:
    """Take a lake back that was given away for good, when a move is undone. May be repeated.

    The caller has sealed the lake at the other place for good: else two places take writes.
    """

    def decide_change(lake: LakeDescription) -> LakeDescription:
        if lake.sealed is not None and lake.sealed.copy != copy:
            raise lake_moved_error(lake.sealed, store)
        return msgspec.structs.replace(lake, sealed=None)

    change_description(store, settings, decide_change, though_sealed=True)


def cancel_seal(store: Store, settings: Settings) -> Seal:
    """Let a lake stay that was about to move. ``LakeMoved`` if it has moved already.

    One swap: seals in the logs of references hold only while the description says so.
    """
    cancelled: Seal | None = None

    def decide_change(lake: LakeDescription) -> LakeDescription:
        nonlocal cancelled
        cancelled = lake.sealed
        if cancelled is None:
            raise InvalidRequest(
                f"no move of the lake at {store.url} is in progress, so there is nothing to cancel"
            )
        if cancelled.is_final:
            raise lake_moved_error(cancelled, store)
        return msgspec.structs.replace(lake, sealed=None)

    change_description(store, settings, decide_change, though_sealed=True)
    assert cancelled is not None
    return cancelled


def read_sealed_rows(kernel: Kernel, copy: str) -> dict[str, Row]:
    """The rows of all references that were sealed for a copy.

    A name that somebody made too late to be sealed is not among them; nothing can be done with it.
    """
    rows = {}
    for kind in KINDS:
        for page in list_row_pages(kernel.store, kind):
            rows.update(
                {row.name: row for row, entry in read_newest_entries(kernel, page) if _is_seal(entry, copy)}
            )
    return rows


def read_newest_entries(kernel: Kernel, rows: list[Row]) -> list[tuple[Row, LogEntry | None]]:
    """Rows with the newest entries of their logs."""
    logs: dict[Row, ObjectId] = {row: decode_reference_row(row).log for row in rows}
    entries = kernel.objects.find(set(logs.values()))
    return [(row, entries.get(log)) for row, log in logs.items()]


def _is_sealed_by(lake: LakeDescription, copy: str) -> bool:
    return lake.sealed is not None and lake.sealed.copy == copy


def _cancelled_error(store: Store) -> InvalidRequest:
    return InvalidRequest(f"the move of the lake at {store.url} was cancelled")
