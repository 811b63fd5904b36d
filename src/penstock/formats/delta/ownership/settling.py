"""Finishing what was begun: an adoption or a release, by whoever meets the table.

Somebody has promised, in a commit of the lake, to own a table; or has ratified the last version that the lake
has of it. What comes of a promise, the table's log tells, and it is kept if nothing speaks against it. Of a
release, all that is left is to publish it. How it ended is noted in the lake.
"""

from __future__ import annotations

from uuid import UUID

from penstock.errors import CommitConflict, OutcomeUnknown
from penstock.formats.delta.branch_log.commits import Commits
from penstock.formats.delta.branch_log.intents import Settle, change
from penstock.formats.delta.branch_log.line import OwnershipPhase, line_of
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, owner_of
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.ownership.tables import AskedTable, Tables, line_at
from penstock.formats.delta.protocol.names import (
    ClassicName,
    CommitName,
    CompactionName,
    PartName,
    UuidName,
    before_version,
    parse_name,
)
from penstock.formats.delta.publishing.naming import named_owner
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.commits import CommitMeta
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Place, Places


class HandoverSettler:
    """Brings tables that are on their way into the lake, or out of it, to where they go."""

    def __init__(
        self,
        tables: Tables,
        places: Places,
        publisher: Publisher,
        commits: Commits,
        identity: OwnerIdentity,
    ) -> None:
        self._tables, self._places, self._publisher = tables, places, publisher
        self._commits, self._identity = commits, identity

    def resolve(self, key: Key, content: DeltaTable, by: CommitMeta = CommitMeta()) -> DeltaTable | None:
        """Finish an adoption or a release that somebody began; the table afterwards, ``None`` if it is gone.

        ``by`` tells who does it. May be called for any table of the default branch, by anybody, any number of
        times. A table that names another lake, as in a copy of the lake, is left alone.
        """
        line, identity = line_at(content)
        if line.phase is OwnershipPhase.OWNED:
            return content
        if line.phase is OwnershipPhase.ADOPTING:
            if not self._identity.owns(owner_of(*self._tables.declared(line), content.location)):
                return content
            if not self._is_in(OwnershipPhase.ADOPTING, key, identity):
                return self._tables.current(key, identity)  # somebody has noted already how it ended
            if self._is_ours(key, content):
                self._settle(
                    key, Settle(id=identity, owned=True), OwnershipPhase.ADOPTING, f"{key} is adopted", by
                )
            else:
                why = f"{key} is not adopted: somebody else's commit came first"
                self._settle(key, Settle(id=identity, owned=False), OwnershipPhase.ADOPTING, why, by)
        else:
            self._publish(content)
            self._settle(
                key, Settle(id=identity, owned=False), OwnershipPhase.RELEASED, f"{key} is released", by
            )
        return self._tables.current(key, identity)

    def _is_ours(self, key: Key, content: DeltaTable) -> bool:
        """Whether the log holds the promised commit. It does afterwards, unless somebody else's is there."""
        line = line_of(content)
        place = self._places.at(content.location)
        entry = line.at(line.latest, self._tables.read)
        data = self._commits.data(self._tables.seen(key, content), content.location, line.latest, entry)
        name = str(CommitName(line.latest))
        while True:
            (there,) = place.read([name])
            if there is not None:
                return there == data
            if _is_past(place, line.latest):
                return self._is_named(place, content)
            try:
                if self._put(place, name, data):
                    return True
            except OutcomeUnknown as problem:
                (there,) = place.read([name])
                if there is None:
                    raise OutcomeUnknown(
                        f"it is not known yet whether '{key}' at {content.location} is this lake's: "
                        f"{problem.message}\n  Whoever looks at the table next finds out and finishes it: "
                        "penstock delta status",
                        **problem.details,
                    ) from None

    def _is_named(self, place: Place, content: DeltaTable) -> bool:
        """Whether a log whose promised commit was cleaned up went on from it: then its table says so."""
        owner = named_owner(place)
        return owner is not None and self._identity.owns(owner) and owner.table == content.id

    def _put(self, place: Place, name: str, data: bytes) -> bool:
        """The instant at which a table becomes the lake's."""
        return place.create(name, data)

    def _publish(self, content: DeltaTable) -> None:
        """Publish a line to its end. Where the log goes on after it, the file system has had it for long."""
        line = line_of(content)
        if not _is_past(self._places.at(content.location), line.latest):
            self._publisher.publish(content)

    def _settle(self, key: Key, intent: Settle, phase: OwnershipPhase, message: str, by: CommitMeta) -> None:
        """Note how it ended, unless somebody else has."""
        if not self._is_in(phase, key, intent.id):
            return
        meta = CommitMeta(message=message, authors=by.authors, committer=by.committer)
        try:
            self._tables.commit([change(key, intent)], AskedTable(meta))
        except CommitConflict:
            if self._is_in(phase, key, intent.id):
                raise

    def _is_in(self, phase: OwnershipPhase, key: Key, identity: UUID) -> bool:
        now = self._tables.current(key, identity)
        return now is not None and line_of(now).phase is phase


def _is_past(place: Place, version: int) -> bool:
    """Whether a log goes on after a version: then it is missing because it was cleaned up, not because it
    was never there, and nobody may put anything in its place."""
    for file in PlaceFiles(place).list(before_version(version)):
        match parse_name(file.name):
            case CommitName(found) if found > version:
                return True
            case CompactionName(_, last) if last >= version:
                return True
            case ClassicName(found) | PartName(found) | UuidName(found) if found >= version and file.size:
                return True
    return False
