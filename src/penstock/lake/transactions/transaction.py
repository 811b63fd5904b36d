"""A transaction as a program holds it: a block whose writes land together at its end, or never."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import uuid4

import msgspec

from penstock.errors import (
    CheckFailed,
    ConflictError,
    InvalidRequest,
    OutcomeUnknown,
    PenstockError,
    RequestError,
    StorageFull,
    TransactionOver,
    TryAgainError,
)
from penstock.kernel.checks import NO_REASON, read_veto_reason, run_check
from penstock.kernel.time_limits import describe_reason
from penstock.lake.call import describe_commit as commit_said
from penstock.lake.options import BranchCommitOptions
from penstock.lake.transactions.answers import TransactionInfo, TransactionLanded
from penstock.lake.transactions.calls import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    GetTransaction,
    RenewTransaction,
)
from penstock.lake.transactions.engines import find_spark_session, is_spark_frame, load_penstock_spark
from penstock.lake.transactions.heartbeat import BEATS, Heartbeat
from penstock.lake.views import Branch
from penstock.model.transactions import Isolation, Policy, TransactionState

if TYPE_CHECKING:
    from penstock.formats.public_types import DeltaCreation, PenstockNamespace
    from penstock.lake.lake import Lake
    from penstock.lake.sql.result import SqlResult
    from penstock.lake.table import Table
    from penstock.model.commits import Commit
    from penstock.model.keys import Key

logger = logging.getLogger("penstock")

COMMIT_WAIT_S: Final = 60.0
"""How long the end of a transaction is tried to be found out, where the lake does not answer."""
WAIT_MAX_S: Final = 2.0
CHECKS: Final = "penstock.checks"
"""The property of its commit that names the checks that it passed."""
CHECK_MAX_CHARS: Final = 256
CHECKS_MAX: Final = 500
CHECKS_MAX_CHARS: Final = 8_192
"""Half of what a commit can say: the rest is for what else it is to say."""
NEITHER: Final = "it returned None, which is neither true nor false"


class Transaction:
    """A transaction: other readers see its writes only when they land on a branch, all at once.

    As a context manager it lands at the end of the block, and aborts if the block raises. Its reads see its
    own writes. Other functions read and write in the transaction if they are given its ``branch``.
    """

    def __init__(self, lake: Lake, info: TransactionInfo, *, beats: bool) -> None:
        """``beats`` renews its lease in the background for as long as this object lives."""
        self._lake, self._info = lake, info
        self._commit: Commit | None = None
        self._passed: list[str] = []
        self._is_sent = False
        self._heartbeat: Heartbeat | None = None
        if beats and info.expires is not None:
            self._heartbeat = Heartbeat(self, info.lease_s / BEATS)

    def __repr__(self) -> str:
        return f"<Transaction {self.id[:8]} on {self.target!r}>"

    def _repr_html_(self) -> str:
        from penstock.lake.notebook import show_transaction

        return show_transaction(self)

    @property
    def id(self) -> str:
        """By which any process finds it."""
        return self._info.id

    @property
    def branch(self) -> str:
        """What reads and writes in it name as their branch."""
        return self._info.branch

    @property
    def target(self) -> str:
        """Its target branch."""
        return self._info.target

    @property
    def base(self) -> str:
        """The commit of its target that it began at, and sees beside its own writes."""
        return self._info.base

    @property
    def may_have_landed(self) -> bool:
        """True if it has landed, or was sent and its outcome is unknown."""
        landed = (TransactionState.COMMITTING, TransactionState.COMMITTED)
        return self._info.state in landed or (self._is_sent and self._info.ended is None)

    @property
    def info(self) -> TransactionInfo:
        """The transaction, as it stands now."""
        return self._lake.do(GetTransaction(id=self.id))

    @property
    def writes(self) -> Branch:
        """Its branch, to read and write as any other."""
        return self._lake.branch(self.branch)

    @property
    def lance(self) -> PenstockNamespace:
        """Its Lance tables, as a namespace that Lance's own clients take."""
        return self._lake.lance(self.branch)

    @property
    def commit(self) -> Commit | None:
        """The commit that it landed as; ``None`` if it wrote nothing, or has not landed."""
        if self._commit is None and self._info.commit:
            self._commit = self._lake.show(self._info.commit)
        return self._commit

    # -- reading and writing -------------------------------------------------------------------------------

    def table(self, key: str | Key) -> Table:
        """A table, as the transaction sees it."""
        return self._lake.table(key, self.branch)

    def tables(self, prefix: str | Key | None = None) -> list[Table]:
        """The tables below a namespace, or all, as the transaction sees them."""
        return self.writes.tables(prefix)

    def sql(self, query: str) -> SqlResult:
        """Run a query over the tables as the transaction sees them; see ``Lake.sql``."""
        return self._lake.sql(query, self.branch)

    def create_table(
        self, key: str | Key, *, schema: Any = None, data: Any = None, **options: Unpack[DeltaCreation]
    ) -> Table:
        """Create a Delta table from a ``schema`` or from ``data``."""
        if "branch" in options:
            raise InvalidRequest("a transaction writes to its private branch: leave out 'branch'")
        options["branch"] = self.branch
        return self._lake.create_table(key, schema=schema, data=data, **options)

    def drop(self, key: str | Key, **options: Unpack[BranchCommitOptions]) -> Commit:
        """Delete a catalog entry. A namespace must be empty."""
        return self.writes.drop(key, **options)

    def write(
        self,
        data: Any,
        key: str | Key,
        *,
        mode: str = "append",
        format: str | None = None,  # noqa: A002 - as Spark's writer calls it
        **how: Any,
    ) -> Any:
        """Write rows to a table, which is created if it is not there.

        A DataFrame of Spark is written by Spark, and takes what ``penstock.spark.write`` takes. Others are
        written here, and take what ``Table.write`` takes. Returns what they return.
        """
        if is_spark_frame(data):
            placed = {"branch": self.branch, "lake": self._lake}
            return load_penstock_spark().write(data, key, mode=mode, format=format, **placed, **how)
        return self.table(key).write(data, mode=mode, format=format, **how)

    def read(self, key: str | Key, *, spark: Any = None, **how: Any) -> Any:
        """A table as a DataFrame of Spark, by the session that is given or the active one.

        Takes what ``penstock.spark.read`` takes, such as ``where`` and ``columns``. ``InvalidRequest`` if
        there is no session; without Spark, ``table(key).to_arrow()`` reads.
        """
        session = find_spark_session(spark, f"tx.table('{key}').to_arrow()")
        return load_penstock_spark().read(session, key, ref=self.branch, lake=self._lake, **how)

    def view(self, *keys: str | Key, spark: Any = None, name: str | None = None) -> str:
        """Make tables temporary views of a session of Spark; takes what ``penstock.spark.view`` takes.

        They show what the transaction has now, until this is called again.
        """
        session = find_spark_session(spark, "tx.table(…).to_arrow()")
        view_name: str = load_penstock_spark().view(
            session, *keys, ref=self.branch, name=name, lake=self._lake
        )
        return view_name

    def check(self, name: str, holds: bool | Callable[[Transaction], Any], why: str = "") -> None:
        """Check a condition: if it does not hold, ``CheckFailed`` is raised, and nothing of the block lands.

        ``holds`` is a bool, or a function that gets the transaction and returns what a check returns:
        ``False``, or the reason as text. The commit names all checks that passed.
        """
        self._check_name(name)
        if callable(holds):
            refusal = run_check(name, holds, self)
        else:
            refusal = NEITHER if holds is None else read_veto_reason(holds)
        if refusal is not None:
            reason = refusal if not why else why if refusal == NO_REASON else f"{why}: {refusal}"
            raise CheckFailed(f"check '{name}' failed: {reason}", check=name, reason=reason)
        if name not in self._passed:
            self._passed.append(name)

    def _check_name(self, name: object) -> None:
        """``InvalidRequest`` for a check that the commit could not name, before work is done in vain."""
        if not isinstance(name, str) or not 0 < len(name) <= CHECK_MAX_CHARS:
            raise InvalidRequest(
                f"the name of a check must be a string of 1 to {CHECK_MAX_CHARS} characters, got "
                f"{name!r:.100}"
            )
        if len({*self._passed, name}) > CHECKS_MAX or sum(map(len, {*self._passed, name})) > CHECKS_MAX_CHARS:
            raise InvalidRequest(
                f"a commit can have at most {CHECKS_MAX} checks, whose names have {CHECKS_MAX_CHARS} "
                "characters together: combine several checks into one"
            )

    # -- ending --------------------------------------------------------------------------------------------

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._info.ended is not None:
            return  # within the block
        if kind is not None:
            self._abort_quietly(_describe_exception(kind, error))
            return
        try:
            self.land()
        except RequestError as refused:
            self._abort_quietly(refused.message)  # if it was refused before it was sent
            raise
        except PenstockError:
            raise  # it has ended, or may land yet
        except BaseException as interrupted:
            self._abort_quietly(_describe_exception(type(interrupted), interrupted))
            raise

    def _abort_quietly(self, why: str) -> None:
        try:
            self.abort(why)
        except PenstockError as problem:  # its lease ends it, and the program has an error of its own
            logger.warning(
                "transaction %s could not be aborted; it ends by itself when its lease expires: %s",
                self.id,
                problem,
            )

    def land(
        self,
        message: str | None = None,
        *,
        author: str | None = None,
        authors: tuple[str, ...] | None = None,
        properties: Mapping[str, str | Sequence[str]] | None = None,
    ) -> TransactionLanded:
        """Commit the transaction, as one commit. Repeated, the call returns the same result.

        ``MergeConflict`` if what it changed, or has read, was changed on its target too; that aborts it.
        ``TransactionOver`` if it was aborted before, or is being committed with checks that this process has
        not: the message says what to do. ``StorageFull`` if the lake has no room for it: it stays open, and
        can land once there is. ``OutcomeUnknown`` if the lake does not answer for long: then the same call,
        from any process, finishes it and returns the result.
        """
        if message is not None:
            _require_text("the message", message)
        all_properties = {**(properties or {}), **({CHECKS: tuple(self._passed)} if self._passed else {})}
        meta = commit_said(message, author, all_properties)
        if authors is not None:
            meta = msgspec.structs.replace(meta, authors=authors)
        call = CommitTransaction(id=self.id, said=meta, who=self._lake.author)
        self._is_sent = True
        deadline_s, wait_s = time.monotonic() + COMMIT_WAIT_S, 0.05
        while True:
            try:
                landed = self._lake.do(call)
            except StorageFull as problem:  # to wait makes no room
                if not self._is_still_open():
                    raise self._unknown_error(problem) from problem
                self._is_sent = False
                raise
            except (TryAgainError, OutcomeUnknown) as problem:
                if time.monotonic() + wait_s > deadline_s:
                    raise self._unknown_error(problem) from problem
                time.sleep(wait_s)
                wait_s = min(wait_s * 2, WAIT_MAX_S)
            except ConflictError:
                self._is_sent = False
                self._stop_heartbeat()
                raise
            except RequestError:
                self._is_sent = False
                self._stop_if_sent()
                raise
            else:
                self._stop_heartbeat()
                self._info, self._commit = landed.info, landed.commit
                return landed

    def abort(self, why: str = "") -> TransactionInfo:
        """Abort the transaction, so that it never lands. One that has landed stays, and one that is landing
        cannot be aborted until 10 minutes after its commit was first sent: the result shows it."""
        self._stop_heartbeat()
        self._info = self._lake.do(AbortTransaction(id=self.id, why=why, who=self._lake.author))
        return self._info

    def renew(
        self, lease_s: float | None = None, properties: Mapping[str, str | None] | None = None
    ) -> TransactionInfo:
        """Renew its lease; or set properties, or remove those that are given as ``None``.

        ``TransactionOver`` if it is not open any more.
        """
        changes = dict(properties or {})
        _require_texts({name: value for name, value in changes.items() if value is not None})
        call = RenewTransaction(id=self.id, lease_s=_check_lease_seconds(lease_s), properties=changes)
        self._info = self._lake.do(call)
        return self._info

    def keep(self) -> None:
        """Renew its lease, as its heartbeat does."""
        self._lake.do(RenewTransaction(id=self.id))

    def _stop_if_sent(self) -> None:
        """Renew its lease no more, unless it was refused before it was sent: then it is open as before."""
        with suppress(PenstockError):  # the heartbeat finds out by itself
            if self.info.state is not TransactionState.OPEN:
                self._stop_heartbeat()

    def _is_still_open(self) -> bool:
        """Whether it is certain that its commit was not begun."""
        with suppress(PenstockError):
            return self.info.state is TransactionState.OPEN
        return False

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def _unknown_error(self, problem: PenstockError) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"it is not known yet whether transaction {self.id} was committed: {describe_reason(problem)}\n  "
            f"'penstock tx commit {self.id}' finishes it and shows the outcome; it can be run any number of "
            "times.",
            key=self.id,
            transaction=self.id,
        )


def begin_transaction(
    lake: Lake,
    target: str | None,
    *,
    message: str,
    isolation: str,
    policy: str,
    lease_s: float | None,
    id: str | None,  # noqa: A002
    properties: Mapping[str, str] | None,
) -> Transaction:
    """Begin a transaction, or go on with one that is open; ``TransactionOver`` if that has ended."""
    if policy not in tuple(Policy):
        raise InvalidRequest(f"unknown policy {policy!r}; it must be one of {', '.join(Policy)}")
    if isolation not in tuple(Isolation):
        raise InvalidRequest(f"unknown isolation {isolation!r}; it must be one of {', '.join(Isolation)}")
    call = BeginTransaction(
        id=uuid4().hex if id is None else _require_text("the id", id),
        target=None if target is None else _require_text("the target", target),
        policy=Policy(policy),
        isolation=Isolation(isolation),
        lease_s=_check_lease_seconds(lease_s),
        message=_require_text("the message", message),
        properties=_require_texts(properties or {}),
        who=lake.author,
    )
    return Transaction(lake, _require_open(lake.do(call)), beats=True)


def _require_text(subject: str, value: object) -> str:
    """``InvalidRequest`` for what a server could not read either."""
    if not isinstance(value, str):
        raise InvalidRequest(f"{subject} of a transaction must be a string, got {value!r}")
    return value


def _require_texts(texts: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(texts, Mapping):
        raise InvalidRequest(f"the properties of a transaction must be a dict of strings, got {texts!r}")
    return {
        _require_text("the name of a property", name): _require_text(f"the property '{name}'", value)
        for name, value in texts.items()
    }


def _check_lease_seconds(lease_s: float | None) -> float | None:
    if lease_s is not None and (isinstance(lease_s, bool) or not isinstance(lease_s, int | float)):
        raise InvalidRequest(f"lease_s must be a number of seconds, got {lease_s!r}")
    if isinstance(lease_s, float) and not math.isfinite(lease_s):  # which JSON has no words for
        raise InvalidRequest(f"lease_s must be finite, got {lease_s!r}")
    return lease_s


def _describe_exception(kind: type[BaseException], error: BaseException | None) -> str:
    """An exception of a program, as far as it can be told: its text is the program's own code."""
    try:
        return f"{kind.__name__}: {error}"
    except Exception:
        logger.exception("an exception of type %s has no message", kind.__name__)
        return kind.__name__


def _require_open(info: TransactionInfo) -> TransactionInfo:
    """``TransactionOver`` if a transaction that was begun before takes no more writes."""
    if info.state is TransactionState.OPEN and not info.is_late:
        return info
    what = "was idle for longer than its lease" if info.is_late else f"is already {info.state}"
    reason = f": {info.why}" if info.why else ""
    raise TransactionOver(
        f"transaction {info.id} {what}{reason}", transaction=info.id, state=info.state.value
    )
