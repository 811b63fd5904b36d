"""Taking tables back after the database of the lake that owned them was lost.

A published log is whole without any lake. What the lost lake had ratified and not published is not in it, and
nobody can say any more what that was: a staged file may have been ratified, or may have lost; a commit that
only the database held has left no trace. So the table goes on from its published part, under a new owner, and
every file that may have been a version is named.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest, ManagedElsewhere, NotManaged
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, TableOwner, check_writable, find_owner
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.ownership.clones import note_clone
from penstock.formats.delta.ownership.handover import Handover, HandoverResult
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest
from penstock.formats.delta.protocol.clones import clone_sources
from penstock.formats.delta.protocol.names import LOG, STAGED_FOLDERS, StagedName, parse_name
from penstock.model.keys import Key
from penstock.storage.places import Place, Places


class DoubtfulVersion(msgspec.Struct, frozen=True):
    """A version of which it cannot be known whether it existed."""

    version: int
    names: tuple[str, ...]
    """The files that claim to be it, below the table's root. One of them at most was ratified."""

    def __str__(self) -> str:
        files = self.names[0] if len(self.names) == 1 else f"one of {', '.join(self.names)}"
        return f"version {self.version} may have been {files}; it is not known whether that version existed"


class RecoveryResult(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was recovered."""

    made: HandoverResult
    lost: TableOwner
    """Whose it was."""
    published: int
    """The last version that was published; everything up to it is there."""
    doubtful: tuple[DoubtfulVersion, ...]
    """Versions after that, of which there are files. Others that the lost lake held itself left none."""


class TableRecovery:
    """Takes tables whose lake is lost for good."""

    def __init__(
        self, tables: DeltaTableStore, places: Places, handover: Handover, identity: OwnerIdentity
    ) -> None:
        self._tables, self._places, self._handover, self._identity = tables, places, handover, identity

    def recover_table(
        self,
        key: Key,
        location: str,
        request: TableRequest,
        *,
        lost: str | None = None,
        any_lake: bool = False,
    ) -> RecoveryResult:
        """Own a table that names the lost lake, from its published part on.

        Either ``lost`` is that lake's id, or with ``any_lake`` whatever lake the table names counts as lost;
        ``InvalidRequest`` tells the id if neither is said, or both are. If the lake is not lost after all, it
        will find a version in the table's log that is not its own, and stop.
        """
        place = self._places.open_place(location)
        snapshot = load_snapshot(PlaceFiles(place))
        owner = self._find_lost_owner(place.location, snapshot, lost, any_lake)
        check_writable(snapshot.protocol, snapshot.metadata, place.location)
        doubtful = doubtful_versions(place, snapshot.version)
        note_clone(self._tables.kernel, clone_sources(snapshot.metadata.configuration))
        made = self._handover.take_over_table(key, place, snapshot, request)
        return RecoveryResult(made=made, lost=owner, published=snapshot.version, doubtful=doubtful)

    def _find_lost_owner(
        self, location: str, snapshot: LogSnapshot, lost: str | None, any_lake: bool
    ) -> TableOwner:
        owner = find_owner(snapshot.protocol, snapshot.metadata, location)
        if owner is None:
            raise NotManaged(
                f"{location} has no owner, so there is nothing to recover\n  To let this lake manage it: "
                f"penstock delta adopt {location}",
                location=location,
            )
        self._check_gone(location, owner.table if self._identity.is_owner(owner) else None)
        if (lost is None) == (not any_lake):
            advice = "give the lake that was lost, or accept any" + (", not both" if any_lake else "")
            raise InvalidRequest(
                f"{location} belongs to {owner}: {advice}\n  penstock delta recover {location} "
                + (f"--lost {owner.lake}" if owner.lake else "--any"),
                location=location,
                owner=owner.name,
                lake=owner.lake,
            )
        if not owner.lake or (not any_lake and owner.lake != lost):
            raise ManagedElsewhere(
                f"{location} belongs to {owner}, which is not the lake that was lost",
                table=location,
                owner=owner.name,
                lake=owner.lake,
            )
        return owner

    def _check_gone(self, location: str, identity: UUID | None) -> None:
        """A table that this very lake still has is not lost."""
        key = self._tables.find_key(self._tables.find_head(), identity)
        if key is not None:
            raise InvalidRequest(
                f"{location} is not lost: this lake has it, as '{key}'\n  If the lake was restored from a "
                f"backup that is older than the table's log, 'penstock resync {key}' imports the versions "
                "of the log.",
                location=location,
                key=str(key),
            )


def doubtful_versions(place: Place, published: int) -> tuple[DoubtfulVersion, ...]:
    """The versions after the published ones that staged files claim to be, oldest first."""
    names_by_version: dict[int, list[str]] = {}
    for folder in STAGED_FOLDERS:
        for entry in place.list(f"{LOG}{folder}"):
            named = parse_name(entry.key)
            if isinstance(named, StagedName) and named.version > published:
                names_by_version.setdefault(named.version, []).append(entry.key)
    return tuple(
        DoubtfulVersion(version, tuple(names_by_version[version])) for version in sorted(names_by_version)
    )
