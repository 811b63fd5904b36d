"""Backups of a lake, and a lake restored from one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Unpack

import msgspec

from penstock.errors import Denied, InvalidRequest, LakeNotFound, PenstockError
from penstock.kernel.backup import (
    BackupMaker,
    BackupResult,
    Retention,
    verify_kernel,
)
from penstock.kernel.backup_points import (
    BackupElsewhere,
    BackupPoint,
    PointStore,
    read_backups_elsewhere,
    read_lake_description,
    read_points,
    read_rows_of_lake,
    require_backup_location,
    with_moved_roots,
)
from penstock.kernel.backup_registry import (
    complete_registration,
    find_backups_elsewhere,
    register_backup,
    take_over_registration,
    unregister_backups,
)
from penstock.kernel.copy import CopyProgress, CopyResult, copy_store, show_no_progress, target_taken_error
from penstock.kernel.description import (
    CopyPhase,
    LakeDescription,
    RegisteredBackup,
    change_description,
    find_description,
    read_description,
)
from penstock.kernel.fsck import CheckResult, Damage
from penstock.kernel.lake_seal import finish_seal, seal_lake
from penstock.kernel.object_copy import WORKERS
from penstock.kernel.objects import Objects
from penstock.kernel.settings import Settings
from penstock.lake.backup_files import (
    BackupFiles,
    RestoredFiles,
    find_data_location,
    no_room_error,
    require_data_location,
)
from penstock.lake.copy import (
    LakeOpening,
    OpenOptions,
    Place,
    fork_notes,
    open_lake_at,
    open_target,
    require_own_store,
)
from penstock.lake.lake import Lake
from penstock.lake.missing_files import list_missing_files
from penstock.lake.notebook_progress import show_progress
from penstock.lake.opener import is_remote, open_lake, open_or_make_store
from penstock.model.clock import Clock, now_us, to_utc_datetime
from penstock.model.encoding import encode
from penstock.storage.moved_roots import MovedRoot
from penstock.storage.remote import SCHEMES
from penstock.stores import get_place, is_local, open_store
from penstock.stores.made_on_write import StoreMadeOnWrite
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from penstock.stores.urls import hide_secrets

FILE_SUFFIX: Final = ".backup"
"""A path that ends so is one file; any other path is a directory."""
MISSING_MAX: Final = 10


class RestoredLake(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore came to."""

    copied: CopyResult
    point: BackupPoint
    owns_tables: bool
    """Whether commits to managed tables are taken; else they can only be read."""
    missing: tuple[str, ...]
    """Files of tables that are gone, if that was allowed."""
    put_back: RestoredFiles | None = None
    """Files of tables that the backup has, and that were put back where they had been."""
    was_restored: bool = False
    """Whether the same restore was complete before: nothing was done now."""
    unregistered: tuple[str, ...] = ()
    """Backups at other places that the former lake kept files for, and that the restored lake cannot keep
    files for, because it does not have their commits."""

    @property
    def moved_roots(self) -> tuple[MovedRoot, ...]:
        """Roots of the lake whose files lie elsewhere than where they were stored at first."""
        return read_lake_description(self.point).moved_roots


class _OwnerState(Enum):
    """What became of the lake that a backup is of."""

    GONE = auto()
    SEALED = auto()
    LIVE = auto()
    UNKNOWN = auto()


# -- making backups ----------------------------------------------------------------------------------------


@show_progress
def backup_lake(
    source: Place,
    target: Place,
    *,
    verify: bool = False,
    register: bool = True,
    keep_last: int | None = None,
    keep_days: float | None = None,
    data: bool = False,
    progress: CopyProgress = show_no_progress,
    **opening: Unpack[OpenOptions],
) -> BackupResult:
    """Back up a lake in use, with references, history, hashes of tokens, expectations and settings.

    ``target`` is an address like that of a lake, or a file whose name ends in ``.backup``. If it already
    holds backups of the lake, only changes are copied. Files of tables are not copied: unless ``register`` is
    false, the lake registers the backup, and keeps the files that it needs until the backup is forgotten.
    With ``data``, files that the target lacks are copied, and the lake keeps nothing afterwards; the target
    must then be a directory or a bucket. ``verify`` checks the backup by a restore in memory. ``keep_last``
    and ``keep_days`` remove older backups at the target afterwards; a backup stays if either rule keeps it.
    After an interruption, the same call completes the backup. ``opening`` is how the lake is opened:
    ``author``, ``settings``, ``clock``.
    """
    author, settings, clock = LakeOpening(**opening)
    with ExitStack() as stack:
        if data:
            _require_room_for_data(target)
        lake = stack.enter_context(open_lake_at(source, author, settings, clock))
        if register and lake.kernel.store.is_read_only:
            raise Denied(
                f"the lake at {lake.url} is read-only here, so the backup cannot be registered with it; "
                "nothing was written\n  A registered backup makes the lake keep the files that the backup "
                "needs. With --no-register the lake is not changed, and keeps no files for the backup.",
                url=lake.url,
            )
        store = stack.enter_context(_open_or_make_backup_store(target, True, clock))
        if data:
            require_data_location(store, _find_local_path(target))
        files = stack.enter_context(_open_backup_files(store, target, lake.kernel.settings, progress, clock))
        maker = BackupMaker(store, lake.kernel.settings, progress=progress, files=files)
        return maker.make_backup(
            lake.kernel,
            source_place=lake.url,
            register=register,
            verify=verify,
            retention=Retention(keep_last=keep_last, keep_days=keep_days),
            data=data,
        )


def list_backups(target: Place, *, clock: Clock = now_us) -> list[BackupPoint]:
    """List the backups at a location, oldest first, including an incomplete one."""
    with _open_or_make_backup_store(target, False, clock) as store:
        require_backup_location(store)
        return read_points(store)


def registered_backups(source: Place, *, settings: Settings | None = None) -> list[RegisteredBackup]:
    """List the backups that a lake knows, oldest first."""
    with open_lake_at(source, None, settings, now_us) as lake:
        return list(read_description(lake.kernel.store).backups)


def forget_backups(
    source: Place, *ids: str, lost: bool = False, settings: Settings | None = None, clock: Clock = now_us
) -> list[str]:
    """Forget backups, so that the lake keeps no files for them; returns those that it knew.

    Sweeps may then remove files of tables that only these backups need. Backups stay at their target, except
    backups with data: these are removed there, with all files that no other backup has. ``lost`` states that
    the target of such a backup is lost.
    """
    with open_lake_at(source, None, settings, clock) as lake:
        backups = read_description(lake.kernel.store).backups
        wanted_ids = {_complete_id(prefix, [backup.id for backup in backups]) for prefix in ids}
        holding = [backup for backup in backups if backup.id in wanted_ids and backup.has_data and not lost]
        for target in sorted({backup.target for backup in holding}):
            _remove_data(lake, target, {backup.id for backup in holding if backup.target == target}, clock)
        return unregister_backups(lake.kernel, wanted_ids)


def _remove_data(lake: Lake, target: str, ids: set[str], clock: Clock) -> None:
    """Remove backups with data from where the lake knows them to be."""
    try:
        with (
            _open_or_make_backup_store(target, False, clock) as store,
            _open_backup_files(store, target, lake.kernel.settings, show_no_progress, clock) as files,
        ):
            maker = BackupMaker(store, lake.kernel.settings, files=files)
            maker.remove_points(None, lambda points: [point for point in points if point.id in ids])
            store.scrub()
    except LakeNotFound:
        raise InvalidRequest(
            f"the backup at {target}, which contains rows of tables, cannot be found from here; the lake's "
            "record of it was kept\n  Remove it where it is: penstock backups expire PLACE "
            f"{' '.join(sorted(ids))}. If it is lost for good, use --lost.",
            target=target,
        ) from None


@show_progress
def expire_backups(
    source: Place | None,
    target: Place,
    *ids: str,
    keep_last: int | None = None,
    keep_days: float | None = None,
    settings: Settings | None = None,
    progress: CopyProgress = show_no_progress,
    clock: Clock = now_us,
) -> list[str]:
    """Remove backups from a location, by id or by a rule, with what only they need; returns the removed ones.

    If the backed-up lake is given, it forgets them.
    """
    rule = Retention(keep_last=keep_last, keep_days=keep_days).check()
    if not ids and keep_last is None and keep_days is None:
        raise InvalidRequest("give the backups to remove: their ids, keep_last or keep_days")

    def choose_points(points: list[BackupPoint]) -> list[BackupPoint]:
        if not ids:
            return rule.find_expired(points, clock())
        wanted_ids = {_complete_id(prefix, [point.id for point in points]) for prefix in ids}
        return [point for point in points if point.id in wanted_ids]

    with ExitStack() as stack:
        store = stack.enter_context(_open_or_make_backup_store(target, False, clock))
        lake = None if source is None else stack.enter_context(open_lake_at(source, None, settings, clock))
        own = settings or Settings()
        files = stack.enter_context(_open_backup_files(store, target, own, progress, clock))
        maker = BackupMaker(store, own, progress=progress, files=files)
        expired = maker.remove_points(None if lake is None else lake.kernel, choose_points)
        if ids:
            store.scrub()
        return expired


@show_progress
def verify_backup(
    target: Place,
    at: str | None = None,
    *,
    settings: Settings | None = None,
    progress: CopyProgress = show_no_progress,
    clock: Clock = now_us,
) -> CheckResult:
    """Verify a backup, by default the newest: it is restored in memory, and all of it is checked.

    For a backup with data, the sizes of all files are checked.
    """
    own = settings or Settings()
    with (
        _open_or_make_backup_store(target, False, clock) as store,
        _open_backup_files(store, target, own, progress, clock) as files,
    ):
        require_backup_location(store)
        point = _choose_point(store, at)
        view = PointStore(store, point)
        with open_lake(view, create=False, settings=settings, clock=clock, catch_up=False) as lake:
            checked = verify_kernel(lake.kernel, progress)
        lost = [] if files is None else [Damage("a file", file) for file in files.find_missing_files(point)]
        return msgspec.structs.replace(checked, damages=(*checked.damages, *lost))


# -- restoring ---------------------------------------------------------------------------------------------


@show_progress
def restore_backup(
    backup: Place,
    target: Place,
    *,
    at: str | None = None,
    own: bool = False,
    source: Place | None = None,
    source_is_gone: bool = False,
    allow_missing: bool = False,
    moved_roots: Mapping[str, str] | None = None,
    progress: CopyProgress = show_no_progress,
    **opening: Unpack[OpenOptions],
) -> RestoredLake:
    """Restore a backup as a lake at an empty location: the newest one, or ``at`` an id or a time.

    Commits keep their ids. A managed table has one owner, so the call looks for the backed-up lake at its old
    location or at ``source``. If that lake is gone, the restored one replaces it, with its id, tokens and
    tables. If it exists or cannot be reached, the restored lake is a copy with its own id, which can read
    managed tables. ``own`` makes the other lake read-only, so that this one replaces it; ``source_is_gone``
    states that it is gone where that cannot be checked. Both can be given later, with the same locations.

    If the restored lake replaces the other, missing files of tables are restored from a backup that has them.
    If files are missing otherwise, ``InvalidRequest`` names them, and no lake is made, unless
    ``allow_missing`` is true.

    ``moved_roots`` maps old roots of tables to the present locations of their files: files are expected, and
    restored, there. Stored data keeps the old locations. See ``map_root`` for what may be mapped. ``opening``
    is how lakes are opened: ``author``, ``settings``, ``clock``.
    """
    author, settings, clock = LakeOpening(**opening)
    if source is not None:
        require_own_store(source)
    with ExitStack() as stack:
        store = stack.enter_context(_open_or_make_backup_store(backup, False, clock))
        require_backup_location(store)
        point = _choose_point(store, at)
        place = stack.enter_context(open_target(target, clock))
        description = find_description(place)
        point = _with_moved_roots(point, moved_roots or {}, description)
        view = PointStore(store, point)
        if description is not None and (description.arrival is None or description.arrival.point != point.id):
            raise target_taken_error(
                description, get_place(place)
            )  # before files are put back, or a lake is sealed
        lake = stack.enter_context(
            open_lake(view, create=False, author=author, settings=settings, clock=clock, catch_up=False)
        )
        owners = fork_notes(lake)
        owner, owner_place = _find_owner(
            point, place, source, [] if owners is None else owners.list_owner_places(lake.id), clock
        )
        is_to_own = (
            owner in (_OwnerState.GONE, _OwnerState.SEALED)
            or (own and owner is _OwnerState.LIVE)
            or (source_is_gone and owner is _OwnerState.UNKNOWN)
        )
        files = stack.enter_context(_open_backup_files(store, backup, lake.kernel.settings, progress, clock))
        was_restored = description is not None and _is_restored(description, point, is_to_own)
        put_back: RestoredFiles | None = None
        missing: list[str] = []
        if not was_restored:
            put_back, missing = _restore_files(lake, point, files, is_to_own, allow_missing)
        if own and owner is _OwnerState.LIVE:
            _seal_source(point, place, owner_place, lake.author, settings, clock)
            owner = _OwnerState.SEALED
        owns = owner in (_OwnerState.GONE, _OwnerState.SEALED) or (
            owner is _OwnerState.UNKNOWN and source_is_gone
        )
        if (own or source_is_gone) and not owns:
            raise _cannot_own_error(owner_place, owner)
        others = [*read_backups_elsewhere(store, point)]
        if owner is _OwnerState.SEALED:
            others += _registered_at_source(point, owner_place, get_place(store), clock)
        unregistered: tuple[str, ...] = ()
        if owns and owners is not None:  # before it takes writes
            owners.note_owner(lake.id, get_place(place), clock())
        if owns and description is not None and _is_restored(description, point, is_to_own=False):
            taken_over = _take_over(lake, place, point, description, tuple(missing))
            with open_lake_at(place, author, settings, clock) as restored:
                unregistered = _register_again(restored, store, others)
            return msgspec.structs.replace(taken_over, put_back=put_back, unregistered=unregistered)
        notes = None if owns else owners
        if notes is not None:
            notes.note_begun_fork(lake.id, get_place(place), None if description is None else description.id)
        copied = copy_store(
            lake.kernel,
            place,
            source_place=get_place(store),
            target_place=get_place(place),
            fork=not owns,
            point=point.id,
            who=lake.author,
            progress=progress,
        )
        if notes is not None:
            notes.note_complete_fork(lake.id, get_place(place), copied.id, clock())
        if owns:
            with open_lake_at(place, author, settings, clock) as restored:
                unregistered = _register_again(restored, store, others)
        return RestoredLake(
            copied=copied,
            point=point,
            owns_tables=owns,
            missing=tuple(missing),
            put_back=put_back,
            was_restored=was_restored,
            unregistered=unregistered,
        )


def _restore_files(
    lake: Lake, point: BackupPoint, files: BackupFiles | None, is_to_own: bool, allow_missing: bool
) -> tuple[RestoredFiles | None, list[str]]:
    """Put back files of tables, if the restored lake is to own them.

    Returns what that came to, and which files are missing.
    """
    put_back = None
    if is_to_own and files is not None and point.data is not None:
        if point.data.missing and not allow_missing:
            raise _files_gone_error(point, point.data.missing, is_to_own)
        put_back = files.restore_files(point)
    missing = [str(file) for file in list_missing_files(lake)]
    if missing and not allow_missing:
        raise _files_gone_error(point, missing, is_to_own)
    return put_back, missing


def _with_moved_roots(
    point: BackupPoint, roots: Mapping[str, str], description: LakeDescription | None
) -> BackupPoint:
    """A point with its files where they are now: as the lake says that is made of it, if there is one.

    ``InvalidRequest`` if that says otherwise than is asked now.
    """
    mapped = with_moved_roots(point, roots.items())
    if description is None or description.arrival is None or description.arrival.point != point.id:
        return mapped
    if roots and read_lake_description(mapped).moved_roots != description.moved_roots:
        raise InvalidRequest(
            "the lake that is already restored there has other mapped roots: repeat the command with the "
            "same --map, and change them afterwards with 'penstock root map'",
            moved_roots=[[root.old, root.new] for root in description.moved_roots],
        )
    lake = msgspec.structs.replace(
        read_lake_description(point),
        moved_roots=description.moved_roots,
        format_version=max(read_lake_description(point).format_version, description.format_version),
    )
    return msgspec.structs.replace(point, description=encode(lake))


def _files_gone_error(point: BackupPoint, missing: Sequence[str], is_to_own: bool) -> InvalidRequest:
    more = f"\n  and {len(missing) - MISSING_MAX} more" if len(missing) > MISSING_MAX else ""
    listing = "\n  ".join(missing[:MISSING_MAX]) + more
    way_out = (
        "Bring the files back, choose a later backup, or use --missing-ok to restore the lake without them."
    )
    if point.data is not None and not is_to_own:
        way_out = (
            "The backup contains the files. With --own or --source-is-gone, where the restored lake "
            "replaces the other one, they are put back where they were. With --missing-ok the lake is "
            "restored without them."
        )
    return InvalidRequest(
        f"the backup of {to_utc_datetime(point.created_us):%Y-%m-%d %H:%M:%S} UTC "
        "needs files of tables that are gone; "
        f"no lake was created:\n  {listing}\n  {way_out}",
        missing=[*missing],
    )


def _cannot_own_error(place: Place, owner: _OwnerState) -> InvalidRequest:
    where = get_place(place) if isinstance(place, Store) else os.fspath(place)
    message = f"the backed-up lake at {where} still accepts writes: --own makes it read-only"
    if owner is _OwnerState.UNKNOWN:
        message = (
            f"the backed-up lake at {where} cannot be reached from here, and two lakes must not own "
            "one table\n  Give its address (--source), or if it is lost for good, use --source-is-gone."
        )
    return InvalidRequest(message, source=where)


def _is_restored(description: LakeDescription, point: BackupPoint, is_to_own: bool) -> bool:
    """Whether a lake was restored from a point, as its owner or as a copy, and is complete."""
    arrival = description.arrival
    if arrival is None or arrival.point != point.id or arrival.phase is not CopyPhase.COMPLETE:
        return False
    return arrival.is_fork is not is_to_own


def _take_over(
    lake: Lake, store: Store, point: BackupPoint, description: LakeDescription, missing: tuple[str, ...]
) -> RestoredLake:
    """Let a lake that was restored as a copy take the place of the lake that the backup is of."""
    arrival = description.arrival
    assert arrival is not None

    def update_description(current: LakeDescription) -> LakeDescription:
        ours = current.arrival if current.arrival is not None else arrival
        return msgspec.structs.replace(
            current, id=lake.id, forked_from="", arrival=msgspec.structs.replace(ours, is_fork=False)
        )

    change_description(store, lake.kernel.settings, update_description)
    copied = CopyResult(
        id=lake.id,
        source=arrival.source,
        target=get_place(store),
        is_fork=False,
        references=arrival.references,
        commits=arrival.commits,
        objects=arrival.objects,
        size_bytes=arrival.size_bytes,
        repeated=True,
    )
    return RestoredLake(copied=copied, point=point, owns_tables=True, missing=missing)


def _registered_at_source(
    point: BackupPoint, source: Place, target: str, clock: Clock
) -> list[BackupElsewhere]:
    """The backups at other places that a lake has registered which was sealed for the restored one."""
    with ExitStack() as stack:
        if isinstance(source, Store):
            store = source
        else:
            store = open_store(os.fspath(source), False, clock)
            stack.callback(store.close)
        lake = find_description(store)
        is_source = lake is not None and lake.id == read_lake_description(point).id
        return find_backups_elsewhere(lake, Objects(store), target) if lake is not None and is_source else []


def _register_again(restored: Lake, store: Store, others: Sequence[BackupElsewhere]) -> tuple[str, ...]:
    """Let a lake that takes the place of another keep what that one kept for its backups.

    Says for which of the backups at other places that cannot be done.
    """
    registered_ids = {backup.id for backup in read_description(restored.kernel.store).backups}
    for point in read_points(store):
        if point.is_complete and point.id not in registered_ids:
            rows = read_rows_of_lake(store, point)
            target = get_place(store)
            has_data = point.data is not None
            register_backup(restored.kernel, point.id, target, point.created_us, rows, has_data=has_data)
            complete_registration(restored.kernel, point)
    by_id = {backup.registered.id: backup for backup in others if backup.registered.id not in registered_ids}
    return tuple(
        f"{backup.registered.id} at {backup.registered.target}"
        for backup in by_id.values()
        if not take_over_registration(restored.kernel, backup)
    )


class _FoundOwner(NamedTuple):
    """What became of the lake that a backup is of, and where that was seen."""

    state: _OwnerState
    place: Place


def _find_owner(
    point: BackupPoint, target: Store, source: Place | None, later: Sequence[str], clock: Clock
) -> _FoundOwner:
    """What became of the lake that a backup is of, as far as it can be seen from here.

    ``later`` are places to which it was moved or restored. If it comes back to the very place where it was,
    it is not elsewhere, unless it is at one of these.
    """
    here, where = get_place(target), point.source
    found_owner = _FoundOwner(_OwnerState.GONE, where)
    if source is not None or where != here or where.startswith("memory:"):
        found_owner = _look_for_owner(point, here, source, where, clock)
    for place in later if found_owner.state is not _OwnerState.LIVE else ():
        if place in (here, where) or place.startswith("memory:"):  # one in memory has ended with its process
            continue
        later_owner = _look_for_owner(point, here, None, place, clock)
        if later_owner.state is _OwnerState.LIVE:
            return later_owner
        if found_owner.state is not _OwnerState.SEALED and later_owner.state is not _OwnerState.GONE:
            found_owner = later_owner
    return found_owner


def _look_for_owner(
    point: BackupPoint, here: str, source: Place | None, where: str, clock: Clock
) -> _FoundOwner:
    """The same of a lake that was at one place.

    That there is no directory on this machine says nothing: the backup may be of another machine.
    """
    lake_id = read_lake_description(point).id
    seen: set[str] = set()
    description: LakeDescription | None = None
    while True:
        looked_at: Place = where if source is None else source
        try:
            with ExitStack() as stack:
                if isinstance(source, Store):
                    store = source
                else:
                    place = os.fspath(source) if source is not None else where
                    if place in seen or place.startswith("memory:"):
                        return _FoundOwner(_OwnerState.UNKNOWN, looked_at)
                    seen.add(place)
                    store = open_store(place, False, clock)
                    stack.callback(store.close)
                description = find_description(store)
        except LakeNotFound:
            is_sure = source is not None or not is_local(where)
            return _FoundOwner(_OwnerState.GONE if is_sure else _OwnerState.UNKNOWN, looked_at)
        except PenstockError:
            return _FoundOwner(_OwnerState.UNKNOWN, looked_at)
        if description is None or description.id != lake_id or description.is_backup:
            return _FoundOwner(_OwnerState.GONE, looked_at)
        arrival = description.arrival
        if arrival is not None and arrival.point and arrival.phase is not CopyPhase.COMPLETE:
            return _FoundOwner(_OwnerState.GONE, looked_at)  # a restore that has not ended looks again
        if description.sealed is None or not description.sealed.is_final:
            return _FoundOwner(_OwnerState.LIVE, looked_at)
        if description.sealed.target == here:
            return _FoundOwner(_OwnerState.SEALED, looked_at)
        source, where = None, description.sealed.target  # it moved: what became of it there?


def _seal_source(
    point: BackupPoint,
    target: Store,
    source: Place,
    who: str,
    settings: Settings | None,
    clock: Clock,
) -> None:
    """Let the lake that a backup is of take no more writes; whoever writes there is told where it is now."""
    mark = f"restore/{point.id}"
    with (
        open_lake_at(source, who, settings, clock) as lake,
        ThreadPoolExecutor(WORKERS) as workers,
    ):
        for _ in seal_lake(lake.kernel, mark, get_place(target), who, workers):
            pass
        finish_seal(lake.kernel.store, lake.kernel.settings, mark)


# -- places ------------------------------------------------------------------------------------------------


def _find_local_path(place: Place) -> str | None:
    return None if isinstance(place, Store) else os.fspath(place)


def _require_room_for_data(target: Place) -> None:
    """``InvalidRequest`` before anything is made at a target that cannot hold files of tables."""
    where = _find_local_path(target)
    if where is None or is_remote(where):
        return
    scheme, has_scheme, _ = where.partition("://")
    is_plain = not has_scheme or scheme == "sqlite"
    if is_plain and not where.startswith("memory:"):
        has_room = not _is_one_file(Path(where.removeprefix("sqlite://")))
    else:
        has_room = scheme in (*SCHEMES, "file", "rocksdb")
    if not has_room:
        raise no_room_error(hide_secrets(where) if has_scheme else where)


@contextmanager
def _open_backup_files(
    store: Store, target: Place, settings: Settings, progress: CopyProgress, clock: Clock
) -> Iterator[BackupFiles | None]:
    """The files of tables that a store of backups has beside it; none where it has no room for files."""
    address = _find_local_path(target)
    location = find_data_location(store, address)
    if location is None:
        yield None
        return
    files = BackupFiles(store, location, settings, clock, address=address, progress=progress)
    try:
        yield files
    finally:
        files.close()


def _is_one_file(path: Path) -> bool:
    return path.is_file() or (path.name.endswith(FILE_SUFFIX) and not path.is_dir())


@contextmanager
def _open_or_make_backup_store(place: Place, create: bool, clock: Clock) -> Iterator[Store]:
    """The store of backups at a place, which is made if that is wanted."""
    if isinstance(place, Store):
        yield place
        return
    where = os.fspath(place)
    if is_remote(where):
        raise InvalidRequest(
            f"{where} is a server; give the directory, file, bucket or database of the backup", url=where
        )
    store = _open_backup_store(where, create, clock)
    try:
        yield store
    finally:
        store.close()


def _open_backup_store(where: str, create: bool, clock: Clock) -> Store:
    path = Path(where.removeprefix("sqlite://"))
    is_plain = "://" not in where or where.startswith("sqlite://")
    if is_plain and _is_one_file(path):
        make = partial(SqliteStore, path, create=create, clock=clock)
        is_new = create and not path.exists()
        return StoreMadeOnWrite(f"sqlite://{path.absolute()}", make) if is_new else make()
    if create:
        return open_or_make_store(where, clock)
    try:
        return open_store(where, False, clock)
    except LakeNotFound:
        raise LakeNotFound(f"there is no backup at {where}", url=where) from None


def _choose_point(store: Store, at: str | None) -> BackupPoint:
    """The complete point with an id, or the newest one before a time, or the newest."""
    points = [point for point in read_points(store) if point.is_complete]
    if not points:
        raise LakeNotFound(f"there is no complete backup at {get_place(store)}", url=store.url)
    if at is None:
        return points[-1]
    if at in {point.id for point in points} or any(point.id.startswith(at) for point in points):
        wanted_id = _complete_id(at, [point.id for point in points])
        return next(point for point in points if point.id == wanted_id)
    try:
        when = datetime.fromisoformat(at)
    except ValueError:
        raise InvalidRequest(f"'{at}' is neither a backup at {get_place(store)} nor a time") from None
    when = when.astimezone() if when.tzinfo is None else when
    before = [point for point in points if to_utc_datetime(point.created_us) <= when]
    if not before:
        first = to_utc_datetime(points[0].created_us)
        raise InvalidRequest(
            "there is no backup from before that time: the oldest "
            f"backup at {get_place(store)} is of {first:%Y-%m-%d %H:%M:%S} UTC"
        )
    return before[-1]


def _complete_id(prefix: str, ids: list[str]) -> str:
    """The id that begins so; ``InvalidRequest`` if there is none, or more than one."""
    matches = [candidate for candidate in ids if candidate == prefix] or [
        candidate for candidate in ids if candidate.startswith(prefix)
    ]
    if len(matches) != 1 or not prefix:
        problem = "there is no backup" if not matches else "there are several backups"
        raise InvalidRequest(f"{problem} '{prefix}'; there are {', '.join(ids) or 'none'}")
    return matches[0]
