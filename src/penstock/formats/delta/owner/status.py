"""How the tables of a lake are: how far each is published, and having finished what is half done."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from penstock.errors import PenstockError, ReferenceNotFound
from penstock.formats.delta.lines.line import Line, Phase, line_of
from penstock.formats.delta.log.files import PlaceFiles
from penstock.formats.delta.owner.handover import Handover
from penstock.formats.delta.owner.ownership import OwnerIdentity, owner_of
from penstock.formats.delta.owner.tables import Tables, line_at
from penstock.formats.delta.protocol.names import CommitName, before_version, parse_name
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.content import DeltaTable
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.storage.places import Places

logger = logging.getLogger("penstock")


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the default branch, and how far it is published."""

    key: Key
    location: str
    phase: Phase
    latest_version: int
    published: int
    oldest_s: float | None = None
    """How long the oldest version waits that is not published."""
    alarm: str = ""
    """What stands against publishing."""

    @property
    def backlog(self) -> int:
        return self.latest_version - self.published


class Overview:
    """Looks at all managed tables of the default branch."""

    def __init__(
        self,
        tables: Tables,
        places: Places,
        publisher: Publisher,
        handover: Handover,
        identity: OwnerIdentity,
    ) -> None:
        self._tables, self._places, self._publisher = tables, places, publisher
        self._handover, self._identity = handover, identity

    def catch_up(self) -> int:
        """Finish what earlier processes began, and have published what they did not; say of how many tables.

        What stands against one table is logged, and keeps no other from going on.
        """
        told = 0
        for key, content in self._all():
            try:
                line = line_of(content)
                if not self._owns(content, line):
                    continue
                found = self._handover.resolve(key, content)
                if found is not None and line.latest > line.published:
                    self._publisher.told(key, found, is_default=True)
                    told += 1
            except PenstockError as problem:
                logger.warning("'%s' at %s waits: %s", key, content.location, problem.message)
        return told

    def status(self, key: Key | None = None) -> tuple[Status, ...]:
        """The tables of the default branch, by key, or one of them. Nothing is changed."""
        if key is not None:
            return (self._status(key, self._tables.managed(self._tables.head(), key)),)
        return tuple(self._status(*one) for one in sorted(self._all(), key=lambda one: one[0]))

    def _all(self) -> Iterator[tuple[Key, DeltaTable]]:
        """None, in a lake that has no default branch."""
        with suppress(ReferenceNotFound):
            head = self._tables.head()
            if head != NO_COMMIT:
                yield from self._tables.all(head)

    def _status(self, key: Key, content: DeltaTable) -> Status:
        line, identity = line_at(content)
        published = max(line.published, self._publisher.published(identity))
        problems = {one.id: one.problem for one in self._publisher.backlog() if one.problem is not None}
        alarm = problems[identity].message if identity in problems else ""
        try:
            published = self._looked_up(content.location, published, line.latest)
        except PenstockError as problem:
            alarm = alarm or problem.message
        oldest_s = None
        if published < line.latest and (entry := line.at(published + 1, self._tables.read)) is not None:
            oldest_s = max(0.0, self._tables.kernel.clock() / 1e6 - entry.timestamp_ms / 1e3)
        return Status(
            key=key,
            location=content.location,
            phase=line.phase,
            latest_version=line.latest,
            published=published,
            oldest_s=oldest_s,
            alarm=alarm,
        )

    def _looked_up(self, location: str, known: int, latest: int) -> int:
        """How far a log reaches, by looks at few of its files: one is there only if those before it are,
        unless they were cleaned up."""
        place = self._places.at(location)
        low, high = known, latest
        while low < high:
            middle = high if high == latest else (low + high + 1) // 2  # most logs have all of it
            if place.size(str(CommitName(middle))) is not None:
                low = middle
            else:
                high = middle - 1
        if known < low or low == latest:
            return low
        found = (parse_name(one.name) for one in PlaceFiles(place).list(before_version(known + 1)))
        return max((one.version for one in found if isinstance(one, CommitName)), default=known)

    def _owns(self, content: DeltaTable, line: Line) -> bool:
        """Whether a table names this lake, or has ceased to: in a copy of a lake, it names the other one."""
        owner = owner_of(*self._tables.declared(line), content.location)
        return self._identity.owns(owner) or line.phase is Phase.RELEASED
