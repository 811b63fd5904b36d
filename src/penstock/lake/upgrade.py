"""Upgrading a lake: from then on it is stored as this release stores it, and older ones refuse it by name."""

from __future__ import annotations

import msgspec

from penstock.kernel.description import FORMAT_VERSION, LakeDescription, change_description, read_description
from penstock.kernel.settings import Settings
from penstock.lake.backup import backup_lake
from penstock.lake.copy import Place, open_lake_at
from penstock.model.clock import Clock, now_us


class UpgradeResult(msgspec.Struct, frozen=True):
    """What an upgrade came to."""

    before: int
    """The format version that the lake had."""
    after: int
    """The format version that it has."""
    backup: str = ""
    """The id of the backup that was made before; empty if none was wanted."""


def upgrade_lake(
    source: Place,
    *,
    backup: Place | None = None,
    settings: Settings | None = None,
    clock: Clock = now_us,
) -> UpgradeResult:
    """Raise a lake's format version to that of this release. Nothing else that is stored changes.

    An upgrade is optional: a lake of an earlier release works as it is, and the first write that an earlier
    release would misread upgrades it as far as needed. Upgrading at once keeps older releases from opening
    the lake. With ``backup``, a backup is made there first; it has the earlier version, and can be restored
    for an older release. Repeating the call changes nothing.
    """
    backup_id = ""
    if backup is not None:
        backup_id = backup_lake(source, backup, register=False, settings=settings, clock=clock).point.id
    with open_lake_at(source, None, settings, clock) as lake:
        before = read_description(lake.kernel.store).format_version

        def update_description(description: LakeDescription) -> LakeDescription:
            version = max(description.format_version, FORMAT_VERSION)
            return msgspec.structs.replace(description, format_version=version)

        after = change_description(lake.kernel.store, lake.kernel.settings, update_description).format_version
    return UpgradeResult(before, after, backup_id)
