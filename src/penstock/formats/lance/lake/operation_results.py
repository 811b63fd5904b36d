"""The result of each operation of a commit to Lance tables, read from the commit itself.

So the answer to a request that is repeated is the one that its writer missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from penstock.formats.lance.content import LanceTable
from penstock.formats.lance.lake import calls
from penstock.formats.lance.lake.answers import LanceCommitResult, LanceOperationResult, LanceVersion
from penstock.formats.lance.lake.calls import LanceOperation
from penstock.formats.lance.lake.table_opener import OpenedTable, TableOpener
from penstock.formats.lance.names import MAIN, lance_branch_name
from penstock.formats.lance.state import (
    LanceState,
    LanceVersionReader,
    decode_state,
    is_managed,
    make_folder_url,
)
from penstock.kernel.batch import RequestOutcome
from penstock.model.clock import to_utc_datetime
from penstock.model.commits import Commit
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.lake.embedded import Embedded


class TableAtCommit(NamedTuple):
    """A table as a commit has it."""

    content: LanceTable
    state: LanceState
    versions: LanceVersionReader


class CommittedRequest(NamedTuple):
    """A commit request, with what its answer is computed from."""

    lake: Embedded
    opening: TableOpener
    call: calls.CommitLance
    tables: Mapping[Key, TableAtCommit | None] = MappingProxyType({})
    """Tables as the request's commit has them, where that was looked up."""


def find_table_at(lake: Embedded, commit: ObjectId, key: Key) -> TableAtCommit | None:
    """The table at a key of a commit; ``None`` if there is none whose versions the lake decides."""
    content = lake.read_content_at(commit, key)
    if not isinstance(content, LanceTable) or not is_managed(content):
        return None
    state = decode_state(content)
    return TableAtCommit(content, state, LanceVersionReader(lake.kernel.objects, state))


def make_result_of_outcome(doings: CommittedRequest, outcome: RequestOutcome) -> LanceCommitResult:
    """The answer to a request that was sent before, from its outcome."""
    if not outcome.commits:
        return make_result_of_commit(doings, None, outcome.head)
    return make_result_of_commit(doings, outcome.commits[-1], outcome.head)


def make_result_of_commit(
    doings: CommittedRequest, commit: ObjectId | None, head: ObjectId
) -> LanceCommitResult:
    """The answer to a request, from the commit that it landed as; from the head if it changed nothing."""
    made = None if commit is None else doings.lake.kernel.history.read_commit(commit)
    before = head if made is None else made.parent
    results = _OperationResults(doings, head if commit is None else commit, before)
    return LanceCommitResult(
        commit=None if made is None or commit is None else Commit.from_stored(commit, made),
        head=head.hex(),
        done=tuple(map(results.make_result, doings.call.operations)),
    )


class _OperationResults:
    """Computes the result of each operation from the lake before and after the commit."""

    def __init__(self, doings: CommittedRequest, after: ObjectId, before: ObjectId) -> None:
        self._lake, self._opening = doings.lake, doings.opening
        self._branch = doings.lake.get_branch_or_default(doings.call.branch)
        self._after, self._before, self._tables = after, before, doings.tables
        self._deleted: set[tuple[Key, str, int]] = set()

    def make_result(self, operation: LanceOperation) -> LanceOperationResult:
        if isinstance(operation, calls.DeregisterLance):
            return self._describe_table(self._find_table(self._before, operation.key))
        is_known = operation.key in self._tables
        table = self._tables[operation.key] if is_known else self._find_table(self._after, operation.key)
        if table is None:
            return LanceOperationResult()
        if isinstance(operation, calls.CreateLanceVersion):
            return LanceOperationResult(
                version=self._find_version(
                    operation.key, table, lance_branch_name(operation.branch), operation.version
                )
            )
        if isinstance(operation, calls.PutLanceBranch):
            begun = table.versions.get_branch(operation.branch)
            number = 0 if begun is None else begun.version
            return LanceOperationResult(
                version=self._find_version(operation.key, table, operation.branch, number)
            )
        if isinstance(operation, calls.DeleteLanceVersions):
            return LanceOperationResult(deleted=self._count_deleted(operation))
        return self._describe_table(table)

    def _find_table(self, commit: ObjectId, key: Key) -> TableAtCommit | None:
        return find_table_at(self._lake, commit, key)

    def _describe_table(self, table: TableAtCommit | None) -> LanceOperationResult:
        if table is None:
            return LanceOperationResult()
        location = table.content.location
        return LanceOperationResult(
            location=location,
            folder=make_folder_url(location, table.state.chain),
            properties=table.state.properties,
        )

    def _find_version(self, key: Key, table: TableAtCommit, branch: str, number: int) -> LanceVersion | None:
        version = table.versions.get_version(branch, number)
        if version is None:
            return None
        opened = OpenedTable(key, table.content, table.state, table.versions, version.chain, self._branch)
        placed = self._opening.place_after_commit(opened, branch, number, version)
        return LanceVersion(
            version=number,
            manifest=f"{table.content.location}/{placed.name}",
            size=placed.size,
            created=to_utc_datetime(version.time_us) if version.time_us else None,
            operation=version.operation.value,
            metadata=version.metadata,
        )

    def _count_deleted(self, operation: calls.DeleteLanceVersions) -> int:
        table, branch = self._find_table(self._before, operation.key), lance_branch_name(operation.branch)
        if table is None or self._before == self._after:
            return 0
        count = 0
        for number, _ in table.versions.list_versions(branch or MAIN):
            named = (operation.key, branch, number)
            if named not in self._deleted and any(
                start <= number and (end < 0 or number < end) for start, end in operation.ranges
            ):
                self._deleted.add(named)
                count += 1
        return count
