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
from penstock.formats.delta.lake.identities import IdentityNumbers, ReservedNumbers
from penstock.formats.delta.lake.replaced_parts import Values, check_inside, parts_of
from penstock.formats.delta.lake.written_files import removed_if_refused
from penstock.formats.delta.protocol.actions import (
    Action,
    CommitInfo,
    Metadata,
    Protocol,
    parse_action,
    write_action,
    write_commit,
)
from penstock.formats.delta.protocol.agreement import agree
from penstock.formats.delta.protocol.clustering import CLUSTERING
from penstock.formats.delta.protocol.features import supported_features
from penstock.formats.delta.protocol.lint_files import BRANCH_DATA
from penstock.formats.delta.protocol.partition_conditions import condition_columns
from penstock.formats.delta.protocol.properties import is_auto_compacted
from penstock.formats.registry import load
from penstock.lake.answers import Ratified
from penstock.lake.call import Said
from penstock.lake.calls import GetChanges, GetOutcome
from penstock.lake.job_files import JobStart
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

COMMITS_MAX: Final = 50
"""How often rows are offered to a table of whose numbers others give away some at the same time."""

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
    table_change = table_commit(table, actions, attempt=attempt, version=version)
    return _commit_tables(table.lake, (table_change,), branch, said, idempotency_key)


def table_commit(
    table: Table, actions: Actions, *, attempt: UUID | None = None, version: int | None = None
) -> TableCommit:
    """Actions as a part of a commit, which may be of several tables. A ``commitInfo`` says who wrote it."""
    signed = _sign(actions, table.lake.author)
    return TableCommit(
        key=table.key,
        actions=lines_to_send(
            lambda: table.lake.places.at(require_managed(table).location), lines_of(signed)
        ),
        attempt=attempt or uuid4(),
        version=version,
    )


def _sign(actions: Actions, author: str) -> Actions:
    if isinstance(actions, str | bytes) or not actions or not author:
        return actions
    first, *others = actions
    if not isinstance(first, CommitInfo) or "userName" in first.fields:
        return actions
    return [CommitInfo({**first.fields, "userName": author}), *others]


def _commit_tables(
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
    earlier = done_before(lake, [table.key for table, _ in tables], named, idempotency_key)
    if earlier is not None:
        return earlier
    with _TableWrite(lake) as writing:
        written = [writing.commit_of(table, data, None) for table, data in tables]
        ratified = writing.commit_with_retries(written, named, said, idempotency_key)
    writing.compact(ratified)
    return ratified


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
        raise InvalidRequest("'partitions' is empty; leave it out to overwrite all partitions")
    branch = table.require_branch()
    if (earlier := done_before(table.lake, [table.key], branch, idempotency_key)) is not None:
        return earlier
    with _TableWrite(table.lake) as writing:
        written = writing.commit_of(table, data, lambda metadata: parts_of(metadata, chosen, where))
        ratified = writing.commit_with_retries((written,), branch, said, idempotency_key)
    writing.compact(ratified)
    return ratified


def is_about_partitions(table: Table, where: str) -> bool:
    """Whether a condition is true for whole partitions or for none of their rows."""
    now = table.lake.do(GetTableVersions(key=table.key, at=table.require_branch(), limit=0))
    _, metadata = now.parse_declared()
    columns = condition_columns(where, metadata.schema_string)
    return bool(columns) and columns <= {name.lower() for name in metadata.partition_columns}


class _TableWrite:
    """A job of this process: rows become files of tables, and then part of them, together."""

    def __init__(self, lake: Lake) -> None:
        lake.begin_write(makes_lake=False)
        self._lake, self._began = lake, JobStart.now(lake)
        self._refused = ExitStack()
        self._numbers: dict[Key, IdentityNumbers] = {}
        self._compacted: dict[Key, Table] = {}

    def __enter__(self) -> _TableWrite:
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
        protocol, metadata = now.parse_declared()
        parts = replaces(metadata) if replaces is not None else None
        if is_auto_compacted(metadata.configuration):
            self._compacted[table.key] = table
        place = self._lake.places.at(now.location)
        numbers = ReservedNumbers(self._lake, table.key, branch, metadata)
        adds = write_files(
            place,
            metadata,
            rows_of(data),
            numbers=numbers,
            prefix=data_folder(self._lake, branch),
            clustering=clustering_of(table, protocol),
        )
        self._refused.enter_context(removed_if_refused(place, adds))
        check_inside(metadata, parts or (), adds)
        operation = {"mode": "Append" if parts is None else "Overwrite"}
        info = CommitInfo({"operation": "WRITE", "operationParameters": operation})
        numbers.keep_free()
        if numbers.marks:
            self._numbers[table.key] = numbers
        return msgspec.structs.replace(
            table_commit(table, [info, *numbers.changes(metadata), *adds]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=Looked(),
            replaces=parts,
        )

    def commit_with_retries(
        self, tables: Sequence[TableCommit], branch: str, said: Said, idempotency_key: str | None
    ) -> Ratified:
        for _ in range(COMMITS_MAX):
            self._began.check_in_time()
            try:
                return _commit_tables(self._lake, tables, branch, said, idempotency_key)
            except TableConflict:
                numbered = self._number_again(tables, branch)
                if numbered is None:
                    raise
                tables = numbered
        return _commit_tables(self._lake, tables, branch, said, idempotency_key)

    def compact(self, ratified: Ratified) -> None:
        """Put small files together in the tables that ask for it, if there are many by now."""
        for landed in ratified.tables:
            if landed.key in self._compacted:
                compact_if_due(self._compacted[landed.key], landed.version)

    def _number_again(self, tables: Sequence[TableCommit], branch: str) -> list[TableCommit] | None:
        """The commits once more, on top of tables whose numbers others have given away meanwhile; ``None`` if
        something else of the tables has changed, or nothing."""
        again = []
        for commit in tables:
            numbers = self._numbers.get(commit.key)
            if numbers is None:
                again.append(commit)
                continue
            now = self._lake.do(GetTableVersions(key=commit.key, at=branch, limit=0))
            if now.id != commit.table or now.tip == commit.read_tip:
                return None
            metadata = now.parse_declared()[1]
            if not numbers.is_only_numbered(metadata) or not isinstance(commit.actions, str):
                return None
            lines = [
                line
                for line in commit.actions.splitlines()
                if not isinstance(parse_action(line.encode()), Metadata)
            ]
            lines[1:1] = [write_action(action).decode() for action in numbers.changes(metadata)]
            again.append(
                msgspec.structs.replace(
                    commit,
                    actions="\n".join(lines) + "\n",
                    attempt=uuid4(),
                    read_version=now.latest_version,
                    read_tip=now.tip,
                )
            )
        return again if self._numbers else None


def compact_if_due(table: Table, version: int) -> None:
    """Put small files of a table together in this process, if there are many. See ``auto_compaction``."""
    folder = "penstock.formats.delta.lake"
    load(f"{folder}.auto_compaction:compact_if_due")(table, version, load(f"{folder}.bin_rewrites:ARROW"))


def repair(table: Table, said: Said) -> Ratified | None:
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
            reads=Looked(),
        )
        try:
            return _commit_tables(table.lake, (table_change,), branch, said, None)
        except TableConflict:
            if table.lake.do(GetTableVersions(key=table.key, at=branch, limit=0)).tip == now.tip:
                raise


def needs_repair(table: Table) -> bool:
    """Whether ``repair`` would change a table."""
    return any(True for _ in _repair_actions(table.outside_read_set.snapshot()))


def _repair_actions(snapshot: TableSnapshot) -> Iterator[Action]:
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
    return table.outside_read_set.snapshot().clustering if CLUSTERING in supported_features(protocol) else ()


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


def lines_of(actions: Actions) -> bytes:
    """Actions as the lines of a commit. ``MalformedAction`` if a line is no action."""
    if isinstance(actions, str | bytes):
        return actions.encode() if isinstance(actions, str) else actions
    return b"".join(_line(action) + b"\n" for action in actions)


def _line(action: Action | str | Mapping[str, Any]) -> bytes:
    if isinstance(action, str):
        return action.strip().encode()
    if isinstance(action, Mapping):
        return msgspec.json.encode(action)
    return write_commit((action,)).rstrip(b"\n")


def lines_to_send(place: Callable[[], Place], lines: bytes) -> str | ActionsFile:
    """The lines of a commit for the call: as text, or as a file beside the table if they are many.

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
        raise InvalidRequest(f"the actions are not UTF-8 text: {problem}") from None


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
