"""The files of tables in a place of backups: copying what it lacks, proving, removing, putting back.

They lie below ``data/`` of the place, each folder of the lake's storage in a folder of its own, under the
names that they have there. Most names are given once and for ever, by an id in them. Of the others, such as
those of a Delta log, which come again when a table is made anew at its place, each file has a tag behind its
name, from the time when it was written: so it is never another one, and what a backup has is never written
over. Whatever has the right name and size is there; nothing has to be remembered for a copy to go on after a
kill.

A point is not complete before all its files are there. Its lists of files are stored before any of them is
copied, so that whoever removes other points meanwhile leaves them.

A folder may have more files than fit into memory. So a list of it is worked on at a time, and compared with
what lies between its first and its last name in storage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple, TypeVar

import msgspec

from penstock.errors import Damaged, InvalidRequest, OutcomeUnknown, Unavailable
from penstock.formats.plugin import NeededFolder
from penstock.kernel.backup_data import (
    BackupData,
    BackupFile,
    BackupFolder,
    encode_folder,
    encode_folders,
    list_segments,
    read_backup_folders,
    read_files,
    read_folder_files,
)
from penstock.kernel.backup_points import BackupPoint, PointStore, read_lake_description, read_points
from penstock.kernel.copy import CopyProgress, show_no_progress
from penstock.kernel.settings import Settings
from penstock.kernel.time_limits import WriteRetries
from penstock.lake.embedded import Embedded
from penstock.lake.lake import Lake
from penstock.lake.missing_files import list_missing_files
from penstock.lake.needed_files import NeededFiles
from penstock.lake.opener import open_lake
from penstock.model.clock import Clock
from penstock.model.encoding import ObjectId
from penstock.model.objects import Large
from penstock.storage.buckets import Bucket, BucketEntry
from penstock.storage.moved_roots import MovedRoots
from penstock.storage.places import Place, Places
from penstock.storage.remote import SCHEMES, RemoteBucket
from penstock.stores import DATABASE_FILE, get_place
from penstock.stores.lake_directory import find_directory
from penstock.stores.port import Store
from penstock.stores.urls import parse_options

DATA: Final = "data"
"""Below a place of backups."""
FILE_WORKERS: Final = 16
PIECE_BYTES: Final = 8 * 1024 * 1024
"""A larger file is copied in pieces."""
AT_ONCE: Final = 256
"""So many files are handed out at a time; in between it is seen to that nobody else took over."""
LOOKS_MAX: Final = 5
"""How often it is looked again what is needed, because files went away meanwhile."""
DELETE_MAX: Final = 1000
NAMED_MAX: Final = 10
GONE_MAX: Final = 1000
"""When so many files turned out to be gone, it is looked again what is needed before others are copied."""
NAMES_MAX: Final = 1_000_000
"""How many names of files that stay are in memory at once while others are removed, as short hashes."""
READABLE_CHARS: Final = 60

_FOLDER: Final = re.compile(r"[0-9a-f]{16}_[A-Za-z0-9._-]+")
"""How ``make_folder_name`` names folders. Others below ``data/`` belong to somebody else."""

T = TypeVar("T")
Put = Callable[[dict[ObjectId, bytes]], None]


class NeededFile(NamedTuple):
    """A file that a point needs."""

    folder: BackupFolder
    file: BackupFile

    def __str__(self) -> str:
        return f"{self.folder.location}/{self.file.name}"


class RestoredFiles(NamedTuple):
    """What was put back where it had been."""

    files: int
    size_bytes: int


def find_data_location(store: Store, address: str | None = None) -> str | None:
    """Where a store of backups has the files of tables, beside its own; ``None`` if it has no room for files:
    a database elsewhere, or one file."""
    url = address or store.url
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if scheme in SCHEMES:
        return f"{get_place(store).partition('?')[0].rstrip('/')}/{DATA}"
    if scheme not in ("sqlite", "file", "rocksdb"):
        return None
    if scheme == "sqlite" and not store.url.endswith(f"/{DATABASE_FILE}"):
        return None
    return str(find_directory(store.url)[1] / DATA)


def require_data_location(store: Store, address: str | None) -> str:
    """The same; ``InvalidRequest`` if there is none."""
    location = find_data_location(store, address)
    if location is None:
        raise no_room_error(get_place(store))
    return location


def no_room_error(target: str) -> InvalidRequest:
    return InvalidRequest(
        f"{target} is a single file or a database, which cannot hold the files of tables\n  With --data, "
        "TARGET must be a directory or a bucket: penstock backup DIRECTORY --data",
        target=target,
    )


class _TargetPlaces(Places):
    """Opens the place of the files as the store of backups beside them was opened."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def open_bucket(self, scheme: str, bucket: str) -> Bucket:
        if "?" not in self._address:
            return super().open_bucket(scheme, bucket)
        given_options = parse_options(self._address, "endpoint", "region")
        return RemoteBucket(
            f"{scheme}://{bucket}",
            scheme,
            bucket,
            endpoint=given_options.get("endpoint"),
            region=given_options.get("region"),
        )


class BackupFiles:
    """The files of tables of one place of backups."""

    def __init__(
        self,
        store: Store,
        location: str,
        settings: Settings,
        clock: Clock,
        *,
        address: str | None = None,
        progress: CopyProgress = show_no_progress,
    ) -> None:
        self._store, self._location, self._settings, self._clock = store, location, settings, clock
        self._progress = progress
        self._places = _TargetPlaces(address or store.url)
        self._lock = Lock()
        self._done_bytes = self._all_bytes = 0

    def close(self) -> None:
        self._places.close()

    # -- copying -------------------------------------------------------------------------------------------

    def list_files(self, point: BackupPoint, put: Put) -> BackupData:
        # Of what an earlier try was to copy, and has not, all must be there still.
        before = read_backup_folders(self._store, point)
        with self._open_lake_at(point) as lake:
            places = _require_embedded(lake).places

            def list_lost_files(folder: NeededFolder) -> Iterator[NeededFile]:
                for backup_folder in before:
                    if backup_folder.location == folder.location:
                        lacking = [
                            file for file in self._find_lacking(backup_folder) if folder.needs(file.name)
                        ]
                        yield from _find_missing(places, backup_folder, lacking)

            listed, lost_files = self._list_needed(lake, put, list_lost_files)
        if lost_files:
            raise _went_away_error(lost_files)
        return listed

    def copy_files(self, point: BackupPoint, put: Put, keep_alone: Callable[[], None]) -> BackupData:
        data = point.data or BackupData()
        new_files, new_bytes = data.new_files, data.new_bytes
        lost_files: list[NeededFile] = []
        with self._open_lake_at(point) as lake:
            places = _require_embedded(lake).places

            def list_lost_files(folder: NeededFolder) -> Iterator[NeededFile]:
                for needed in lost_files:
                    if needed.folder.location == folder.location and folder.needs(needed.file.name):
                        yield from _find_missing(places, needed.folder, [needed.file])

            for _ in range(LOOKS_MAX):
                files, size, lost_files = self._copy_missing_files(point, data, places, keep_alone)
                new_files, new_bytes = new_files + files, new_bytes + size
                if not lost_files:
                    return msgspec.structs.replace(data, new_files=new_files, new_bytes=new_bytes)
                # Something may have taken the place of what is gone: a log that was published, a checkpoint.
                data, needed = self._list_needed(lake, put, list_lost_files)
                point = msgspec.structs.replace(point, data=data)
                if needed:
                    break
        raise _went_away_error(lost_files)

    def _list_needed(
        self, lake: Lake, put: Put, lost: Callable[[NeededFolder], Iterable[NeededFile]]
    ) -> tuple[BackupData, list[NeededFile]]:
        """List what is needed, folder by folder; also what ``lost`` finds of each: needed files that are
        gone."""
        folders, lost_files = list[BackupFolder](), list[NeededFile]()
        needed = NeededFiles(
            _require_embedded(lake), lambda what, count: self._progress(f"reading {what}", count, 0)
        )
        for needed_folder in needed.list_needed_folders():
            for segment in list_segments(_list_needed_files(needed_folder)):
                folder, blobs = encode_folder(
                    needed_folder.location, make_folder_name(needed_folder.location), segment
                )
                put(blobs)
                folders.append(folder)
            lost_files += islice(lost(needed_folder), GONE_MAX)
        listed, blobs = encode_folders(folders)
        put(blobs)
        # After the files were listed: what goes in between is in the list, and is missed when it is copied.
        missing = [*needed.problems, *(str(file) for file in list_missing_files(lake))]
        data = BackupData(
            folders=listed,
            files=sum(folder.count for folder in folders),
            size_bytes=sum(folder.size_bytes for folder in folders),
            missing=tuple(missing[:NAMED_MAX]),
        )
        return data, lost_files

    def _copy_missing_files(
        self, point: BackupPoint, data: BackupData, places: Places, keep_alone: Callable[[], None]
    ) -> tuple[int, int, list[NeededFile]]:
        """Copy what is not there: how many files, of how many bytes, and which of them are gone."""
        point = msgspec.structs.replace(point, data=data)
        self._done_bytes, self._all_bytes = 0, data.size_bytes
        count, size, lost = 0, 0, list[NeededFile]()
        with ThreadPoolExecutor(FILE_WORKERS, "penstock-backup-files") as workers:
            for folder in read_backup_folders(self._store, point):
                source, target = places.open_place(folder.location), self._open_folder(folder)
                files = self._find_lacking(folder)
                self._count_copied(folder.size_bytes - sum(file.size for file in files))
                for some in _split_items(files):
                    keep_alone()
                    copied = [*workers.map(partial(self._back_up_file, source, target), some)]
                    lost += [
                        NeededFile(folder, file)
                        for file, is_there in zip(some, copied, strict=True)
                        if not is_there
                    ]
                    copied_sizes = [
                        file.size for file, is_there in zip(some, copied, strict=True) if is_there
                    ]
                    count, size = count + len(copied_sizes), size + sum(copied_sizes)
                    if len(lost) >= GONE_MAX:
                        return count, size, lost
        return count, size, lost

    def _find_lacking(self, folder: BackupFolder) -> list[BackupFile]:
        """The files of a list that are not at the place of backups, or have another size."""
        files = read_folder_files(self._store, folder)
        sizes = self._list_sizes(folder, files)
        return [file for file in files if sizes.get(file.stored_as) != file.size]

    def _list_sizes(self, folder: BackupFolder, files: Sequence[BackupFile]) -> dict[str, int]:
        return self._open_folder(folder).sizes_in_order([file.stored_as for file in files])

    def _open_folder(self, folder: BackupFolder) -> Place:
        return self._places.open_place(f"{self._location}/{folder.folder}")

    def _back_up_file(self, source: Place, target: Place, file: BackupFile) -> bool:
        """Copy a file from the lake's storage; whether it is there, and is the one that was listed."""

        def is_same() -> bool:
            if not file.tag:
                return True
            entry = source.look(file.name)
            return entry is not None and make_file_tag(entry) == file.tag

        def copy_to_backup() -> bool:
            if not _copy_file(source, file.name, target, file.stored_as, file.size, self._count_copied):
                return False
            if is_same():
                return True
            target.delete([file.stored_as])  # another file has its name by now
            return False

        return self._retry_while_unavailable(copy_to_backup)

    def _count_copied(self, size: int) -> None:
        with self._lock:
            self._done_bytes += size
            self._progress("copying files", self._done_bytes, self._all_bytes)

    # -- proving and removing --------------------------------------------------------------------------------

    def find_missing_files(self, point: BackupPoint) -> Iterator[str]:
        for folder in read_backup_folders(self._store, point):
            files = read_folder_files(self._store, folder)
            sizes = self._list_sizes(folder, files)
            for file in files:
                size = sizes.get(file.stored_as)
                if size != file.size:
                    is_what = "is missing" if size is None else f"has {size} bytes instead of {file.size}"
                    yield f"{self._location}/{folder.folder}/{file.stored_as} {is_what}"

    def sweep_files(self, keep_alone: Callable[[], None]) -> None:
        needed: dict[str, dict[Large, int]] = {}
        for point in read_points(self._store):
            for folder in read_backup_folders(self._store, point):
                needed.setdefault(folder.folder, {})[folder.files] = folder.count
        root = self._places.open_place(self._location)
        for name in [*root.folders()]:
            if _FOLDER.fullmatch(name) is None:
                continue
            place, lists = self._places.open_place(f"{self._location}/{name}"), needed.get(name, {})
            has_removed = False
            for some in _split_into_portions(self._find_unneeded(place, lists), DELETE_MAX):
                keep_alone()
                self._retry_while_unavailable(partial(_delete_files, place, some))
                self._progress("removing files", len(some), 0)
                has_removed = True
            place.tidy(self._clock())  # pieces of files that a kill left
            if name not in needed:
                place.prune()
            elif has_removed:
                place.remove_empty_folders()

    def _find_unneeded(self, place: Place, lists: dict[Large, int]) -> Iterator[str]:
        """The files at a place that none of some lists has. If the lists have more names than fit into
        memory, the place is listed several times, each time for the names of one share of all hashes."""
        shares = 1 + sum(lists.values()) // NAMES_MAX
        for share in range(shares):
            names = {
                name_hash
                for listed in lists
                for file in read_files(self._store, listed)
                if (name_hash := hash(file.stored_as)) % shares == share
            }
            for entry in place.entries():
                name_hash = hash(entry.key)
                if name_hash % shares == share and name_hash not in names:
                    yield entry.key

    # -- putting back ----------------------------------------------------------------------------------------

    def restore_files(self, point: BackupPoint) -> RestoredFiles:
        """Write the files of a point that are gone to where they were, or to where the roots of the lake were
        moved. What is there is left as it is.

        ``Damaged`` if the place of backups lacks one; ``InvalidRequest`` if another file is in the place of
        one, by its size: nothing was written then.
        """
        source_places = Places(MovedRoots(read_lake_description(point).moved_roots))
        folders = read_backup_folders(self._store, point)
        try:
            count = self._all_bytes = self._done_bytes = 0
            lacking: list[str] = []
            for folder in folders:  # all of them are looked at before anything is written
                files = self._find_gone(source_places, folder)
                count, self._all_bytes = (
                    count + len(files),
                    self._all_bytes + sum(file.size for file in files),
                )
                lacking += islice(self._find_lost(folder, files), NAMED_MAX - len(lacking))
            if lacking:
                raise Damaged(
                    "files to be restored are missing from the backup; nothing was written:\n  "
                    + "\n  ".join(lacking)
                    + "\n  Choose another backup: penstock backups list"
                )
            with ThreadPoolExecutor(FILE_WORKERS, "penstock-backup-files") as workers:
                for folder in folders:
                    place, source = source_places.open_place(folder.location), self._open_folder(folder)
                    for some in _split_items(self._find_gone(source_places, folder)):
                        [*workers.map(partial(self._copy_back, source, place), some)]
            return RestoredFiles(count, self._all_bytes)
        finally:
            source_places.close()

    def _find_gone(self, places: Places, folder: BackupFolder) -> list[BackupFile]:
        files = read_folder_files(self._store, folder)
        sizes = places.open_place(folder.location).sizes_in_order([file.name for file in files])
        others = [file for file in files if not file.tag and sizes.get(file.name, file.size) != file.size]
        if others:
            raise InvalidRequest(
                f"{folder.location}/{others[0].name} already exists, with another size than in the backup; "
                "nothing was written\n  Move the folder away, if its files are not needed.",
                location=folder.location,
            )
        # What has a tag may have been written again since, as a checkpoint of the same version.
        return [file for file in files if file.name not in sizes]

    def _find_lost(self, folder: BackupFolder, files: Sequence[BackupFile]) -> Iterator[str]:
        sizes = self._list_sizes(folder, files)
        for file in files:
            if sizes.get(file.stored_as) != file.size:
                yield f"{self._location}/{folder.folder}/{file.stored_as}"

    def _copy_back(self, source: Place, target: Place, file: BackupFile) -> None:
        def copy_file() -> None:
            if not _copy_file(source, file.stored_as, target, file.name, file.size, self._count_copied):
                raise Damaged(
                    f"{source.url}/{file.stored_as} is missing from the backup, or has another size"
                )

        self._retry_while_unavailable(copy_file)

    # -- means -----------------------------------------------------------------------------------------------

    @contextmanager
    def _open_lake_at(self, point: BackupPoint) -> Iterator[Lake]:
        """The lake as a point has it, over its own storage. What it left behind is not kept for the point."""
        settings = msgspec.structs.replace(
            self._settings, grace_s=0, data_grace_days=0, idempotency_days=0, nobody_writes=True
        )
        view = PointStore(self._store, point)
        lake = open_lake(view, create=False, settings=settings, clock=self._clock, catch_up=False)
        try:
            yield lake
        finally:
            lake.close()

    def _retry_while_unavailable(self, work: Callable[[], T]) -> T:
        """Do something that may be done again, and again where storage does not answer for a moment."""
        tries: WriteRetries | None = None
        while True:
            try:
                return work()
            except (Unavailable, OutcomeUnknown) as problem:
                tries = tries or WriteRetries(self._settings)  # a large file may have taken long until then
                tries.wait_for_next_try(problem)


def _went_away_error(lost: Sequence[NeededFile]) -> Damaged:
    names = "\n  ".join(map(str, lost[:NAMED_MAX]))
    return Damaged(
        f"{len(lost)} files of tables were removed while they were copied; the backup is incomplete:\n  "
        f"{names}\n  If the lake may be swept during a backup, make it a registered one. The same command, "
        "run again, makes a new backup of the present state.",
        files=[str(file) for file in lost[:NAMED_MAX]],
    )


def _require_embedded(lake: Lake) -> Embedded:
    catalogue = lake.catalogue
    assert isinstance(catalogue, Embedded)
    return catalogue


def make_folder_name(location: str) -> str:
    """The name of a folder of the lake's storage in a backup: never that of another, and readable."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", location.rpartition("/")[2])[:READABLE_CHARS].strip("-.")
    return f"{blake2b(location.encode(), digest_size=8).hexdigest()}_{readable or 'files'}"


def make_file_tag(entry: BucketEntry) -> str:
    """Tells a file from others that had its name before, or will have it.

    Storage may tell more in one answer than in another, such as a version: so only what all have counts.
    """
    return blake2b(f"{entry.modified_us}/{entry.size}".encode(), digest_size=6).hexdigest()


def _list_needed_files(folder: NeededFolder) -> Iterator[BackupFile]:
    for entry in folder.files():
        yield BackupFile(entry.key, entry.size, "" if folder.is_unique(entry.key) else make_file_tag(entry))


def _find_missing(places: Places, folder: BackupFolder, files: Sequence[BackupFile]) -> Iterator[NeededFile]:
    """Those of some files that are not in the lake's storage."""
    sizes = places.open_place(folder.location).sizes_in_order([file.name for file in files])
    return (NeededFile(folder, file) for file in files if file.name not in sizes)


def _copy_file(
    source: Place, name: str, target: Place, other: str, size: int, count: Callable[[int], None]
) -> bool:
    """Copy a file, durably, whole or not at all; ``False`` if it is gone, or has another size."""
    if size <= PIECE_BYTES:
        (data,) = source.read([name])
        if data is None or len(data) != size:
            return False
        target.put(other, data)
        count(size)
        return True
    broken = list[bool]()

    def read_pieces() -> Iterator[bytes]:
        start = 0
        while start < size:
            piece = source.read_range(name, start, min(PIECE_BYTES, size - start))
            if not piece:
                broken.append(True)
                raise _TruncatedFile
            yield piece
            start += len(piece)
            count(len(piece))

    try:
        target.put_pieces(other, read_pieces())
    except (_TruncatedFile, OutcomeUnknown, Unavailable):
        if broken:
            return False
        raise
    return True


class _TruncatedFile(Exception):
    """A file ended before it should have."""


def _delete_files(place: Place, names: Sequence[str]) -> None:
    place.delete(names)


def _split_items(items: Sequence[T], count: int = AT_ONCE) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), count):
        yield items[start : start + count]


def _split_into_portions(items: Iterable[T], count: int) -> Iterator[Sequence[T]]:
    waiting = iter(items)
    while some := [*islice(waiting, count)]:
        yield some
