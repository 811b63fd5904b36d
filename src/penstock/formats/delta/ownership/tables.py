"""The Delta tables of a lake, as its commits hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.errors import Damaged, KeyNotFound, NotManaged
from penstock.formats.delta.branch_log.branch_log import BranchLog, decode_branch_log, read_table_definition
from penstock.formats.delta.protocol.actions import Metadata, Protocol, parse_action
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.format import Table
from penstock.kernel.kernel import Kernel
from penstock.kernel.lake_state import find_prefix_end
from penstock.kernel.ledger import LEDGER, find_holder, find_last_content, find_table, read_ledger_entry
from penstock.kernel.objects import read_content
from penstock.kernel.table_horizons import TableHorizons, find_horizon
from penstock.lake.plugins import describe_usage, suggest_use
from penstock.model.commits import CommitMeta
from penstock.model.content import AnyContent, decode_content
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob, Holder
from penstock.model.operations import Operation


class TableRequest(NamedTuple):
    """Who asks for a write, in which words, and under which key it may be repeated."""

    meta: CommitMeta = CommitMeta()
    key: str | None = None
    digest: Callable[[], bytes] | None = None
    """A hash of the request as it was put; with a key, the same request gives the same hash again."""


class DeltaTableStore:
    """Looks up the Delta tables of a lake, and commits changes to them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.known_tables = kernel, kernel.known_tables

    @property
    def default_branch(self) -> str:
        return self.kernel.formats.default_branch

    def find_head(self, branch: str | None = None) -> ObjectId:
        """The newest commit of a branch, of the default one if none is named."""
        return self.kernel.references.get_reference(branch or self.default_branch).head

    def find_content(self, commit: ObjectId, key: Key) -> AnyContent | None:
        """What a key holds at a commit."""
        return read_content(self.kernel.objects, self.kernel.read_state(commit).get(key.encode()))

    def require_managed(self, commit: ObjectId, key: Key) -> DeltaTable:
        """The managed table at a key. ``KeyNotFound`` or ``NotManaged`` if there is none."""
        content = self.find_content(commit, key)
        if content is None:
            raise KeyNotFound(
                f"there is no table '{key}' at commit {commit.hex()[:8]}\n"
                f"  To create it: lake.table('{key}').write(rows), or lake.create_table('{key}', schema=…).",
                key=str(key),
            )
        if not isinstance(content, DeltaTable) and (usage := describe_usage(content)):
            raise NotManaged(f"'{key}' is {usage}", key=str(key))
        if not isinstance(content, DeltaTable):
            raise NotManaged(
                f"'{key}' is {content.type_in_words}; the lake reads and writes rows of Delta "
                f"tables, Lance tables and tables of files only{suggest_use(key, content)}",
                key=str(key),
            )
        if not content.state:
            raise NotManaged(
                f"'{key}' is not a Delta table that this lake manages\n  To let the lake manage it: penstock "
                "delta adopt",
                key=str(key),
            )
        return content

    def find_current_table(self, key: Key, identity: UUID, head: ObjectId | None = None) -> DeltaTable | None:
        """The table with an id, as long as the default branch has it at that key.

        ``head`` is the branch's newest commit, for a caller who looks up many.
        """
        content = self.find_content(head or self.find_head(), key)
        return (
            content if isinstance(content, DeltaTable) and content.state and content.id == identity else None
        )

    def read_object(self, data: ObjectId) -> bytes:
        """The bytes of a kernel object that a table holds."""
        stored = self.kernel.objects.get(data)
        if not isinstance(stored, Blob | Holder):
            raise Damaged(
                f"object {data.hex()} of the lake is damaged: it holds no bytes", objects=[data.hex()]
            )
        return stored.data

    def as_format_table(self, key: Key, content: DeltaTable, branch: str | None = None) -> Table:
        """The table as the format's rules take it, with storage readable."""
        name = branch or self.default_branch
        return Table(key, content, self.read_object, name, name == self.default_branch)

    def parse_declared(self, line: BranchLog) -> tuple[Protocol, Metadata]:
        """Protocol and metadata at the end of a line."""
        declared = read_table_definition(line, self.read_object)
        protocol, metadata = parse_action(declared.protocol), parse_action(declared.metadata)
        if not isinstance(protocol, Protocol) or not isinstance(metadata, Metadata):
            raise Damaged(
                f"the stored protocol or metadata of the table at version {line.latest} is not one of Delta: "
                f"{declared.protocol[:60]!r}, {declared.metadata[:60]!r}. 'penstock fsck' lists all damage; "
                "restore the lake's database from a backup"
            )
        return protocol, metadata

    def find_key(self, commit: ObjectId, identity: UUID | None) -> Key | None:
        """The key of the table with an id, ``None`` if it is not there."""
        return None if identity is None else find_table(self._make_lookup(commit), identity)

    def has_table(self, identity: UUID) -> bool:
        """Whether the default branch has the table with an id now."""
        head = self.find_head()
        return head != NO_COMMIT and self.find_key(head, identity) is not None

    def find_last_state(self, commit: ObjectId, identity: UUID) -> DeltaTable | None:
        """The table with an id as it is, or as it was when it was dropped; ``None`` if it never was there."""
        content = find_last_content(self._make_lookup(commit), identity)
        return content if isinstance(content, DeltaTable) and content.state else None

    def find_last(self, identity: UUID) -> DeltaTable | None:
        """The same at the newest commit of the default branch."""
        head = self.find_head()
        return None if head == NO_COMMIT else self.find_last_state(head, identity)

    def is_known(self, identity: UUID) -> bool:
        """Whether any branch or tag has a table with an id, or had one and dropped it."""
        return self.known_tables.is_known(identity)

    def is_erased(self, content: DeltaTable) -> bool:
        """Whether a state of a table lies behind the table's horizon, so that nothing of it is kept."""
        horizon = None if content.id is None else find_horizon(self.kernel.store, content.id)
        if horizon is None:
            return False
        return TableHorizons(self.kernel.formats, {horizon.table: horizon}).is_behind(content)

    def list_tables(self, commit: ObjectId) -> Iterator[tuple[Key, DeltaTable]]:
        """Every managed Delta table of a commit, from the ledger: other keys are not looked at."""
        look = self._make_lookup(commit)
        for identity in self._list_table_ids(commit):
            key = find_table(look, identity)
            content = None if key is None else look(key.encode())
            if key is not None and isinstance(content, DeltaTable) and content.state:
                yield key, content

    def list_dropped_tables(self, commit: ObjectId) -> Iterator[tuple[Key, DeltaTable]]:
        """Every managed Delta table that is not there any more, with the key and the content it had last."""
        look = self._make_lookup(commit)
        for identity in self._list_table_ids(commit):
            found_ledger_entry = read_ledger_entry(look, identity)
            if found_ledger_entry is None or found_ledger_entry.dropped is None:
                continue
            content = decode_content(found_ledger_entry.dropped)
            if isinstance(content, DeltaTable) and content.state:
                yield Key.decode(found_ledger_entry.key), content

    def find_holder(self, commit: ObjectId, location: str) -> UUID | None:
        """The table that came to a location last, whether it is still there or not."""
        return find_holder(self._make_lookup(commit), location)

    def _list_table_ids(self, commit: ObjectId) -> Iterator[UUID]:
        for stored, _ in self.kernel.read_state(commit).scan_entries(LEDGER, find_prefix_end(LEDGER)):
            yield UUID(hex=stored.removeprefix(LEDGER).decode())

    def commit_operations(
        self, operations: Sequence[Operation], request: TableRequest, branch: str | None = None
    ) -> RequestOutcome:
        """Carry out operations on a branch, with the namespaces that they need."""
        return self.kernel.commit(
            branch or self.default_branch,
            operations,
            request.meta,
            create_namespaces=True,
            key=request.key,
            fingerprint=request.digest,
        )

    def find_outcome(self, request: TableRequest, branch: str | None = None) -> RequestOutcome | None:
        """The outcome of the same request, if it was sent before; else ``None``."""
        if request.key is None:
            return None
        digest = None if request.digest is None else request.digest()
        return self.kernel.find_outcome(
            branch or self.default_branch, request.key, digest, about_itself=False
        )

    def _make_lookup(self, commit: ObjectId) -> Callable[[bytes], AnyContent | None]:
        state = self.kernel.read_state(commit)
        return lambda stored: read_content(self.kernel.objects, state.get(stored))


def decode_line_and_id(content: DeltaTable) -> tuple[BranchLog, UUID]:
    """The line of a managed table, and the table's id."""
    if content.id is None:
        raise Damaged(f"the table at {content.location} has no id")
    return decode_branch_log(content), content.id
