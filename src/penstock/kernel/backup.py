"""Making backups of a lake in use, each of which costs what changed since the one before.

A backup is a cut of all references, kept as a point in the store of backups, and every object that they lead
to. The first one copies all objects by a scan. A later one sends what commits have that no complete point
leads to: so it does not matter what was left behind by one that was killed, or by removing old points.

The point is written first, without being complete. Whoever comes after a backup that was killed completes
that one, by the same cut, and makes its own then. The lake itself is only read, but for one thing: unless it
is told not to, it notes which backups there are, and keeps the files of tables that they count on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from threading import Event, Lock, Thread
from typing import Final
from uuid import uuid4

import msgspec

from penstock.errors import Damaged, InvalidRequest, PenstockError, Unavailable
from penstock.kernel.backup_data import BackupData, DataPart, list_data_blobs
from penstock.kernel.backup_points import (
    NO_ROWS,
    BackupPoint,
    PointStore,
    count_references,
    encode_elsewhere,
    encode_point_row,
    encode_rows,
    list_heads,
    make_room,
    read_lake_description,
    read_points,
    read_rows_of_lake,
    require_backup_location,
)
from penstock.kernel.backup_registry import (
    complete_registration,
    find_backups_elsewhere,
    register_backup,
    unregister_backups,
)
from penstock.kernel.copy import CopyProgress, show_no_progress
from penstock.kernel.description import LakeDescription, read_description
from penstock.kernel.expired import list_blobs_of_lake, read_expired_commits
from penstock.kernel.fsck import CheckResult, Damage, fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_seal import KINDS
from penstock.kernel.leases import Lease, Leases
from penstock.kernel.new_history import (
    list_new_commits,
    list_new_log_entries,
    list_receipt_ids,
    read_receipts,
)
from penstock.kernel.new_objects import NewObjects
from penstock.kernel.object_copy import CHUNK_MAX_BYTES, SCAN_PAGE, WORKERS, copy_objects
from penstock.kernel.objects import Objects, check_bytes, check_object, check_stored, list_blobs_of_values
from penstock.kernel.reachable import HistoryHorizon, ReachableObjects
from penstock.kernel.read_ahead import ReadAhead
from penstock.kernel.records import KeepRow, RowSubject, RowSwap, swap_row
from penstock.kernel.reference_rows import decode_reference_row
from penstock.kernel.reference_snapshot import read_consistent_rows, read_rows
from penstock.kernel.settings import Settings
from penstock.kernel.table_horizons import HORIZONS, TableHorizons, read_horizon_rows
from penstock.kernel.time_limits import retry_reads
from penstock.model.clock import to_utc_datetime
from penstock.model.encoding import ObjectId, encode
from penstock.model.objects import AnyObject, LogEntry
from penstock.model.references import Kind
from penstock.stores import get_place
from penstock.stores.port import Row, Store, StoredObject

ROWS: Final = (*KINDS, Kind.TOKEN, Kind.HORIZON)
"""The kinds of rows that a backup has beside the lake's own."""
LEASE: Final = "backup"
CUTS_MAX: Final = 10
"""How often the rows of a lake are read anew because of erases."""
WAIT_S: Final = 100.0
"""How long is waited for another process that writes to the same store of backups: longer than a lease of one
that was killed is good."""
POLL_S: Final = 0.5
DELETE_MAX: Final = 10_000
MISSING_MAX: Final = 10
"""How many files of tables an error names."""


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup came to."""

    point: BackupPoint
    target: str
    completed: tuple[str, ...]
    """Points that were left by backups that were killed, and are complete now."""
    expired: tuple[str, ...]
    """Points that were removed by the retention rule."""
    is_registered: bool
    is_verified: bool
    """Whether every object that the point leads to was read back and compared with its id."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which points stay: so many of the newest, and all that are younger. Without limits, all stay."""

    keep_last: int | None = None
    keep_days: float | None = None

    def check(self) -> Retention:
        """Itself; ``InvalidRequest`` if it would keep nothing, or is no rule."""
        if self.keep_last is not None and self.keep_last < 1:
            raise InvalidRequest(f"keep_last must be 1 or greater, got {self.keep_last}")
        if self.keep_days is not None and not 0 <= self.keep_days <= 100_000:
            raise InvalidRequest(f"keep_days must be between 0 and 100000, got {self.keep_days}")
        return self

    def find_expired(self, points: Collection[BackupPoint], now_us: int) -> list[BackupPoint]:
        """The complete points that the rule lets go. The newest one always stays."""
        complete = [point for point in points if point.is_complete]
        if self.keep_last is None and self.keep_days is None:
            return []
        oldest_us = now_us if self.keep_days is None else now_us - int(self.keep_days * 86_400_000_000)
        kept_points = complete[-max(self.keep_last or 1, 1) :]
        return [point for point in complete if point not in kept_points and point.created_us < oldest_us]


class BackupMaker:
    """Writes to one store of backups, for one process at a time."""

    def __init__(
        self,
        target: Store,
        settings: Settings,
        *,
        progress: CopyProgress = show_no_progress,
        leases: Leases | None = None,
        wait_s: float = WAIT_S,
        files: DataPart | None = None,
    ) -> None:
        """``files`` copies and removes the files of tables, where the target has room for them."""
        self._target, self._settings, self._progress, self._files = target, settings, progress, files
        self._leases, self._wait_s = leases or Leases(target), wait_s
        self._lease: Lease | None = None
        self._lock = Lock()

    # -- making one ----------------------------------------------------------------------------------------

    def make_backup(
        self,
        source: Kernel,
        *,
        source_place: str,
        register: bool = True,
        verify: bool = False,
        retention: Retention | None = None,
        data: bool = False,
    ) -> BackupResult:
        """Make a point of the lake as it is now, after completing one that was left."""
        rule = (retention or Retention()).check()
        make_room(self._target, read_description(source.store))
        with self._hold_lease(), ThreadPoolExecutor(WORKERS) as workers:
            incomplete = [point for point in read_points(self._target) if not point.is_complete]
            completed = [
                point.id
                for point in incomplete
                if self._complete_unfinished_point(source, point, workers, register=register)
            ]
            point = self._begin_point(source, source_place, register=register, data=data)
            point = self._complete_point(source, point, workers, register=register, verify=verify)
            expired = self._remove_points(
                source if register else None, self._find_expired(source, rule, register=register)
            )
        return BackupResult(
            point=point,
            target=get_place(self._target),
            completed=tuple(completed),
            expired=tuple(point.id for point in expired),
            is_registered=register,
            is_verified=verify or point.is_whole,
        )

    def _find_expired(self, source: Kernel, rule: Retention, *, register: bool) -> list[BackupPoint]:
        """The points that a rule lets go. Who is not to write to the lake keeps those that the lake knows of,
        for the next backup that may have the lake forget them."""
        expired = rule.find_expired(read_points(self._target), source.clock())
        registered_ids = (
            set() if register else {backup.id for backup in read_description(source.store).backups}
        )
        return [point for point in expired if point.id not in registered_ids]

    def remove_points(
        self, source: Kernel | None, chosen: Callable[[list[BackupPoint]], list[BackupPoint]]
    ) -> list[str]:
        """Remove points, and what only they need; and let the lake know, if it is given.

        Files of tables go also if no point is chosen: whoever was killed may have left some.
        """
        require_backup_location(self._target)
        with self._hold_lease():
            expired = self._remove_points(source, chosen(read_points(self._target)))
            if self._files is not None and not expired:
                self._files.sweep_files(self._keep_lease)
        return [point.id for point in expired]

    def _begin_point(self, source: Kernel, source_place: str, *, register: bool, data: bool) -> BackupPoint:
        """Cut, and note the point: in the lake, so that what it counts on stays, then in the store.

        The store has the point's id before the lake has it: so whoever comes after a kill finds it there, and
        no lake keeps files for ever for a backup that is nowhere.
        """
        now_us = source.clock()
        number = f"{to_utc_datetime(now_us):%Y%m%dT%H%M%S}-{str(uuid4())[:8]}"
        new_point = BackupPoint(
            id=number, created_us=now_us, description=b"", rows=NO_ROWS, source=source_place
        )
        self._replace_point(None, new_point)
        now_us, rows, lake = self._cut(source, source_place, number, now_us, register=register, data=data)
        described = msgspec.structs.replace(lake, backups=(), sealed=None)
        large, blobs = encode_rows(rows)
        elsewhere, more_blobs = encode_elsewhere(
            find_backups_elsewhere(lake, source.objects, get_place(self._target))
        )
        point = BackupPoint(
            id=number,
            created_us=now_us,
            description=encode(described),
            rows=large,
            source=source_place,
            references=count_references(rows),
            is_whole=not any(point.is_complete for point in read_points(self._target)),
            data=BackupData() if data else None,
            elsewhere=elsewhere,
        )
        self._store_objects(blobs | more_blobs)
        return self._put_changed(new_point, point)

    def _cut(
        self, source: Kernel, source_place: str, number: str, now_us: int, *, register: bool, data: bool
    ) -> tuple[int, list[Row], LakeDescription]:
        """When rows of the lake were read, these, and the lake's own row.

        An erase looks at the backups that the lake knows before it says where history begins, and after. So
        what it had not said when the rows were read, and has when it knows of the backup, is read once more.
        And who has read it is younger than the erase, by whatever clock.
        """
        for _ in range(CUTS_MAX):
            rows = [*read_consistent_rows(source.store, ROWS).values()]
            horizons = {row for row in rows if row.kind == Kind.HORIZON.value}
            now_us = max([now_us, *(HORIZONS.decode_row(row).set_us + 1 for row in horizons)])
            if not register:
                return now_us, rows, read_description(source.store)
            lake = register_backup(source, number, get_place(self._target), now_us, rows, has_data=data)
            if {*read_horizon_rows(source.store)} == horizons:
                return now_us, rows, lake
            now_us = source.clock()
        raise Unavailable(
            f"tables of the lake at {source_place} are being erased, one after the other; make the backup "
            "afterwards"
        )

    def _complete_unfinished_point(
        self,
        source: Kernel,
        point: BackupPoint,
        workers: Executor,
        *,
        register: bool,
    ) -> bool:
        """Complete a point that was left. If the lake has not all of it any more, it is dropped; and so it is
        if it has no rows yet, or if the lake is to keep files for it and has kept none until now.

        It is dropped in the order of ``_remove_points``. Who is not to write to the lake keeps a point that
        the lake knows of, for the next backup that may have the lake forget it.
        """
        registered_ids = {backup.id for backup in read_description(source.store).backups}
        if point.is_cut and (not register or point.id in registered_ids):
            with suppress(Damaged):
                self._complete_point(source, point, workers, register=register, verify=point.is_whole)
                return True
        if not register and point.id in registered_ids:
            return False
        newest = next(candidate for candidate in read_points(self._target) if candidate.id == point.id)
        place, ids = get_place(self._target), [point.id] if register else []
        if newest.data is None:
            unregister_backups(source, ids, place)
        self._replace_point(newest, None)
        if self._files is not None:
            self._files.sweep_files(self._keep_lease)
        if newest.data is not None:
            unregister_backups(source, ids, place)
        return False

    def _complete_point(
        self,
        source: Kernel,
        point: BackupPoint,
        workers: Executor,
        *,
        register: bool,
        verify: bool,
    ) -> BackupPoint:
        counted_on = [point for point in read_points(self._target) if point.is_complete]
        if point.is_whole or not counted_on:
            point = self._copy_all(source, point, workers)
        else:
            point = self._copy_new(source, point, counted_on)
        if verify or point.is_whole:
            self._verify_copy(source, point, verify=verify)
        if point.data is not None:
            point = self._copy_files(point, verify=verify)
        complete = msgspec.structs.replace(point, token=b"", is_complete=True)
        present_ids = {point.id for point in read_points(self._target)}
        if missing_ids := [point.id for point in counted_on if point.id not in present_ids]:
            raise Damaged(
                f"another process removed the backup {missing_ids[0]} from {get_place(self._target)} while "
                "this one ran"
            )
        self._replace_point(point, complete)
        if register:
            complete_registration(source, complete)
        return complete

    def _verify_copy(self, source: Kernel, point: BackupPoint, *, verify: bool) -> None:
        """Read back what was copied; to ``verify`` it is all that ``fsck`` does.

        Objects with wrong bytes are removed: a store keeps what it has of an id, so that they would be there
        for ever, however often they are copied.
        """
        try:
            view = Kernel(PointStore(self._target, point), source.formats.all, source.settings, source.clock)
            damages = (
                verify_kernel(view, self._progress).damages if verify else read_back(view, self._progress)
            )
        except Damaged as damaged:
            self._remove_wrong(damaged.details.get("objects", ()))
            raise
        if damages:
            self._remove_wrong([damage.object for damage in damages])
            self._replace_point(
                point, msgspec.structs.replace(point, token=b"", is_whole=True, objects=0, size_bytes=0)
            )
            raise Damaged(
                f"the backup at {get_place(self._target)} is damaged: {len(damages)} problems, the first: "
                f"{damages[0]}\n  If 'penstock fsck' finds nothing wrong with the lake, run the same command "
                "again."
            )

    def _remove_wrong(self, damaged: Collection[str]) -> None:
        """Remove from the target those of some objects that are there with other bytes than were written."""
        wrong = {
            object_id
            for name in damaged
            if (object_id := _parse_object_id(name)) and self._is_wrong(object_id)
        }
        if wrong:
            self._delete_all_but(lambda stored_object: stored_object.id not in wrong)

    def _is_wrong(self, object_id: ObjectId) -> bool:
        for data in self._target.uncached.fetch([object_id]).values():
            try:
                check_bytes(object_id, data)
            except Damaged:
                return True
        return False

    def _copy_files(self, point: BackupPoint, *, verify: bool) -> BackupPoint:
        """Copy the files of tables that are not there. The list of them is noted first."""
        assert self._files is not None
        assert point.data is not None
        before, listed = point.data, self._files.list_files(point, self._store_objects)
        listed = msgspec.structs.replace(listed, new_files=before.new_files, new_bytes=before.new_bytes)
        point = self._put_changed(point, msgspec.structs.replace(point, data=listed))
        copied = self._files.copy_files(point, self._store_objects, self._keep_lease)
        point = self._put_changed(point, msgspec.structs.replace(point, data=copied))
        if verify and (missing := [*islice(self._files.find_missing_files(point), MISSING_MAX)]):
            raise Damaged(
                f"the backup at {get_place(self._target)} lacks table files that were copied to it:\n  "
                + "\n  ".join(missing)
                + "\n  Run the same command again; if the files are missing again, find out what removes "
                "them there."
            )
        return point

    # -- copying objects -----------------------------------------------------------------------------------

    def _copy_all(self, source: Kernel, point: BackupPoint, workers: Executor) -> BackupPoint:
        """Everything that is stored, page by page; how far it is, is noted in the point."""
        if not point.is_whole:
            point = self._put_changed(point, msgspec.structs.replace(point, is_whole=True, token=b""))
        for page in copy_objects(source.store, self._target, point.token, self._settings, workers):
            after = msgspec.structs.replace(
                point,
                token=page.token,
                objects=point.objects + page.objects,
                size_bytes=point.size_bytes + page.size_bytes,
            )
            self._progress("copying objects", after.objects, 0)
            point = self._put_changed(point, after)
        return point

    def _copy_new(self, source: Kernel, point: BackupPoint, counted_on: list[BackupPoint]) -> BackupPoint:
        """What no complete point has. It costs what changed."""
        rows, lake = read_rows_of_lake(self._target, point), read_lake_description(point)
        known_rows = [row for point in counted_on for row in read_rows_of_lake(self._target, point)]
        sender = _ObjectSender(self._store_objects, self._progress)
        new = NewObjects(source, sender.send_objects)
        expired = read_expired_commits(lake, source.objects)
        new.take_all(list_blobs_of_lake(lake))
        for commit_id, is_first in list_new_commits(
            source, list_heads(rows), list_heads(known_rows), expired
        ):
            new.take_commit(commit_id, is_first=is_first)
        for block in list_new_log_entries(source, rows, known_rows):
            sender.send_objects(block)
            sender.send_objects(read_receipts(source, block))
        sender.flush()
        return self._put_changed(
            point, msgspec.structs.replace(point, objects=sender.objects, size_bytes=sender.size_bytes)
        )

    # -- removing points -----------------------------------------------------------------------------------

    def _remove_points(self, source: Kernel | None, going: Sequence[BackupPoint]) -> list[BackupPoint]:
        """Remove points, then the objects that no other one leads to. Killed, the next removal goes on.

        The lake, if it is given, forgets them: those that it keeps files for before they are removed, so that
        it keeps none for what is gone; those that have rows of tables in them when that is done, so that an
        erase knows of them until then.
        """
        if not going:
            return []
        place = get_place(self._target)
        if source is not None:
            unregister_backups(source, [point.id for point in going if point.data is None], place)
        for point in going:
            self._replace_point(point, None)
        heir = self._sweep_objects(min(point.created_us for point in going))
        if heir is not None and source is not None:
            complete_registration(source, heir)
        if self._files is not None:
            self._files.sweep_files(self._keep_lease)
        if source is not None:
            unregister_backups(source, [point.id for point in going if point.data is not None], place)
        return [*going]

    def _sweep_objects(self, removed_us: int) -> BackupPoint | None:
        """Delete the objects that no point leads to.

        The first point after the removed ones has what it still needs of them from now on, beside what it
        added itself: that point, if there is one.
        """
        points = read_points(self._target)
        heir = next((point for point in points if point.is_complete and point.created_us >= removed_us), None)
        earlier = points[: points.index(heir)] if heir is not None else points
        earlier_ids, marked = (
            find_reachable_objects(self._target, earlier),
            find_reachable_objects(self._target, points),
        )
        heir_ids = set() if heir is None else find_reachable_objects(self._target, [heir]) - earlier_ids
        sizes: list[int] = []

        def is_kept(stored_object: StoredObject) -> bool:
            if stored_object.id in heir_ids:
                sizes.append(stored_object.size)
            return stored_object.id in marked

        self._delete_all_but(is_kept)
        if heir is None:
            return None
        changed = msgspec.structs.replace(heir, objects=len(sizes), size_bytes=sum(sizes))
        return self._put_changed(heir, changed)

    def _delete_all_but(self, is_kept: Callable[[StoredObject], bool]) -> None:
        """Delete all objects of the target but some."""
        token, doomed = b"", list[StoredObject]()
        while True:
            page, token = retry_reads(self._settings, partial(self._target.scan, token, SCAN_PAGE))
            doomed += [stored_object for stored_object in page if not is_kept(stored_object)]
            if doomed and (not token or len(doomed) >= DELETE_MAX):
                self._keep_lease()
                self._target.delete(doomed)
                doomed = []
            if not token:
                return

    # -- means ---------------------------------------------------------------------------------------------

    @contextmanager
    def _hold_lease(self) -> Iterator[None]:
        """Hold the lease on the store of backups; ``Unavailable`` if another process keeps it."""
        ends_s = time.monotonic() + self._wait_s
        while (lease := self._leases.take_lease(LEASE)) is None:
            if time.monotonic() > ends_s:
                raise Unavailable(
                    f"another process is writing to the backup at {get_place(self._target)}; wait until it "
                    "has finished"
                )
            self._progress("waiting for another backup", 0, 0)
            time.sleep(min(POLL_S, max(self._leases.good_s / 10, 0.001)))
        self._lease = lease
        ended = Event()
        heart = Thread(target=self._renew_lease, args=(ended,), name="penstock backup lease", daemon=True)
        heart.start()
        try:
            yield
        finally:
            ended.set()
            heart.join()
            self._lease = None
            lease.release()

    def _renew_lease(self, ended: Event) -> None:
        """Keep the lease while something takes long, such as a check."""
        while not ended.wait(self._leases.good_s / 10):
            with self._lock, suppress(PenstockError):  # whoever writes next finds out, and says so
                if self._lease is None or not self._lease.renew_if_due():
                    return

    def _keep_lease(self) -> None:
        with self._lock:
            is_kept = self._lease is not None and self._lease.renew_if_due()
        if not is_kept:
            raise Unavailable(
                f"another process took over the backup at {get_place(self._target)} because this one was "
                "delayed for too long. Run the same command again."
            )

    def _store_objects(self, objects: dict[ObjectId, bytes]) -> None:
        if objects:
            self._keep_lease()
            retry_reads(self._settings, partial(self._target.store, objects))

    def _put_changed(self, before: BackupPoint, after: BackupPoint) -> BackupPoint:
        self._replace_point(before, after)
        return after

    def _replace_point(self, before: BackupPoint | None, after: BackupPoint | None) -> None:
        """Replace the row of a point. What another process wrote there is left alone."""
        point = after or before
        assert point is not None
        old = None if before is None else encode_point_row(before)
        new = None if after is None else encode_point_row(after)
        self._keep_lease()

        def decide_change(row: Row | None, _: bool) -> RowSwap[None] | KeepRow[None]:
            if row != old:
                raise Unavailable(
                    f"another process is writing to the backup at {get_place(self._target)}; wait until it "
                    "has finished"
                )
            return KeepRow(None) if old == new else RowSwap(new, None)

        subject = RowSubject(
            f"the backup {point.id}", "Run the same command again: it completes what is there."
        )
        swap_row(self._target, self._settings, encode_point_row(point).name, subject, decide_change)


class _ObjectSender:
    """Collects objects, and stores them when there are enough for one request."""

    def __init__(self, store: Callable[[dict[ObjectId, bytes]], None], progress: CopyProgress) -> None:
        self._store, self._progress = store, progress
        self._waiting: dict[ObjectId, bytes] = {}
        self._waiting_bytes = self.objects = self.size_bytes = 0

    def send_objects(self, objects: dict[ObjectId, bytes]) -> None:
        for object_id, data in objects.items():
            self._waiting[object_id] = data
            self._waiting_bytes += len(data)
            if self._waiting_bytes >= CHUNK_MAX_BYTES:
                self.flush()

    def flush(self) -> None:
        self._store(self._waiting)
        self.objects += len(self._waiting)
        self.size_bytes += self._waiting_bytes
        self._progress("copying objects", self.objects, 0)
        self._waiting, self._waiting_bytes = {}, 0


def _parse_object_id(name: str) -> ObjectId | None:
    """The object that a damage is of; ``None`` if that is something else, such as a row."""
    try:
        return ObjectId(bytes.fromhex(name))
    except ValueError:
        return None


def verify_kernel(view: Kernel, progress: CopyProgress = show_no_progress) -> CheckResult:
    """Prove a point that was restored in memory: everything that its rows lead to is read and checked."""
    return fsck(view, lambda _, count: progress("checking objects", count, 0))


def read_back(view: Kernel, progress: CopyProgress = show_no_progress) -> list[Damage]:
    """What is wrong with a point whose objects were just copied, each compared with its id on the way.

    Everything that its rows lead to is read from the target, compared with its id, decoded and followed. What
    a copy cannot break is left to ``verify_kernel``: whether trees are as they should be, and whether commits
    and logs fit together, is the same in the lake.
    """
    reader = ReadAhead(view.store.uncached)
    damages: dict[ObjectId, str] = {}
    count = 0

    def fetch_objects(ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        nonlocal count
        objects: dict[ObjectId, AnyObject] = {}
        for object_id, data in reader.fetch(ids).items():
            try:
                objects[object_id] = check_stored(object_id, data)
            except Damaged as damaged:
                damages[object_id] = damaged.message
        count += len(ids)
        progress("checking objects", count, 0)
        return objects

    lake = read_description(view.store)
    horizons = TableHorizons.read_horizons(view.store, view.formats)
    reach = ReachableObjects(
        fetch_objects,
        read_expired_commits(lake, view.objects),
        horizons.list_retained_objects,
        reads_all=False,
    )
    reach.mark_blobs(list_blobs_of_lake(lake), "by the lake's description")
    rows = [row for kind in KINDS for row in read_rows(view.store, [kind]).values()]
    reach.mark_log_entries(decode_reference_row(row).log for row in rows)
    reach.mark_commits(list_heads(rows), HistoryHorizon())
    return [Damage(object_id.hex(), what) for object_id, what in (reach.damaged | damages).items()]


def find_reachable_objects(store: Store, points: Collection[BackupPoint]) -> set[ObjectId]:
    """Everything that points need. What is missing leads nowhere: it was erased, or is damaged already.

    Points that have the same history behind them are walked together, so that what they share is read once.
    """
    receipts: set[ObjectId] = set()
    reader = ReadAhead(store.uncached)

    def fetch_objects(ids: list[ObjectId]) -> dict[ObjectId, AnyObject]:
        objects = {object_id: check_object(object_id, data) for object_id, data in reader.fetch(ids).items()}
        for entry in objects.values():
            if isinstance(entry, LogEntry):
                receipts.update(list_receipt_ids(entry))
        return objects

    marked: set[ObjectId] = set()
    by_horizon: dict[tuple[object, ...], list[BackupPoint]] = {}
    for point in points:
        if not point.is_cut:
            continue
        by_horizon.setdefault(read_lake_description(point).horizon, []).append(point)
    for some in by_horizon.values():
        lake = read_lake_description(some[0])
        reach = ReachableObjects(fetch_objects, read_expired_commits(lake, Objects(store)))
        heads: set[ObjectId] = set()
        for point in some:
            reach.mark_blobs(
                (*list_blobs_of_values((point.rows, point.elsewhere)), *list_data_blobs(store, point)),
                "by the point",
            )
            reach.mark_blobs(list_blobs_of_lake(read_lake_description(point)), "by the lake's description")
            rows = [row for row in read_rows_of_lake(store, point) if row.kind in KINDS]
            reach.mark_log_entries(decode_reference_row(row).log for row in rows)
            heads.update(list_heads(rows))
        reach.mark_commits(heads, HistoryHorizon())
        marked |= reach.seen
    return marked | receipts
