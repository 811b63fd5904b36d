"""Taking over the versions that a table's own log has and the lake has not, as after a restore of the lake.

A log that is ahead has all that the lake knows, and more: the lake's line goes on from the log's newest
version, and the table stays what it is. One commit of the lake does it.

A log that differs has other versions than the lake of the same numbers: somebody wrote to the lake before
anybody noticed that it was older. What readers of the log have seen stays, and the table becomes another one
in the lake, so that nobody takes a version of one history for that of the other: whoever has read the old one
is refused, and branches of it stay readable, but are not merged. Files that the lake's own versions only
added are added again, in the same commit. Other changes cannot be repeated without looking at rows: they stay
readable at the commit before, and whoever asks for the resync has to say that they may be left there.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import msgspec

from penstock.errors import CommitConflict, InvalidRequest, NotManaged
from penstock.formats.delta.branch_log.branch_log import OwnershipPhase, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import ResyncIntent, make_change_operation
from penstock.formats.delta.branch_log.ownership import (
    RESYNC,
    OwnerIdentity,
    TableBeforeCommit,
    check_writable,
    encode_adoption_commit,
    find_owner,
)
from penstock.formats.delta.branch_log.prepared_table import read_entries
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.ownership.clones import note_clone
from penstock.formats.delta.ownership.recovery import doubtful_versions
from penstock.formats.delta.ownership.tables import DeltaTableStore, TableRequest, decode_line_and_id
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Txn,
    parse_action,
    write_action,
    write_commit,
)
from penstock.formats.delta.protocol.clones import clone_sources
from penstock.formats.delta.protocol.row_ids import (
    RowIdCounter,
    assigns_row_ids,
    highest_row_id,
    is_high_water_mark,
    number_files,
    without_row_ids,
)
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.formats.sync import SyncState, own_versions_left
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places

TRIES_MAX = 8
"""How often a resync is tried on a table that is committed to meanwhile."""


class DeltaResynced(msgspec.Struct, frozen=True, kw_only=True):
    """What a resync came to, or would come to."""

    key: Key
    location: str
    known: int
    """The newest version that the lake had; -1 for a table that it did not have."""
    version: int
    """The newest version afterwards."""
    own: tuple[int, ...] = ()
    """Versions that only the lake had."""
    repeated: bool = False
    """Whether their files were added again; if not, they are to be read at ``before``."""
    before: ObjectId | None = None
    """The newest commit of the lake that has its own versions."""
    doubtful: tuple[str, ...] = ()
    """Files of commits after the log's newest version, of which nobody knows whether they were ratified."""

    @property
    def is_in_sync(self) -> bool:
        """Whether there was nothing to do."""
        return self.known == self.version and not self.own


class DeltaResync:
    """Takes over versions of the logs of a lake's tables."""

    def __init__(
        self,
        tables: DeltaTableStore,
        places: Places,
        publisher: Publisher,
        commits: CommitReader,
        identity: OwnerIdentity,
        log_check: LogCheck,
    ) -> None:
        self._tables, self._places, self._publisher = tables, places, publisher
        self._commits, self._identity, self._log_check = commits, identity, log_check

    def resync_table(
        self, key: Key, request: TableRequest, *, leave_own: bool, dry_run: bool
    ) -> DeltaResynced:
        """Take over what the log of a table of the default branch has. Nothing is done to one in sync.

        ``OutOfSync`` if the lake has versions of its own that cannot be repeated, unless they may be left.
        """
        for _ in range(TRIES_MAX):
            head = self._tables.find_head()
            content = self._tables.require_managed(head, key)
            line, identity = decode_line_and_id(content)
            self._publisher.check_owned(content)
            if line.phase is not OwnershipPhase.OWNED:
                raise InvalidRequest(
                    f"'{key}' is {line.phase}; 'penstock delta status' finishes that", key=str(key)
                )
            state = self._log_check.compare(identity, content.location, content)
            if state.is_in_sync:
                return DeltaResynced(
                    key=key, location=content.location, known=line.latest, version=line.latest
                )
            plan = self._plan_resync(key, content, head, state, leave_own=leave_own)
            if dry_run:
                return plan.answer
            try:
                self._commit_intent(key, plan.intent, request)
            except CommitConflict:
                if self._tables.find_content(self._tables.find_head(), key) == content:
                    raise
                continue
            if plan.intent.replaced is not None:
                self._publisher.forget_table(identity)
            return plan.answer
        raise InvalidRequest(f"'{key}' was changed by other writers too often; try again", key=str(key))

    def resync_unknown(
        self, key: Key, location: str, request: TableRequest, *, dry_run: bool
    ) -> DeltaResynced | None:
        """Take over a table whose log names this lake, which never had it; ``None`` for any other."""
        snapshot = load_snapshot(PlaceFiles(self._places.open_place(location)))
        owner = find_owner(snapshot.protocol, snapshot.metadata, location)
        if owner is None or not self._identity.is_owner(owner) or owner.table is None:
            return None
        if self._tables.is_known(owner.table):
            return None
        intent = self._make_intent(owner.table, location, -1, snapshot)
        if not dry_run:
            self._commit_intent(key, intent, request)
        return self._make_answer(key, intent)

    def resync_dropped(
        self, key: Key, before: DeltaTable, request: TableRequest, *, leave_own: bool, dry_run: bool
    ) -> DeltaResynced | None:
        """Bring a table back that the lake dropped, and that went on since: it came back when the lake was
        newer than it is. ``None`` if its log has no more than it had when it was dropped.

        ``key`` is where it is to be; nothing may be there. Raises as ``resync_table``.
        """
        head, (line, identity) = self._tables.find_head(), decode_line_and_id(before)
        if line.phase is not OwnershipPhase.OWNED:
            return None
        self._publisher.check_owned(before)
        state = self._log_check.compare(identity, before.location, before)
        if state.is_in_sync:
            return None
        plan = self._plan_resync(key, before, head, state, leave_own=leave_own)
        if not dry_run:
            intent = msgspec.structs.replace(plan.intent, known=-1)
            self._commit_intent(key, intent, request)
            if intent.replaced is not None:
                self._publisher.forget_table(identity)
        return plan.answer

    def _commit_intent(self, key: Key, intent: ResyncIntent, request: TableRequest) -> None:
        metadata = parse_action(intent.metadata)
        assert isinstance(metadata, Metadata)  # as it was written there
        note_clone(self._tables.kernel, clone_sources(metadata.configuration))
        self._tables.commit_operations([make_change_operation(key, intent)], request)

    def _plan_resync(
        self, key: Key, content: DeltaTable, head: ObjectId, state: SyncState, *, leave_own: bool
    ) -> _ResyncPlan:
        line, identity = decode_line_and_id(content)
        snapshot = load_snapshot(PlaceFiles(self._places.open_place(content.location)))
        owner = find_owner(snapshot.protocol, snapshot.metadata, content.location)
        if owner is None or not self._identity.is_owner(owner):
            raise NotManaged(
                f"'{key}' cannot be resynced: the log at {content.location} now names "
                f"{owner or 'no owner'}, not this lake\n  Read its versions through its owner; in this "
                "lake, the table stays at its last version.",
                key=str(key),
            )
        if owner.table != identity:
            raise NotManaged(
                f"'{key}' cannot be resynced: the log at {content.location} belongs to another table of "
                f"this lake now, {owner.table}",
                key=str(key),
            )
        check_writable(snapshot.protocol, snapshot.metadata, content.location)
        intent = self._make_intent(identity, content.location, line.latest, snapshot)
        if state.other < 0:
            return _ResyncPlan(intent, self._make_answer(key, intent))
        own = tuple(range(state.other, line.latest + 1))
        lines = self._encode_repeatable(key, content, state.other, snapshot)
        if lines is None and not leave_own:
            raise own_versions_left(key, content.location, own[0], own[-1], head.hex())
        uuid, becomes = uuid4(), uuid4()
        before = TableBeforeCommit(
            version=snapshot.version,
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
            timestamp_ms=intent.timestamp_ms,
        )
        now_ms = self._tables.kernel.clock() // 1000
        converted = encode_adoption_commit(before, self._identity, becomes, uuid, now_ms, RESYNC)
        intent = msgspec.structs.replace(
            intent, id=becomes, replaced=identity, actions=converted + (lines or b"")
        )
        answer = msgspec.structs.replace(
            self._make_answer(key, intent),
            version=snapshot.version + 1,
            own=own,
            repeated=lines is not None,
            before=head,
            doubtful=(),
        )
        return _ResyncPlan(intent, answer)

    def _encode_repeatable(
        self, key: Key, content: DeltaTable, first_version: int, snapshot: LogSnapshot
    ) -> bytes | None:
        """The lines that repeat a line's versions from one on; ``None`` if they do more than add rows."""
        line = decode_branch_log(content)
        _, metadata = self._tables.parse_declared(line)
        same = (metadata.schema_string, metadata.partition_columns)
        if same != (snapshot.metadata.schema_string, snapshot.metadata.partition_columns):
            return None
        repeated: list[Action] = []
        added: set[str] = set()
        paths = {file_key.path for file_key in snapshot.file_keys()}
        seen = self._tables.as_format_table(key, content)
        for version, entry in read_entries(line, first_version - 1, line.latest, self._tables.read_object):
            for action in self._commits.read_actions(seen, content.location, version, entry):
                match action:
                    case CommitInfo():
                        continue
                    case DomainMetadata() if is_high_water_mark(action):
                        continue
                    case Txn(app_id=application) if application not in snapshot.transactions:
                        repeated.append(action)
                    case Add(deletion_vector=None, data_change=True):
                        if action.key.path in paths:
                            return None
                        if action.key.path not in added:  # one commit adds a file once
                            repeated.append(without_row_ids(action))
                        added.add(action.key.path)
                    case _:
                        return None
        if not assigns_row_ids(snapshot.protocol, snapshot.metadata):
            return write_commit(repeated)
        counter = RowIdCounter(snapshot.version + 1, highest_row_id(snapshot.domains))
        numbered = number_files(repeated, counter)
        return write_commit([*numbered, *counter.marks])

    def _make_intent(self, identity: UUID, location: str, known: int, snapshot: LogSnapshot) -> ResyncIntent:
        return ResyncIntent(
            id=identity,
            location=location,
            known=known,
            version=snapshot.version,
            timestamp_ms=snapshot.in_commit_timestamp or 0,
            protocol=write_action(snapshot.protocol),
            metadata=write_action(snapshot.metadata),
        )

    def _make_answer(self, key: Key, intent: ResyncIntent) -> DeltaResynced:
        return DeltaResynced(
            key=key,
            location=intent.location,
            known=intent.known,
            version=intent.version,
            doubtful=tuple(self._list_doubts(intent)),
        )

    def _list_doubts(self, intent: ResyncIntent) -> Iterator[str]:
        for doubtful_version in doubtful_versions(self._places.open_place(intent.location), intent.version):
            yield from doubtful_version.names


class _ResyncPlan(msgspec.Struct, frozen=True):
    intent: ResyncIntent
    answer: DeltaResynced
