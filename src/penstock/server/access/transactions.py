"""Access rules for transactions: the token that began one may use it, with its rights on the target branch.

The branch of a transaction belongs to that token alone. For all other tokens except administrators the
transaction does not exist, whatever they may read and write elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.errors import InvalidRequest, TransactionNotFound
from penstock.kernel.reference_rows import transaction_not_found_error
from penstock.lake.call import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.transactions.answers import TransactionInfo, TransactionLanded
from penstock.lake.transactions.calls import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    GetTransaction,
    ListTransactions,
    NoteReads,
    RenewTransaction,
)
from penstock.model.tokens import Role
from penstock.model.transactions import PREFIX, is_transaction_branch_name
from penstock.server.access.caller import Caller
from penstock.server.access.rights import CallerRights, may_use

_NAMED: Final = re.compile(rf"(?:^|\.\.){PREFIX}([0-9a-f]{{32}})(?![A-Za-z0-9/_-])")
"""A transaction's branch in a revision, or in a range of two."""
_NO_REVISIONS: Final = frozenset(("who", "why", "what", "message", "idempotency_key", "text", "author"))
"""Fields that are texts of callers."""


def begin_transaction(rights: CallerRights, call: BeginTransaction) -> TransactionInfo:
    rights.caller.require_role(Role.WRITE, rights.get_reference_or_default(call.target))
    try:
        transaction = rights.do(msgspec.structs.replace(call, who=rights.caller.name or call.who))
    except InvalidRequest:  # it may tell of one that has this id, and is not theirs
        with suppress(TransactionNotFound):
            _require_own(rights, rights.do(GetTransaction(id=call.id)))
        raise
    _require_own(rights, transaction)
    return transaction


def _require_own(rights: CallerRights, transaction: TransactionInfo) -> None:
    if not may_use(rights.caller, transaction):
        raise InvalidRequest(
            f"the transaction {transaction.id} already exists; use another id for another transaction"
        ) from None


def get_transaction(rights: CallerRights, call: GetTransaction) -> TransactionInfo:
    transaction = _find_own(rights, call.id)
    return rights.do(call) if call.reads else transaction


def renew_transaction(rights: CallerRights, call: RenewTransaction) -> TransactionInfo:
    _find_own(rights, call.id)
    return rights.do(call)


def note_reads(rights: CallerRights, call: NoteReads) -> TransactionInfo:
    """Whoever may use it may say so of anything: it only keeps the transaction from landing."""
    _find_own(rights, call.id)
    return rights.do(call)


def commit_transaction(rights: CallerRights, call: CommitTransaction) -> TransactionLanded:
    """What was written in it was checked then; whoever lost all rights on its target since lands nothing."""
    rights.caller.require_role(Role.WRITE, _find_own(rights, call.id).target)
    return rights.do(msgspec.structs.replace(call, who=rights.caller.name or call.who))


def abort_transaction(rights: CallerRights, call: AbortTransaction) -> TransactionInfo:
    _find_own(rights, call.id)
    return rights.do(msgspec.structs.replace(call, who=rights.caller.name or call.who))


def list_transactions(rights: CallerRights, call: ListTransactions) -> tuple[TransactionInfo, ...]:
    caller = rights.caller
    return rights.list_visible_items(
        call,
        lambda transaction: transaction if may_use(caller, transaction) else None,
        lambda transaction: transaction.id,
    )


def find_named_transactions(call: Call[Any]) -> frozenset[str]:
    """The ids of the transactions whose branches a call names, wherever it names one."""
    return frozenset(named for text in _find_branch_names(call) for named in _NAMED.findall(text))


def grant_transaction_rights(catalogue: Catalogue, caller: Caller, transactions: Iterable[str]) -> Caller:
    """A caller who may use the branches of transactions as they may use those that these land on.

    ``TransactionNotFound`` if one of them is not theirs.
    """
    inside: dict[str, str] = {}
    for transaction_id in transactions:
        transaction = catalogue.do(GetTransaction(id=transaction_id))
        if not may_use(caller, transaction):
            raise transaction_not_found_error(transaction_id)
        inside[transaction.branch] = transaction.target
    return msgspec.structs.replace(caller, inside={**caller.inside, **inside}) if inside else caller


class TransactionAccess:
    """The rights of a caller on branches that their request does not name, and that may be transactions'."""

    def __init__(self, rights: CallerRights) -> None:
        self._rights = rights
        self._known: dict[str, CallerRights | None] = {}

    def find_rights_on_branch(self, branch: str) -> CallerRights | None:
        """The rights that count on a branch; ``None`` if it is of a transaction that is not theirs."""
        if not is_transaction_branch_name(branch):
            return self._rights
        if branch not in self._known:
            self._known[branch] = self._find_rights_in_transaction(branch)
        return self._known[branch]

    def _find_rights_in_transaction(self, branch: str) -> CallerRights | None:
        caller = self._rights.caller
        try:
            transaction = self._rights.do(GetTransaction(id=branch.removeprefix(PREFIX)))
        except TransactionNotFound:
            return self._rights if caller.is_admin else None  # it ended long ago
        return (
            self._rights.add_transactions({transaction.branch: transaction.target})
            if may_use(caller, transaction)
            else None
        )


def _find_branch_names(value: Any) -> Iterator[str]:
    """The texts in a call that may name a branch. Lists of operations and files name none."""
    for field in value.__struct_fields__:
        field_value = getattr(value, field)
        if isinstance(field_value, str) and field not in _NO_REVISIONS:
            yield field_value
        elif isinstance(field_value, tuple) and field_value:
            if isinstance(field_value[0], str):
                yield from (text for text in field_value if isinstance(text, str))
            elif "at" in getattr(field_value[0], "__struct_fields__", ()):
                yield from (branch.at for branch in field_value if isinstance(branch.at, str))


def _find_own(rights: CallerRights, id: str) -> TransactionInfo:  # noqa: A002
    transaction = rights.do(GetTransaction(id=id))
    if not may_use(rights.caller, transaction):
        raise transaction_not_found_error(id)
    return transaction
