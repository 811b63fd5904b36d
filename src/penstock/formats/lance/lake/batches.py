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
from penstock.formats.lance.lake.answers import LanceDone
from penstock.formats.lance.lake.calls import DeregisterLance, LanceOperation
from penstock.formats.lance.lake.errors import operation
from penstock.formats.lance.lake.namespaces import word
from penstock.formats.lance.lake.own_refs import OwnRefOperations
from penstock.formats.lance.lake.paths import table_key
from penstock.formats.lance.lake.requests import of_operation
from penstock.formats.lance.lake.tables import declared, deregistered
from penstock.formats.lance.lake.versions import created, deleting
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
        "transaction {id} is being committed, and is not cancelled now; setting it to Succeeded finishes it"
    ),
    TransactionState.COMMITTED: (
        "transaction {id} has landed, and is not called back; reverting its commit undoes it"
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

    @operation(BatchCommitTablesRequest, in_batch=True)
    def batch_commit_tables(self, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
        """All operations at one instant, or none of them. An error names the operation that it is about.

        A batch that creates versions is done once however often it is sent: no two have the same manifests.
        """
        if not request.operations:
            raise InvalidRequest("a batch has at least one operation")
        places, is_writing = self._places_of_new(request), any(map(_is_writing, request.operations))
        now = self.snapshot() if is_writing else None
        operations = [
            of_operation(number, self._as_asked, one, places, now)
            for number, one in enumerate(request.operations)
        ]
        committed = self.change(operations, request.context, _key(request))
        results = [
            _result(asked, done) for asked, done in zip(request.operations, committed.done, strict=True)
        ]
        transaction_id = None if committed.commit is None else committed.commit.id
        return BatchCommitTablesResponse(results=results, transaction_id=transaction_id)

    def _places_of_new(self, request: BatchCommitTablesRequest) -> dict[Key, str]:
        """Where tables will be that a batch declares at a place, and may create versions of."""
        found: dict[Key, str] = {}
        for number, asked in enumerate(request.operations):
            one = asked.declare_table
            if one is not None and one.id and one.location:
                place = of_operation(number, self.whole_location, one.location)
                found[of_operation(number, table_key, one.id)] = place
        return found

    def _as_asked(
        self, one: CommitTableOperation, places: dict[Key, str], now: Snapshot | None
    ) -> LanceOperation:
        said = [kind for kind in KINDS if getattr(one, kind) is not None]
        if len(said) != 1:
            what = " and ".join(said) if said else "nothing"
            raise InvalidRequest(f"an operation asks for exactly one thing, and not for {what}")
        if one.declare_table is not None:
            return self.declaring(one.declare_table)
        if one.create_table_version is not None:
            if one.create_table_version.version > VERSION_MAX:
                raise InvalidRequest("a version that belongs to no chain is no part of a batch")
            return self.creating(one.create_table_version, places, now)
        if one.delete_table_versions is not None:
            return deleting(one.delete_table_versions)
        assert one.deregister_table is not None
        return DeregisterLance(key=table_key(one.deregister_table.id))

    # -- transactions --------------------------------------------------------------------------------------

    @operation(DescribeTransactionRequest)
    def describe_transaction(self, request: DescribeTransactionRequest) -> DescribeTransactionResponse:
        found = self.do(GetTransaction(id=_transaction(request.id)))
        return DescribeTransactionResponse(status=_STATUS[found.state], properties=_told(found))

    @operation(AlterTransactionRequest)
    def alter_transaction(self, request: AlterTransactionRequest) -> AlterTransactionResponse:
        """Change properties, and then let the transaction land (``Succeeded``) or never (``Canceled``).

        Repeated, it is answered with what it came to.
        """
        identity = _transaction(request.id)
        found = self.do(GetTransaction(id=identity))
        status = _status(request.actions)
        is_repeated = found.state in _SENT.get(status, ())
        properties = _properties(found, request.actions, is_repeated=is_repeated)
        if properties and not (is_repeated and _has(found, properties)):
            found = self.do(RenewTransaction(id=identity, properties=properties))
        if status == "succeeded":
            found = self.do(CommitTransaction(id=identity, who=self.lake.author)).info
        elif status in ("failed", "canceled"):
            why = "its client said that it failed" if status == "failed" else ""
            found = self.do(AbortTransaction(id=identity, why=why, who=self.lake.author))
            if found.state is not TransactionState.ABORTED:
                raise TransactionOver(_TOO_LATE[found.state].format(id=identity), transaction=identity)
        elif status and found.state is not TransactionState.OPEN:
            raise TransactionOver(
                f"transaction {identity} has ended, and does not run any more", transaction=identity
            )
        return AlterTransactionResponse(status=_STATUS[found.state], properties=_told(found))


def _is_writing(one: CommitTableOperation) -> bool:
    return one.create_table_version is not None


def _result(asked: CommitTableOperation, done: LanceDone) -> CommitTableResult:
    if asked.declare_table is not None:
        return CommitTableResult(declare_table=declared(done))
    if asked.create_table_version is not None:
        made = created(done.version, asked.create_table_version.version)
        return CommitTableResult(create_table_version=made)
    if asked.delete_table_versions is not None:
        gone = BatchDeleteTableVersionsResponse(deleted_count=done.deleted)
        return CommitTableResult(delete_table_versions=gone)
    assert asked.deregister_table is not None
    return CommitTableResult(deregister_table=deregistered(asked.deregister_table, done))


def _key(request: BatchCommitTablesRequest) -> str | None:
    """The key of a batch that has none of its own: nobody asks twice for the same manifest by mistake."""
    if all(one.create_table_version is None for one in request.operations):
        return None
    said = request.model_dump(exclude={"context", "identity"}, exclude_none=True)
    return f"lance batch {hashlib.sha256(msgspec.json.encode(said, order='sorted')).hexdigest()}"


def _transaction(parts: list[str] | None) -> str:
    """The id of a transaction: the last part, whatever table is named before it."""
    if not parts or not parts[-1]:
        raise InvalidRequest("the request has to name a transaction: its id is empty")
    identity = parts[-1].removeprefix(PREFIX)
    if len(identity) != 32 or any(one not in "0123456789abcdef" for one in identity):
        raise TransactionNotFound(f"there is no transaction '{identity}'", transaction=identity)
    return identity


def _status(actions: list[AlterTransactionAction]) -> str:
    """The status that a transaction is to have; nothing if it keeps its own."""
    status = ""
    for one in actions:
        said = [one.set_status_action, one.set_property_action, one.unset_property_action]
        if sum(each is not None for each in said) != 1:
            raise InvalidRequest("an action asks for exactly one thing")
        if one.set_status_action is not None:
            if status:
                raise InvalidRequest("a transaction cannot be given two statuses at once")
            status = word(one.set_status_action.status, "", _STATUSES, "status")
    return status


def _properties(
    found: TransactionInfo, actions: list[AlterTransactionAction], *, is_repeated: bool
) -> dict[str, str | None]:
    """What becomes of a transaction's properties. What a request asks for that ``is_repeated`` may be so
    already."""
    properties: dict[str, str | None] = {}
    for one in actions:
        action: Any = one.set_property_action or one.unset_property_action
        if action is None:
            continue
        if not action.key:
            raise InvalidRequest("a property has a name")
        is_there = {**found.properties, **properties}.get(action.key) is not None
        if one.set_property_action is not None:
            mode = word(action.mode, "overwrite", ("overwrite", "fail", "skip"), "mode")
        else:
            mode = word(action.mode, "skip", ("skip", "fail"), "mode")
        if not is_repeated and mode == "fail" and is_there == (one.set_property_action is not None):
            raise InvalidRequest(f"property '{action.key}' is {'there already' if is_there else 'missing'}")
        if one.unset_property_action is not None:
            properties[action.key] = None
        elif mode != "skip" or not is_there:
            properties[action.key] = action.value or ""
    return properties


def _has(found: TransactionInfo, properties: dict[str, str | None]) -> bool:
    return all(found.properties.get(name) == value for name, value in properties.items())


def _told(found: TransactionInfo) -> dict[str, str]:
    """A transaction's properties, with what else there is to tell."""
    more = {"penstock.target": found.target, "penstock.branch": found.branch, "penstock.base": found.base}
    if found.commit:
        more["penstock.commit"] = found.commit
    if found.why:
        more["penstock.why"] = found.why
    return {**found.properties, **more}
