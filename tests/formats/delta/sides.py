"""A Delta table with real rows on the branches of a lake, changed as engines change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable as ForeignTable

from penstock import Lake
from penstock.formats.delta.branch_log.replacements import make_remove
from penstock.formats.delta.branch_log.state_difference import unite_protocols
from penstock.formats.delta.lake.calls import CommitTables, TableCommit, TablePart, WriterReads
from penstock.formats.delta.lake.snapshot import TableSnapshot
from penstock.formats.delta.protocol.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DomainMetadata,
    Protocol,
    Remove,
    Txn,
    write_commit,
)
from penstock.formats.delta.rows.file_writer import write_files
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.model.keys import Key
from penstock.model.merges import MergeResult
from tests.formats.delta.rows import inline_vector, vector_data

KEY = "sales.orders"
TIMES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("timestampNtz",),
    writer_features=("timestampNtz",),
)
"""Of a table with times without a zone."""


def rows(*ids: int, day: str = "mon") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


def create(lake: Lake, *branches: str, properties: Mapping[str, str] | None = None) -> Side:
    """A table with two files on Monday and one on Tuesday, as main's versions 1 to 3, and branches of it."""
    lake.create_table(KEY, schema=rows(0).schema, partition_by="day", properties=properties)
    main = Side(lake, "main")
    main.append(1, 2)
    main.append(3, 4)
    main.append(5, 6, day="tue")
    for name in branches or ("dev",):
        lake.branch(name).create()
    return main


def log(lake: Lake) -> dict[str, bytes]:
    """The commits of the table's own log, once everything is published."""
    lake.table(KEY).backfill_to_version()
    folder = Path(lake.table(KEY).location) / "_delta_log"
    return {one.name: one.read_bytes() for one in sorted(folder.glob("*.json"))}


def foreign_ids(lake: Lake) -> list[int]:
    """The ids of the newest version in the log, as an engine reads them that never heard of branches."""
    lake.table(KEY).backfill_to_version()
    read = pa.table(ForeignTable(lake.table(KEY).location).scan())
    found: list[int] = sorted(read.column("id").to_pylist())
    return found


def foreign_changes(lake: Lake, since: int) -> list[tuple[str, int]]:
    """The change feed from a version on, likewise: what happened to which id."""
    lake.table(KEY).backfill_to_version()
    read = pa.table(ForeignTable(lake.table(KEY).location).load_cdf(starting_version=since))
    return sorted(zip(read.column("_change_type").to_pylist(), read.column("id").to_pylist(), strict=True))


class Side:
    """What one branch does to the table. No two rows have the same id."""

    def __init__(self, lake: Lake, branch: str) -> None:
        self.lake, self.branch = lake, branch
        self.table = lake.table(KEY, branch)
        self.seen: TableSnapshot | None = None
        """What it looked at a while ago, if it does not look again."""

    def now(self) -> TableSnapshot:
        return self.seen or self.table.snapshot()

    def ids(self) -> list[int]:
        found: list[int] = sorted(self.table.to_arrow().column("id").to_pylist())
        return found

    def merge(self, into: str = "main", **how: Any) -> MergeResult:
        return self.lake.merge(self.branch, into, **how)

    def append(self, *ids: int, day: str = "mon") -> TableCommitResult:
        return self.table.append(rows(*ids, day=day), message=f"append {ids}")

    def overwrite(self, *ids: int, day: str | None = None) -> TableCommitResult:
        """Put rows in the place of all, or of a day's."""
        partitions = None if day is None else {"day": day}
        return self.table.overwrite(rows(*ids, day=day or "mon"), partitions=partitions, message="overwrite")

    def delete(self, *ids: int, where_day: str | None = None, feed: bool = False) -> TableCommitResult:
        """Write the files anew that hold some rows, without these. They are all that was read, or else every
        file of a day was looked at."""
        now = self.now()
        touched, live = self._holding(now, ids), self.ids()
        day = touched[0].partition_values["day"] or ""
        kept = [one for add in touched for one in self._in(now, add) if one in live and one not in ids]
        adds = write_files(now.place, now.metadata, rows(*kept, day=day)) if kept else []
        told: list[Action] = [*map(_removal, touched), *adds]
        if feed:
            told.append(_feed(Path(now.location), ids, day))
        parts = () if where_day is None else (TablePart(values={"day": (where_day,)}),)
        return self._commit(now, "DELETE", told, WriterReads(parts=parts, files=_paths(touched)))

    def mask(self, *ids: int) -> TableCommitResult:
        """Delete rows of one file by a deletion vector."""
        return self._mask(ids)

    def mask_and_append(self, gone: int, *ids: int) -> TableCommitResult:
        """Delete a row by a deletion vector and add others, in one commit."""
        return self._mask((gone,), ids)

    def _mask(self, ids: Sequence[int], added: Sequence[int] = ()) -> TableCommitResult:
        now = self.now()
        (add,) = self._holding(now, ids)
        known, live = self._in(now, add), self.ids()
        gone = [at for at, one in enumerate(known) if one in ids or one not in live]
        stats = {"numRecords": len(known), "tightBounds": False}
        masked = msgspec.structs.replace(
            add,
            deletion_vector=inline_vector(vector_data(gone), len(gone)),
            stats=msgspec.json.encode(stats).decode(),
        )
        new = write_files(now.place, now.metadata, rows(*added)) if added else []
        operation = "MERGE" if added else "DELETE"
        return self._commit(now, operation, [_removal(add), masked, *new], WriterReads(files=_paths([add])))

    def compact(self, day: str) -> TableCommitResult:
        """Write a day's files anew as one, with the same rows."""
        now = self.now()
        old = [add for add in now.files() if add.partition_values["day"] == day]
        ids = [one for add in old for one in self._in(now, add)]
        new = write_files(now.place, now.metadata, rows(*ids, day=day))
        files: list[Action] = [*map(_removal, old), *new]
        told = [msgspec.structs.replace(one, data_change=False) for one in files]
        return self._commit(now, "OPTIMIZE", told, WriterReads(files=_paths(old)))

    def add_rows(self, *ids: int, whole_table: bool = False) -> TableCommitResult:
        """Add rows by a commit that tells what was looked at."""
        now = self.now()
        adds = write_files(now.place, now.metadata, rows(*ids))
        return self._commit(now, "WRITE", adds, WriterReads(whole_table=whole_table))

    def repeat(self, *ids: int) -> TableCommitResult:
        """Add the files that hold some rows once more, as a retry of another engine does."""
        files = self._holding(self.now(), ids)
        return self.table.append_actions([msgspec.structs.replace(one, data_change=True) for one in files])

    def remove_unread(self, *ids: int) -> TableCommitResult:
        """Remove the files that hold some rows, without having looked at anything."""
        now = self.now()
        return self._commit(now, "DELETE", [*map(_removal, self._holding(now, ids))], WriterReads())

    def bring_feature(self, name: str) -> TableCommitResult:
        now = self.now()
        more = Protocol(min_reader_version=1, min_writer_version=7, writer_features=(name,))
        return self._commit(now, "UPGRADE PROTOCOL", [unite_protocols(now.protocol, more)], WriterReads())

    def write_domain(self, name: str, text: str) -> TableCommitResult:
        domain = DomainMetadata(domain=name, configuration=text)
        return self._commit(self.now(), "WRITE DOMAIN", [domain], WriterReads())

    def batch(self, application: str, number: int, *ids: int) -> TableCommitResult:
        """What a stream does: rows, and which batch of it they are."""
        now = self.now()
        adds = write_files(now.place, now.metadata, rows(*ids))
        told: list[Action] = [Txn(app_id=application, version=number), *adds]
        return self._commit(now, "STREAMING UPDATE", told, WriterReads(applications=(application,)))

    def set_property(self, name: str, value: str) -> TableCommitResult:
        now = self.now()
        told = {**now.metadata.configuration, name: value}
        metadata = msgspec.structs.replace(now.metadata, configuration=told)
        return self._commit(now, "SET TBLPROPERTIES", [metadata], WriterReads())

    def add_column(self, name: str, kind: str = "string") -> TableCommitResult:
        now = self.now()
        wider = StructType((*now.schema.fields, Field(name=name, type=kind, nullable=True)))
        metadata = msgspec.structs.replace(now.metadata, schema_string=write_schema(wider))
        protocol = unite_protocols(now.protocol, TIMES) if kind == "timestamp_ntz" else now.protocol
        told: list[Action] = [metadata] if protocol == now.protocol else [protocol, metadata]
        return self._commit(now, "ADD COLUMNS", told, WriterReads())

    def _commit(
        self, now: TableSnapshot, operation: str, actions: Sequence[Action], looked: WriterReads
    ) -> TableCommitResult:
        info = CommitInfo({"operation": operation, "operationParameters": {}})
        commit = TableCommit(
            key=Key.parse(KEY),
            actions=write_commit([info, *actions]).decode(),
            read_version=now.version,
            reads=looked,
        )
        said = CommitDescription(message=operation.lower())
        return self.lake.do(
            CommitTables(tables=(commit,), branch=self.branch, said=said, who=self.lake.author)
        )

    def _holding(self, now: TableSnapshot, ids: Sequence[int]) -> list[Add]:
        return [add for add in now.files() if set(ids) & set(self._in(now, add))]

    @staticmethod
    def _in(now: TableSnapshot, add: Add) -> list[int]:
        """The ids of all rows that a file holds, in their order, also of those that are masked."""
        found: list[int] = pq.ParquetFile(Path(now.location) / add.path).read(["id"]).column("id").to_pylist()
        return found


def _feed(root: Path, ids: Sequence[int], day: str) -> Cdc:
    """A file of the change feed that tells of deleted rows."""
    path = f"_change_data/{uuid4()}.parquet"
    (root / path).parent.mkdir(exist_ok=True)
    deleted = {"id": pa.array(ids, pa.int64()), "_change_type": ["delete"] * len(ids)}
    pq.write_table(pa.table(deleted), root / path)
    size = (root / path).stat().st_size
    return Cdc(path=path, partition_values={"day": day}, size=size, data_change=False)


def _removal(add: Add) -> Remove:
    return make_remove(add, 1)


def _paths(files: Sequence[Add]) -> tuple[str, ...]:
    return tuple(one.key.path for one in files)
