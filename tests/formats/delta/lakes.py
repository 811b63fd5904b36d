"""Lakes with Delta tables for tests: every part is real, and any number of them may share a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable as ForeignTable
from deltalake import write_deltalake

from penstock.errors import ReferenceExists
from penstock.formats.delta.branch_log.branch_log import BranchLog, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.intents import CommitIntent, make_change_operation
from penstock.formats.delta.branch_log.ownership import NewTable, OwnerIdentity
from penstock.formats.delta.format import DeltaFormat
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import LogSnapshot, load_snapshot
from penstock.formats.delta.ownership.handover import Handover
from penstock.formats.delta.ownership.owner import DeltaOwner, OwnerRatifiedTable
from penstock.formats.delta.ownership.recovery import TableRecovery
from penstock.formats.delta.ownership.status import PublicationOverview
from penstock.formats.delta.protocol.actions import Add, write_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.log_check import LogCheck
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.kernel.kernel import Kernel
from penstock.model.clock import Clock, now_us
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.nessie import DeltaTable
from penstock.model.operations import Change
from penstock.model.references import Kind
from penstock.storage.places import Place, Places
from penstock.stores.port import Store
from tests.formats.delta.logs import SCHEMA, add

NEW = NewTable(schema_string=SCHEMA)


class DeltaLake:
    """A process of a lake: whoever makes another one on the same store has a second process of it."""

    def __init__(
        self,
        store: Store,
        lake_id: str = "lake-1",
        *,
        handover: type[Handover] = Handover,
        publishes: bool = True,
        clock: Clock = now_us,
    ) -> None:
        self.places = Places()
        self.commits = CommitReader(self.places)
        self.publisher = Publisher(self.places, self._read, background=False)
        self.identity = identity = OwnerIdentity(lake_id, "https://lake.example.org")
        told = self.publisher if publishes else Publisher(self.places, self._read, background=False)
        self.format = DeltaFormat(self.places, identity, clock, told, self.commits)
        self.kernel = Kernel(store, [self.format], clock=clock)
        with suppress(ReferenceExists):
            self.kernel.references.create_reference("main", Kind.BRANCH, NO_COMMIT)
        self.owner = DeltaOwner(self.kernel, self.places, self.publisher, self.commits, identity)
        self.tables = self.owner.tables
        self.use(handover)

    def use(self, handover: type[Handover]) -> None:
        """Let tables come and go by another way, such as one that is interrupted."""
        hands = handover(self.tables, self.places, self.publisher, self.commits, self.identity)
        self.owner.handover = hands
        self.owner._recovery = TableRecovery(self.tables, self.places, hands, self.identity)
        self.owner._overview = PublicationOverview(
            self.tables,
            self.places,
            self.publisher,
            hands,
            self.identity,
            LogCheck(self.places, self.publisher, self.tables.find_last, lambda: None),
        )

    def _read(self, one: ObjectId) -> bytes:
        return self.tables.read_object(one)

    def content(self, key: str, branch: str = "main") -> DeltaTable:
        return self.tables.require_managed(self.tables.find_head(branch), Key.parse(key))

    def line(self, key: str, branch: str = "main") -> BranchLog:
        return decode_branch_log(self.content(key, branch))

    def has(self, key: str) -> bool:
        return self.tables.find_content(self.tables.find_head(), Key.parse(key)) is not None

    def append(self, key: str, *adds: Add, branch: str = "main", **more: Any) -> OwnerRatifiedTable:
        (table,) = self.owner.commit_versions(branch, [appended(key, *adds, **more)]).tables
        return table

    def catch_up(self) -> None:
        """Finish what was begun, and publish."""
        self.owner.catch_up()
        for key, content in list(self.tables.list_tables(self.tables.find_head())):
            self.owner.publish_table("main", key)
            assert content.state

    def close(self) -> None:
        self.publisher.close(5)
        self.places.close()


@contextmanager
def opened(store: Store, lake_id: str = "lake-1", **how: Any) -> Iterator[DeltaLake]:
    lake = DeltaLake(store, lake_id, **how)
    try:
        yield lake
    finally:
        lake.close()


def appended(key: str, *adds: Add, uuid: UUID | None = None, **more: Any) -> Change:
    """A blind append of files, or whatever ``more`` makes of it."""
    files = adds or (add(f"{uuid4()}.parquet"),)
    return make_change_operation(key, CommitIntent(actions=write_commit(files), uuid=uuid or uuid4(), **more))


def data_file(root: Path, *ids: int) -> Add:
    """A data file of a table with the one column ``id``, written into its root."""
    name = f"part-{uuid4()}.parquet"
    root.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), root / name)
    return add(name, size=(root / name).stat().st_size)


def foreign_append(root: Path, *ids: int) -> None:
    """What a writer of the file system does, that knows nothing of lakes."""
    write_deltalake(str(root), pa.table({"id": pa.array(ids, pa.int64())}), mode="append")


def foreign_ids(root: Path) -> list[int]:
    """The rows that a reader of the file system sees."""
    found: list[int] = sorted(ForeignTable(str(root)).to_pyarrow_table().column("id").to_pylist())
    return found


def foreign_version(root: Path) -> int:
    return int(ForeignTable(str(root)).version())


def log_bytes(root: Path, version: int) -> bytes | None:
    path = root / str(CommitName(version))
    return path.read_bytes() if path.exists() else None


def staged_names(root: Path) -> list[str]:
    folder = root / "_delta_log" / "_commits"
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


class Died(Exception):
    """Stands for a process that is gone."""


def dying(step: str, *, before: bool) -> type[Handover]:
    """A handover whose process dies right before, or right after, a step."""

    class Dying(Handover):
        def __getattribute__(self, name: str) -> object:
            found = super().__getattribute__(name)
            if name != step:
                return found

            def die(*given: object, **more: object) -> object:
                if not before:
                    found(*given, **more)
                raise Died(step)

            return die

    return Dying


def doing_before_the_put(action: Callable[[], object]) -> type[Handover]:
    """A handover in whose way something comes after its promise."""

    class Interrupted(Handover):
        def _put_conversion(self, place: Place, name: str, data: bytes) -> bool:
            action()
            return super()._put_conversion(place, name, data)

    return Interrupted


def published_snapshot(lake: DeltaLake, root: Path) -> LogSnapshot:
    return load_snapshot(PlaceFiles(lake.places.open_place(str(root))))


def create(lake: DeltaLake, warehouse: Path, key: str = "t", branch: str = "main") -> Path:
    made = lake.owner.create_table(branch, Key.parse(key), NEW, warehouse=str(warehouse))
    return Path(made.location)


def versioned(key: str, version: int, *paths: str) -> Change:
    """A writer's own version, with its ``commitInfo``."""
    return make_change_operation(
        key, CommitIntent(actions=write_commit([add(one) for one in paths]), uuid=uuid4(), version=version)
    )


def create_branch(kernel: Kernel, name: str) -> None:
    kernel.references.create_reference(name, Kind.BRANCH, kernel.references.get_reference("main").head)
