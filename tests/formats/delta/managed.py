"""A kernel that owns Delta tables, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from penstock.errors import ReferenceExists
from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import (
    ActionsBodyFile,
    CommitIntent,
    CreateIntent,
    Intent,
    make_change_operation,
)
from penstock.formats.delta.branch_log.ownership import NewTable, OwnerIdentity, first_commit
from penstock.formats.delta.format import UNPUBLISHED_MAX, DeltaFormat
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    CommitInfo,
    Metadata,
    Remove,
    Values,
    parse_commit,
    write_commit,
)
from penstock.formats.delta.protocol.transaction import DeltaReads, PartitionFilter
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.batch import RequestOutcome
from penstock.kernel.format import Table
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import read_content
from penstock.kernel.settings import Settings
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.objects import Blob
from penstock.model.references import Kind, Reference
from penstock.storage.places import Places
from penstock.stores.port import Store

SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"day","type":"string","nullable":true,"metadata":{}}]}'
)
KEY = "orders"
LAKE = "a-lake"


class Owner:
    """A kernel with the Delta format, over a store and a directory of tables."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        *,
        clock: Clock = now_us,
        background: bool = False,
        unpublished_max: int = UNPUBLISHED_MAX,
        lake: str = LAKE,
        kind: type[DeltaFormat] = DeltaFormat,
        places: Places | None = None,
    ) -> None:
        self.directory, self.places, self.clock = directory, places or Places(), clock
        self.identity = OwnerIdentity(lake)
        self.commits = CommitReader(self.places)
        self.publisher = Publisher(self.places, self.read, background=background)
        self.format = kind(self.places, self.identity, clock, self.publisher, self.commits, unpublished_max)
        self.kernel = Kernel(store, [self.format], Settings(write_timeout_s=30), clock)
        with suppress(ReferenceExists):
            self.kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)

    def read(self, one: ObjectId) -> bytes:
        blob = self.kernel.objects.get(one)
        assert isinstance(blob, Blob)
        return blob.data

    def put_files(self, *names: str) -> None:
        """Let there be data files of the table, empty ones: who brings files back looks whether they are
        there."""
        folder = Path(self.content().location)
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).touch()

    def close(self) -> None:
        self.publisher.close(5)
        self.places.close()

    def create(
        self,
        key: str = KEY,
        *,
        branch: str = "main",
        partition_by: Sequence[str] = (),
        actions: Sequence[Action] = (),
        properties: dict[str, str] | None = None,
    ) -> DeltaTable:
        identity, uuid = uuid4(), uuid4()
        new = NewTable(
            schema_string=SCHEMA, partition_columns=tuple(partition_by), properties=properties or {}
        )
        first = first_commit(new, self.identity, identity, uuid, self.clock() // 1000)
        location = str(self.directory / identity.hex)
        intent = CreateIntent(
            id=identity, location=location, actions=write_commit([*first, *actions]), uuid=uuid
        )
        self.ask(intent, key=key, branch=branch)
        return self.content(key, branch)

    def branch(self, name: str, at: str = "main") -> Reference:
        head = self.kernel.references.get_reference(at).head
        return self.kernel.references.create_reference(name, Kind.BRANCH, head)

    def ask(
        self, intent: Intent, *, key: str = KEY, branch: str = "main", once: str | None = None
    ) -> RequestOutcome:
        return self.kernel.commit(branch, [make_change_operation(key, intent)], key=once)

    def commit(
        self,
        actions: Sequence[Action] | bytes | ActionsBodyFile,
        *,
        key: str = KEY,
        branch: str = "main",
        uuid: UUID | None = None,
        version: int | None = None,
        read_version: int | None = None,
        reads: DeltaReads | None = None,
        replaces: tuple[PartitionFilter, ...] | None = None,
        has_new_files: bool = False,
    ) -> int:
        """Ask for a commit, and tell the table's latest version afterwards.

        With ``has_new_files`` as Penstock's own writers do, who name every file anew.
        """
        given = actions if isinstance(actions, bytes | ActionsBodyFile) else write_commit(actions)
        now = self.content(key, branch) if has_new_files else None
        if now is not None:
            reads = reads or DeltaReads()
            read_version = decode_branch_log(now).latest if read_version is None else read_version
        intent = CommitIntent(
            actions=given,
            uuid=uuid or uuid4(),
            version=version,
            read_version=read_version,
            reads=reads,
            replaces=replaces,
            table=None if now is None else now.id,
            read_tip=None if now is None else BranchLogTip.from_line(decode_branch_log(now)),
        )
        self.ask(intent, key=key, branch=branch)
        return self.line(key, branch).latest

    def content(self, key: str = KEY, branch: str = "main") -> DeltaTable:
        head = self.kernel.references.get_reference(branch).head
        content = read_content(self.kernel.objects, self.kernel.read_state(head).get(Key.parse(key).encode()))
        assert isinstance(content, DeltaTable)
        return content

    def line(self, key: str = KEY, branch: str = "main") -> BranchLog:
        return decode_branch_log(self.content(key, branch))

    def table(self, key: str = KEY, branch: str = "main", *, may_read: bool = True) -> Table:
        return Table(Key.parse(key), self.content(key, branch), self.read, may_read=may_read)

    def data(self, version: int, key: str = KEY, branch: str = "main") -> bytes:
        content, line = self.content(key, branch), self.line(key, branch)
        return self.commits.read_commit_bytes(
            self.table(key, branch), content.location, version, line.find_entry(version, self.read)
        )

    def actions(self, version: int, key: str = KEY, branch: str = "main") -> list[Action]:
        return [line.action for line in parse_commit(self.data(version, key, branch))]

    def info(self, version: int, key: str = KEY, branch: str = "main") -> CommitInfo:
        first = self.actions(version, key, branch)[0]
        assert isinstance(first, CommitInfo)
        return first

    def snapshot(self, key: str = KEY, branch: str = "main") -> LogSnapshot:
        return self.commits.read_snapshot(self.content(key, branch), self.read)

    def paths(self, key: str = KEY, branch: str = "main") -> set[str]:
        return {add.path for add in self.snapshot(key, branch).read_files()}

    def published(self, key: str = KEY) -> LogSnapshot:
        """The table as a reader sees it that knows nothing of Penstock, after everything is published."""
        content = self.content(key)
        self.publisher.publish_line(content)
        return load_snapshot(PlaceFiles(self.places.open_place(content.location)))


def add(path: str, day: str | None = None, *, data_change: bool = True) -> Add:
    values: Values = {} if day is None else {"day": day}
    return Add(path=path, partition_values=values, size=10, modification_time=1, data_change=data_change)


def remove(path: str, day: str | None = None, *, data_change: bool = True) -> Remove:
    values: Values = {} if day is None else {"day": day}
    return Remove(
        path=path,
        data_change=data_change,
        deletion_timestamp=1,
        extended_file_metadata=True,
        partition_values=values,
        size=10,
    )


def days(*names: str) -> PartitionFilter:
    """The partitions of some days."""
    return PartitionFilter({"day": names})


def with_property(metadata: Metadata, name: str, value: str) -> Metadata:
    return msgspec.structs.replace(metadata, configuration={**metadata.configuration, name: value})
