"""The store of backups: what it holds, and each point in time as a store that can be read.

A store of backups has the lake's objects, of all points together, each once. It has no references: a point is
a row that names all rows of the lake as they were at one moment. So a point that is one of many costs what
changed since the one before, and each can be gone back to by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.errors import Damaged, Denied, InvalidRequest, LakeExists, LakeNotFound
from penstock.kernel.backup_data import BackupData
from penstock.kernel.description import (
    BACKUPS_VERSION,
    ROW_NAME,
    LakeDescription,
    RegisteredBackup,
    find_description,
    with_moved_root,
    write_description,
)
from penstock.kernel.objects import Objects, split_blobs
from penstock.kernel.records import list_rows_of_kind
from penstock.kernel.reference_rows import decode_reference_row
from penstock.model.encoding import NO_COMMIT, ObjectId, encode, make_decoder
from penstock.model.objects import Large
from penstock.model.references import Kind
from penstock.stores import get_place
from penstock.stores.port import Row, Store
from penstock.stores.read_only import ReadOnlyStore

PREFIX: Final = "@backup/"
"""No branch or tag has a name that begins so."""
NO_ROWS: Final = Large(0, ())
"""Of a point whose rows were not read yet."""


class BackupPoint(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One point in time that can be gone back to, once it is complete."""

    id: str
    created_us: int
    """When the references were read."""
    description: bytes
    """The lake's own row, as it was."""
    rows: Large
    """Where all other rows are: branches, tags, logs of deleted ones, and tokens."""
    source: str
    """Where the lake was, without secrets."""
    references: int = 0
    token: bytes = b""
    """Of one that is not complete, and copies everything: from where the scan of the source goes on."""
    is_whole: bool = False
    """Whether all objects are copied, because the store had no complete point before."""
    objects: int = 0
    size_bytes: int = 0
    """Of what it added to the store."""
    is_complete: bool = False
    data: BackupData | None = None
    """What it has of the files of tables, if it is to have them."""
    elsewhere: Large = NO_ROWS
    """Where the backups are listed that the lake had registered at other places when this one was made."""

    @property
    def is_cut(self) -> bool:
        """Whether the rows of the lake were read for it."""
        return self.rows != NO_ROWS


class BackupElsewhere(msgspec.Struct, frozen=True, array_like=True):
    """A backup that a lake had registered, at another place than the backup that tells of it."""

    registered: RegisteredBackup
    """As the lake had it; its commits are in ``heads``."""
    heads: tuple[ObjectId, ...]


class _StoredRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    kind: str
    data: bytes


_decode_point = make_decoder(BackupPoint).decode
_decode_rows = make_decoder(list[_StoredRow]).decode
_decode_description = make_decoder(LakeDescription).decode
_decode_elsewhere = make_decoder(list[BackupElsewhere]).decode


def encode_rows(rows: Collection[Row]) -> tuple[Large, dict[ObjectId, bytes]]:
    """Rows as a point keeps them, and the blobs that have to be stored with it."""
    return split_blobs(encode([_StoredRow(*row) for row in sorted(rows)]))


def encode_point_row(point: BackupPoint) -> Row:
    return Row(PREFIX + point.id, Kind.BACKUP.value, encode(point))


def read_points(store: Store) -> list[BackupPoint]:
    """All points of a store, the oldest first; also one that is not complete."""
    rows = list_rows_of_kind(store, Kind.BACKUP)
    return sorted((_decode_point_row(row) for row in rows), key=lambda point: (point.created_us, point.id))


def _decode_point_row(row: Row) -> BackupPoint:
    try:
        point: BackupPoint = _decode_point(row.data)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise Damaged(
            f"the row of '{row.name}' in the backup cannot be read: {problem}", name=row.name
        ) from None
    return point


def read_rows_of_lake(store: Store, point: BackupPoint) -> list[Row]:
    """All rows of the lake at a point but its own."""
    return [Row(row.name, row.kind, row.data) for row in _decode_rows(Objects(store).read_value(point.rows))]


def encode_elsewhere(backups: Collection[BackupElsewhere]) -> tuple[Large, dict[ObjectId, bytes]]:
    """Backups at other places as a point lists them, and the blobs that have to be stored with it."""
    return split_blobs(encode([*backups])) if backups else (NO_ROWS, {})


def read_backups_elsewhere(store: Store, point: BackupPoint) -> list[BackupElsewhere]:
    """The backups at other places that the lake had registered at a point; none where it does not say."""
    if point.elsewhere == NO_ROWS:
        return []
    backups: list[BackupElsewhere] = _decode_elsewhere(Objects(store).read_value(point.elsewhere))
    return backups


def read_lake_description(point: BackupPoint) -> LakeDescription:
    """What the lake said of itself at a point."""
    description: LakeDescription = _decode_description(point.description)
    return description


def require_backup_location(store: Store) -> LakeDescription:
    """What a store of backups says of itself; ``InvalidRequest`` if it holds a lake, or nothing."""
    description = find_description(store)
    if description is None:
        raise LakeNotFound(f"there is no backup at {get_place(store)}", url=store.url)
    if not description.is_backup:
        raise InvalidRequest(f"{get_place(store)} is a lake, not a location of backups", url=store.url)
    return description


def make_room(store: Store, lake: LakeDescription) -> None:
    """Make a store that is empty one of backups of a lake, or see that it is one.

    ``LakeExists`` if it holds a lake, ``InvalidRequest`` if anything else, as backups of another lake.
    """
    description = find_description(store)
    if description is None and (
        any(store.references(kind.value, limit=1) for kind in Kind) or store.scan(b"", 1)[0]
    ):
        description = find_description(store)  # another backup may have begun there since
        if description is None:
            raise InvalidRequest(
                f"{get_place(store)} is not empty and holds no backup; choose an empty location"
            )
    if description is None:
        new_description = LakeDescription(
            format_version=BACKUPS_VERSION,
            id=lake.id,
            created_us=lake.created_us,
            default_branch=lake.default_branch,
            is_backup=True,
        )
        try:
            write_description(store, new_description)
        except LakeExists:
            description = find_description(store)
        else:
            return
    if description is None or not description.is_backup:
        raise LakeExists(
            f"there is a lake at {get_place(store)}; choose a location for backups only", url=store.url
        )
    if description.id != lake.id:
        raise InvalidRequest(
            f"{get_place(store)} holds backups of another lake, {description.id}; choose another location"
        )


class PointStore(ReadOnlyStore):
    """The lake as it was at a point: its rows, over the objects of all points. It takes no writes."""

    def __init__(self, store: Store, point: BackupPoint) -> None:
        super().__init__(store)
        description = Row(ROW_NAME, Kind.LAKE.value, point.description)
        self._rows = {row.name: row for row in (description, *read_rows_of_lake(store, point))}

    def require_writable(self) -> None:
        raise Denied(f"the backup at {self.url} is read-only. Nothing was changed.", url=self.url)

    def reference(self, name: str) -> Row | None:
        return self._rows.get(name)

    def references(self, kind: str, prefix: str = "", after: str = "", limit: int = 1000) -> list[Row]:
        names = sorted(name for name, row in self._rows.items() if row.kind == kind)
        chosen = [name for name in names if name.startswith(prefix) and name > after]
        return [self._rows[name] for name in chosen[:limit]]


def with_moved_roots(point: BackupPoint, moved: Iterable[tuple[str, str]]) -> BackupPoint:
    """A point of the lake with files below some old roots at new ones; ``InvalidRequest`` if that cannot
    be."""
    lake = read_lake_description(point)
    for old, new in moved:
        lake = with_moved_root(lake, old, new)
    return msgspec.structs.replace(point, description=encode(lake))


def count_references(rows: Collection[Row]) -> int:
    """How many branches, tags and logs of deleted ones there are among rows."""
    return sum(row.kind in (Kind.BRANCH, Kind.TAG, Kind.DELETED) for row in rows)


def list_heads(rows: Collection[Row]) -> list[ObjectId]:
    """The commits that branches and tags are at."""
    kinds = (Kind.BRANCH.value, Kind.TAG.value)
    heads = {decode_reference_row(row).head for row in rows if row.kind in kinds}
    return sorted(heads - {NO_COMMIT})
