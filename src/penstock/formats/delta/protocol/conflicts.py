"""When a transaction that read an older version may still commit on top of the newer ones.

Each commit that came meanwhile, a *winner*, is held against what the transaction read and wrote. The rules by
their numbers, which conflicts name:

====  ==========================================  ============================================  ==============
rule  the winner                                  the transaction                               kind
====  ==========================================  ============================================  ==============
1     changed the protocol                        changed it too, and not in the same way (3)   protocol
2     dropped a feature, or added one that binds  any                                           protocol
      writers
3     changed the protocol in other ways          did not; it goes on with the new one          none
4     changed the metadata                        changed it too, and not in the same way (3)   metadata
5     changed harmless properties, added columns  did not; it goes on with the new ones         none
      that may be null, widened or renamed some
      that files know by other names, no more
6     changed anything else in the metadata       any                                           metadata
7     wrote a domain                              wrote the same domain                         transaction
8     recorded a batch of an application          read or recorded one of it too                transaction
9     appended blindly                            would have read an added file                 append (1)
10    added files otherwise                       would have read an added file                 append (2)
11    removed a file                              read it, or adds it again                     delete, read
12    removed any file                            read the whole table                          delete, read
13    removed a file                              removed it too                                delete, delete
14    added files                                 read nothing: a blind append                  none
15    rewrote files without changing their rows   read one of them                              as 11 or 12
16    any                                         takes the table over from the file system     protocol
====  ==========================================  ============================================  ==============

(1) under ``Serializable``; under ``WriteSerializable`` only if the transaction changed the metadata otherwise
than by new columns that may be null and by new names.
(2) under ``Serializable`` and ``WriteSerializable``. A file that brings no new rows (``dataChange`` false) is
no append: if its rows were read, rule 11 or 12 has seen that they moved.
(3) The same way means: what the winner changed is as in rule 5, and what the transaction wants has all of it.

In doubt there is a conflict: a file whose partition is not known is in every partition. A transaction that
changes the partitioning has read the whole table, whatever it says, since every file must follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from penstock.formats.delta.protocol.added_columns import has_their_changes, only_adds_or_renames_columns
from penstock.formats.delta.protocol.column_mapping import MAX_ID
from penstock.formats.delta.protocol.commit_summary import describe_batch, list_first_names, list_partitions
from penstock.formats.delta.protocol.feature_table import MANAGED_COMMITS
from penstock.formats.delta.protocol.features import binds_writers, supported_features
from penstock.formats.delta.protocol.row_ids import DOMAIN as ROW_IDS
from penstock.formats.delta.protocol.row_ids import ENABLED, ID_COLUMN, VERSION_COLUMN
from penstock.formats.delta.protocol.transaction import (
    DeltaIsolation,
    DeltaTransaction,
    WinningCommit,
    find_last_action,
)

HARMLESS_PROPERTIES: Final = frozenset(
    {
        ENABLED,
        ID_COLUMN,
        VERSION_COLUMN,
        "delta.columnMapping.mode",
        MAX_ID,
        "delta.enableDeletionVectors",
        "delta.checkpointPolicy",
        "delta.enableInCommitTimestamps",
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "io.unitycatalog.tableId",
    }
)
"""Properties that may be set, but not unset, beside a transaction that knows nothing of it (rule 5)."""


_SCHEMA: Final = "schemaString"


class DeltaConflictKind(StrEnum):
    """The kinds; the names are those that other Delta writers give them."""

    PROTOCOL_CHANGED = "ProtocolChanged"
    METADATA_CHANGED = "MetadataChanged"
    CONCURRENT_TRANSACTION = "ConcurrentTransaction"
    CONCURRENT_APPEND = "ConcurrentAppend"
    CONCURRENT_DELETE_READ = "ConcurrentDeleteRead"
    CONCURRENT_DELETE_DELETE = "ConcurrentDeleteDelete"


class RebasedTransaction(msgspec.Struct, frozen=True):
    """The transaction as it may be committed on top of a version."""

    transaction: DeltaTransaction
    onto: int


class DeltaConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a transaction cannot be committed on top of a winner."""

    kind: DeltaConflictKind
    rule: int
    winner: int
    """The version of the winner."""
    operation: str | None
    """What the winner did, in its own words."""
    read_version: int
    files: tuple[str, ...] = ()
    """Decoded paths of the files that clash, as far as single files do."""
    partitions: tuple[str, ...] = ()
    """The partitions of these files, as far as they are known."""
    names: tuple[str, ...] = ()
    """The features, properties, domains or applications that clash."""
    repeated: bool = False
    """The winner holds the very batch of the transaction, or a later one: its work is done already."""

    def __str__(self) -> str:
        advice = f"read version {self.winner} or a later one and repeat the work"
        if self.repeated:
            advice = "the batch is already in the table, so there is nothing to do"
        read = f"this transaction read version {self.read_version}"
        return f"{self.describe_clash()}; {read}; {advice} (rule {self.rule})"

    def describe_clash(self, mine: str = "this transaction", winners: str = "") -> str:
        """What the winner did that does not go together with the transaction, which is called ``mine``;
        ``winners`` says whose version it is, where that needs to be said."""
        did = f" ({self.operation})" if self.operation else ""
        where = f" in {list_first_names(self.partitions)}" if self.partitions else ""
        what = _TOLD[self.rule].format(
            names=list_first_names(self.names), files=list_first_names(self.files) + where, mine=mine
        )
        return f"version {self.winner}{winners}{did} {what}"


_TOLD: Final = {
    1: "changed the protocol ({names}), as {mine} does",
    2: "changed the protocol ({names}) in a way that concerns all writers",
    4: "changed the metadata ({names}), as {mine} does",
    6: "changed the metadata ({names})",
    7: "wrote {names}, as {mine} does",
    8: "recorded {names}, on which {mine} depends",
    9: "appended {files}, which {mine} would have read",
    10: "added {files}, which {mine} would have read",
    11: "removed {files}, which {mine} has read or adds again",
    12: "removed {files}, and {mine} has read the whole table",
    13: "removed {files}, which {mine} removes too",
    16: "was committed meanwhile, but a table can only be adopted at the version that was read",
}


def rebase_transaction(
    winners: Iterable[WinningCommit], mine: DeltaTransaction
) -> RebasedTransaction | DeltaConflict:
    """The transaction on top of all winners, which come in the order of their versions, or a conflict.

    What is rebased is checked like any other commit before it is ratified: the table may have become one
    that Penstock does not write.
    """
    rebased = RebasedTransaction(mine, mine.read_version)
    for winner in winners:
        outcome = check_winner(winner, rebased.transaction)
        if isinstance(outcome, DeltaConflict):
            return outcome
        rebased = outcome
    return rebased


def check_winner(winner: WinningCommit, mine: DeltaTransaction) -> RebasedTransaction | DeltaConflict:
    """The transaction on top of one winner, or the first conflict with it."""
    for rule in _RULES:
        conflict = rule(winner, mine)
        if conflict is not None:
            return conflict
    return RebasedTransaction(_rebase_on_winner(winner, mine), winner.version)


def _rebase_on_winner(winner: WinningCommit, mine: DeltaTransaction) -> DeltaTransaction:
    """The transaction with the winner's protocol and metadata, later than the winner."""
    protocol, metadata = (
        find_last_action(winner.actions, Protocol),
        find_last_action(winner.actions, Metadata),
    )
    return msgspec.structs.replace(
        mine,
        protocol=protocol or mine.protocol,
        metadata=metadata or mine.metadata,
        actions=_move_timestamp_later(winner, mine.actions),
    )


def _move_timestamp_later(winner: WinningCommit, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    info = winner.info
    if info is None or info.in_commit_timestamp is None:
        return actions
    earliest = info.in_commit_timestamp + 1
    own = find_last_action(actions, CommitInfo)
    if own is None:
        return (CommitInfo().with_timestamp(earliest), *actions)
    later = own.with_timestamp(max(own.in_commit_timestamp or 0, earliest))
    return tuple(later if action is own else action for action in actions)


# --- the rules ------------------------------------------------------------------------------------------


def _check_takeover(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    new_protocol = find_last_action(mine.actions, Protocol)
    if new_protocol is None or MANAGED_COMMITS not in supported_features(new_protocol) - supported_features(
        mine.protocol
    ):
        return None
    return _make_conflict(DeltaConflictKind.PROTOCOL_CHANGED, 16, winner, mine, names=(MANAGED_COMMITS,))


def _check_protocol(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    theirs = find_last_action(winner.actions, Protocol)
    if theirs is None:
        return None
    before, after = supported_features(mine.protocol), supported_features(theirs)
    changed = tuple(sorted(before ^ after)) or (
        f"versions {theirs.min_reader_version} and {theirs.min_writer_version}",
    )
    new_protocol = find_last_action(mine.actions, Protocol)
    if new_protocol is not None and not _is_covered_by(new_protocol, theirs):
        return _make_conflict(DeltaConflictKind.PROTOCOL_CHANGED, 1, winner, mine, names=changed)
    own = frozenset() if new_protocol is None else supported_features(new_protocol)
    unmet = (before - after) | {name for name in after - before - own if binds_writers(name)}
    if unmet:
        return _make_conflict(DeltaConflictKind.PROTOCOL_CHANGED, 2, winner, mine, names=tuple(sorted(unmet)))
    return None


def _is_covered_by(required: Protocol, theirs: Protocol) -> bool:
    """Whether a protocol asks for everything that another one does."""
    return (
        required.min_reader_version >= theirs.min_reader_version
        and required.min_writer_version >= theirs.min_writer_version
        and supported_features(required) >= supported_features(theirs)
    )


def _check_metadata(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    theirs = find_last_action(winner.actions, Metadata)
    if theirs is None:
        return None
    changed, new_metadata = _list_differences(mine.metadata, theirs), find_last_action(mine.actions, Metadata)
    is_carried = new_metadata is not None and has_their_changes(mine.metadata, new_metadata, theirs)
    if new_metadata is not None and not (is_carried and _is_harmless(mine.metadata, theirs)):
        return _make_conflict(
            DeltaConflictKind.METADATA_CHANGED, 4, winner, mine, names=changed or ("the same as before",)
        )
    if new_metadata is not None or _is_harmless(mine.metadata, theirs):
        return None
    return _make_conflict(DeltaConflictKind.METADATA_CHANGED, 6, winner, mine, names=changed)


def _is_harmless(before: Metadata, after: Metadata) -> bool:
    """Whether metadata changed by harmless properties, new columns, wider types and new names alone."""
    unset = before.configuration.keys() - after.configuration.keys()
    changed = set(_list_differences(before, after)) - (HARMLESS_PROPERTIES - unset)
    return changed <= {_SCHEMA} and only_adds_or_renames_columns(before.schema_string, after.schema_string)


def _is_only_adding(before: Metadata, after: Metadata) -> bool:
    """Whether metadata changed by new columns and new names alone, if at all."""
    changed = set(_list_differences(before, after)) - {MAX_ID}
    return changed <= {_SCHEMA} and only_adds_or_renames_columns(before.schema_string, after.schema_string)


def _check_domains(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    ours, theirs = (
        {action.domain for action in actions if isinstance(action, DomainMetadata)}
        for actions in (mine.actions, winner.actions)
    )
    ours.discard(ROW_IDS)  # the owner gives ids above those of the winner
    if not ours & theirs:
        return None
    names = tuple(f"the domain '{name}'" for name in sorted(ours & theirs))
    return _make_conflict(DeltaConflictKind.CONCURRENT_TRANSACTION, 7, winner, mine, names=names)


def _check_applications(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    """Whoever records a batch has looked up the one before, or ought to have."""
    ours = {action.app_id: action.version for action in mine.actions if isinstance(action, Txn)}
    theirs = {action.app_id: action for action in winner.actions if isinstance(action, Txn)}
    both = sorted(theirs.keys() & (ours.keys() | mine.reads.applications))
    if not both:
        return None
    names = tuple(describe_batch(theirs[name]) for name in both)
    repeated = bool(ours) and all(name in theirs and theirs[name].version >= ours[name] for name in ours)
    return _make_conflict(
        DeltaConflictKind.CONCURRENT_TRANSACTION, 8, winner, mine, names=names, repeated=repeated
    )


def _check_appends(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    if mine.isolation is DeltaIsolation.SNAPSHOT:
        return None
    blind = winner.is_blind_append
    new_metadata = find_last_action(mine.actions, Metadata)
    changes_metadata = new_metadata is not None and not _is_only_adding(mine.metadata, new_metadata)
    if blind and mine.isolation is DeltaIsolation.WRITE_SERIALIZABLE and not changes_metadata:
        return None
    clash = [
        action
        for action in winner.actions
        if isinstance(action, Add) and action.data_change and mine.would_read(action)
    ]
    return _make_file_conflict(DeltaConflictKind.CONCURRENT_APPEND, 9 if blind else 10, winner, mine, clash)


def _check_deletes_of_reads(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    added = {action.key.path for action in mine.actions if isinstance(action, Add)}
    removed = [action for action in winner.actions if isinstance(action, Remove)]
    read_files = [remove for remove in removed if remove.key.path in added or mine.has_read(remove)]
    if conflict := _make_file_conflict(
        DeltaConflictKind.CONCURRENT_DELETE_READ, 11, winner, mine, read_files
    ):
        return conflict
    return _make_file_conflict(
        DeltaConflictKind.CONCURRENT_DELETE_READ, 12, winner, mine, removed if mine.reads_all else []
    )


def _check_deletes_of_deletes(winner: WinningCommit, mine: DeltaTransaction) -> DeltaConflict | None:
    ours = {action.key.path for action in mine.actions if isinstance(action, Remove)}
    both = [action for action in winner.actions if isinstance(action, Remove) and action.key.path in ours]
    return _make_file_conflict(DeltaConflictKind.CONCURRENT_DELETE_DELETE, 13, winner, mine, both)


_RULES: Final[Sequence[Callable[[WinningCommit, DeltaTransaction], DeltaConflict | None]]] = (
    _check_takeover,
    _check_protocol,
    _check_metadata,
    _check_domains,
    _check_applications,
    _check_appends,
    _check_deletes_of_reads,
    _check_deletes_of_deletes,
)


# --- what they ask --------------------------------------------------------------------------------------


def _list_differences(before: Metadata, after: Metadata) -> tuple[str, ...]:
    """What changed: properties by their names, the rest by the names of the fields."""
    old, new = before.configuration, after.configuration
    properties = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    fields = zip(before.__struct_fields__, before.__struct_encode_fields__, strict=True)
    others = {description for name, description in fields if getattr(before, name) != getattr(after, name)}
    return (*sorted(others - {"configuration"}), *sorted(properties))


def _make_file_conflict(
    kind: DeltaConflictKind,
    rule: int,
    winner: WinningCommit,
    mine: DeltaTransaction,
    clash: Sequence[Add | Remove],
) -> DeltaConflict | None:
    if not clash:
        return None
    files = tuple(sorted({file.key.path for file in clash}))
    return _make_conflict(kind, rule, winner, mine, files=files, partitions=list_partitions(clash))


def _make_conflict(
    kind: DeltaConflictKind,
    rule: int,
    winner: WinningCommit,
    mine: DeltaTransaction,
    *,
    files: tuple[str, ...] = (),
    partitions: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    repeated: bool = False,
) -> DeltaConflict:
    info = winner.info
    return DeltaConflict(
        kind=kind,
        rule=rule,
        winner=winner.version,
        operation=None if info is None else info.operation,
        read_version=mine.read_version,
        files=files,
        partitions=partitions,
        names=names,
        repeated=repeated,
    )
