"""Batches: changes of any number of tables in one commit, and transactions, which are the lake's."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from lance_namespace import (
    AlterTransactionRequest,
    AlterTransactionResponse,
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchDeleteTableVersionsResponse,
    DescribeTransactionRequest,
    DescribeTransactionResponse,
)
from lance_namespace_urllib3_client.models.alter_transaction_action import AlterTransactionAction
from lance_namespace_urllib3_client.models.commit_table_operation import CommitTableOperation
from lance_namespace_urllib3_client.models.commit_table_result import CommitTableResult

from penstock.errors import InvalidRequest, TransactionNotFound, TransactionOver
from penstock.formats.lance.lake.answers import LanceOperationResult
from penstock.formats.lance.lake.calls import DeregisterLance, LanceOperation
from penstock.formats.lance.lake.errors import declare_operation
from penstock.formats.lance.lake.namespaces import parse_choice
from penstock.formats.lance.lake.own_refs import OwnRefOperations
from penstock.formats.lance.lake.paths import parse_table_key
from penstock.formats.lance.lake.requests import run_for_operation
from penstock.formats.lance.lake.tables import make_declare_response, make_deregister_response
from penstock.formats.lance.lake.versions import make_create_response, make_delete_call
from penstock.formats.lance.names import VERSION_MAX
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import (
    AbortTransaction,
    CommitTransaction,
    GetTransaction,
    RenewTransaction,
)
from penstock.lake.views import Snapshot
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX, TransactionState

KINDS: Final = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")
_STATUS: Final = {
    TransactionState.OPEN: "Running",
    TransactionState.COMMITTING: "Running",
    TransactionState.COMMITTED: "Succeeded",
    TransactionState.ABORTED: "Canceled",
}
_TOO_LATE: Final = {
    TransactionState.OPEN: "transaction {id} was not cancelled; try again",
    TransactionState.COMMITTING: (
        "transaction {id} is being committed, and can no longer be cancelled; setting it to Succeeded "
        "finishes it"
    ),
    TransactionState.COMMITTED: (
        "transaction {id} was committed, and can no longer be cancelled; reverting its commit undoes it"
    ),
}
_SENT: Final = {
    "succeeded": (TransactionState.COMMITTING, TransactionState.COMMITTED),
    "failed": (TransactionState.ABORTED,),
    "canceled": (TransactionState.ABORTED,),
}
"""The states that a transaction is in once it was asked to have a status."""
_STATUSES: Final = ("queued", "running", "succeeded", "failed", "canceled")


class BatchOperations(OwnRefOperations):
    """What is about several tables."""

    @declare_operation(BatchCommitTablesRequest, in_batch=True)
    def batch_commit_tables(self, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
        """All operations at one instant, or none of them. An error names the operation that it is about.

        A batch that creates versions is done once however often it is sent: no two have the same manifests.
        """
        if not request.operations:
            raise InvalidRequest("a batch needs at least one operation")
        places, is_writing = (
            self._find_places_of_new_tables(request),
            any(map(_is_writing, request.operations)),
        )
        now = self.snapshot() if is_writing else None
        operations = [
            run_for_operation(number, self._make_operation, commit_table_operation, places, now)
            for number, commit_table_operation in enumerate(request.operations)
        ]
        committed = self.change_tables(operations, request.context, _make_batch_key(request))
        results = [
            _make_table_result(commit_table_operation, result)
            for commit_table_operation, result in zip(request.operations, committed.done, strict=True)
        ]
        transaction_id = None if committed.commit is None else committed.commit.id
        return BatchCommitTablesResponse(results=results, transaction_id=transaction_id)

    def _find_places_of_new_tables(self, request: BatchCommitTablesRequest) -> dict[Key, str]:
        """Where tables will be that a batch declares at a place, and may create versions of."""
        places: dict[Key, str] = {}
        for number, commit_table_operation in enumerate(request.operations):
            declare_table = commit_table_operation.declare_table
            if declare_table is not None and declare_table.id and declare_table.location:
                place = run_for_operation(number, self.make_whole_location, declare_table.location)
                places[run_for_operation(number, parse_table_key, declare_table.id)] = place
        return places

    def _make_operation(
        self, commit_table_operation: CommitTableOperation, places: dict[Key, str], now: Snapshot | None
    ) -> LanceOperation:
        kinds = [kind for kind in KINDS if getattr(commit_table_operation, kind) is not None]
        if len(kinds) != 1:
            what = " and ".join(kinds) if kinds else "nothing"
            raise InvalidRequest(f"an operation must have exactly one action, got {what}")
        if commit_table_operation.declare_table is not None:
            return self.declare_table_call(commit_table_operation.declare_table)
        if commit_table_operation.create_table_version is not None:
            if commit_table_operation.create_table_version.version > VERSION_MAX:
                raise InvalidRequest("a detached version cannot be part of a batch")
            return self.make_create_call(commit_table_operation.create_table_version, places, now)
        if commit_table_operation.delete_table_versions is not None:
            return make_delete_call(commit_table_operation.delete_table_versions)
        assert commit_table_operation.deregister_table is not None
        return DeregisterLance(key=parse_table_key(commit_table_operation.deregister_table.id))

    # -- transactions --------------------------------------------------------------------------------------

    @declare_operation(DescribeTransactionRequest)
    def describe_transaction(self, request: DescribeTransactionRequest) -> DescribeTransactionResponse:
        transaction = self.do(GetTransaction(id=_get_transaction_id(request.id)))
        return DescribeTransactionResponse(
            status=_STATUS[transaction.state], properties=_list_transaction_properties(transaction)
        )

    @declare_operation(AlterTransactionRequest)
    def alter_transaction(self, request: AlterTransactionRequest) -> AlterTransactionResponse:
        """Change properties, and then let the transaction land (``Succeeded``) or never (``Canceled``).

        Repeated, it is answered with what it came to.
        """
        identity = _get_transaction_id(request.id)
        transaction = self.do(GetTransaction(id=identity))
        status = _find_requested_status(request.actions)
        is_repeated = transaction.state in _SENT.get(status, ())
        properties = _find_changed_properties(transaction, request.actions, is_repeated=is_repeated)
        if properties and not (is_repeated and _has_properties(transaction, properties)):
            transaction = self.do(RenewTransaction(id=identity, properties=properties))
        if status == "succeeded":
            transaction = self.do(CommitTransaction(id=identity, who=self.lake.author)).info
        elif status in ("failed", "canceled"):
            why = "its client reported a failure" if status == "failed" else ""
            transaction = self.do(AbortTransaction(id=identity, why=why, who=self.lake.author))
            if transaction.state is not TransactionState.ABORTED:
                raise TransactionOver(_TOO_LATE[transaction.state].format(id=identity), transaction=identity)
        elif status and transaction.state is not TransactionState.OPEN:
            raise TransactionOver(f"transaction {identity} has already ended", transaction=identity)
        return AlterTransactionResponse(
            status=_STATUS[transaction.state], properties=_list_transaction_properties(transaction)
        )


def _is_writing(commit_table_operation: CommitTableOperation) -> bool:
    return commit_table_operation.create_table_version is not None


def _make_table_result(
    commit_table_operation: CommitTableOperation, result: LanceOperationResult
) -> CommitTableResult:
    if commit_table_operation.declare_table is not None:
        return CommitTableResult(declare_table=make_declare_response(result))
    if commit_table_operation.create_table_version is not None:
        made = make_create_response(result.version, commit_table_operation.create_table_version.version)
        return CommitTableResult(create_table_version=made)
    if commit_table_operation.delete_table_versions is not None:
        gone = BatchDeleteTableVersionsResponse(deleted_count=result.deleted)
        return CommitTableResult(delete_table_versions=gone)
    assert commit_table_operation.deregister_table is not None
    return CommitTableResult(
        deregister_table=make_deregister_response(commit_table_operation.deregister_table, result)
    )


def _make_batch_key(request: BatchCommitTablesRequest) -> str | None:
    """The key of a batch that has none of its own: nobody asks twice for the same manifest by mistake."""
    if all(operation.create_table_version is None for operation in request.operations):
        return None
    fields = request.model_dump(exclude={"context", "identity"}, exclude_none=True)
    return f"lance batch {hashlib.sha256(msgspec.json.encode(fields, order='sorted')).hexdigest()}"


def _get_transaction_id(parts: list[str] | None) -> str:
    """The id of a transaction: the last part, whatever table is named before it."""
    if not parts or not parts[-1]:
        raise InvalidRequest("the request lacks 'id', which names the transaction")
    identity = parts[-1].removeprefix(PREFIX)
    if len(identity) != 32 or any(digit not in "0123456789abcdef" for digit in identity):
        raise TransactionNotFound(f"there is no transaction '{identity}'", transaction=identity)
    return identity


def _find_requested_status(actions: list[AlterTransactionAction]) -> str:
    """The status that a transaction is to have; nothing if it keeps its own."""
    status = ""
    for action in actions:
        set_actions = [action.set_status_action, action.set_property_action, action.unset_property_action]
        if sum(each is not None for each in set_actions) != 1:
            raise InvalidRequest("an action must have exactly one field")
        if action.set_status_action is not None:
            if status:
                raise InvalidRequest("a transaction cannot be given two statuses at once")
            status = parse_choice(action.set_status_action.status, "", _STATUSES, "status")
    return status


def _find_changed_properties(
    transaction: TransactionInfo, actions: list[AlterTransactionAction], *, is_repeated: bool
) -> dict[str, str | None]:
    """What becomes of a transaction's properties. What a request asks for that ``is_repeated`` may be so
    already."""
    properties: dict[str, str | None] = {}
    for alter_transaction_action in actions:
        action: Any = (
            alter_transaction_action.set_property_action or alter_transaction_action.unset_property_action
        )
        if action is None:
            continue
        if not action.key:
            raise InvalidRequest("a property needs a name")
        is_there = {**transaction.properties, **properties}.get(action.key) is not None
        if alter_transaction_action.set_property_action is not None:
            mode = parse_choice(action.mode, "overwrite", ("overwrite", "fail", "skip"), "mode")
        else:
            mode = parse_choice(action.mode, "skip", ("skip", "fail"), "mode")
        if (
            not is_repeated
            and mode == "fail"
            and is_there == (alter_transaction_action.set_property_action is not None)
        ):
            raise InvalidRequest(
                f"property '{action.key}' {{'already exists' if is_there else 'is missing'}}"
            )
        if alter_transaction_action.unset_property_action is not None:
            properties[action.key] = None
        elif mode != "skip" or not is_there:
            properties[action.key] = action.value or ""
    return properties


def _has_properties(transaction: TransactionInfo, properties: dict[str, str | None]) -> bool:
    return all(transaction.properties.get(name) == value for name, value in properties.items())


def _list_transaction_properties(transaction: TransactionInfo) -> dict[str, str]:
    """A transaction's properties, with its target, branch, base, commit and reason as ``penstock.*``
    properties."""
    more = {
        "penstock.target": transaction.target,
        "penstock.branch": transaction.branch,
        "penstock.base": transaction.base,
    }
    if transaction.commit:
        more["penstock.commit"] = transaction.commit
    if transaction.why:
        more["penstock.why"] = transaction.why
    return {**transaction.properties, **more}
