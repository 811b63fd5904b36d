"""Copying or moving a whole lake from one store to another: with history, references, ref logs, receipts.

A *move* seals the source, takes the lake's id along, and is over in this order: the copy is checked, the
source gives the lake away, the target opens. A *fork* leaves the source alone and gets an id of its own. How
far it has got is written in the target's description, which keeps everyone else out until the copy is
complete; so the same copy, begun again, goes on where it was stopped, wherever that was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import NoReturn, TypeAlias
from uuid import uuid4

import msgspec

from penstock.errors import Damaged, InvalidRequest, LakeExists
from penstock.kernel.description import (
    CopyArrival,
    CopyPhase,
    LakeDescription,
    change_description,
    find_description,
    lake_moved_error,
    read_description,
    write_description,
)
from penstock.kernel.expired import list_blobs_of_lake, read_expired_commits, record_expired_commits
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import KINDS, finish_seal, read_sealed_rows, require_sealed, seal_lake
from penstock.kernel.object_copy import WORKERS, copy_objects, count_objects
from penstock.kernel.objects import Objects
from penstock.kernel.records import KeepRow, ReplaceRow, RowSubject, RowSwap, swap_row
from penstock.kernel.reference_snapshot import read_consistent_rows, read_rows
from penstock.kernel.table_horizons import read_horizon_rows
from penstock.kernel.tokens import read_token_rows
from penstock.model.encoding import ObjectId
from penstock.model.references import Kind
from penstock.stores.port import Row, Store

CopyProgress: TypeAlias = Callable[[str, int, int], None]
"""Is told what is being done, how many of it are done, and of how many; 0 if that is not known."""

NoteTarget: TypeAlias = Callable[[bool], None]
"""Notes where the lake will be: before anything is written to the target, and once more, with true, right
before a move cannot be cancelled any more."""


class CopyResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy came to."""

    id: str
    """Of the lake at the target."""
    source: str
    """Where the lake was copied from."""
    target: str
    """Where it was copied to."""
    is_fork: bool
    """Whether the lake at the target has an id of its own."""
    references: int
    """Branches, tags and logs of deleted ones."""
    commits: int
    """Commits that were copied and checked."""
    objects: int
    """Objects that were copied."""
    size_bytes: int
    """Their size."""
    repeated: bool
    """Whether it had been complete before."""


def show_no_progress(subject: str, count: int, total: int) -> None:
    """No progress shown."""


def no_note(is_certain: bool) -> None:
    """Nothing noted."""


def copy_store(
    source: Kernel,
    target: Store,
    *,
    source_place: str,
    target_place: str,
    fork: bool = False,
    point: str = "",
    who: str = "",
    progress: CopyProgress = show_no_progress,
    record_move_target: NoteTarget = no_note,
) -> CopyResult:
    """Copy a lake to an empty store, or go on with doing so.

    From a ``point`` of a backup, a lake that is no fork has the id that it had, and nothing is sealed.
    ``record_move_target`` notes elsewhere where the lake will be; if it fails, the copy ends there.

    ``LakeExists`` or ``InvalidRequest`` if the target holds anything but this very copy. ``LakeMoved`` if the
    source is moving elsewhere. ``Damaged`` if the source is, or if the copy does not hold what it should.
    """
    with ThreadPoolExecutor(WORKERS) as workers:
        places = source_place, target_place
        return _LakeCopy(
            source, target, places, fork, point, who, progress, record_move_target, workers
        ).run()


class _LakeCopy:
    def __init__(
        self,
        source: Kernel,
        target: Store,
        places: tuple[str, str],
        is_fork: bool,
        point: str,
        who: str,
        progress: CopyProgress,
        record_move_target: NoteTarget,
        workers: Executor,
    ) -> None:
        self._source, self._target = source, target
        self._places, self._note_target = places, record_move_target
        self._is_fork, self._who, self._progress, self._workers = is_fork, who, progress, workers
        self._point, self._moves = point, not is_fork and not point
        self._lake = self._begin_target()

    @property
    def _own_arrival(self) -> CopyArrival:
        assert self._lake.arrival is not None
        return self._lake.arrival

    def run(self) -> CopyResult:
        repeated = self._own_arrival.phase is CopyPhase.COMPLETE
        if self._own_arrival.phase is CopyPhase.BEGUN:
            self._seal_source()
        if self._own_arrival.phase is CopyPhase.ROWS:
            self._copy_rows()
        if self._own_arrival.phase is CopyPhase.OBJECTS:
            self._copy_objects()
        if not repeated:
            self._verify_target()
            self._seal_source_and_open_target()
        elif self._moves:
            self._note_target(True)  # an earlier release may have moved the lake without
        return self._make_result(repeated)

    def _make_result(self, repeated: bool) -> CopyResult:
        arrival = self._own_arrival
        return CopyResult(
            id=self._lake.id,
            source=self._places[0],
            target=self._places[1],
            is_fork=self._is_fork,
            references=arrival.references,
            commits=arrival.commits,
            objects=arrival.objects,
            size_bytes=arrival.size_bytes,
            repeated=repeated,
        )

    # -- beginning and going on ------------------------------------------------------------------------

    def _begin_target(self) -> LakeDescription:
        """The description that the target has now: of a new copy, or of this one as it was left."""
        lake = read_description(self._source.store)
        target = find_description(self._target)
        if target is None:
            if lake.sealed is not None and self._moves:
                raise lake_moved_error(lake.sealed, self._source.store)
            self._require_empty()
            self._note_target(False)
            identity = str(uuid4()) if self._is_fork else lake.id
            arrival = CopyArrival(
                copy=str(uuid4()),
                source=self._places[0],
                source_id=lake.id,
                is_fork=self._is_fork,
                point=self._point,
            )
            description = _describe_arriving_lake(lake, identity, arrival)
            blobs = list_blobs_of_lake(lake)
            objects = self._source.store.fetch(blobs) if blobs else {}
            try:
                write_description(self._target, description, objects, self._source.settings)
            except LakeExists:  # another process made one there since
                raise target_taken_error(read_description(self._target), self._places[1]) from None
            return description
        arrival = self._require_ours(target, lake)
        if not self._moves or (lake.sealed is not None and lake.sealed.copy == arrival.copy):
            return target
        if arrival.references:  # the copying of objects had begun
            raise InvalidRequest(
                f"{self._places[1]} holds part of a cancelled move; choose another location, or delete the "
                "database there first (not the files of tables)"
            )
        # Cancelled before any object was copied, or never sealed. Its id may be in logs already, as a seal
        # that does not hold, so it gets another one.
        self._lake = target
        self._write_progress(copy=str(uuid4()), phase=CopyPhase.BEGUN)
        return self._lake

    def _require_ours(self, description: LakeDescription, lake: LakeDescription) -> CopyArrival:
        """How the target's lake came there, if it is this copy that brings it."""
        arrival = description.arrival
        ours = lake.id, self._is_fork, self._point
        if arrival is None or (arrival.source_id, arrival.is_fork, arrival.point) != ours:
            raise target_taken_error(description, self._places[1])
        if lake.sealed is not None and self._moves and lake.sealed.copy != arrival.copy:
            raise lake_moved_error(lake.sealed, self._source.store)
        if arrival.phase is CopyPhase.COMPLETE and self._moves and lake.sealed is None:
            raise target_taken_error(description, self._places[1])
        return arrival

    def _require_empty(self) -> None:
        has_rows = any(self._target.references(kind.value, limit=1) for kind in Kind)
        if has_rows or self._target.scan(b"", 1)[0]:
            raise InvalidRequest(
                f"{self._places[1]} is not empty and holds no lake; choose an empty location"
            )

    def _write_progress(self, **changes: object) -> None:
        """Write down how far the copy has got; refuse to go on if somebody else did so too."""
        self._rewrite_description(
            lambda lake: msgspec.structs.replace(
                lake, arrival=msgspec.structs.replace(self._own_arrival, **changes)
            )
        )

    def _rewrite_description(
        self,
        change: Callable[[LakeDescription], LakeDescription],
        objects: Mapping[ObjectId, bytes] | None = None,
    ) -> None:
        known_lake = self._lake

        def decide_change(lake: LakeDescription) -> ReplaceRow[LakeDescription]:
            if lake != known_lake:
                raise InvalidRequest(
                    f"another process is copying to {self._places[1]}; wait until it has finished"
                )
            return ReplaceRow(change(lake), objects or {})

        self._lake = change_description(self._target, self._source.settings, decide_change)

    # -- the steps -------------------------------------------------------------------------------------

    def _seal_source(self) -> None:
        """Have the source take no more writes. A fork has it go on."""
        if self._moves:
            for count in seal_lake(
                self._source, self._own_arrival.copy, self._places[1], self._who, self._workers
            ):
                self._progress("sealing references", count, 0)
        self._write_progress(phase=CopyPhase.ROWS)

    def _copy_rows(self) -> None:
        """Let the target have the source's references, and no others; of a lake that moves, its tokens too.

        Before the objects: what these rows lead to was stored before they were read, so a scan that begins
        now finds it.
        """
        copy, source = self._own_arrival.copy, self._source.store
        references = (
            read_sealed_rows(self._source, copy) if self._moves else read_consistent_rows(source, KINDS)
        )
        rows = references | _read_horizon_rows(source) | ({} if self._is_fork else _read_token_rows(source))
        target_rows = (
            read_rows(self._target, KINDS) | _read_token_rows(self._target) | _read_horizon_rows(self._target)
        )
        surplus = [name for name in target_rows if name not in rows]
        for _ in self._workers.map(lambda name: self._put_row(name, None), surplus):
            pass
        for count, _ in enumerate(self._workers.map(lambda row: self._put_row(row.name, row), rows.values())):
            self._progress("copying references", count + 1, len(rows))
        self._write_progress(
            phase=CopyPhase.OBJECTS, references=len(references), token=b"", objects=0, size_bytes=0
        )

    def _put_row(self, name: str, row: Row | None) -> None:
        def decide_change(before: Row | None, _: bool) -> RowSwap[None] | KeepRow[None]:
            return KeepRow(None) if before == row else RowSwap(row, None)

        advice = "To complete the copy, run the same command again."
        subject = RowSubject(f"'{name}'", advice, verb="moved")
        swap_row(self._target, self._source.settings, name, subject, decide_change)

    def _copy_objects(self) -> None:
        """Everything that is stored, page by page: also receipts, to which nothing leads."""
        total = count_objects(self._source.store, self._source.settings)
        pages = copy_objects(
            self._source.store,
            self._target,
            self._own_arrival.token,
            self._source.settings,
            self._workers,
        )
        for page in pages:
            self._write_progress(
                token=page.token,
                objects=self._own_arrival.objects + page.objects,
                size_bytes=self._own_arrival.size_bytes + page.size_bytes,
                phase=CopyPhase.OBJECTS if page.token else CopyPhase.CHECKING,
            )
            self._progress("copying objects", self._own_arrival.objects, total)

    def _verify_target(self) -> None:
        """Compare the target with the source, and check every object in it."""
        lake = read_description(self._source.store)
        expired = {*read_expired_commits(lake, self._source.objects)}
        if self._is_fork:  # its references are as they were before the source's last sweep
            expired.update(read_expired_commits(self._lake, Objects(self._target)))
        arriving, blobs = record_expired_commits(lake, expired)
        self._rewrite_description(
            lambda description: _describe_arriving_lake(arriving, description.id, self._own_arrival), blobs
        )
        if self._moves:
            self._compare_rows()
        object_count = count_objects(self._target, self._source.settings)
        if object_count < self._own_arrival.objects:
            self._start_again(f"{object_count} of {self._own_arrival.objects} copied objects are there")
        # Formats only tell here which states of tables were erased.
        formats = self._source.formats.all
        kernel = Kernel(self._target, formats, self._source.settings, self._source.clock)
        checked = fsck(kernel, lambda _, count: self._progress("checking objects", count, object_count))
        if checked.damages:
            self._start_again(f"{len(checked.damages)} problems, the first: {checked.damages[0]}")
        self._write_progress(commits=checked.commits)

    def _compare_rows(self) -> None:
        source = self._source.store
        wanted_rows = (
            read_sealed_rows(self._source, self._own_arrival.copy)
            | _read_token_rows(source)
            | _read_horizon_rows(source)
        )
        target_rows = (
            read_rows(self._target, KINDS) | _read_token_rows(self._target) | _read_horizon_rows(self._target)
        )
        if wanted_rows != target_rows:
            require_sealed(self._source.store, self._own_arrival.copy)
            names = sorted(
                name
                for name in {*wanted_rows, *target_rows}
                if wanted_rows.get(name) != target_rows.get(name)
            )
            self._write_progress(phase=CopyPhase.ROWS)
            raise Damaged(
                f"{', '.join(names[:5])} at {self._places[1]} changed during the copy\n  Another process "
                "wrote there. Run the same command again.",
                names=names,
            )

    def _start_again(self, subject: str) -> NoReturn:
        """The target is not what it should be: its objects are to be copied once more."""
        self._write_progress(phase=CopyPhase.OBJECTS, token=b"", objects=0, size_bytes=0)
        raise Damaged(
            f"the copy at {self._places[1]} is damaged: {subject}\n  If 'penstock fsck' finds nothing "
            f"wrong with the original at {self._places[0]}, run the same command again. If the copy is "
            "damaged again, choose another location; a move has to be cancelled first."
        )

    def _seal_source_and_open_target(self) -> None:
        """The source gives the lake away, then the target opens: at no time do both take writes."""
        if self._moves:
            self._note_target(True)  # once more: a table may have come that was not there before
            finish_seal(self._source.store, self._source.settings, self._own_arrival.copy)
        self._rewrite_description(
            lambda lake: msgspec.structs.replace(
                lake,
                arrival=msgspec.structs.replace(self._own_arrival, phase=CopyPhase.COMPLETE),
                forked_from=self._own_arrival.source_id if self._is_fork else lake.forked_from,
            )
        )


def target_taken_error(description: LakeDescription, url: str) -> LakeExists | InvalidRequest:
    """The error for a target that holds something else than the copy that is to be made there."""
    arrival = description.arrival
    if description.is_backup:
        return InvalidRequest(
            f"{url} holds backups of lake {description.id}; choose an empty location", url=url
        )
    if arrival is not None and arrival.phase is not CopyPhase.COMPLETE:
        what = "a restore" if arrival.point else "a copy" if arrival.is_fork else "a move"
        return InvalidRequest(
            f"{url} holds part of {what} of {arrival.source}; complete that, or choose another location"
        )
    return LakeExists(
        f"there is already a lake at {url}; choose an empty location",
        url=url,
    )


def _describe_arriving_lake(lake: LakeDescription, identity: str, arrival: CopyArrival) -> LakeDescription:
    """A lake's description as it is in the target while it is being copied. A fork has no backups."""
    backups = lake.backups if identity == lake.id else ()
    return msgspec.structs.replace(lake, id=identity, sealed=None, arrival=arrival, backups=backups)


def _read_token_rows(store: Store) -> dict[str, Row]:
    """Who may use a server keeps that right where the lake goes on, and has none in a fork."""
    return {row.name: row for row in read_token_rows(store)}


def _read_horizon_rows(store: Store) -> dict[str, Row]:
    """What was erased is gone from a copy of the lake as well."""
    return {row.name: row for row in read_horizon_rows(store)}
