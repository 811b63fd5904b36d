"""Appends and overwrites of Delta tables: rows become files in this process, and then part of the tables.

Where a table asks for it, its small files are put together afterwards, by the writer that made the last of
many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest, TableConflict
from penstock.formats.delta.lake import bin_rewrites
from penstock.formats.delta.lake.auto_compaction import compact_if_due
from penstock.formats.delta.lake.calls import GetTableVersions, TableCommit, TablePart, WriterReads
from penstock.formats.delta.lake.identity_numbers import IdentityNumbers, ReservedNumbers
from penstock.formats.delta.lake.replaced_parts import Values, check_inside, make_replaced_parts
from penstock.formats.delta.lake.table import (
    commit_tables,
    data_folder,
    find_earlier_result,
    get_clustering,
    table_commit,
)
from penstock.formats.delta.lake.written_files import remove_files_if_refused
from penstock.formats.delta.protocol.actions import CommitInfo, Metadata, parse_action, write_action
from penstock.formats.delta.protocol.properties import is_auto_compacted
from penstock.formats.delta.rows.file_writer import write_files
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.job_files import JobStart
from penstock.lake.row_input import open_row_reader

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.table import Table
    from penstock.model.keys import Key

COMMITS_MAX: Final = 50
"""How often rows are offered to a table of whose numbers others give away some at the same time."""


def append_rows(
    table: Table, data: Any, *, description: CommitDescription, idempotency_key: str | None
) -> TableCommitResult:
    """Add rows. Whatever else lands meanwhile, they are added, unless the table itself was changed, or its
    branch has another history by then."""
    branch = table.require_branch()
    return append_all(
        table.lake, [(table, data)], branch, description=description, idempotency_key=idempotency_key
    )


def append_all(
    lake: Lake,
    tables: Sequence[tuple[Table, Any]],
    branch: str | None,
    *,
    description: CommitDescription,
    idempotency_key: str | None,
) -> TableCommitResult:
    """Add rows to tables of one branch, in one commit.

    If it is refused, the files that were written are removed, as far as possible. If it is not known what
    became of it, they stay.
    """
    named = branch if branch is not None else lake.default_branch
    earlier = find_earlier_result(lake, [table.key for table, _ in tables], named, idempotency_key)
    if earlier is not None:
        return earlier
    with _TableWrite(lake) as writing:
        written = [writing.make_commit(table, data, None) for table, data in tables]
        ratified = writing.commit_with_retries(written, named, description, idempotency_key)
    writing.compact_if_due(ratified)
    return ratified


def overwrite_rows(
    table: Table,
    data: Any,
    partitions: Values | Sequence[Values] | None,
    where: str | None,
    *,
    description: CommitDescription,
    idempotency_key: str | None,
) -> TableCommitResult:
    """Put rows in the place of all that are there at the commit's turn: in some partitions, or everywhere.

    What becomes of the files if that is refused is as in ``append_all``.
    """
    chosen = [partitions] if isinstance(partitions, Mapping) else partitions
    if chosen is not None and not all(chosen or [{}]):  # nothing must not come to mean everything
        raise InvalidRequest("'partitions' is empty; leave it out to overwrite all partitions")
    branch = table.require_branch()
    if (earlier := find_earlier_result(table.lake, [table.key], branch, idempotency_key)) is not None:
        return earlier
    with _TableWrite(table.lake) as writing:
        written = writing.make_commit(
            table, data, lambda metadata: make_replaced_parts(metadata, chosen, where)
        )
        ratified = writing.commit_with_retries((written,), branch, description, idempotency_key)
    writing.compact_if_due(ratified)
    return ratified


class _TableWrite:
    """A job of this process: rows become files of tables, and then part of them, together."""

    def __init__(self, lake: Lake) -> None:
        lake.begin_write(makes_lake=False)
        self._lake, self._began = lake, JobStart.at_lake_time(lake)
        self._refused = ExitStack()
        self._numbers: dict[Key, IdentityNumbers] = {}
        self._compacted: dict[Key, Table] = {}

    def __enter__(self) -> _TableWrite:
        self._refused.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._refused.__exit__(*raised)

    def make_commit(
        self, table: Table, data: Any, replaces: Callable[[Metadata], tuple[TablePart, ...]] | None
    ) -> TableCommit:
        """Write rows to files of the table, and return the commit that makes them part of it."""
        branch = table.require_branch()
        now = self._lake.do(GetTableVersions(key=table.key, at=branch, limit=0))
        protocol, metadata = now.parse_declared()
        parts = replaces(metadata) if replaces is not None else None
        if is_auto_compacted(metadata.configuration):
            self._compacted[table.key] = table
        place = self._lake.places.open_place(now.location)
        numbers = ReservedNumbers(self._lake, table.key, branch, metadata)
        adds = write_files(
            place,
            metadata,
            open_row_reader(data),
            numbers=numbers,
            prefix=data_folder(self._lake, branch),
            clustering=get_clustering(table, protocol),
        )
        self._refused.enter_context(remove_files_if_refused(place, adds))
        if parts is not None:
            check_inside(metadata, parts, adds)
        operation = {"mode": "Append" if parts is None else "Overwrite"}
        info = CommitInfo({"operation": "WRITE", "operationParameters": operation})
        numbers.keep_free()
        if numbers.marks:
            self._numbers[table.key] = numbers
        return msgspec.structs.replace(
            table_commit(table, [info, *numbers.list_metadata_changes(metadata), *adds]),
            table=now.id,
            read_version=now.latest_version,
            read_tip=now.tip,
            reads=WriterReads(),
            replaces=parts,
        )

    def commit_with_retries(
        self,
        tables: Sequence[TableCommit],
        branch: str,
        description: CommitDescription,
        idempotency_key: str | None,
    ) -> TableCommitResult:
        for _ in range(COMMITS_MAX):
            self._began.check_in_time()
            try:
                return commit_tables(self._lake, tables, branch, description, idempotency_key)
            except TableConflict:
                numbered = self._renumber_rows(tables, branch)
                if numbered is None:
                    raise
                tables = numbered
        return commit_tables(self._lake, tables, branch, description, idempotency_key)

    def compact_if_due(self, ratified: TableCommitResult) -> None:
        """Put small files together in the tables that ask for it, if there are many by now."""
        for landed in ratified.tables:
            if landed.key in self._compacted:
                compact_if_due(self._compacted[landed.key], landed.version, bin_rewrites.ARROW)

    def _renumber_rows(self, tables: Sequence[TableCommit], branch: str) -> list[TableCommit] | None:
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
            lines[1:1] = [write_action(action).decode() for action in numbers.list_metadata_changes(metadata)]
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
