"""Delta tables for programs: what ``Table`` does with a table whose commits the lake decides.

Decisions are made where the lake is. The table's files are read and written from here, with this process's
own access to the storage, whether the lake is in this process or behind a server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID, uuid4

import msgspec

from penstock.errors import InvalidRequest, NotManaged, OutcomeUnknown, TableConflict, Unavailable
from penstock.formats.delta.branch_log.branch_log import FOLDER
from penstock.formats.delta.lake.calls import (
    ActionsFile,
    CommitTables,
    GetTableVersions,
    PublishTable,
    TableCommit,
    WriterReads,
)
from penstock.formats.delta.protocol.actions import (
    Action,
    CommitInfo,
    Protocol,
    parse_action,
    write_commit,
)
from penstock.formats.delta.protocol.clustering import CLUSTERING
from penstock.formats.delta.protocol.feature_alignment import align_protocol_and_metadata
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.lint_files import BRANCH_DATA
from penstock.formats.delta.protocol.partition_conditions import condition_columns
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetChanges, GetOutcome
from penstock.lake.plugins import describe_usage
from penstock.model.nessie import DeltaTable

if TYPE_CHECKING:
    from penstock.formats.delta.lake.snapshot import TableSnapshot
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key
    from penstock.storage.places import Place

SENT_MAX_BYTES: Final = 4 * 1024 * 1024
"""Actions beyond this size are put beside the table, and only their name is sent."""

Clustering: TypeAlias = tuple[tuple[str, ...], ...]
"""The columns that a table is clustered by, as its files call them."""
Actions: TypeAlias = str | bytes | Sequence[Action | str | Mapping[str, Any]]
"""The lines of a commit, or its actions one by one: as values, as lines, or as JSON objects."""


def publish_table(table: Table, version: int | None) -> int:
    branch = table.require_branch()
    return table.lake.do(PublishTable(key=table.key, branch=branch, version=version)).published


def commit_actions(
    table: Table,
    actions: Actions,
    *,
    version: int | None = None,
    attempt: UUID | None = None,
    description: CommitDescription = CommitDescription(),
    idempotency_key: str | None = None,
) -> TableCommitResult:
    """Ratify actions as a version of the table."""
    branch = table.require_branch()
    table_change = table_commit(table, actions, attempt=attempt, version=version)
    return commit_tables(table.lake, (table_change,), branch, description, idempotency_key)


def table_commit(
    table: Table, actions: Actions, *, attempt: UUID | None = None, version: int | None = None
) -> TableCommit:
    """Actions as a part of a commit, which may be of several tables. A ``commitInfo`` says who wrote it."""
    signed = _sign_actions(actions, table.lake.author)
    return TableCommit(
        key=table.key,
        actions=pack_lines_for_call(
            lambda: table.lake.places.open_place(require_managed(table).location), encode_actions(signed)
        ),
        attempt=attempt or uuid4(),
        version=version,
    )


def _sign_actions(actions: Actions, author: str) -> Actions:
    if isinstance(actions, str | bytes) or not actions or not author:
        return actions
    first, *others = actions
    if not isinstance(first, CommitInfo) or "userName" in first.fields:
        return actions
    return [CommitInfo({**first.fields, "userName": author}), *others]


def commit_tables(
    lake: Lake,
    tables: Sequence[TableCommit],
    branch: str,
    description: CommitDescription,
    idempotency_key: str | None,
) -> TableCommitResult:
    return lake.do(
        CommitTables(
            tables=tuple(tables),
            branch=branch,
            said=description,
            idempotency_key=idempotency_key,
            who=lake.author,
        )
    )


def is_about_partitions(table: Table, where: str) -> bool:
    """Whether a condition is true for whole partitions or for none of their rows."""
    now = table.lake.do(GetTableVersions(key=table.key, at=table.require_branch(), limit=0))
    _, metadata = now.parse_declared()
    columns = condition_columns(where, metadata.schema_string)
    return bool(columns) and columns <= {name.lower() for name in metadata.partition_columns}


def repair_table(table: Table, description: CommitDescription) -> TableCommitResult | None:
    """Mend what other engines stumble over in a table that Penstock 0.1 wrote; ``None`` if there is nothing.

    The protocol gets what the metadata enables, and statistics that end at -0.0 end at 0.0.
    """
    branch = table.require_branch()
    while True:
        now = table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
        # Of that very version: a file that goes after it is a conflict, and is not brought back.
        actions = list(_repair_actions(table.outside_read_set.snapshot(now.latest_version)))
        if not actions:
            return None
        info = CommitInfo({"operation": "REPAIR TABLE", "operationParameters": {}})
        table_change = msgspec.structs.replace(
            table_commit(table, [info, *actions]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=WriterReads(),
        )
        try:
            return commit_tables(table.lake, (table_change,), branch, description, None)
        except TableConflict:
            if table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0)).tip == now.tip:
                raise


def needs_repair(table: Table) -> bool:
    """Whether ``repair_table`` would change a table."""
    return any(True for _ in _repair_actions(table.outside_read_set.snapshot()))


def _repair_actions(snapshot: TableSnapshot) -> Iterator[Action]:
    from penstock.formats.delta.rows.stats import mend_negative_zeros

    protocol, metadata = align_protocol_and_metadata(snapshot.protocol, snapshot.metadata)
    if protocol != snapshot.protocol:
        yield protocol
    if metadata != snapshot.metadata:
        yield metadata
    for file in snapshot.files():
        if (stats := mend_negative_zeros(file.stats)) is not None:
            # The same file once more, with nothing new in it.
            yield msgspec.structs.replace(file, stats=stats, data_change=False)


def get_clustering(table: Table, protocol: Protocol) -> Clustering:
    """The columns that a table with a protocol is clustered by, as its files call them."""
    return table.outside_read_set.snapshot().clustering if CLUSTERING in supported_features(protocol) else ()


def data_folder(lake: Lake, branch: str | None) -> str:
    """Where below a table's root its data files are written on a branch.

    Those of the default branch go to the root itself. Those of others must not lie where an engine that
    cleans up the published table takes them for garbage.
    """
    return "" if branch in (None, lake.default_branch) else BRANCH_DATA


def find_earlier_result(
    lake: Lake, tables: Sequence[Key], branch: str, idempotency_key: str | None
) -> TableCommitResult | None:
    """What a write under an idempotency key came to, if it was done: data files have new names each time."""
    landing = None
    if idempotency_key is not None:
        landing = lake.do(GetOutcome(key=idempotency_key, branch=branch))
    if landing is None or not landing.commits:
        return None
    changes = lake.do(GetChanges(revision=landing.head, via=branch))
    if not set(tables) <= {change.key for change in changes}:
        return None  # the key was used for something else, and the commit will be refused for that
    repeated = tuple(TableCommit(key=key, actions="") for key in tables)
    return CommitTables(tables=repeated, branch=branch).recover(lake.do, landing)


def require_managed(table: Table) -> DeltaTable:
    """What a Delta table is whose commits the lake decides; ``NotManaged`` for any other."""
    content = table.outside_read_set.content
    if not isinstance(content, DeltaTable) and (usage := describe_usage(content)):
        raise NotManaged(f"'{table.key}' is {usage}", key=str(table.key))
    if not isinstance(content, DeltaTable):
        raise NotManaged(
            f"'{table.key}' is of type {content.type}, not a Delta table that this lake manages\n  'penstock "
            "delta adopt PATH' takes over a Delta table that is in the file system.",
            key=str(table.key),
        )
    if not content.is_managed:
        raise NotManaged(
            f"'{table.key}' is not managed by the lake: the key is only a reference to a table\n  Delete "
            f"the key, then adopt the table: penstock delta adopt PATH --table {table.key}",
            key=str(table.key),
        )
    return content


# -- actions -----------------------------------------------------------------------------------------------


def encode_actions(actions: Actions) -> bytes:
    """Actions as the lines of a commit. ``MalformedAction`` if a line is no action."""
    if isinstance(actions, str | bytes):
        return actions.encode() if isinstance(actions, str) else actions
    return b"".join(_encode_action(action) + b"\n" for action in actions)


def _encode_action(action: Action | str | Mapping[str, Any]) -> bytes:
    if isinstance(action, str):
        return action.strip().encode()
    if isinstance(action, Mapping):
        return msgspec.json.encode(action)
    return write_commit((action,)).rstrip(b"\n")


def pack_lines_for_call(place: Callable[[], Place], lines: bytes) -> str | ActionsFile:
    """The lines of a commit for the call: as text, or as a file beside the table if they are many.

    The owner puts a ``commitInfo`` of its own before such a file, so the one that the lines begin with stays
    behind.
    """
    if len(lines) <= SENT_MAX_BYTES:
        return _decode_lines(lines)
    first, _, others = lines.partition(b"\n")
    if isinstance(parse_action(first), CommitInfo):
        lines = others
    digest = hashlib.sha256(lines).digest()
    name = f"{FOLDER}bodies/{digest.hex()}.json"
    _put_if_absent(place(), name, lines)
    return ActionsFile(name=name, size=len(lines), sha256=digest)


def _decode_lines(lines: bytes) -> str:
    try:
        return lines.decode()
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"the actions are not UTF-8 text: {problem}") from None


def _put_if_absent(place: Place, name: str, data: bytes) -> None:
    """Let a file whose name follows from its bytes be there, as one of now.

    One from before is written again: cleaning up tells by its age that nobody is about to name it.
    """
    try:
        if not place.create(name, data):
            place.put(name, data)
    except OutcomeUnknown as problem:
        if place.size(name) != len(data):
            raise Unavailable(f"{problem.message}; nothing was committed", part="storage") from None
