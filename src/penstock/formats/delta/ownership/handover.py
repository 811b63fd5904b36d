"""A table's way into the lake, and out of it.

Whose a table is, its own log decides, by one file that is created if there is none: so the lake first
promises to own it, in a commit of its own, then the file is created, then the lake notes what came of it. A
process may die anywhere in between. Whoever meets the promise looks into the log. If the promised file is
there, the table is the lake's; if somebody else's is, the promise is forgotten; if none is, it is created
now. Nobody takes a promise back, since somebody else may be creating the file at that moment. The way out is
alike: once the last version is ratified, all that is left is to publish it, and anybody may.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    TableConflict,
    TableNotFound,
    Unavailable,
)
from penstock.formats.delta.branch_log.branch_log import FOLDER, BranchLog, OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import (
    AdoptIntent,
    CreateIntent,
    ReleaseIntent,
    make_change_operation,
)
from penstock.formats.delta.branch_log.ownership import (
    NewTable,
    OwnerIdentity,
    TableBeforeCommit,
    check_adoptable,
    encode_adoption_commit,
    encode_release_commit,
    find_owner,
    is_timed,
)
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.ownership.clones import require_releasable
from penstock.formats.delta.ownership.first_version import FirstVersionBuilder
from penstock.formats.delta.ownership.handover_settler import HandoverSettler
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest, decode_line_and_id
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.delta.rows.file_addresses import check_inside, name_inside
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.known_tables import NewTableId
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.locations import make_own_place
from penstock.storage.places import Place, Places

RELEASES_MAX: Final = 20
"""How often a release is tried on a table that keeps getting new versions."""


class HandoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """A table that came into the lake, or left it."""

    key: Key
    id: UUID
    location: str
    version: int
    """The version that it was done with."""
    commit: ObjectId
    """The lake's commit that did it, or promised it."""


class Handover(HandoverSettler):
    """Creates, adopts and releases tables, and finishes what others began of it."""

    def __init__(
        self,
        tables: DeltaTableStore,
        places: Places,
        publisher: Publisher,
        commits: CommitReader,
        identity: OwnerIdentity,
    ) -> None:
        super().__init__(tables, places, publisher, commits, identity)
        self._first = FirstVersionBuilder(places, identity)

    # -- in --------------------------------------------------------------------------------------------

    def create_table(
        self, branch: str, key: Key, new: NewTable, warehouse: str, request: TableRequest
    ) -> HandoverResult:
        """Create a table on any branch, at a place made from its id: nobody else can be there.

        ``InvalidRequest`` for a given id that is known already.
        """
        if (made_table := self.find_created(branch, key, request)) is not None:
            return made_table
        with self._choose_new_id(new, branch, request) as made:
            uuid, location = uuid4(), make_own_place(warehouse, made.id)
            actions = self._first.encode_commit(key, new, made.id, location, uuid, self._now_ms())
            is_given = new.id is not None
            intent = CreateIntent(
                id=made.id, location=location, actions=actions, uuid=uuid, is_given=is_given
            )
            made.is_sent = True
            outcome = self._tables.commit_operations([make_change_operation(key, intent)], request, branch)
        return self._make_result(key, outcome)

    def find_created(self, branch: str, key: Key, request: TableRequest) -> HandoverResult | None:
        """The table that the same request has created before; ``None`` if it did not."""
        outcome = self._tables.find_outcome(request, branch)
        return None if outcome is None else self._make_result(key, outcome)

    @contextmanager
    def _choose_new_id(self, new: NewTable, branch: str, request: TableRequest) -> Iterator[NewTableId]:
        """The id of a new table. One that is given is reserved until the request is decided."""
        if new.id is None:
            yield NewTableId(uuid4())
            return
        with self._tables.known_tables.reserve_id(new.id, branch, request.key) as reserved:
            yield reserved

    def create_at(
        self, key: Key, new: NewTable, location: str, request: TableRequest, sole_writer: bool
    ) -> HandoverResult:
        """Create a table at a named place: of all who do, in whatever way, one wins.

        ``TableConflict`` if there is a table already, or somebody else was faster; ``LocationRefused`` if the
        lake had another table there.
        """
        if (outcome := self._tables.find_outcome(request)) is not None:
            return self._finish_handover(key, outcome, request)
        try:
            return self._create_at(key, new, self.open_place(location, sole_writer), request)
        except TableConflict:
            # It may have been sent twice, and the other one have landed since: that is its own table.
            if (outcome := self._tables.find_outcome(request)) is None:
                raise
            return self._finish_handover(key, outcome, request)

    def _create_at(self, key: Key, new: NewTable, place: Place, request: TableRequest) -> HandoverResult:
        self._finish_earlier(key)
        with suppress(TableNotFound):
            snapshot = load_snapshot(PlaceFiles(place))
            if (mine := self._find_own_table(key, place.location, snapshot)) is not None:
                raise _version_taken_error(
                    key, place.location, 0, f"'{mine.key}' of this lake is already there"
                )
            raise _version_taken_error(
                key, place.location, 0, "there is a Delta table already; adopt it: penstock delta adopt"
            )
        self._tables.known_tables.require_vacant(place.location)
        with self._choose_new_id(new, self._tables.default_branch, request) as made:
            uuid = uuid4()
            actions = self._first.encode_commit(key, new, made.id, place.location, uuid, self._now_ms())
            intent = AdoptIntent(id=made.id, location=place.location, version=0, actions=actions, uuid=uuid)
            self.check_writable(place)
            made.is_sent = True
            return self._commit_promise(key, intent, request)

    def adopt_table(
        self, key: Key, location: str, request: TableRequest, sole_writer: bool
    ) -> HandoverResult:
        """Take a table over from the file system.

        ``ManagedElsewhere`` for a table of another owner, ``UnsupportedFeature`` for one that cannot be
        written, ``TableConflict`` if somebody committed to it meanwhile: then all is as it was, and it is for
        the caller to try again.
        """
        if (outcome := self._tables.find_outcome(request)) is not None:
            return self._finish_handover(key, outcome, request)
        place = self.open_place(location, sole_writer)
        self._finish_earlier(key)
        snapshot = load_snapshot(PlaceFiles(place))
        if (mine := self._find_own_table(key, place.location, snapshot)) is not None:
            return mine
        check_snapshot(place, snapshot)
        return self._convert_table(key, place, snapshot, request)

    def take_over_table(
        self, key: Key, place: Place, snapshot: LogSnapshot, request: TableRequest
    ) -> HandoverResult:
        """Take a table whose owner is lost. Whether it is, the caller has found out."""
        return self._convert_table(key, place, snapshot, request)

    def _convert_table(
        self, key: Key, place: Place, snapshot: LogSnapshot, request: TableRequest
    ) -> HandoverResult:
        intent = self.adopt_intent(place, snapshot)
        self.check_writable(place)
        return self._commit_promise(key, intent, request)

    def adopt_intent(self, place: Place, snapshot: LogSnapshot) -> AdoptIntent:
        """What the lake is asked to promise of a table."""
        before = TableBeforeCommit(
            version=snapshot.version,
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
            timestamp_ms=_time_ms(place, snapshot),
        )
        identity, uuid, version = uuid4(), uuid4(), snapshot.version + 1
        actions = encode_adoption_commit(before, self._identity, identity, uuid, self._now_ms())
        return AdoptIntent(id=identity, location=place.location, version=version, actions=actions, uuid=uuid)

    def _finish_earlier(self, key: Key) -> None:
        """Finish what somebody else began at a key, before anything else is begun there."""
        content = self._tables.find_content(self._tables.find_head(), key)
        if isinstance(content, DeltaTable) and content.state:
            self.settle_handover(key, content)

    def _find_own_table(self, key: Key, location: str, snapshot: LogSnapshot) -> HandoverResult | None:
        """The table, if it is this lake's already under that key; ``None`` if it is not this lake's."""
        own = self.find_own(location, snapshot)
        if own is None:
            return None
        head = self._tables.find_head()
        content = self.settle_handover(own, self._tables.require_managed(head, own))
        if content is None or own != key:
            raise InvalidRequest(f"{location} is already in the lake, as '{own}'", key=str(own))
        line, identity = decode_line_and_id(content)
        return HandoverResult(key=key, id=identity, location=location, version=line.latest, commit=head)

    def find_own(self, location: str, snapshot: LogSnapshot) -> Key | None:
        """The key of a table that names this lake as its owner; ``None`` if it does not.

        ``InvalidRequest`` for one that the lake has dropped.
        """
        owner = find_owner(snapshot.protocol, snapshot.metadata, location)
        if owner is None or not self._identity.is_owner(owner):
            return None
        key = self._tables.find_key(self._tables.find_head(), owner.table)
        if key is None:
            raise InvalidRequest(
                f"{location} belongs to this lake, but was dropped from it\n  Revert the commit that "
                "dropped it, which restores the table completely. Only if that commit is gone: penstock "
                f"delta recover {location} --lost {self._identity.lake_id}. It recovers only the versions "
                "that were published.",
                location=location,
            )
        return key

    def _commit_promise(self, key: Key, intent: AdoptIntent, request: TableRequest) -> HandoverResult:
        """Have a promise committed, for a place that can be written, and kept."""
        return self._finish_handover(
            key, self._tables.commit_operations([make_change_operation(key, intent)], request), request
        )

    def _finish_handover(self, key: Key, outcome: RequestOutcome, request: TableRequest) -> HandoverResult:
        """Bring a promise to its end, which may lie behind it. ``TableConflict`` if it came to nothing."""
        made = self._make_result(key, outcome)
        now = self._tables.find_current_table(key, made.id)
        if now is not None:
            now = self.settle_handover(key, now, request.meta)
        if now is not None or self.was_owned(made.id, self._tables.find_head()):
            return made
        raise _version_taken_error(key, made.location, made.version, "another writer's commit came first")

    def was_owned(self, identity: UUID, head: ObjectId) -> bool:
        """Whether a table became the lake's, whatever happened to it since."""
        last = self._tables.find_last_state(head, identity)
        return last is not None and decode_branch_log(last).phase is not OwnershipPhase.ADOPTING

    def _make_result(self, key: Key, outcome: RequestOutcome) -> HandoverResult:
        commit = outcome.commits[-1] if outcome.commits else outcome.head
        content = self._tables.require_managed(commit, key)
        line, identity = decode_line_and_id(content)
        return HandoverResult(
            key=key, id=identity, location=content.location, version=line.latest, commit=commit
        )

    # -- out -------------------------------------------------------------------------------------------

    def release_table(self, key: Key, request: TableRequest) -> HandoverResult:
        """Hand a table back to the file system: when this returns, all of it is published, its key is gone.

        If it is interrupted after its commit, the table takes no more versions, and whoever meets it next
        finishes the release.
        """
        outcome = self._tables.find_outcome(request) or self._release_table(key, request)
        made = self._make_result(key, outcome)
        now = self._tables.find_current_table(key, made.id)
        if now is not None:
            self.settle_handover(key, now, request.meta)
        return made

    def _release_table(self, key: Key, request: TableRequest) -> RequestOutcome:
        for attempt in range(1, RELEASES_MAX + 1):
            head = self._tables.find_head()
            content = self._tables.require_managed(head, key)
            line, _ = decode_line_and_id(content)
            if line.phase is OwnershipPhase.RELEASED:
                return RequestOutcome((), head)
            if line.phase is OwnershipPhase.ADOPTING:
                self.settle_handover(key, content)
                continue
            require_releasable(self._tables, key, content)
            try:
                return self._tables.commit_operations(
                    [make_change_operation(key, self.release_intent(line))], request
                )
            except CommitConflict:
                now = self._tables.find_content(self._tables.find_head(), key)
                if now == content or attempt == RELEASES_MAX:
                    raise
        raise InvalidRequest(f"'{key}' is being adopted at this moment; try again", key=str(key))

    def release_intent(self, line: BranchLog) -> ReleaseIntent:
        """What the lake is asked for to hand back a table."""
        protocol, metadata = self._tables.parse_declared(line)
        before = TableBeforeCommit(
            version=line.latest, protocol=protocol, metadata=metadata, timestamp_ms=line.timestamp_ms
        )
        uuid = uuid4()
        return ReleaseIntent(
            version=line.latest + 1, actions=encode_release_commit(before, uuid, self._now_ms()), uuid=uuid
        )

    # -- places ----------------------------------------------------------------------------------------

    def open_place(self, location: str, sole_writer: bool) -> Place:
        place = self._places.open_place(location)
        if not sole_writer and not place.keeps_conditions:
            raise InvalidRequest(
                f"{place.url} is in storage without put-if-absent, so that one of two concurrent commits to "
                "the table would be lost\n  If only this lake writes there, use --sole-writer. Or give the "
                "table no location: then the lake chooses one.",
                location=place.url,
            )
        return place

    def check_writable(self, place: Place) -> None:
        """Raise unless a file can be put at a place: a promise that cannot be kept would stand for ever.

        It may still become so afterwards; then whoever meets the promise keeps it once storage lets them.
        """
        name = f"{FOLDER}{uuid4()}.{uuid4()}.probe"  # as long as any that the table's log needs
        try:
            place.create(name, b"")
        except OutcomeUnknown as problem:
            raise Unavailable(
                f"{place.url} cannot be written at the moment: {problem.message}", part="storage"
            ) from None
        with suppress(PenstockError):  # an empty file beside the log harms nobody
            place.delete([name])

    def _now_ms(self) -> int:
        return self._tables.kernel.clock() // 1000


def check_snapshot(place: Place, snapshot: LogSnapshot) -> None:
    """Raise as ``check_adoptable``; ``UnsupportedFeature`` also for a shallow clone: its rows could not be
    read afterwards."""
    check_adoptable(snapshot.protocol, snapshot.metadata, place.location)
    for key in snapshot.file_keys():
        check_inside(key.path, place)
        if key.vector is not None and key.vector.startswith("p"):
            name_inside(key.vector.removeprefix("p"), place)


def _time_ms(place: Place, snapshot: LogSnapshot) -> int:
    """When a version was made, as far as its table tells."""
    if is_timed(snapshot.protocol, snapshot.metadata) and snapshot.in_commit_timestamp is not None:
        return snapshot.in_commit_timestamp
    names = (snapshot.segment.newest, *reversed(snapshot.segment.names))
    checkpoint = snapshot.segment.checkpoint
    for name in (*names, *(checkpoint.names if checkpoint else ())):
        if (entry := place.look(name)) is not None:
            return entry.modified_us // 1000
    return 0


def _version_taken_error(key: Key, location: str, version: int, why: str) -> TableConflict:
    conflict = Conflict(ConflictKind.FORMAT, key, why=f"was not adopted: at {location} {why}")
    return TableConflict(
        [conflict],
        f"{location} has a version {version} that is not this lake's: {why}\n  The table was not changed, "
        "and the lake does not manage it. To adopt the table in its present state, try again.",
        winners={str(key): {"latest_version": version}},
    )
