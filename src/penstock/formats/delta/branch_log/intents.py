"""What the Delta format can be asked to do to a table: the intents that a ``Change`` carries.

A writer gives actions as the lines of a commit. Where the owner assigns the version, it also writes the
``commitInfo``'s timestamp, at the change's turn; all other lines stay the bytes that the writer gave.
"""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import msgspec

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.kernel.format import Table
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.encoding import encode, make_decoder
from penstock.model.keys import Key
from penstock.model.operations import Change

NAME = "delta"
"""The format, as ``Change.format`` names it."""


class ActionsBodyFile(msgspec.Struct, frozen=True, array_like=True):
    """Actions that are too many to be sent: a file that its writer put into ``_penstock/bodies/``."""

    name: str
    """Relative to the table's root."""
    size: int
    sha256: bytes


class CommitIntent(msgspec.Struct, frozen=True, array_like=True, tag="commit", kw_only=True):
    """Ratify actions as a version of a table.

    With ``version``, as exactly this one or not at all, as the file ``<version>.<uuid>.json``. Without, as
    the next one at its turn: after a check against everything since ``read_version``, if that is given; else
    whatever the table holds by then, which suits blind appends and replacements.
    """

    actions: bytes | ActionsBodyFile
    """The lines of a commit, with or without a ``commitInfo`` first."""
    uuid: UUID
    """Of this attempt: names its file, and is its ``txnId`` unless the writer gave one."""
    version: int | None = None
    read_version: int | None = None
    """Needed, where no version is given, to change the protocol or the metadata."""
    reads: DeltaReads | None = None
    """What was looked at in ``read_version``; ``None``: nothing if files are only added blindly, else the
    whole table."""
    replaces: tuple[PartitionFilter, ...] | None = None
    """Remove whatever files are there at its turn: in these partitions, in the whole table for ``()``."""
    table: UUID | None = None
    """The id of the table that it was written for; ``None``: whichever table has the key."""
    read_tip: BranchLogTip | None = None
    """Which version was read, or one after it: nothing is ratified on a line that does not have it.
    ``None``: whichever has the number."""


class CreateIntent(msgspec.Struct, frozen=True, array_like=True, tag="create", kw_only=True):
    """Let a new table begin, at a location that nobody else knows, with these actions as version 0."""

    id: UUID
    location: str
    actions: bytes
    """Whole: protocol and metadata name the lake as the owner."""
    uuid: UUID
    is_given: bool = False
    """Whether the id is the writer's, who may give it to two tables by mistake."""


class AdoptIntent(msgspec.Struct, frozen=True, array_like=True, tag="adopt", kw_only=True):
    """Promise to own the table at a location, once ``actions`` are in its log as ``version``."""

    id: UUID
    location: str
    version: int
    actions: bytes
    """The exact bytes to be put there, if nothing is."""
    uuid: UUID


class SettleIntent(msgspec.Struct, frozen=True, array_like=True, tag="settle", kw_only=True):
    """Note how an adoption, or a release, ended. The table's log has decided it already."""

    id: UUID
    owned: bool
    """``False``: the table is not ours (any more), and its key goes."""


class ReleaseIntent(msgspec.Struct, frozen=True, array_like=True, tag="release", kw_only=True):
    """Hand the table back to the file system: ratify this last version, and no other."""

    version: int
    actions: bytes
    uuid: UUID


class ResyncIntent(msgspec.Struct, frozen=True, array_like=True, tag="resync", kw_only=True):
    """Take over the versions that the table's own log has and the lake has not: the table goes on from them.

    The log names the lake as the table's owner, and had them before, as a lake knows that is older than its
    tables.
    """

    id: UUID
    location: str
    known: int
    """The newest version that the lake has of it; -1 for a table that it does not have."""
    version: int
    """The newest version of the log."""
    timestamp_ms: int
    """Of that version."""
    protocol: bytes
    metadata: bytes
    """What the table is by then, as lines of a log."""
    replaced: UUID | None = None
    """The table that it is in the lake, where the lake's own versions are others than the log's: it becomes
    another one, with ``actions`` as its next version."""
    actions: bytes = b""


Intent: TypeAlias = CommitIntent | CreateIntent | AdoptIntent | SettleIntent | ReleaseIntent | ResyncIntent

decode_intent = make_decoder(Intent).decode


def make_change_operation(key: Key | str, intent: Intent) -> Change:
    """The operation that asks for it."""
    return Change(Key.parse(key), NAME, encode(intent))


# Histories: whether a line still has the version that a writer read, and not another of the same number.


def check_history(table: Table, line: BranchLog, intent: CommitIntent) -> None:
    """``TableConflict`` if a commit tells which version it read, and the line does not have it any more.

    What landed since cannot be told then: the versions after that number came after other ones. So no winners
    are named. ``InvalidRequest`` if what it tells is of an earlier version than the one that it read.
    """
    tip = intent.read_tip
    if tip is None:
        return
    read = intent.read_version
    if read is None and intent.version is not None:
        read = intent.version - 1
    if read is not None and tip.version < read:
        raise InvalidRequest(
            f"the commit to '{table.key}' names version {read} as read, but its 'read_tip' is of the "
            f"older version {tip.version}"
        )
    if not tip.is_on(line, table.read):
        raise _other_history_error(table, line, tip.version if read is None else read)


def _other_history_error(table: Table, line: BranchLog, read: int) -> TableConflict:
    why = f"has a different history on '{table.branch}' now"
    expected, actual = f"the version {read} that was read", f"version {line.latest} of another history"
    return TableConflict(
        [Conflict(ConflictKind.FORMAT, table.key, expected=expected, found=actual, why=why)],
        "\n".join(
            (
                f"'{table.key}' {why}",
                f"  you read    version {read}, which is no longer part of it",
                f"  now at      version {line.latest}",
                "  why         the branch was created again, moved to another commit, or merged into",
                "  what to do  read the table again, and run the job again",
            )
        ),
        winners={str(table.key): {"latest_version": line.latest, "commits": []}},
    )
