"""Creating a Lance table with its first rows: it arrives with them, or never does.

It is declared, and then written by Lance, both in a transaction that nobody else sees. Under an idempotency
key that transaction has an id that follows from the key, so that whoever asks again finds what it came to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from lance_namespace import DeclareTableRequest, DeclareTableResponse, DescribeTableRequest

from penstock.errors import (
    CommitConflict,
    InvalidRequest,
    PenstockError,
    TableExists,
    TransactionOver,
)
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance, GetLanceTable
from penstock.formats.lance.lake.data_requests import read_request
from penstock.formats.lance.lake.jobs import (
    JobNamespace,
    LanceJob,
    list_attempts,
    make_attempts_prefix,
    make_next_attempt_id,
)
from penstock.formats.lance.lake.rows import LanceRowSource, find_earlier_write, make_commit_result
from penstock.lake.answers import TableCommitResult
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetReference
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import AbortTransaction, CommitTransaction
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.operations import Delete
from penstock.model.transactions import TransactionState, is_transaction

if TYPE_CHECKING:
    from penstock.lake.table import Table

ATTEMPTS_MAX: Final = 1000
"""How often something is tried under one idempotency key."""


def create_table(
    table: Table, data: Any, description: CommitDescription, idempotency_key: str | None
) -> TableCommitResult:
    """Create a table that has these rows from the beginning.

    ``CommitConflict`` if there is something at its key by now. In a transaction of the caller's it is part of
    that one, and taken back if this fails without rows.
    """
    source = LanceRowSource(data)
    if is_transaction(table.ref):
        _declare_table(table)
        try:
            return _write_first_rows(table, source, description, idempotency_key or uuid4().hex)
        except BaseException:
            _withdraw_declared_table(table)
            raise
    lake = table.lake
    message = description.message if description.message is not None else f"create {table.key}"
    with lake.transaction(table.ref, id=_make_next_id(table, idempotency_key), message=message) as inside:
        hidden = inside.table(table.key)
        _declare_table(hidden)
        _write_first_rows(hidden, source, description, uuid4().hex)
        landed = inside.land(message, authors=description.authors, properties=description.properties)
    return make_commit_result(table, landed.head, landed.commit, 1)


def find_earlier_creation(table: Table, idempotency_key: str | None) -> TableCommitResult | None:
    """What a creation under an idempotency key came to; ``None`` if none has landed.

    One that is on its way is waited for; one that still writes is aborted, for another takes its place.
    """
    if idempotency_key is None:
        return None
    if is_transaction(table.ref):
        return find_earlier_write(table, idempotency_key)
    for info in list_attempts(table.lake, _make_attempt_prefix(table, idempotency_key)):
        if (ended := _end_attempt(table, info)).state is TransactionState.COMMITTED:
            return make_commit_result(table, ended.commit, None, 1, is_repeated=True)
    return None


class _DeclaredTableJob(JobNamespace):
    """Asks for a table that is declared already, which Lance would declare before it writes."""

    def declare_table(self, request: DeclareTableRequest) -> DeclareTableResponse:
        parsed_request = read_request(DeclareTableRequest, request)
        table = self.describe_table(DescribeTableRequest(id=parsed_request.id))
        return DeclareTableResponse(location=table.location, managed_versioning=table.managed_versioning)


def _declare_table(table: Table) -> None:
    try:
        call = CommitLance(branch=table.ref, operations=(DeclareLance(key=table.key),), who=table.lake.author)
        table.lake.do(call)
    except TableExists as problem:
        raise CommitConflict([Conflict(ConflictKind.FORMAT, table.key, why=problem.message)]) from None


def _write_first_rows(
    table: Table, source: LanceRowSource, description: CommitDescription, job_id: str
) -> TableCommitResult:
    import lance

    job = LanceJob(key=table.key, branch=table.ref, id=job_id, id_name="idempotency_key", said=description)
    with source.source_errors_raised():
        committed = _DeclaredTableJob(table.lake, job).run_lance_job(
            lambda client: lance.write_dataset(
                source.rows, namespace_client=client, table_id=[*table.key], mode="create"
            )
        )
    return make_commit_result(table, committed.head, committed.commit, committed.version)


def _withdraw_declared_table(table: Table) -> None:
    """Drop the table unless it has a version: who heard no answer, or was interrupted, may have made it."""
    with suppress(PenstockError):
        head = table.lake.branch(table.ref).head
        if table.lake.do(GetLanceTable(key=table.key, at=head, via=table.ref)).version is None:
            message = f"drop {table.key}"
            table.lake.commit([Delete(table.key)], branch=table.ref, base=head, message=message)


# -- attempts under one key --------------------------------------------------------------------------------


def _make_next_id(table: Table, idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return uuid4().hex
    name = _make_attempt_prefix(table, idempotency_key)
    before = list_attempts(table.lake, name)
    if len(before) >= ATTEMPTS_MAX:
        raise InvalidRequest(
            f"'{idempotency_key}' was tried {ATTEMPTS_MAX} times without success; use another key"
        )
    return make_next_attempt_id(name, before)


def _make_attempt_prefix(table: Table, idempotency_key: str) -> str:
    """What the ids of all attempts begin with. A branch that was deleted and made anew is another one."""
    incarnation = table.lake.do(GetReference(name=table.ref)).incarnation.hex()
    return make_attempts_prefix("lance rows", idempotency_key, str(table.key), table.ref, incarnation)


def _end_attempt(table: Table, info: TransactionInfo) -> TransactionInfo:
    lake = table.lake
    if info.state is TransactionState.OPEN:
        why = "a later attempt under the same key began"
        info = lake.do(AbortTransaction(id=info.id, why=why, who=lake.author))
    if info.state is TransactionState.COMMITTING:
        with suppress(CommitConflict, TransactionOver):
            info = lake.do(CommitTransaction(id=info.id, who=lake.author)).info
    return info
