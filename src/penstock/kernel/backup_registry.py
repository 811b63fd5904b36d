"""What a lake knows of its backups: it keeps the files that they count on until they are forgotten.

They are in the lake's description, so that a sweep reads them with everything else that says what is kept. A
lake that knows of any has a format version that an older Penstock refuses: its sweep would not heed them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from penstock.kernel.backup_points import BackupElsewhere, BackupPoint, count_references, list_heads
from penstock.kernel.description import (
    BACKUPS_VERSION,
    LakeDescription,
    RegisteredBackup,
    change_description,
    check_description_size,
)
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import Objects, split_blobs
from penstock.kernel.records import ReplaceRow
from penstock.kernel.sweep import list_heads_of_backup
from penstock.stores.port import Row


def register_backup(
    kernel: Kernel, number: str, target: str, now_us: int, rows: Collection[Row], *, has_data: bool = False
) -> LakeDescription:
    """Note a backup with the lake, which keeps from now on what it counts on; returns the description."""
    heads, blobs = split_blobs(b"".join(list_heads(rows)))
    new = RegisteredBackup(
        id=number,
        target=target,
        created_us=now_us,
        heads=heads,
        references=count_references(rows),
        has_data=has_data,
    )

    def update_description(lake: LakeDescription) -> ReplaceRow[LakeDescription]:
        backups = (*(backup for backup in lake.backups if backup.id != number), new)
        version = max(lake.format_version, BACKUPS_VERSION)
        changed = msgspec.structs.replace(lake, backups=backups, format_version=version)
        return ReplaceRow(check_description_size(lake, changed), blobs)

    return change_description(kernel.store, kernel.settings, update_description)


def find_backups_elsewhere(lake: LakeDescription, objects: Objects, target: str) -> list[BackupElsewhere]:
    """The complete backups that a lake has registered at other places than one."""
    return [
        BackupElsewhere(backup, tuple(sorted(list_heads_of_backup(backup, objects))))
        for backup in lake.backups
        if backup.is_complete and backup.target != target
    ]


def take_over_registration(kernel: Kernel, former: BackupElsewhere) -> bool:
    """Note a backup that the lake had registered where it was before; whether that can be done.

    It cannot if files of tables are to be kept for it by commits that this lake does not have.
    """
    if former.registered.keeps_files and len(kernel.store.fetch([*former.heads])) < len(former.heads):
        return False
    heads, blobs = split_blobs(b"".join(former.heads))
    new = msgspec.structs.replace(former.registered, heads=heads)

    def update_description(lake: LakeDescription) -> ReplaceRow[LakeDescription]:
        backups = (*(backup for backup in lake.backups if backup.id != new.id), new)
        version = max(lake.format_version, BACKUPS_VERSION)
        changed = msgspec.structs.replace(lake, backups=backups, format_version=version)
        return ReplaceRow(check_description_size(lake, changed), blobs)

    change_description(kernel.store, kernel.settings, update_description)
    return True


def complete_registration(kernel: Kernel, point: BackupPoint) -> None:
    """Note that a backup is complete, and how large it is. One that was forgotten stays forgotten."""

    def mark_complete(backup: RegisteredBackup) -> RegisteredBackup:
        return msgspec.structs.replace(
            backup,
            is_complete=True,
            size_bytes=point.size_bytes,
            has_data=point.data is not None,
            data_bytes=0 if point.data is None else point.data.size_bytes,
        )

    def update_description(lake: LakeDescription) -> LakeDescription:
        backups = tuple(mark_complete(backup) if backup.id == point.id else backup for backup in lake.backups)
        return msgspec.structs.replace(lake, backups=backups)

    change_description(kernel.store, kernel.settings, update_description)


def unregister_backups(kernel: Kernel, numbers: Collection[str], target: str | None = None) -> list[str]:
    """Forget backups: the lake keeps nothing for them any more. Says which it knew.

    The next one at the same place counts what they had added: it needs that, and it is still there.
    """
    removed_ids: list[str] = []

    def update_description(lake: LakeDescription) -> LakeDescription:
        removed_ids[:] = [
            backup.id for backup in lake.backups if backup.id in numbers and target in (None, backup.target)
        ]
        return msgspec.structs.replace(lake, backups=_remove_backups(lake.backups, removed_ids))

    if numbers:
        change_description(kernel.store, kernel.settings, update_description)
    return removed_ids


def _remove_backups(
    backups: Sequence[RegisteredBackup], removed_ids: Collection[str]
) -> tuple[RegisteredBackup, ...]:
    """Backups without some, in order; sizes of those go to the next one at the same place."""
    kept_backups: list[RegisteredBackup] = []
    left_bytes: dict[str, int] = {}
    for backup in sorted(backups, key=lambda backup: backup.created_us):
        if backup.id in removed_ids:
            left_bytes[backup.target] = left_bytes.get(backup.target, 0) + backup.size_bytes
        elif backup.is_complete:
            size_bytes = backup.size_bytes + left_bytes.pop(backup.target, 0)
            kept_backups.append(msgspec.structs.replace(backup, size_bytes=size_bytes))
        else:
            kept_backups.append(backup)
    return tuple(kept_backups)
