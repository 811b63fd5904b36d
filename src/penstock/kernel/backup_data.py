"""The files of tables that a backup has: lists for each folder of the lake's storage, kept with the point.

The lists are blobs of the store of backups. A folder with many files has several, in the order of names, each
of which fits into memory. Where a list ends depends on a name in it and not on what comes before: so a list
of files among which nothing changed is the same as at the point before, and is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol
from zlib import crc32

import msgspec

from penstock.kernel.objects import Objects, list_blobs_of_values, split_blobs
from penstock.model.encoding import ObjectId, encode, make_decoder
from penstock.model.objects import Large

if TYPE_CHECKING:
    from penstock.kernel.backup_points import BackupPoint
    from penstock.stores.port import Store

PART_MAX_BYTES: Final = 230
"""A name with more bytes gets its tag in front, as a folder: file systems take 255."""
LIST_FILES: Final = 8192
"""How many files a list has on average."""
LIST_MAX: Final = 4 * LIST_FILES
"""How many it has at most."""


class BackupFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file of a table, as it is in the lake's storage and in a backup."""

    name: str
    """Below the folder that it is in."""
    size: int
    tag: str = ""
    """Tells files apart that have, or may get, the same name; empty where a name is never used again."""

    @property
    def stored_as(self) -> str:
        """Its name in the folder of the backup."""
        if not self.tag:
            return self.name
        last = self.name.rpartition("/")[2]
        return (
            f"~{self.tag}/{self.name}" if len(last.encode()) > PART_MAX_BYTES else f"{self.name}~{self.tag}"
        )


class BackupFolder(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A folder of the lake's storage, such as that of a table, with a list of its files, or of some of them.

    A folder that has more files than fit into one list is there several times.
    """

    location: str
    """Where it is, or was."""
    folder: str
    """Its name among the files of the backup."""
    files: Large
    """The files of the list, as ``BackupFile``."""
    count: int
    size_bytes: int
    """Of the files of the list."""


class BackupData(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What a backup has of the files of tables."""

    folders: Large | None = None
    """All of them, as ``BackupFolder``; ``None`` until they are known."""
    files: int = 0
    size_bytes: int = 0
    """Of all that it has, also what it shares with other backups."""
    new_files: int = 0
    new_bytes: int = 0
    """Of what was copied for it, since the last time that it was begun."""
    missing: tuple[str, ...] = ()
    """What was wrong with tables already when the backup was made: some of it."""


_decode_files = make_decoder(list[BackupFile]).decode
_decode_folders = make_decoder(list[BackupFolder]).decode


def list_segments(files: Iterable[BackupFile]) -> Iterator[list[BackupFile]]:
    """Files that come in the order of their names, in parts that are a list each; at least one part."""
    segment: list[BackupFile] = []
    is_first = True
    for file in files:
        segment.append(file)
        if crc32(file.name.encode()) % LIST_FILES == 0 or len(segment) >= LIST_MAX:
            yield segment
            segment, is_first = [], False
    if segment or is_first:
        yield segment


def encode_folder(
    location: str, folder: str, files: Collection[BackupFile]
) -> tuple[BackupFolder, dict[ObjectId, bytes]]:
    """A folder with a list of files in the order of their names, and the blobs to be stored with it."""
    listed, blobs = split_blobs(encode([*files]))
    size = sum(file.size for file in files)
    backup_folder = BackupFolder(
        location=location, folder=folder, files=listed, count=len(files), size_bytes=size
    )
    return backup_folder, blobs


def encode_folders(folders: Collection[BackupFolder]) -> tuple[Large, dict[ObjectId, bytes]]:
    return split_blobs(
        encode(sorted(folders, key=lambda folder: folder.folder))
    )  # lists of one stay in order


def read_backup_folders(store: Store, point: BackupPoint) -> list[BackupFolder]:
    """The folders whose files a point has, or is to have; none if it has no data."""
    if point.data is None or point.data.folders is None:
        return []
    folders: list[BackupFolder] = _decode_folders(Objects(store).read_value(point.data.folders))
    return folders


def read_folder_files(store: Store, folder: BackupFolder) -> list[BackupFile]:
    return read_files(store, folder.files)


def read_files(store: Store, listed: Large) -> list[BackupFile]:
    """The files of a list."""
    files: list[BackupFile] = _decode_files(Objects(store).read_value(listed))
    return files


def list_data_blobs(store: Store, point: BackupPoint) -> Iterator[ObjectId]:
    """The blobs that the lists of a point are made of."""
    if point.data is not None:
        yield from list_blobs_of_values((point.data.folders,))
        yield from list_blobs_of_values(folder.files for folder in read_backup_folders(store, point))


class DataPart(Protocol):
    """Copies the files of tables to where a store of backups keeps them, and removes them there."""

    def list_files(self, point: BackupPoint, put: Callable[[dict[ObjectId, bytes]], None]) -> BackupData:
        """Find out which files a point needs whose objects are all in the store; ``put`` stores lists."""

    def copy_files(
        self, point: BackupPoint, put: Callable[[dict[ObjectId, bytes]], None], keep_alone: Callable[[], None]
    ) -> BackupData:
        """Copy what is not there. The files may turn out to be others than were listed.

        ``Damaged`` if one is gone that the point needs.
        """

    def find_missing_files(self, point: BackupPoint) -> Iterator[str]:
        """Which files of a point are not there, or have another size."""

    def sweep_files(self, keep_alone: Callable[[], None]) -> None:
        """Remove the files that no point needs."""
