"""The Delta tables of a lake: creating, adopting and releasing them, and how far they are published."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from penstock.errors import InvalidRequest, OutcomeUnknown, PenstockError, Unavailable
from penstock.lake import calls
from penstock.lake.call import Said
from penstock.lake.delta import Actions, append, append_all, table_commit
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
    GetTableVersions,
    PublishTable,
    RecoverTable,
    ReleaseTable,
    TableCommit,
)
from penstock.lake.delta_rows import check_fit, rows_of, schema_text
from penstock.lake.table import Table
from penstock.model.keys import Key
from penstock.model.operations import Delete

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
        location: str | os.PathLike[str] | None = None,
        sole_writer: bool = False,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Table:
        """Create a table, at a place of its own or at a ``location``, and put ``data`` into it if given.

        ``schema`` is Arrow's, or Delta's as a value or as JSON; without it, the one of ``data``. The data is
        a commit of its own, after the one that creates the table. If it cannot be written, the table is
        dropped again, unless it has a named location, where it stays, empty. Under an ``idempotency_key`` it
        stays too: the same call goes on where it stopped.
        """
        rows = None if data is None else rows_of(data)
        text = schema_text(rows if schema is None else schema)
        if rows is not None:
            check_fit(rows, text)
        made = self.create_empty(
            key,
            text,
            partition_by=partition_by,
            properties=properties,
            description=description,
            location=location,
            sole_writer=sole_writer,
            branch=branch,
            message=message,
            author=author,
            idempotency_key=idempotency_key,
        )
        table = self._lake.table(made.key, branch)
        if rows is not None:
            said = calls.said(message, author)
            self._fill(table, made, rows, said, idempotency_key, is_placed=location is not None)
        return table

    def create_empty(
        self,
        key: str | Key,
        schema: Any,
        *,
        partition_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        description: str = "",
        location: str | os.PathLike[str] | None = None,
        sole_writer: bool = False,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableMade:
        """Create a table with nothing in it, and tell which commit did.

        Under an ``idempotency_key`` that is the first one, however often it is asked for.
        """
        call = CreateTable(
            key=Key.parse(key),
            schema=schema_text(schema),
            partition_by=(partition_by,) if isinstance(partition_by, str) else tuple(partition_by),
            properties=dict(properties or {}),
            description=description,
            location=None if location is None else absolute(location),
            sole_writer=sole_writer,
            branch=branch,
            said=calls.said(message, author),
            idempotency_key=idempotency_key,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def _fill(
        self, table: Table, made: TableMade, rows: Any, said: Said, key: str | None, *, is_placed: bool
    ) -> None:
        """Write the first rows of a table. If that fails, nothing of it is to be in the way of a retry."""
        again = f"{key}/data" if key is not None else None
        try:
            append(table, rows, said=said, idempotency_key=again)
        except OutcomeUnknown:
            raise
        except Exception as problem:
            if key is None and not is_placed:
                self._drop_empty(table, made)
            else:
                problem.add_note(f"'{table.key}' was created, and is empty")
            raise

    def _drop_empty(self, table: Table, made: TableMade) -> None:
        """Take back a table that its first rows could not be written to, unless somebody else wrote there."""
        with suppress(PenstockError):  # what went wrong with the rows is told, whatever becomes of this
            commit = self._lake.resolve(table.ref)
            now = self._lake.do(GetTableVersions(key=table.key, at=commit, via=table.ref, limit=0))
            if (now.id, now.latest_version) == (made.id, made.version):
                self._lake.commit(
                    [Delete(table.key)],
                    branch=table.ref,
                    base=commit,
                    message=f"drop {table.key}: its first rows could not be written",
                )

    def adopt(
        self,
        location: str | os.PathLike[str],
        key: str | Key | None = None,
        *,
        sole_writer: bool = False,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> TableMade:
        """Take over a table that so far got its commits from the file system.

        A relative path is one of this process. The answer of a table that was adopted already says so.
        """
        call = AdoptTable(
            location=absolute(location),
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

    def append(
        self,
        rows: Mapping[str, Any] | Mapping[Key, Any],
        *,
        branch: str | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ratified:
        """Add rows to several tables in one commit: readers of the lake see all of them, or none.

        ``rows`` are the rows of each table, by its key, as ``Table.append`` takes them.
        """
        tables = [(self._lake.table(key, branch), data) for key, data in rows.items()]
        said = calls.said(message, author)
        return append_all(self._lake, tables, branch, said=said, idempotency_key=idempotency_key)

    def commit(
        self,
        tables: Mapping[str, Actions] | Mapping[Key, Actions] | Sequence[TableCommit],
        *,
        branch: str | None = None,
        versions: Mapping[str, int] | Mapping[Key, int] | None = None,
        message: str | None = None,
        author: str | None = None,
        idempotency_key: str | None = None,
    ) -> Ratified:
        """Ratify the next versions of several tables, all or none.

        ``tables`` are the actions of each, by its key, and ``versions`` what they must become, where that
        matters; or all of it as values.
        """
        if isinstance(tables, Mapping):
            wanted = {Key.parse(key): version for key, version in (versions or {}).items()}
            tables = [
                table_commit(self._lake.table(key, branch), actions, version=wanted.get(Key.parse(key)))
                for key, actions in tables.items()
            ]
        elif versions is not None:
            raise InvalidRequest("'versions' go with actions by key; a TableCommit has a version of its own")
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
        if key is not None:
            return self._lake.do(GetTableStatus(key=Key.parse(key)))
        return tuple(self._lake.pages(GetTableStatus(), None, lambda last: {"after": last.key}))

    @overload
    def publish(self, key: str | Key, version: int | None = None) -> PublishedTable: ...
    @overload
    def publish(self) -> tuple[PublishedTable, ...]: ...

    def publish(
        self, key: str | Key | None = None, version: int | None = None
    ) -> PublishedTable | tuple[PublishedTable, ...]:
        """Have all versions of a table up to one, or all, in its own log; of all tables, if none is named.

        What stands against one table keeps no other from being published, and is raised after all were tried.
        """
        if key is not None:
            return self._lake.do(PublishTable(key=Key.parse(key), version=version))
        found = list(self.publish_each())
        for _, problem in found:
            if isinstance(problem, PenstockError):
                raise problem
        return tuple(one for _, one in found if isinstance(one, PublishedTable))

    def publish_each(self) -> Iterator[tuple[Key, PublishedTable | PenstockError]]:
        """Publish the tables of the default branch one by one, and tell what each came to."""
        for one in self.status():
            try:
                yield one.key, self._lake.do(PublishTable(key=one.key))
            except PenstockError as problem:
                yield one.key, problem
            except OSError as problem:
                yield one.key, Unavailable(f"'{one.key}' at {one.location} is not published: {problem}")

    def recover(
        self,
        location: str | os.PathLike[str],
        key: str | Key | None = None,
        *,
        lost: str | None = None,
        any_lake: bool = False,
    ) -> RecoveredTable:
        """Take a table back from its published log, after the lake that owned it was lost for good.

        ``lost`` is that lake's id; with ``any_lake`` instead, whatever lake the table names counts as lost.
        Without a key, it is called as in the lost lake, if it was created there.
        """
        call = RecoverTable(
            location=absolute(location),
            key=Key.parse(key) if key is not None else None,
            lost=lost,
            any_lake=any_lake,
            who=self._lake.author,
        )
        return self._lake.do(call)

    def checkpoint(self, key: str | Key) -> WrittenFile:
        """Write a checkpoint of a table's newest published version, unless there is one."""
        return self._lake.do(CheckpointTable(key=Key.parse(key)))

    def compact(self, key: str | Key, first: int | None = None, last: int | None = None) -> WrittenFile:
        """Write one file that stands in for several published commits of a table's log."""
        return self._lake.do(CompactLog(key=Key.parse(key), first=first, last=last))

    def clean(self, key: str | Key, *, dry_run: bool = False) -> CleanedLog:
        """Remove what a table's log needs no more: expired versions, and commits' files that nobody reads."""
        return self._lake.do(CleanLog(key=Key.parse(key), dry_run=dry_run))


def absolute(location: str | os.PathLike[str]) -> str:
    """A place as the lake can find it from wherever it runs."""
    place = os.fspath(location)
    return place if "://" in place else str(Path(place).absolute())
