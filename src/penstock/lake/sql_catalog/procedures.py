"""The procedures of a catalog: branches, tags, history and transactions, for people who speak SQL.

Each is called as ``CALL lake.system.<name>(…)``, with named arguments, and has a statement of its own:
``CREATE BRANCH dev IN lake``. Those that keep tables in order are in ``maintenance``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from penstock.errors import (
    InvalidRequest,
    PenstockError,
    ReferenceNotFound,
    TransactionNotFound,
    TransactionOver,
)
from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.calls import DeleteReference
from penstock.lake.sql_catalog.maintenance import MAINTENANCE
from penstock.lake.sql_catalog.procedure import (
    CALL,
    MAINTAIN,
    CallResult,
    Parameter,
    Procedure,
    ProcedureCall,
)
from penstock.lake.sql_catalog.requests import CatalogRequest
from penstock.lake.sql_catalog.table_history import HISTORY
from penstock.lake.transactions.calls import BeginTransaction, RenewTransaction
from penstock.model.clock import to_microseconds
from penstock.model.references import Kind, Reference
from penstock.model.similar_names import describe_names
from penstock.model.transactions import PREFIX, Isolation, Policy, TransactionState

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.transactions.transaction import Transaction
    from penstock.lake.upkeep import OptimizedTable
    from penstock.lake.views import Branch, Tag
    from penstock.model.merges import MergeResult

LOG_LIMIT: Final = 100
SYSTEM: Final = "system"
"""The namespace of the procedures."""
_OPEN: Final[dict[str, Transaction]] = {}
"""Transactions that sessions of this process began, by their branches: their leases are renewed."""
_OPENING: Final = Lock()


def list_procedures() -> list[str]:
    return sorted(PROCEDURES)


def describe_procedure(name: str) -> dict[str, Any]:
    """What a caller has to know of a procedure. ``InvalidRequest`` if there is none of that name."""
    procedure = _find_procedure(name)
    return {
        "description": procedure.description,
        "columns": procedure.columns,
        "step": MAINTAIN if procedure.is_long else CALL,
        "parameters": [parameter._asdict() for parameter in procedure.parameters],
    }


def call_procedure(
    lake: Lake,
    request: CatalogRequest,
    *,
    is_in_driver: bool,
    progress: Progress = show_no_progress,
    optimize: Callable[..., OptimizedTable] | None = None,
) -> dict[str, Any]:
    """Carry out a procedure. ``InvalidRequest`` where a transaction is open that cannot hold it.

    ``optimize`` rewrites files of a table, where that is possible.
    """
    procedure = _find_procedure(request.procedure)
    if procedure.is_outside and request.transaction:
        raise InvalidRequest(
            f"'{request.procedure}' takes effect immediately, but a transaction is open in this session: "
            "COMMIT or ROLLBACK first"
        )
    result = procedure.run(ProcedureCall(lake, request, is_in_driver, progress, optimize))
    return {name: value for name, value in result._asdict().items() if value is not None}


def _find_procedure(name: str) -> Procedure:
    procedure = PROCEDURES.get(name.lower().removeprefix(f"{SYSTEM}."))
    if procedure is None:
        names = describe_names(name.lower().removeprefix(f"{SYSTEM}."), list_procedures(), above=f"{SYSTEM}.")
        raise InvalidRequest(f"there is no procedure '{name}'{names}")
    return procedure


# -- references --------------------------------------------------------------------------------------------


def _create_branch(call: ProcedureCall) -> CallResult:
    return _create_reference(call, call.lake.branch(call.get_text("name")))


def _create_tag(call: ProcedureCall) -> CallResult:
    return _create_reference(call, call.lake.tag(call.get_text("name")))


def _create_reference(call: ProcedureCall, reference: Branch | Tag) -> CallResult:
    if not (call.is_set("if_not_exists") and reference.exists):
        reference.create(call.get_optional_text("from_ref") or call.current_reference)
    return _show_new(reference)


def _drop_branch(call: ProcedureCall) -> CallResult:
    return _drop_reference(call, call.lake.branch(call.get_text("name")))


def _drop_tag(call: ProcedureCall) -> CallResult:
    return _drop_reference(call, call.lake.tag(call.get_text("name")))


def _drop_reference(call: ProcedureCall, reference: Branch | Tag) -> CallResult:
    try:
        dropped = call.lake.do(
            DeleteReference(
                name=reference.name,
                kind=reference.kind,
                expected=call.get_optional_text("expected"),
                who=call.lake.author,
            )
        )
    except ReferenceNotFound:
        if call.is_set("if_exists"):
            return CallResult([])
        raise
    return CallResult([[reference.kind.value, reference.name, dropped.id]])


def _assign_branch(call: ProcedureCall) -> CallResult:
    return _assign_reference(call, call.lake.branch(call.get_text("name")))


def _assign_tag(call: ProcedureCall) -> CallResult:
    return _assign_reference(call, call.lake.tag(call.get_text("name")))


def _assign_reference(call: ProcedureCall, reference: Branch | Tag) -> CallResult:
    return _show_new(reference.assign(call.get_text("to_ref"), expected=call.get_optional_text("expected")))


def _use_reference(call: ProcedureCall) -> CallResult:
    name = call.get_text("name")
    return CallResult([_describe_reference(call, name)], used=name)


def _show_reference(call: ProcedureCall) -> CallResult:
    return CallResult([_describe_reference(call, call.current_reference)])


def _describe_reference(call: ProcedureCall, name: str) -> list[Any]:
    kinds = {row.name: row.kind.value for row in _list_references(call.lake)}
    kind = "transaction" if name == call.session.transaction else kinds.get(name, "revision")
    return [kind, name, call.lake.resolve(name)]


def _show_references(call: ProcedureCall) -> CallResult:
    return CallResult([[row.kind.value, row.name, row.id] for row in _list_references(call.lake)])


def _list_references(lake: Lake) -> list[Reference]:
    return [*lake.references(Kind.BRANCH), *lake.references(Kind.TAG)]


def _show_new(reference: Branch | Tag) -> CallResult:
    return CallResult([[reference.kind.value, reference.name, reference.head]])


# -- history -----------------------------------------------------------------------------------------------


def _show_log(call: ProcedureCall) -> CallResult:
    limit = call.get_number("limit") or LOG_LIMIT
    commits = call.lake.log(call.get_optional_text("ref") or call.current_reference, limit=limit)
    return CallResult(
        [[commit.id, to_microseconds(commit.time), commit.author, commit.message] for commit in commits]
    )


def _show_diff(call: ProcedureCall) -> CallResult:
    differences = call.lake.diff(call.get_text("from_ref"), call.get_text("to_ref"))
    words = {"+": "added", "-": "dropped", "~": "changed"}
    return CallResult([[str(changed.key), words[changed.sign], changed.type] for changed in differences])


def _show_conflicts(call: ProcedureCall) -> CallResult:
    result = call.lake.merge(call.get_text("branch"), call.get_optional_text("into"), dry_run=True)
    return CallResult(
        [[str(conflict.key), conflict.kind.value, str(conflict)] for conflict in result.conflicts]
    )


def _merge_branch(call: ProcedureCall) -> CallResult:
    into = call.get_optional_text("into") or call.lake.default_branch
    result = call.lake.merge(call.get_text("branch"), into, message=call.get_optional_text("message"))
    return _describe_landing(into, result)


def _revert_commit(call: ProcedureCall) -> CallResult:
    result = call.lake.revert(call.get_text("ref"), call.branch, message=call.get_optional_text("message"))
    return _describe_landing(call.branch, result)


def _publish_branch(call: ProcedureCall) -> CallResult:
    published = call.lake.publish(call.get_text("branch"), call.get_optional_text("into"))
    return _describe_landing(published.into, published.merged)


def _describe_landing(branch: str, result: MergeResult) -> CallResult:
    return CallResult([[branch, result.head, result.applied]])


# -- transactions ------------------------------------------------------------------------------------------


def _begin_transaction(call: ProcedureCall) -> CallResult:
    if call.session.transaction:
        raise InvalidRequest("a transaction is already open in this session: COMMIT or ROLLBACK it first")
    isolation = call.get_optional_text("isolation") or Isolation.SNAPSHOT.value
    if isolation not in tuple(Isolation):
        raise InvalidRequest(f"unknown isolation {isolation!r}; it must be one of {', '.join(Isolation)}")
    if call.is_in_driver:
        began = call.lake.transaction(call.session.branch, isolation=isolation)
        with _OPENING:
            _OPEN[began.branch] = began
        return CallResult([[began.id, began.target]], transaction=began.branch)
    begin = BeginTransaction(
        id=call.session.statement or uuid4().hex,
        target=call.session.branch,
        policy=Policy.REBASE,
        isolation=Isolation(isolation),
        who=call.lake.author,
    )
    info = call.lake.do(begin)
    return CallResult([[info.id, info.target]], transaction=info.branch)


def _commit_transaction(call: ProcedureCall) -> CallResult:
    transaction = _open_transaction(call)
    landed = transaction.land(call.get_optional_text("message"))
    _forget_session(call.session)
    head = landed.commit.id if landed.commit is not None else None
    return CallResult([[transaction.target, head, head is not None]], transaction="")


def _rollback_transaction(call: ProcedureCall) -> CallResult:
    transaction = _open_transaction(call)
    info = transaction.abort("ROLLBACK")
    if info.state is not TransactionState.ABORTED:
        raise TransactionOver(
            f"the transaction {info.id} is {info.state.value}, and cannot be rolled back; COMMIT returns its "
            "outcome"
        )
    _forget_session(call.session)
    return CallResult([[transaction.id, transaction.target]], transaction="")


def renew_lease(lake: Lake, session: CatalogRequest) -> None:
    """Say that the session's transaction is still wanted, where nothing else renews its lease."""
    with suppress(TransactionNotFound, TransactionOver):  # what is asked of it says so
        lake.do(RenewTransaction(id=_get_session_id(session)))


def end_if_over(lake: Lake, session: CatalogRequest) -> bool:
    """Whether the session's transaction has ended, which a statement that failed does not tell by itself."""
    if not session.transaction:
        return False
    try:
        state = lake.find_transaction(_get_session_id(session)).info.state
    except TransactionNotFound:
        state = TransactionState.ABORTED
    except PenstockError:
        return False
    is_over = state is TransactionState.ABORTED
    if is_over:
        _forget_session(session)
    return is_over


def _open_transaction(call: ProcedureCall) -> Transaction:
    branch = call.session.transaction
    if not branch:
        raise InvalidRequest("no transaction is open in this session: BEGIN TRANSACTION first")
    with _OPENING:
        began = _OPEN.get(branch)
    return began if began is not None else call.lake.find_transaction(_get_session_id(call.session))


def _get_session_id(session: CatalogRequest) -> str:
    return session.transaction.removeprefix(PREFIX)


def _forget_session(session: CatalogRequest) -> None:
    with _OPENING:
        _OPEN.pop(session.transaction, None)


# -- all of them -------------------------------------------------------------------------------------------

_REFERENCE: Final = "type string, name string, hash string"
_LANDED: Final = "branch string, hash string, is_changed boolean"
_MESSAGE: Final = Parameter("message", default="NULL")
_IF_EXISTS: Final = Parameter("if_exists", "boolean", "false")
_IF_NOT_EXISTS: Final = Parameter("if_not_exists", "boolean", "false")
_FROM: Final = Parameter("from_ref", default="NULL")
_EXPECTED: Final = Parameter("expected", default="NULL")
_NAME: Final = Parameter("name")
_INTO: Final = Parameter("into", default="NULL")
_CREATION: Final = (_NAME, _FROM, _IF_NOT_EXISTS)

PROCEDURES: Final = {
    "create_branch": Procedure(
        "Create a branch at a revision, the session's reference if none is given.",
        _CREATION, _REFERENCE, _create_branch, is_outside=True,
    ),
    "create_tag": Procedure(
        "Create a tag at a revision, the session's reference if none is given.",
        _CREATION, _REFERENCE, _create_tag, is_outside=True,
    ),
    "drop_branch": Procedure(
        "Delete a branch, if it is at the commit that is expected.",
        (_NAME, _IF_EXISTS, _EXPECTED), _REFERENCE, _drop_branch, is_outside=True,
    ),
    "drop_tag": Procedure(
        "Delete a tag, if it is at the commit that is expected.",
        (_NAME, _IF_EXISTS, _EXPECTED), _REFERENCE, _drop_tag, is_outside=True,
    ),
    "assign_branch": Procedure(
        "Move a branch to a revision, if it is at the commit that is expected.",
        (_NAME, Parameter("to_ref"), _EXPECTED), _REFERENCE, _assign_branch, is_outside=True,
    ),
    "assign_tag": Procedure(
        "Move a tag to a revision, if it is at the commit that is expected.",
        (_NAME, Parameter("to_ref"), _EXPECTED), _REFERENCE, _assign_tag, is_outside=True,
    ),
    "use_reference": Procedure(
        "Set the reference of the session: later statements read and write a branch, or read another "
        "revision.",
        (_NAME,), _REFERENCE, _use_reference, is_outside=True,
    ),
    "show_reference": Procedure("The session's reference.", (), _REFERENCE, _show_reference),
    "show_references": Procedure("All branches and tags.", (), _REFERENCE, _show_references),
    "show_log": Procedure(
        "The commits of a revision, newest first.",
        (Parameter("ref", default="NULL"), Parameter("limit", "bigint", str(LOG_LIMIT))),
        "hash string, time timestamp, author string, message string",
        _show_log,
    ),
    "show_diff": Procedure(
        "The tables and namespaces that differ between two revisions.",
        (Parameter("from_ref"), Parameter("to_ref")),
        "key string, change string, type string",
        _show_diff,
    ),
    "show_conflicts": Procedure(
        "The conflicts of a merge, without merging.",
        (Parameter("branch"), _INTO),
        "key string, kind string, reason string",
        _show_conflicts,
    ),
    "merge_branch": Procedure(
        "Merge a branch into another, the default branch if none is given.",
        (Parameter("branch"), _INTO, _MESSAGE), _LANDED, _merge_branch, is_outside=True,
    ),
    "revert": Procedure(
        "Undo a commit by a new one.",
        (Parameter("ref"), Parameter("branch", default="NULL"), _MESSAGE),
        _LANDED,
        _revert_commit,
        is_outside=True,
    ),
    "publish": Procedure(
        "Check the expectations of a branch, and merge it if all of them hold.",
        (Parameter("branch"), _INTO), _LANDED, _publish_branch, is_outside=True,
    ),
    "begin_transaction": Procedure(
        "Begin a transaction: later statements of the session are part of it.",
        (Parameter("isolation", default="'snapshot'"),), "id string, target string", _begin_transaction,
    ),
    "commit_transaction": Procedure(
        "Commit all statements of the session's transaction, as one commit.",
        (_MESSAGE,), _LANDED, _commit_transaction,
    ),
    "rollback_transaction": Procedure(
        "Abort the session's transaction, without a commit.", (), "id string, target string",
        _rollback_transaction,
    ),
    **HISTORY,
    **MAINTENANCE,
}  # fmt: skip
"""By their names."""
