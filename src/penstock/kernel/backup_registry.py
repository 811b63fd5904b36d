"""What a lake knows of its backups: it keeps the files that they count on until they are forgotten.

They are in the lake's description, so that a sweep reads them with everything else that says what is kept. A
lake that knows of any has a format version that an older Penstock refuses: its sweep would not heed them.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from penstock.kernel.backup_points import BackupPoint, count_references, heads_of
from penstock.kernel.description import (
    BACKUPS_VERSION,
    Description,
    RegisteredBackup,
    change_description,
    with_room,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import split_blobs
from penstock.kernel.records import ReplaceRow
from penstock.stores.port import Row


def register_backup(
    kernel: Kernel, number: str, target: str, now_us: int, rows: Collection[Row], *, has_data: bool = False
) -> Description:
    """Note a backup with the lake, which keeps from now on what it counts on; returns the description."""
    heads, blobs = split_blobs(b"".join(heads_of(rows)))
    new = RegisteredBackup(
        id=number,
        target=target,
        created_us=now_us,
        heads=heads,
        references=count_references(rows),
        has_data=has_data,
    )

    def change(lake: Description) -> ReplaceRow[Description]:
        backups = (*(one for one in lake.backups if one.id != number), new)
        version = max(lake.format_version, BACKUPS_VERSION)
        changed = msgspec.structs.replace(lake, backups=backups, format_version=version)
        return ReplaceRow(with_room(lake, changed), blobs)

    return change_description(kernel.store, kernel.settings, change)


def complete_registration(kernel: Kernel, point: BackupPoint) -> None:
    """Note that a backup is complete, and how large it is. One that was forgotten stays forgotten."""

    def complete(one: RegisteredBackup) -> RegisteredBackup:
        return msgspec.structs.replace(
            one,
            is_complete=True,
            size_bytes=point.size_bytes,
            has_data=point.data is not None,
            data_bytes=0 if point.data is None else point.data.size_bytes,
        )

    def change(lake: Description) -> Description:
        backups = tuple(complete(one) if one.id == point.id else one for one in lake.backups)
        return msgspec.structs.replace(lake, backups=backups)

    change_description(kernel.store, kernel.settings, change)


def unregister_backups(kernel: Kernel, numbers: Collection[str], target: str | None = None) -> list[str]:
    """Forget backups: the lake keeps nothing for them any more. Says which it knew."""
    known: list[str] = []

    def change(lake: Description) -> Description:
        known[:] = [one.id for one in lake.backups if one.id in numbers and target in (None, one.target)]
        kept = tuple(one for one in lake.backups if one.id not in known)
        return msgspec.structs.replace(lake, backups=kept)

    if numbers:
        change_description(kernel.store, kernel.settings, change)
    return known
