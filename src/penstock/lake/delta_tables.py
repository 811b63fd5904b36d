"""The Delta tables of a lake: creating, adopting and releasing them, and how far they are published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRequest
from penstock.formats.delta.protocol.schema import StructType, write_schema
from penstock.lake import calls
from penstock.lake.delta_answers import (
    CleanedLog,
    PublishedTable,
    Ratified,
    RecoveredTable,
    TableMade,
    TableStatus,
    WrittenFile,
)
from penstock.lake.delta_calls import (
    AdoptTable,
    CheckpointTable,
    CleanLog,
    CommitTables,
    CompactLog,
    CreateTable,
    GetTableStatus,
    PublishTable,
    RecoverTable,
    ReleaseTable,
    TableCommit,
)
from penstock.lake.table import Table
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


class DeltaTables:
    """What can be done to the Delta tables of a lake, beside what a ``Table`` does."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def create(
        self,
        key: str | Key,
        *,
        schema: Any = None,
        data: Any = None,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str = "",
        location: str | None = None,
        sole_writer: bool = False,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Table:
        """Create a table, at a place of its own or at a ``location``, and put ``data`` into it if given.

        ``schema`` is Arrow's, or Delta's as a value or as JSON; without it, the one of ``data``. The data is
        a commit of its own, after the one that creates the table.
        """
        path = Key.parse(key)
        if data is not None:
            data = _stream(data)
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        call = CreateTable(
            key=path,
            schema=schema_text(data if schema is None else schema),
            partition_by=columns,
            properties=dict(properties or {}),
            description=description,
            location=location,
            sole_writer=sole_writer,
            branch=branch,
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        self._lake.do(call)
        table = self._lake.table(path, branch)
        if data is not None:
            again = f"{idempotency_key}/data" if idempotency_key is not None else None
            table.append(data, message=message, author=author, idempotency_key=again)
        return table

    def adopt(
        self,
        location: str,
        key: str | Key | None = None,
        *,
        sole_writer: bool = False,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableMade:
        """Take over a table that so far got its commits from the file system."""
        call = AdoptTable(
            location=location,
            key=Key.parse(key) if key is not None else None,
            sole_writer=sole_writer,
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def release(
        self,
        key: str | Key,
        *,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableMade:
        """Hand a table back to the file system, with all its versions published; its key is deleted."""
        call = ReleaseTable(
            key=Key.parse(key),
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def commit(
        self,
        tables: Sequence[TableCommit],
        *,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ratified:
        """Ratify the next versions of several tables, all or none."""
        call = CommitTables(
            tables=tuple(tables),
            branch=branch,
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def status(self, key: str | Key | None = None) -> tuple[TableStatus, ...]:
        """The tables of the default branch, by key, and how far each is published."""
        return self._lake.do(GetTableStatus(key=Key.parse(key) if key is not None else None))

    def publish(self, key: str | Key, version: int | None = None) -> PublishedTable:
        """Have all versions of a table up to one, or all, in its own log."""
        return self._lake.do(PublishTable(key=Key.parse(key), version=version))

    def recover(
        self, location: str, key: str | Key | None = None, *, lost: str | None = None
    ) -> RecoveredTable:
        """Take a table back from its published log, after the lake that owned it was lost for good.

        ``lost`` is that lake's id; without it, the table of any lake is taken.
        """
        path = Key.parse(key) if key is not None else None
        return self._lake.do(RecoverTable(location=location, key=path, lost=lost, who=self._lake.author))

    def checkpoint(self, key: str | Key) -> WrittenFile:
        """Write a checkpoint of a table's newest published version, unless there is one."""
        return self._lake.do(CheckpointTable(key=Key.parse(key)))

    def compact(self, key: str | Key, first: int | None = None, last: int | None = None) -> WrittenFile:
        """Write one file that stands in for several published commits of a table's log."""
        return self._lake.do(CompactLog(key=Key.parse(key), first=first, last=last))

    def clean(self, key: str | Key, *, dry_run: bool = False) -> CleanedLog:
        """Remove what a table's log needs no more: expired versions, and files of commits that lost."""
        return self._lake.do(CleanLog(key=Key.parse(key), dry_run=dry_run))


def schema_text(schema: Any) -> str:
    """A schema as Delta's metadata spells it: from Arrow's, from data, from a value, or as it is."""
    if isinstance(schema, str):
        return schema
    if isinstance(schema, StructType):
        return write_schema(schema)
    from penstock.formats.delta.rows.arrow_types import pa, schema_of

    if hasattr(schema, "__arrow_c_stream__") and isinstance(getattr(schema, "schema", None), pa.Schema):
        return write_schema(schema_of(schema.schema))
    if hasattr(schema, "__arrow_c_schema__"):
        return write_schema(schema_of(pa.schema(schema)))
    raise InvalidRequest(
        "a table is created from a schema or from data: give one of Arrow's or Delta's, or rows with "
        f"'__arrow_c_stream__', not {type(schema).__name__}"
    )


def _stream(data: Any) -> Any:
    """Rows as something whose schema can be looked at before they are read, once."""
    from penstock.formats.delta.rows.arrow_types import pa

    if isinstance(data, pa.Table | pa.RecordBatchReader) or not hasattr(data, "__arrow_c_stream__"):
        return data
    return pa.RecordBatchReader.from_stream(data)
