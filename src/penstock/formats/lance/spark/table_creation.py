"""Creates a Lance table: declared in a transaction, so that it arrives with its rows, or never does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.errors import CommitConflict, JobOver, PenstockError, TableExists, TransactionOver
from penstock.formats.lance.lake.answers import LanceTableInfo
from penstock.formats.lance.lake.calls import CommitLance, DeclareLance, GetLanceTable
from penstock.formats.lance.lake.jobs import list_attempts, make_attempts_prefix, make_next_attempt_id
from penstock.formats.lance.spark.lance_write_options import LanceWriteOptions
from penstock.lake.call import CommitDescription
from penstock.lake.calls import GetReference
from penstock.lake.transactions.answers import TransactionInfo
from penstock.lake.transactions.calls import AbortTransaction, CommitTransaction
from penstock.lake.write_jobs import check_new_key
from penstock.model.commits import Commit
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.keys import Key
from penstock.model.operations import Delete
from penstock.model.transactions import PREFIX, TransactionState

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.transactions.transaction import Transaction


class NewLanceTable:
    """A table that nobody else sees yet."""

    def __init__(self, about: LanceTableInfo, branch: str, transaction: Transaction | None, job: str) -> None:
        self.about, self.branch = about, branch
        """Where its first version is committed."""
        self.job = job
        """Under which that is done once."""
        self._transaction = transaction

    def commit_table(self, description: CommitDescription) -> Commit | None:
        """Let it arrive; ``None`` in a transaction of the caller's, which is yet to land.

        ``CommitConflict`` if there is something at its key by now.
        """
        if self._transaction is None:
            return None
        landed = self._transaction.land(
            description.message, authors=description.authors, properties=description.properties
        )
        return landed.commit


@contextmanager
def declare_table(lake: Lake, key: Key, branch: str, order: LanceWriteOptions) -> Iterator[NewLanceTable]:
    """Declare a new table, to be filled and committed in this block; without a commit it is not created.

    Inside a transaction of the caller's it is part of that one, and taken back if this fails without rows.
    ``CommitConflict`` if the key is taken, ``JobOver`` if another attempt of the same job does the same.
    """
    check_new_key(key)
    if branch.startswith(PREFIX):
        about = _declare_table(lake, key, branch)
        try:
            yield NewLanceTable(about, branch, None, order.job)
        except BaseException:
            _withdraw_declared_table(lake, about, branch)
            raise
        return
    transaction = lake.transaction(
        branch, id=_make_next_id(lake, key, branch, order), message=order.message or ""
    )
    try:
        about = _declare_table(lake, key, transaction.branch)
    except CommitConflict:
        if order.is_named:
            # The transaction may be another attempt's, which began at the same moment: it goes on.
            raise JobOver(f"another attempt of job {order.job} is creating '{key}'", job=order.job) from None
        transaction.abort("the table already exists")
        raise
    with transaction:
        yield NewLanceTable(about, transaction.branch, transaction, uuid4().hex)


def _declare_table(lake: Lake, key: Key, branch: str) -> LanceTableInfo:
    try:
        lake.do(CommitLance(branch=branch, operations=(DeclareLance(key=key),), who=lake.author))
    except TableExists as problem:
        raise CommitConflict([Conflict(ConflictKind.FORMAT, key, why=problem.message)]) from None
    return lake.do(GetLanceTable(key=key, at=branch, to_write=True))


def _withdraw_declared_table(lake: Lake, about: LanceTableInfo, branch: str) -> None:
    """Drop a table that was only declared.

    One that has a version stays: whoever was interrupted, or heard no answer, may have made it, and the lake
    remembers that their job is done. That is looked at and done at one instant, so that no version goes that
    comes in between. What cannot be dropped now stays too, without rows.
    """
    with suppress(PenstockError):
        head = lake.branch(branch).head
        now = lake.do(GetLanceTable(key=about.key, at=head, via=branch))
        if now.id == about.id and now.version is None:
            lake.commit([Delete(about.key)], branch=branch, base=head, message=f"drop {about.key}")


# -- attempts of a job -------------------------------------------------------------------------------------


def find_earlier_landing(
    lake: Lake, key: Key, branch: str, order: LanceWriteOptions
) -> TransactionInfo | None:
    """The transaction by which an earlier attempt of a job created its table on a branch, if one did.

    One that is on its way is waited for; one that still writes is aborted, for this attempt takes its place.
    """
    for info in list_attempts(lake, _make_transaction_prefix(lake, key, branch, order)):
        ended = info
        if ended.state is TransactionState.OPEN:
            why = "a later attempt of its job began"
            ended = lake.do(AbortTransaction(id=info.id, why=why, who=lake.author))
        if ended.state is TransactionState.COMMITTING:
            with suppress(CommitConflict, TransactionOver):
                ended = lake.do(CommitTransaction(id=info.id, who=lake.author)).info
        if ended.state is TransactionState.COMMITTED:
            return ended
    return None


_ATTEMPTS_MAX = 1000


def _make_next_id(lake: Lake, key: Key, branch: str, order: LanceWriteOptions) -> str:
    """The id of a job's next transaction. Who names a job can find the ones before."""
    if not order.is_named:
        return uuid4().hex
    name = _make_transaction_prefix(lake, key, branch, order)
    before = list_attempts(lake, name)
    if len(before) >= _ATTEMPTS_MAX:
        raise JobOver(f"job {order.job} was tried {_ATTEMPTS_MAX} times; give it another id", job=order.job)
    return make_next_attempt_id(name, before)


def _make_transaction_prefix(lake: Lake, key: Key, branch: str, order: LanceWriteOptions) -> str:
    """What the ids of a job's transactions begin with.

    A job is that of one table on one branch: a branch that was deleted and made anew is another one.
    """
    incarnation = lake.do(GetReference(name=branch)).incarnation.hex()
    return make_attempts_prefix("lance job", order.job, str(key), branch, incarnation)
