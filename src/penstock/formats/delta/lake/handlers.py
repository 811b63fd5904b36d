"""Answering calls about Delta tables from a kernel in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import msgspec

from penstock.errors import (
    CommitConflict,
    ConflictError,
    HistoryExpired,
    InvalidKey,
    InvalidLog,
    InvalidRequest,
    KeyNotFound,
    LocationRefused,
    NotManaged,
    ReferenceNotFound,
    TableConflict,
    TableStateRefused,
    VersionNotFound,
)
from penstock.formats.delta.branch_log import intents
from penstock.formats.delta.branch_log.branch_log import (
    BranchLogTip,
    decode_branch_log,
    read_table_definition,
)
from penstock.formats.delta.branch_log.ownership import NewTable
from penstock.formats.delta.lake import calls as delta_calls
from penstock.formats.delta.lake.answers import (
    BulkOwnershipResult,
    OwnershipResult,
    PublishedTable,
    RecoveredTable,
    ReservedColumnIds,
    ReservedIdentities,
    TableHandedOver,
    TablePlace,
    TableStatus,
    TableVersion,
    TableVersions,
)
from penstock.formats.delta.lake.clones import plan_clone, require_cloneable, require_readable
from penstock.formats.delta.lake.log_maintenance import LogMaintenance
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.segments import find_segment
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.ownership import owner
from penstock.formats.delta.ownership.bulk_handover import LocatedTable, TableHandover
from penstock.formats.delta.ownership.clones import note_clone
from penstock.formats.delta.ownership.discovery import find_tables, name_table
from penstock.formats.delta.ownership.handover import HandoverResult
from penstock.formats.delta.ownership.status import PublicationStatus
from penstock.formats.delta.ownership.tables import TableRequest
from penstock.formats.delta.protocol.actions import Metadata, parse_action
from penstock.formats.delta.protocol.column_mapping import MAX_ID, get_max_column_id
from penstock.formats.delta.protocol.column_rules import list_identity_columns
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.number_ranges import RangeRequest, find_ranges, reserve_numbers
from penstock.kernel.reachable import Progress
from penstock.kernel.table_horizons import find_horizon
from penstock.lake.answers import CommittedTable, TableCommitResult
from penstock.lake.call import Call, CommitDescription, commit_meta, request_digest, take_first
from penstock.lake.table_places import check_apart, check_new_place
from penstock.lake.table_writer import EXISTS
from penstock.model.commits import Commit
from penstock.model.encoding import ObjectId, hash_parts
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change, Delete
from penstock.model.references import Kind
from penstock.storage.locations import normalise_location

if TYPE_CHECKING:
    from penstock.formats.delta.lake.services import DeltaServices
    from penstock.lake.embedded import Embedded


VERSION_MAX: Final = 2**63 - 1
COLUMN_IDS_MAX: Final = 100_000
"""How many ids of columns are reserved at once, at most: a table can give 2**31 in its life."""
"""What Delta's numbers can hold."""


class DeltaHandlers:
    """Answers every call of ``delta_calls``."""

    def __init__(self, lake: Embedded, parts: DeltaServices) -> None:
        self._lake, self._kernel, self._parts = lake, lake.kernel, parts
        self._owner, self._tables = parts.owner, parts.owner.tables
        upkeep = LogMaintenance(lake.kernel, parts)
        self.ways: dict[type[Call[Any]], Callable[[Any], Any]] = {
            delta_calls.CommitTables: self._commit_tables,
            delta_calls.GetTableVersions: self._get_versions,
            delta_calls.PublishTable: self._publish_table,
            delta_calls.ReserveIdentities: self._reserve_identities,
            delta_calls.ReserveColumnIds: self._reserve_column_ids,
            delta_calls.CreateTable: self._create_table,
            delta_calls.CloneTable: self._clone_table,
            delta_calls.AdoptTable: self._adopt_table,
            delta_calls.ReleaseTable: self._release_table,
            delta_calls.RecoverTable: self._recover_table,
            delta_calls.GetTableStatus: self._get_status,
            delta_calls.FindTable: self._find_table,
            delta_calls.CheckpointTable: upkeep.write_checkpoint,
            delta_calls.CompactLog: upkeep.compact_log,
            delta_calls.CleanLog: upkeep.clean_log,
        }

    # -- versions ------------------------------------------------------------------------------------------

    def _commit_tables(self, call: delta_calls.CommitTables) -> TableCommitResult:
        if not call.tables:
            raise InvalidRequest("a commit of tables needs at least one table")
        branch = self._lake.get_branch_or_default(call.branch)
        changes = [_make_change(call, table) for table in call.tables]
        keys = ", ".join(str(table.key) for table in call.tables)
        owner_ratified = self._owner.commit_versions(
            branch,
            changes,
            commit_meta(call.said, call.who, f"write {keys}"),
            key=call.idempotency_key,
            fingerprint=partial(request_digest, call),
        )
        if branch == self._tables.default_branch and self._kernel.settings.publish_wait_s > 0:
            self._wait_for_publication(
                owner_ratified.commit,
                [(table.key, table.version, table.repeated) for table in owner_ratified.tables],
            )
        return TableCommitResult(
            commit=Commit.from_stored(
                owner_ratified.commit, self._kernel.history.read_commit(owner_ratified.commit)
            ),
            tables=tuple(_describe_ratified_table(table) for table in owner_ratified.tables),
        )

    def _wait_for_publication(self, commit: ObjectId, versions: Sequence[tuple[Key, int, bool]]) -> None:
        """Give the publisher a moment, so that whoever reads the log next sees what was committed."""
        until_s = monotonic() + self._kernel.settings.publish_wait_s
        for key, version, is_repeated in versions:
            content = self._tables.find_content(commit, key)
            left_s = until_s - monotonic()
            if left_s > 0 and isinstance(content, DeltaTable) and content.id is not None:
                if is_repeated:  # perhaps by another process, so that the publisher here knows nothing of it
                    self._parts.publisher.table_committed(key, content, is_default=True)
                self._parts.publisher.wait_for_version(content.id, version, left_s)

    def _get_versions(self, call: delta_calls.GetTableVersions) -> TableVersions:
        content = self._read_table(call.at, call.key)
        if call.end is not None or call.at not in (None, self._tables.default_branch):
            content = self._drop_erased(content, call.end)
        line = decode_branch_log(content)
        first = max(line.published + 1, call.start or 0)
        end = call.end
        if call.limit is not None:
            if call.limit < 0:
                raise InvalidRequest(f"limit must be 0 or greater, got {call.limit}")
            end = first + call.limit - 1 if end is None else min(end, first + call.limit - 1)
        start = call.start if call.limit != 0 else None
        commits = self._owner.list_commits(call.key, content, start, end)
        declared = read_table_definition(line, self._tables.read_object)
        last = commits.latest_version if call.end is None else max(-1, min(call.end, commits.latest_version))
        assert content.id is not None
        return TableVersions(
            key=call.key,
            id=content.id,
            location=content.location,
            latest_version=commits.latest_version,
            published=commits.published,
            commits=tuple(
                TableVersion(
                    version=commit.version,
                    name=commit.name,
                    size=commit.size,
                    timestamp_ms=commit.timestamp_ms,
                    lines=None if commit.data is None else commit.data.decode(),
                )
                for commit in commits.commits
            ),
            protocol=declared.protocol.decode(),
            metadata=declared.metadata.decode(),
            tip=BranchLogTip.from_line_version(line, last, self._tables.read_object).text,
            fork=line.fork_version,
            goes_on=call.tip is None or BranchLogTip.parse(call.tip).is_on(line, self._tables.read_object),
        )

    def _read_table(self, at: str | None, key: Key) -> DeltaTable:
        return self._tables.require_managed(self._lake.resolve_commit(at), key)

    def _drop_erased(self, content: DeltaTable, version: int | None) -> DeltaTable:
        """What is retained of a table's state. ``HistoryExpired`` if that, or a version of it, is from before
        an erase."""
        assert content.id is not None
        horizon = find_horizon(self._kernel.store, content.id)
        if horizon is None or horizon.first < 0:
            return content
        is_early = version is not None and version < horizon.first
        if is_early or self._parts.format.lacks_version(content, horizon.first):
            raise horizon.expired_error()
        retained = self._parts.format.cut_content(content, horizon.first)
        assert isinstance(retained, DeltaTable)
        return retained

    def _publish_table(self, call: delta_calls.PublishTable) -> PublishedTable:
        branch = self._lake.get_branch_or_default(call.branch)
        published = self._owner.publish_table(branch, call.key, call.version)
        line = decode_branch_log(self._read_table(branch, call.key))
        return PublishedTable(key=call.key, latest_version=line.latest, published=published)

    def _reserve_identities(self, call: delta_calls.ReserveIdentities) -> ReservedIdentities:
        if call.count < 0:
            raise InvalidRequest(f"count must be 0 or greater, got {call.count}")
        content = self._read_table(self._lake.get_branch_or_default(call.branch), call.key)
        assert content.id is not None  # of a managed table
        columns = list_identity_columns(self._read_metadata(content))
        column = next((each for each in columns if each.name.lower() == call.column.lower()), None)
        if column is None:
            raise InvalidRequest(f"'{call.key}' has no identity column '{call.column}'", column=call.column)
        marks, ranges = [column.mark, call.reached], find_ranges(self._kernel.store, content.id)
        if ranges is None or column.stored not in ranges.last:
            for metadata in self._metadata_on_all_references(content.id):
                columns = list_identity_columns(metadata)
                marks += [each.mark for each in columns if each.stored == column.stored]
        request = RangeRequest(column.start, column.step, column.choose_furthest_mark(*marks), call.count)
        last = reserve_numbers(
            self._kernel.store, self._kernel.settings, content.id, {column.stored: request}
        )
        return ReservedIdentities(key=call.key, column=column.name, last=last[column.stored])

    def _reserve_column_ids(self, call: delta_calls.ReserveColumnIds) -> ReservedColumnIds:
        if not 0 <= call.count <= COLUMN_IDS_MAX:
            raise InvalidRequest(f"count must be from 0 to {COLUMN_IDS_MAX}, got {call.count}")
        content = self._read_table(self._lake.get_branch_or_default(call.branch), call.key)
        assert content.id is not None  # of a managed table
        metadata = self._read_metadata(content)
        reached, ranges = get_max_column_id(metadata), find_ranges(self._kernel.store, content.id)
        if ranges is None or MAX_ID not in ranges.last:
            reached = max(reached, *map(get_max_column_id, self._metadata_on_all_references(content.id)))
        request = RangeRequest(1, 1, reached, call.count)
        last = reserve_numbers(self._kernel.store, self._kernel.settings, content.id, {MAX_ID: request})
        return ReservedColumnIds(key=call.key, last=last[MAX_ID])

    def _metadata_on_all_references(self, identity: UUID) -> Iterator[Metadata]:
        """What a table is on every branch, by every tag and in every open transaction."""
        references = self._kernel.references
        open_transactions = (reference.head for reference in references.list_all_references(Kind.TRANSACTION))
        for head in chain((head for _, head in references.list_heads()), open_transactions):
            key = self._tables.find_key(head, identity)
            content = None if key is None else self._tables.find_content(head, key)
            if isinstance(content, DeltaTable) and content.state:
                yield self._read_metadata(content)

    def _read_metadata(self, content: DeltaTable) -> Metadata:
        metadata = parse_action(
            read_table_definition(decode_branch_log(content), self._tables.read_object).metadata
        )
        assert isinstance(metadata, Metadata)  # as the owner noted it
        return metadata

    # -- tables --------------------------------------------------------------------------------------------

    def _create_table(self, call: delta_calls.CreateTable) -> OwnershipResult:
        if call.location is not None:
            where = self._lake.check_and_normalise_location(call.location)
            check_new_place(where, self._lake.warehouse, self._lake.read_roots())
            self._check_apart(where, call.key)
        new = NewTable(
            schema_string=call.schema,
            partition_columns=call.partition_by,
            properties=call.properties,
            name=str(call.key),
            description=call.description or None,
            id=call.id,
            actions=None if call.actions is None else _encode_actions(call.key, call.actions),
        )
        branch = self._lake.get_branch_or_default(call.branch)
        with self._name_existing_table(branch, call.key):
            made_table = self._owner.create_table(
                branch,
                call.key,
                new,
                warehouse=self._lake.warehouse,
                location=call.location,
                sole_writer=call.sole_writer,
                request=self._table_request(call, f"create {call.key}"),
            )
        if call.actions is not None and branch == self._tables.default_branch:
            self._wait_for_publication(made_table.commit, [(made_table.key, made_table.version, False)])
        return _describe_handover(made_table)

    @contextmanager
    def _name_existing_table(self, branch: str, key: Key) -> Iterator[None]:
        """The error of a creation says so if the table exists."""
        try:
            yield
        except CommitConflict as conflict:
            content = self._tables.find_content(self._tables.find_head(branch), key)
            is_delta = isinstance(content, DeltaTable) and content.state
            if isinstance(conflict, TableConflict) or not is_delta:
                raise
            raise CommitConflict(conflict.conflicts, EXISTS.format(key=key)) from None

    def _clone_table(self, call: delta_calls.CloneTable) -> OwnershipResult:
        branch = self._lake.get_branch_or_default(call.branch)
        request = self._table_request(call, f"clone {call.source} as {call.key}")
        if (made_table := self._owner.handover.find_created(branch, call.key, request)) is not None:
            if self._kernel.find_outcome(branch, _drop_key(made_table), None, about_itself=False) is not None:
                raise _dropped_again_error(call.key, "its source was released, erased or swept")
            require_readable(self._parts, made_table, self._tables.find_head(branch))
            return _describe_handover(made_table)
        content = self._tables.require_managed(self._lake.resolve_kept_commit(call.at, branch), call.source)
        require_cloneable(self._parts, call.source, content)
        new = plan_clone(self._parts, call, self._drop_erased(content, call.version))
        note_clone(self._kernel, new.sources)
        with self._name_existing_table(branch, call.key):
            made_table = self._owner.create_table(
                branch, call.key, new, warehouse=self._lake.warehouse, request=request
            )
        self._require_source(call, content, made_table)
        if branch == self._tables.default_branch:
            self._wait_for_publication(made_table.commit, [(made_table.key, made_table.version, False)])
        return _describe_handover(made_table)

    def _require_source(
        self, call: delta_calls.CloneTable, content: DeltaTable, made_table: HandoverResult
    ) -> None:
        """Drop the clone if the source was released or erased while it was made, or the log has lost the
        version since: ``TableStateRefused``, which no earlier answer takes the place of.

        An erase says that it is under way before it looks who holds rows. So either it has found the clone,
        or it is found here. Likewise a sweep that has not seen the clone has read the log before: it leaves
        the files of a version that the log still has.
        """
        assert content.id is not None
        horizon = find_horizon(self._kernel.store, content.id)
        last = self._tables.find_last(content.id) or content
        try:
            require_cloneable(self._parts, call.source, last)
            if horizon is not None and horizon.is_under_way:
                raise horizon.expired_error()
            self._drop_erased(content, call.version)
            if call.version is not None and call.version <= decode_branch_log(content).published:
                find_segment(PlaceFiles(self._parts.places.open_place(content.location)), call.version)
        except (HistoryExpired, InvalidLog, TableStateRefused, VersionNotFound) as problem:
            with suppress(ConflictError, ReferenceNotFound):  # somebody else has dropped it, or the branch
                self._kernel.commit(
                    self._lake.get_branch_or_default(call.branch),
                    [Delete(made_table.key)],
                    commit_meta(CommitDescription(), call.who, f"drop {made_table.key}: its source is gone"),
                    base=made_table.commit,
                    key=_drop_key(made_table),
                    fingerprint=made_table.id.hex.encode,
                )
            raise _dropped_again_error(made_table.key, problem.message.partition("\n")[0]) from None

    def _adopt_table(self, call: delta_calls.AdoptTable) -> OwnershipResult:
        self._require_default(call.branch, "adopted")
        text = f"adopt {call.location}" + (f" as {call.key}" if call.key is not None else "")
        self._check_apart(self._lake.check_and_normalise_location(call.location))
        head = self._tables.find_head()
        made_table = self._owner.adopt_table(
            call.location, call.key, sole_writer=call.sole_writer, request=self._table_request(call, text)
        )
        return msgspec.structs.replace(_describe_handover(made_table), repeated=made_table.commit == head)

    def _check_apart(self, location: str, key: Key | None = None) -> None:
        """``LocationRefused`` for a place that gets in the way of another table's."""
        others = (
            (other, content.location) for other, content in self._tables.list_tables(self._tables.find_head())
        )
        known_tables = self._tables.known_tables
        check_apart(location, key, others, self._lake.warehouse, known_tables.is_entangled)
        known_tables.require_format(normalise_location(location), DeltaTable)

    def _release_table(self, call: delta_calls.ReleaseTable) -> OwnershipResult:
        self._require_default(call.branch, "released")
        return _describe_handover(
            self._owner.release_table(call.key, request=self._table_request(call, f"release {call.key}"))
        )

    def adopt_tables(self, call: delta_calls.AdoptTables, progress: Progress) -> BulkOwnershipResult:
        folder = normalise_location(self._lake.check_and_normalise_location(call.location))
        located = self._locate_tables(folder, call.namespace, progress)
        request = TableRequest(commit_meta(call.said, call.who, f"adopt the tables of {call.location}"))
        adopted = self._owner.bulk_handover.adopt_tables(
            located, request, sole_writer=call.sole_writer, dry_run=call.dry_run, progress=progress
        )
        return BulkOwnershipResult(tables=tuple(map(_describe_bulk_handover, adopted)), dry_run=call.dry_run)

    def _locate_tables(self, folder: str, namespace: Key | None, progress: Progress) -> list[LocatedTable]:
        """The tables below a folder, with their keys, or why none can be adopted from there."""
        locations = find_tables(self._parts.places, folder, progress)
        known_tables = self._tables.known_tables
        entangled = known_tables.find_entangled(locations)
        others = known_tables.find_other_formats(locations, DeltaTable)
        located = list[LocatedTable]()
        for location in locations:
            try:
                self._lake.check_and_normalise_location(location)
                check_apart(location, None, (), self._lake.warehouse, entangled.__contains__)
                if location in others:
                    raise others[location]
                located.append(LocatedTable(location, name_table(location, folder, namespace or ())))
            except (LocationRefused, InvalidKey) as problem:
                located.append(LocatedTable(location, None, problem.message))
        return located

    def release_tables(self, call: delta_calls.ReleaseTables, progress: Progress) -> BulkOwnershipResult:
        what = "all tables" if call.namespace is None else f"the tables of {call.namespace}"
        request = TableRequest(commit_meta(call.said, call.who, f"release {what}"))
        released = self._owner.bulk_handover.release_tables(
            call.namespace, request, dry_run=call.dry_run, progress=progress
        )
        return BulkOwnershipResult(tables=tuple(map(_describe_bulk_handover, released)), dry_run=call.dry_run)

    def _recover_table(self, call: delta_calls.RecoverTable) -> RecoveredTable:
        meta = commit_meta(CommitDescription(), call.who, f"recover {call.location}")
        where = self._lake.check_and_normalise_location(call.location)
        self._check_apart(where)
        key = call.key if call.key is not None else self._key_in_table_name(where)
        recovered = self._owner.recover_table(
            where, key, lost=call.lost, any_lake=call.any_lake, request=TableRequest(meta)
        )
        return RecoveredTable(
            key=recovered.made.key,
            location=recovered.made.location,
            version=recovered.published,
            doubtful=tuple(
                name for doubtful_version in recovered.doubtful for name in doubtful_version.names
            ),
        )

    def _key_in_table_name(self, location: str) -> Key | None:
        """The key that a table was created under, if its own name is one."""
        name = load_snapshot(PlaceFiles(self._parts.places.open_place(location))).metadata.name
        try:
            return Key.parse(name) if name else None
        except InvalidKey:
            return None

    def _require_default(self, branch: str | None, operation: str) -> None:
        default = self._tables.default_branch
        if branch not in (None, default):
            raise InvalidRequest(
                f"tables are {operation} on the default branch '{default}', not on '{branch}'"
            )

    def _table_request(self, call: Any, message: str) -> TableRequest:
        """The request for a table: its commit metadata, idempotency key and digest."""
        meta = commit_meta(call.said, call.who, message)
        return TableRequest(meta, call.idempotency_key, partial(request_digest, call))

    def _get_status(self, call: delta_calls.GetTableStatus) -> tuple[TableStatus, ...]:
        if call.key is not None:
            return tuple(map(_make_status, self._owner.list_statuses(call.key)))
        return tuple(take_first(self._list_statuses(call.after), call.limit))

    def _list_statuses(self, after: Key | None) -> Iterator[TableStatus]:
        """How tables stand, by key; storage is looked at for each when it is asked for."""
        begin = b"" if after is None else after.encode()
        tables = self._tables.list_tables(self._tables.find_head())
        for key in sorted((key for key, _ in tables), key=Key.encode):
            if key.encode() > begin:
                with suppress(KeyNotFound, NotManaged):  # it left the lake just now
                    yield from map(_make_status, self._owner.list_statuses(key))

    def _find_table(self, call: delta_calls.FindTable) -> TablePlace | None:
        try:
            identity = UUID(call.id)
        except ValueError:
            raise InvalidRequest(f"{call.id!r} is not the id of a table") from None
        commit = self._lake.resolve_commit(call.at)
        key = self._tables.find_key(commit, identity)
        if key is None:
            return None
        return TablePlace(key=key, location=self._tables.require_managed(commit, key).location)


def _make_change(call: delta_calls.CommitTables, status: delta_calls.TableCommit) -> Change:
    """What the lake is asked to do. ``InvalidRequest`` for numbers and text that no request can hold."""
    for number in (status.version, status.read_version):
        if number is not None and abs(number) > VERSION_MAX:
            raise InvalidRequest(f"'{status.key}' has no version {number}: versions end at {VERSION_MAX}")
    try:
        return intents.make_change_operation(status.key, _make_intent(call, status))
    except (OverflowError, UnicodeEncodeError) as problem:
        raise InvalidRequest(f"invalid commit to '{status.key}': {problem}") from None


def _make_intent(call: delta_calls.CommitTables, status: delta_calls.TableCommit) -> intents.CommitIntent:
    """What the format is asked to do. The same request comes to the same intent."""
    return intents.CommitIntent(
        actions=_encode_actions(status.key, status.actions),
        uuid=status.attempt or _derive_attempt_id(call, status.key),
        version=status.version,
        table=status.table,
        read_version=status.read_version,
        read_tip=None if status.read_tip is None else BranchLogTip.parse(status.read_tip),
        reads=None if status.reads is None else _decode_reads(status.reads),
        replaces=None if status.replaces is None else tuple(map(_decode_partitions, status.replaces)),
    )


def _encode_actions(key: Key, actions: str | delta_calls.ActionsFile) -> bytes | intents.ActionsBodyFile:
    if isinstance(actions, delta_calls.ActionsFile):
        return intents.ActionsBodyFile(actions.name, actions.size, actions.sha256)
    try:
        return actions.encode()
    except UnicodeEncodeError as problem:
        raise InvalidRequest(f"invalid commit to '{key}': {problem}") from None


def _derive_attempt_id(call: delta_calls.CommitTables, key: Key) -> UUID:
    """The attempt of a request that names none; its repetition, by the same key, is the same attempt."""
    if call.idempotency_key is None:
        return uuid4()
    name = hash_parts("attempt", call.idempotency_key.encode(), request_digest(call), key.encode())
    return UUID(bytes=name[:16], version=5)


def _decode_reads(looked: delta_calls.WriterReads) -> DeltaReads:
    return DeltaReads(
        whole_table=looked.whole_table,
        partitions=tuple(map(_decode_partitions, looked.parts)),
        files=None if looked.files is None else frozenset(looked.files),
        applications=frozenset(looked.applications),
    )


def _decode_partitions(part: delta_calls.TablePart) -> PartitionFilter:
    return PartitionFilter(part.values, part.where)


def _describe_ratified_table(status: owner.OwnerRatifiedTable) -> CommittedTable:
    return CommittedTable(
        key=status.key,
        version=status.version,
        name=status.name,
        timestamp_ms=status.timestamp_ms,
        repeated=status.repeated,
    )


def _drop_key(clone: HandoverResult) -> str:
    """The idempotency key under which a clone is dropped whose source is gone: a retry looks for it."""
    return f"drop-clone-{clone.id}"


def _dropped_again_error(key: Key, why: str) -> TableStateRefused:
    return TableStateRefused(
        f"'{key}' could not be cloned, and was dropped again: {why}\n  Clone the source's present "
        "state, with another idempotency key.",
        key=str(key),
    )


def _describe_handover(result: HandoverResult) -> OwnershipResult:
    return OwnershipResult(
        key=result.key,
        id=result.id,
        location=result.location,
        version=result.version,
        commit=result.commit.hex(),
    )


def _describe_bulk_handover(table: TableHandover) -> TableHandedOver:
    return TableHandedOver(
        key=table.key,
        location=table.location,
        outcome=str(table.outcome),
        version=table.version,
        features=table.features,
        problem=table.problem,
    )


def _make_status(status: PublicationStatus) -> TableStatus:
    return TableStatus(
        key=status.key,
        location=status.location,
        phase=status.phase,
        latest_version=status.latest_version,
        published=status.published,
        backlog=0 if status.owner else max(0, status.latest_version - status.published),
        oldest_s=status.oldest_s,
        alarm=status.alarm,
        owner=status.owner,
    )
