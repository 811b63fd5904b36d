"""Delta tables for programs: what ``Table`` does with a table whose commits the lake decides.

Decisions are made where the lake is. The table's files are read and written from here, with this process's
own access to the storage, whether the lake is in this process or behind a server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID, uuid4

import msgspec

from penstock.errors import InvalidRequest, NotManaged, OutcomeUnknown, TableConflict, Unavailable
from penstock.formats.delta.branch_log.line import FOLDER
from penstock.formats.delta.lake.calls import (
    ActionsFile,
    CommitTables,
    GetTableVersions,
    Looked,
    Part,
    PublishTable,
    TableCommit,
)
from penstock.formats.delta.lake.replaced_parts import Values, check_inside, parts_of
from penstock.formats.delta.lake.written_files import removed_if_refused
from penstock.formats.delta.protocol.actions import (
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    parse_action,
    write_commit,
)
from penstock.formats.delta.protocol.agreement import agree
from penstock.formats.delta.protocol.clustering import CLUSTERING
from penstock.formats.delta.protocol.features import complete_protocol, supported
from penstock.formats.delta.protocol.paths import BRANCH_DATA
from penstock.lake.answers import Ratified
from penstock.lake.call import Said
from penstock.lake.calls import GetChanges, GetOutcome
from penstock.lake.job_files import Began
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


def publish(table: Table, version: int | None) -> int:
    branch = table.require_branch()
    return table.lake.do(PublishTable(key=table.key, branch=branch, version=version)).published


def commit(
    table: Table,
    actions: Actions,
    *,
    version: int | None = None,
    attempt: UUID | None = None,
    said: Said = Said(),
    idempotency_key: str | None = None,
) -> Ratified:
    """Ratify actions as a version of the table."""
    branch = table.require_branch()
    one = table_commit(table, actions, attempt=attempt, version=version)
    return _ratified(table.lake, (one,), branch, said, idempotency_key)


def table_commit(
    table: Table, actions: Actions, *, attempt: UUID | None = None, version: int | None = None
) -> TableCommit:
    """Actions as a part of a commit, which may be of several tables."""
    return TableCommit(
        key=table.key,
        actions=sent(lambda: table.lake.places.at(require_managed(table).location), lines_of(actions)),
        attempt=attempt or uuid4(),
        version=version,
    )


def _ratified(
    lake: Lake, tables: Sequence[TableCommit], branch: str, said: Said, idempotency_key: str | None
) -> Ratified:
    return lake.do(
        CommitTables(
            tables=tuple(tables), branch=branch, said=said, idempotency_key=idempotency_key, who=lake.author
        )
    )


def append(table: Table, data: Any, *, said: Said, idempotency_key: str | None) -> Ratified:
    """Add rows. Whatever else lands meanwhile, they are added, unless the table itself was changed, or its
    branch has another history by then."""
    branch = table.require_branch()
    return append_all(table.lake, [(table, data)], branch, said=said, idempotency_key=idempotency_key)


def append_all(
    lake: Lake,
    tables: Sequence[tuple[Table, Any]],
    branch: str | None,
    *,
    said: Said,
    idempotency_key: str | None,
) -> Ratified:
    """Add rows to tables of one branch, in one commit.

    If it is refused, the files that were written are removed, as far as possible. If it is not known what
    became of it, they stay.
    """
    named = branch if branch is not None else lake.default_branch
    known = done_before(lake, [table.key for table, _ in tables], named, idempotency_key)
    if known is not None:
        return known
    with _Writing(lake) as writing:
        written = [writing.commit_of(table, data, None) for table, data in tables]
        return writing.ratified(written, named, said, idempotency_key)


def overwrite(
    table: Table,
    data: Any,
    partitions: Values | Sequence[Values] | None,
    where: str | None,
    *,
    said: Said,
    idempotency_key: str | None,
) -> Ratified:
    """Put rows in the place of all that are there at the commit's turn: in some partitions, or everywhere.

    What becomes of the files if that is refused is as in ``append_all``.
    """
    chosen = [partitions] if isinstance(partitions, Mapping) else partitions
    if chosen is not None and not all(chosen or [{}]):  # nothing must not come to mean everything
        raise InvalidRequest(
            "no partition is named to be overwritten; leave out 'partitions' for all of them"
        )
    branch = table.require_branch()
    if (known := done_before(table.lake, [table.key], branch, idempotency_key)) is not None:
        return known
    with _Writing(table.lake) as writing:
        written = writing.commit_of(table, data, lambda metadata: parts_of(metadata, chosen, where))
        return writing.ratified((written,), branch, said, idempotency_key)


class _Writing:
    """A job of this process: rows become files of tables, and then part of them, together."""

    def __init__(self, lake: Lake) -> None:
        lake.begin_write(makes_lake=False)
        self._lake, self._began = lake, Began.now(lake)
        self._refused = ExitStack()

    def __enter__(self) -> _Writing:
        self._refused.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._refused.__exit__(*raised)

    def commit_of(
        self, table: Table, data: Any, replaces: Callable[[Metadata], tuple[Part, ...]] | None
    ) -> TableCommit:
        """Write rows to files of the table, and return the commit that makes them part of it."""
        from penstock.formats.delta.rows.writing import write_files
        from penstock.lake.row_input import rows_of

        branch = table.require_branch()
        now = self._lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
        protocol, metadata = now.declared()
        parts = replaces(metadata) if replaces is not None else None
        place = self._lake.places.at(now.location)
        adds = write_files(
            place,
            metadata,
            rows_of(data),
            prefix=data_folder(self._lake, branch),
            clustering=clustering_of(table, protocol),
        )
        self._refused.enter_context(removed_if_refused(place, adds))
        check_inside(metadata, parts or (), adds)
        operation = {"mode": "Append" if parts is None else "Overwrite"}
        info = CommitInfo({"operation": "WRITE", "operationParameters": operation})
        return msgspec.structs.replace(
            table_commit(table, [info, *adds]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=Looked(),
            replaces=parts,
        )

    def ratified(
        self, tables: Sequence[TableCommit], branch: str, said: Said, idempotency_key: str | None
    ) -> Ratified:
        self._began.check_in_time()
        return _ratified(self._lake, tables, branch, said, idempotency_key)


def repair(table: Table, said: Said) -> Ratified | None:
    """Mend what other engines stumble over in a table that Penstock 0.1 wrote; ``None`` if there is nothing.

    The protocol gets what the metadata enables, and statistics that end at -0.0 end at 0.0.
    """
    branch = table.require_branch()
    while True:
        now = table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
        # Of that very version: a file that goes after it is a conflict, and is not brought back.
        actions = list(_mended(table.unnoted.snapshot(now.latest_version)))
        if not actions:
            return None
        info = CommitInfo({"operation": "REPAIR TABLE", "operationParameters": {}})
        one = msgspec.structs.replace(
            table_commit(table, [info, *actions]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=Looked(),
        )
        try:
            return _ratified(table.lake, (one,), branch, said, None)
        except TableConflict:
            if table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0)).tip == now.tip:
                raise


def change_columns(
    table: Table, change: Callable[[Metadata, Clustering], Metadata], operation: str, said: Said
) -> Ratified:
    """Change the columns of a table. ``TableConflict`` if it was changed by others meanwhile."""
    branch = table.require_branch()
    now = table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
    protocol, metadata = now.declared()
    changed = change(metadata, clustering_of(table, protocol))
    info = CommitInfo({"operation": operation, "operationParameters": {}})
    needed = complete_protocol(protocol, changed)
    one = msgspec.structs.replace(
        table_commit(table, [info, *([] if needed == protocol else [needed]), changed]),
        table=now.id,
        read_version=now.latest_version,
        read_tip=now.tip,
        reads=Looked(),
    )
    return _ratified(table.lake, (one,), branch, said, None)


def needs_repair(table: Table) -> bool:
    """Whether ``repair`` would change a table."""
    return any(True for _ in _mended(table.unnoted.snapshot()))


def _mended(snapshot: TableSnapshot) -> Iterator[Action]:
    from penstock.formats.delta.rows.stats import mended_zeros

    protocol, metadata = agree(snapshot.protocol, snapshot.metadata)
    if protocol != snapshot.protocol:
        yield protocol
    if metadata != snapshot.metadata:
        yield metadata
    for file in snapshot.files():
        if (stats := mended_zeros(file.stats)) is not None:
            # The same file once more, with nothing new in it.
            yield msgspec.structs.replace(file, stats=stats, data_change=False)


def clustering_of(table: Table, protocol: Protocol) -> Clustering:
    """The columns that a table with a protocol is clustered by, as its files call them."""
    return table.unnoted.snapshot().clustering if CLUSTERING in supported(protocol) else ()


def data_folder(lake: Lake, branch: str | None) -> str:
    """Where below a table's root its data files are written on a branch.

    Those of the default branch go to the root itself. Those of others must not lie where an engine that
    cleans up the published table takes them for garbage.
    """
    return "" if branch in (None, lake.default_branch) else BRANCH_DATA


def done_before(
    lake: Lake, tables: Sequence[Key], branch: str, idempotency_key: str | None
) -> Ratified | None:
    """What a write under an idempotency key came to, if it was done: data files have new names each time."""
    landing = None
    if idempotency_key is not None:
        landing = lake.do(GetOutcome(key=idempotency_key, branch=branch))
    if landing is None or not landing.commits:
        return None
    changes = lake.do(GetChanges(revision=landing.head, via=branch))
    if not set(tables) <= {one.key for one in changes}:
        return None  # the key was used for something else, and the commit will be refused for that
    repeated = tuple(TableCommit(key=key, actions="") for key in tables)
    return CommitTables(tables=repeated, branch=branch).recover(lake.do, landing)


def require_managed(table: Table) -> DeltaTable:
    """What a Delta table is whose commits the lake decides; ``NotManaged`` for any other."""
    content = table.unnoted.content
    if not isinstance(content, DeltaTable) and (usage := describe_usage(content)):
        raise NotManaged(f"'{table.key}' is {usage}", key=str(table.key))
    if not isinstance(content, DeltaTable):
        raise NotManaged(
            f"'{table.key}' is {content.type}: its commits are not decided by the lake\n"
            "  'penstock delta adopt PATH' takes over a Delta table that is in the file system.",
            key=str(table.key),
        )
    if not content.is_managed:
        raise NotManaged(
            f"the commits of '{table.key}' are not decided by the lake: the key points at a table already\n"
            f"  Delete the key, then adopt the table: penstock delta adopt PATH --table {table.key}",
            key=str(table.key),
        )
    return content


# -- actions -----------------------------------------------------------------------------------------------


def lines_of(actions: Actions) -> bytes:
    """Actions as the lines of a commit. ``MalformedAction`` if a line is no action."""
    if isinstance(actions, str | bytes):
        return actions.encode() if isinstance(actions, str) else actions
    return b"".join(_line(one) + b"\n" for one in actions)


def _line(action: Action | str | Mapping[str, Any]) -> bytes:
    if isinstance(action, str):
        return action.strip().encode()
    if isinstance(action, Mapping):
        return msgspec.json.encode(action)
    return write_commit((action,)).rstrip(b"\n")


def sent(place: Callable[[], Place], lines: bytes) -> str | ActionsFile:
    """Lines as they are sent: themselves, or the name of a file beside the table that holds them.

    The owner puts a ``commitInfo`` of its own before such a file, so the one that the lines begin with stays
    behind.
    """
    if len(lines) <= SENT_MAX_BYTES:
        return _text(lines)
    first, _, others = lines.partition(b"\n")
    if isinstance(parse_action(first), CommitInfo):
        lines = others
    digest = hashlib.sha256(lines).digest()
    name = f"{FOLDER}bodies/{digest.hex()}.json"
    _put(place(), name, lines)
    return ActionsFile(name=name, size=len(lines), sha256=digest)


def _text(lines: bytes) -> str:
    try:
        return lines.decode()
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"the actions are not text in UTF-8: {problem}") from None


def _put(place: Place, name: str, data: bytes) -> None:
    """Let a file whose name follows from its bytes be there, as one of now.

    One from before is written again: cleaning up tells by its age that nobody is about to name it.
    """
    try:
        if not place.create(name, data):
            place.put(name, data)
    except OutcomeUnknown as problem:
        if place.size(name) != len(data):
            raise Unavailable(f"{problem.message}; nothing was committed", part="storage") from None
