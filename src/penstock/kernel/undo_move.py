"""Undoing a move: the source takes writes again, while nobody has written to the target.

The target is sealed first, as a source is that moves. Then its references are compared with those that the
source gave away. If they are the same, the target gives the lake back for good, and the source opens: at no
time do both take writes. If not, the target's seal is taken back, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest
from penstock.kernel.description import (
    CopyArrival,
    CopyPhase,
    LakeDescription,
    lake_moved_error,
    read_description,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import (
    KINDS,
    cancel_seal,
    finish_seal,
    read_sealed_rows,
    reopen_lake,
    seal_lake,
)
from penstock.kernel.records import list_rows_of_kind
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.table_horizons import read_horizon_rows
from penstock.kernel.tokens import read_token_rows
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import LogEntry
from penstock.model.references import Event, Kind, Reference
from penstock.stores.port import Store

NAMES_MAX: Final = 5
"""How many things that were written at the target a refusal names."""


def undo_lake_move(
    source: Kernel, target: Kernel, *, source_place: str, target_place: str, who: str, workers: Executor
) -> None:
    """Let a lake that has moved live at its source again. If it is interrupted, the same call goes on.

    ``InvalidRequest`` if it did not move from there to there, or if somebody wrote to the target since.
    """
    here, target_description = read_description(source.store), read_description(target.store)
    arrival = _require_moved(here, target_description, source, source_place, target_place)
    if here.sealed is None:
        return
    mark = (
        target_description.sealed.copy
        if target_description.sealed is not None
        else f"{_make_undo_prefix(arrival)}{uuid4()}"
    )
    for _ in seal_lake(target, mark, source_place, who, workers):
        pass
    written = [*_describe_written(source, target, arrival.copy)]
    if written:
        cancel_seal(target.store, target.settings)
        more = f" and {len(written) - NAMES_MAX} more" if len(written) > NAMES_MAX else ""
        raise InvalidRequest(
            f"the move to {target_place} cannot be undone, because these were written there since: "
            f"{', '.join(written[:NAMES_MAX])}{more}. Nothing was changed.\n  To move the lake elsewhere "
            f"with these changes: penstock move {target_place} PLACE",
            written=written,
        )
    finish_seal(target.store, target.settings, mark)
    reopen_lake(source.store, source.settings, arrival.copy)


def _make_undo_prefix(arrival: CopyArrival) -> str:
    """How the ids of seals begin that undo a move. Each try has its own: one that was cancelled is void."""
    return f"{arrival.copy}/undo/"


def _require_moved(
    here: LakeDescription,
    target_description: LakeDescription,
    source: Kernel,
    source_place: str,
    target_place: str,
) -> CopyArrival:
    """How the lake came to the target, if it moved there from the source."""
    arrival = target_description.arrival
    is_ours = (
        arrival is not None and not arrival.is_fork and arrival.source_id == here.id == target_description.id
    )
    if arrival is None or not is_ours:
        raise InvalidRequest(f"the lake at {target_place} was not moved there from {source_place}")
    undone = target_description.sealed is not None and target_description.sealed.copy.startswith(
        _make_undo_prefix(arrival)
    )
    if here.sealed is None and undone:
        return arrival
    if here.sealed is None or here.sealed.copy != arrival.copy:
        raise InvalidRequest(f"the lake at {source_place} was not moved to {target_place}")
    if arrival.phase is not CopyPhase.COMPLETE or not here.sealed.is_final:
        raise InvalidRequest(
            f"the move of {source_place} is not complete; 'penstock move SOURCE --cancel' cancels it; if it "
            "is too late for that, run the same move again to complete it"
        )
    if target_description.sealed is not None and not undone:
        raise lake_moved_error(target_description.sealed, source.store)
    return arrival


def _describe_written(source: Kernel, target: Kernel, copy: str) -> Iterator[str]:
    """What was written to the target since the lake arrived there, for people."""
    sealed = {name: decode_reference_row(row) for name, row in read_sealed_rows(source, copy).items()}
    current = {
        row.name: decode_reference_row(row) for kind in KINDS for row in list_rows_of_kind(target.store, kind)
    }
    for name in sorted({*sealed, *current}):
        before, after = sealed.get(name), current.get(name)
        if before is None or after is None or not _has_only_seals_since(target, before, after):
            yield f"'{name}'"
    for kind, what in ((Kind.TRANSACTION, "an open transaction"), (Kind.JOB, "a job that runs")):
        if target.store.references(kind.value, limit=1):
            yield what
    if _read_token_rows(source.store) != _read_token_rows(target.store):
        yield "its tokens"
    if {*read_horizon_rows(source.store)} != {*read_horizon_rows(target.store)}:
        yield "an erase"
    if _without_move_fields(read_description(source.store)) != _without_move_fields(
        read_description(target.store)
    ):
        yield "its settings or its horizon"


def _has_only_seals_since(target: Kernel, before: Reference, after: Reference) -> bool:
    """Whether nothing but seals came to a reference."""
    log: ObjectId = after.log
    position = after.position
    while log not in (before.log, NO_COMMIT):
        entry = target.objects.find((log,)).get(log)
        if not isinstance(entry, LogEntry) or entry.kind != Event.SEAL:
            return False
        log, position = entry.previous, position - 1
    return msgspec.structs.replace(after, log=log, position=position) == before


def _read_token_rows(store: Store) -> set[tuple[str, bytes]]:
    return {(row.name, row.data) for row in read_token_rows(store)}


def _without_move_fields(lake: LakeDescription) -> LakeDescription:
    return msgspec.structs.replace(lake, sealed=None, arrival=None)
