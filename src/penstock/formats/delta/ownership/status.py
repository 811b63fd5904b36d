"""How the tables of a lake are: how far each is published, and having finished what is half done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile

import msgspec

from penstock.errors import PenstockError, ReferenceNotFound
from penstock.formats.delta.branch_log.branch_log import BranchLog, OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.ownership import OwnerIdentity, read_line_owner
from penstock.formats.delta.errors import ForeignCommit, InvalidLog, ManagedElsewhere
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.ownership.tables import DeltaTableStore, decode_line_and_id
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_check import LogCheck, log_out_of_sync
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.encoding import NO_COMMIT
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

logger = logging.getLogger("penstock")


class PublicationStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the default branch, and how far it is published."""

    key: Key
    location: str
    phase: OwnershipPhase
    latest_version: int
    published: int
    oldest_s: float | None = None
    """How long the oldest version waits that is not published."""
    alarm: str = ""
    """Why it is not published."""
    owner: str = ""
    """The lake that publishes the table, if it is another one: in a copy of a lake, the lake itself."""

    @property
    def backlog(self) -> int:
        return self.latest_version - self.published


class PublicationOverview:
    """Looks at all managed tables of the default branch."""

    def __init__(
        self,
        tables: DeltaTableStore,
        places: Places,
        publisher: Publisher,
        handover: Handover,
        identity: OwnerIdentity,
        log_check: LogCheck,
    ) -> None:
        self._tables, self._places, self._publisher = tables, places, publisher
        self._handover, self._identity, self._log_check = handover, identity, log_check

    def catch_up(self, is_wanted: Callable[[], bool] = lambda: True) -> int:
        """Finish what earlier processes began, and have published what they did not; say of how many tables.

        What stands against one table is logged, and keeps no other from going on. Ends before the next table
        once it is not wanted any more; then nothing is logged, either.
        """
        count = 0
        for key, content in takewhile(lambda _: is_wanted(), self._list_tables()):
            with self._log_problems(key, content, is_wanted):
                line = decode_branch_log(content)
                if not self._is_owned(content, line):
                    continue
                found_content = self._handover.settle_handover(key, content)
                if found_content is not None and line.latest > line.published:
                    self._publisher.table_committed(key, found_content, is_default=True)
                    count += 1
        for key, content in takewhile(lambda _: is_wanted(), self._list_dropped_tables()):
            with self._log_problems(key, content, is_wanted):
                if self._is_unfinished(content):
                    self._publisher.table_committed(key, content, is_default=True)
                    count += 1
        return count

    @contextmanager
    def _log_problems(self, key: Key, content: DeltaTable, is_wanted: Callable[[], bool]) -> Iterator[None]:
        try:
            yield
        except PenstockError as problem:
            if is_wanted():
                logger.warning("'%s' at %s waits: %s", key, content.location, problem.message)

    def _is_unfinished(self, content: DeltaTable) -> bool:
        """Whether a dropped table has versions that are not in its log, and the log is there to go on with.

        What was ratified is not lost with the key. But who has deleted the table's files, has given its log
        to another owner, or has erased the table, does not want them.
        """
        line = decode_branch_log(content)
        if (
            line.phase is not OwnershipPhase.OWNED
            or line.fork_version <= line.published
            or self._tables.is_erased(content)
            or not self._is_owned(content, line)
        ):
            return False
        place = self._places.open_place(content.location)
        if place.size(str(CommitName(line.fork_version))) is not None:
            return False  # whoever wrote it, nothing is left to be written: most are answered so
        try:
            published = self._publisher.inspect_log(content)
        except (ForeignCommit, InvalidLog):
            return False
        if published == line.fork_version:
            return False
        return bool(place.list("")) if published < 0 else place.size(str(CommitName(published))) is not None

    def list_statuses(self, key: Key | None = None) -> tuple[PublicationStatus, ...]:
        """The tables of the default branch, by key, or one of them. Nothing is changed."""
        if key is not None:
            return (self._describe_status(key, self._tables.require_managed(self._tables.find_head(), key)),)
        return tuple(
            self._describe_status(*keys) for keys in sorted(self._list_tables(), key=lambda keys: keys[0])
        )

    def _list_tables(self) -> Iterator[tuple[Key, DeltaTable]]:
        """None, in a lake that has no default branch."""
        with suppress(ReferenceNotFound):
            head = self._tables.find_head()
            if head != NO_COMMIT:
                yield from self._tables.list_tables(head)

    def _list_dropped_tables(self) -> Iterator[tuple[Key, DeltaTable]]:
        """But for those whose place has become another table's: its log is that one's."""
        with suppress(ReferenceNotFound):
            head = self._tables.find_head()
            if head == NO_COMMIT:
                return
            for key, content in self._tables.list_dropped_tables(head):
                if self._tables.find_holder(head, content.location) in (None, content.id):
                    yield key, content

    def _describe_status(self, key: Key, content: DeltaTable) -> PublicationStatus:
        line, identity = decode_line_and_id(content)
        alarm = owner = ""
        try:
            published = line.latest - 1  # what comes of the promise, the log has yet to tell
            if line.phase is not OwnershipPhase.ADOPTING:
                self._publisher.check_owned(content)
                state = self._log_check.compare(identity, content.location, content)
                if not state.is_in_sync:
                    raise log_out_of_sync(key, content.location, state)
                published = self._publisher.inspect_log(content)
        except ManagedElsewhere as problem:
            published = max(line.published, self._publisher.published_version(identity))
            owner = problem.details["lake"]
            alarm = "" if owner else problem.message
        except PenstockError as problem:
            published = max(line.published, self._publisher.published_version(identity))
            alarm = problem.message
        if not alarm and (known_problem := self._publisher.get_problem(identity)) is not None:
            alarm = known_problem.message
        oldest_s = None
        if (
            not owner
            and published < line.latest
            and (entry := line.find_entry(published + 1, self._tables.read_object)) is not None
        ):
            oldest_s = max(0.0, self._tables.kernel.clock() / 1e6 - entry.timestamp_ms / 1e3)
        return PublicationStatus(
            key=key,
            location=content.location,
            phase=line.phase,
            latest_version=line.latest,
            published=published,
            oldest_s=oldest_s,
            alarm=alarm,
            owner=owner,
        )

    def _is_owned(self, content: DeltaTable, line: BranchLog) -> bool:
        """Whether a table names this lake, or has ceased to: in a copy of a lake, it names the other one."""
        owner = read_line_owner(line, self._tables.read_object, content.location)
        return self._identity.is_owner(owner) or line.phase is OwnershipPhase.RELEASED
