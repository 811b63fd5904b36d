"""Running a function in a transaction, as often as it takes until what it did can land."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from penstock.errors import (
    CommitVetoed,
    ConflictError,
    InvalidRequest,
    JobOver,
    PenstockError,
    TransactionOver,
    TryAgainError,
)

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.lake.options import TransactionOptions
    from penstock.lake.transactions.transaction import Transaction
    from penstock.model.commits import Commit

R = TypeVar("R")

WAIT_MIN_S: Final = 0.05
WAIT_MAX_S: Final = 5.0
FINAL: Final = (CommitVetoed, TransactionOver, JobOver)
"""Conflicts that another try would meet again, or that somebody meant: a check said no, or it was aborted."""


class TransactionRun(NamedTuple, Generic[R]):
    """What came of a function that was run in a transaction."""

    value: R
    """That it returned."""
    commit: Commit | None
    """That its transaction landed as; nothing if it wrote nothing."""
    tries: int


def run_in_transaction(
    lake: Lake,
    function: Callable[[Transaction], R],
    target: str | None,
    retries: int,
    options: TransactionOptions,
) -> TransactionRun[R]:
    """Run a function until its transaction lands, or was tried once and so many times more.

    What a function raises after its transaction has landed is not tried again, nor is a conflict that a
    second try met as well where nobody had changed the branch meanwhile.
    """
    _check_function(function)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InvalidRequest(f"retries must be a whole number, 0 or greater, got {retries!r}")
    if options.get("id") is not None:
        raise InvalidRequest("lake.run takes no transaction id: each try is a transaction of its own")
    tries, wait_s, failure = 0, WAIT_MIN_S, ("", "")
    while True:
        tries += 1
        new_transaction: Transaction | None = None
        try:
            with lake.transaction(target, **options) as new_transaction:
                value = function(new_transaction)
            return TransactionRun(value, new_transaction.commit, tries)
        except (ConflictError, TryAgainError) as problem:
            if isinstance(problem, FINAL) or (
                new_transaction is not None and new_transaction.may_have_landed
            ):
                raise
            before, failure = (
                failure,
                ("" if new_transaction is None else new_transaction.base, problem.message),
            )
            if tries > retries or (isinstance(problem, ConflictError) and failure == before):
                raise _add_number_of_tries(problem, tries) from None
        time.sleep(random.uniform(wait_s / 2, wait_s))
        wait_s = min(wait_s * 2, WAIT_MAX_S)


def _check_function(function: Any) -> None:
    """``InvalidRequest`` for what a call does not run to its end: its transaction would land before it."""
    if not callable(function):
        raise InvalidRequest(f"lake.run needs a function, got a {type(function).__name__}")
    for candidate in (function, type(function).__call__):
        if inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate):
            raise InvalidRequest("a function that is run in a transaction cannot be async")
        if inspect.isgeneratorfunction(candidate):
            raise InvalidRequest(
                "a function that is run in a transaction cannot be a generator: return its value"
            )


def _add_number_of_tries(problem: PenstockError, tries: int) -> PenstockError:
    """The last error, with how often it was tried."""
    problem.details["tries"] = tries
    times = "once" if tries == 1 else f"{tries} times"
    problem.message += f"\n  It was tried {times}, each time in a new transaction, and nothing was committed."
    problem.args = (problem.message,)
    return problem
