"""One transaction as a program runs it: it reads lists, adds to them, writes them anew and drops them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.errors import ConflictError, TransactionNotFound
from penstock.lake.lake import Lake
from penstock.lake.transactions.transaction import Transaction
from penstock.model.transactions import Isolation, Policy, TransactionState
from tests.reliability.transactions.history import Append, Drop, Outcome, Read, Value
from tests.reliability.transactions.journal import Journal
from tests.reliability.transactions.tables import LISTS, NAMESPACE, format_of, key_of, rows, value_of


class Pipeline:
    """A transaction of a few steps that chance chooses. It notes what it reads, and what it will write."""

    def __init__(
        self,
        lake: Lake,
        journal: Journal,
        chance: random.Random,
        isolation: Isolation,
        policy: Policy,
        prefix: str,
    ) -> None:
        self._lake, self._journal, self._chance, self._prefix = lake, journal, chance, prefix
        self._isolation, self._policy = isolation, policy
        self.interrupts: dict[int, Callable[[], None]] = {}
        """What happens in the midst of the rows of a write, by its number."""
        self._writes, self._tries = 0, 0
        self._changed: dict[str, type] = {}

    def run(self, id: str, before_telling: Callable[[], None] = lambda: None) -> None:  # noqa: A002
        """Run it once, to its end, which what others did meanwhile may refuse."""
        self._journal.begun(id, self._isolation, self._policy)
        tx = self._lake.transaction(
            "main", id=id, isolation=self._isolation, policy=self._policy, message=self._prefix
        )
        why = ""
        try:
            self._steps(tx)
            if self._chance.random() < 0.1:
                tx.abort("the program changed its mind")
            else:
                tx.land()
        except ConflictError as refused:
            why = refused.message
        before_telling()
        self._journal.ended(id, settled(self._lake, id), why)

    def run_until_it_lands(self) -> None:
        """Let the lake run it, again and again if others are faster."""
        begun_ns, tried = time.monotonic_ns(), list[str]()

        def function(tx: Transaction) -> None:
            self._journal.begun(tx.id, self._isolation, self._policy, begun_ns)
            tried.append(tx.id)
            self._steps(tx)

        how: dict[str, Any] = {"isolation": self._isolation, "policy": self._policy, "message": self._prefix}
        with suppress(ConflictError):
            self._lake.run(function, "main", **how)
        for id in tried:  # noqa: A001
            self._journal.ended(id, settled(self._lake, id))

    def _steps(self, tx: Transaction) -> None:
        self._changed = {}
        self._tries += 1
        for number in range(self._chance.randint(1, 5)):
            self._step(tx, f"<{self._prefix}-{self._tries}-{number}>")

    def _step(self, tx: Transaction, element: str) -> None:
        name, what = self._chance.choice(LISTS), self._chance.random()
        if what < 0.05 and self._isolation is Isolation.SERIALIZABLE:
            self._list(tx)
        elif what < 0.35 or self._changed.get(name) is Drop:
            self.read(tx, name)
        elif what < 0.7:
            self.write(tx, name, (element,), mode="append")
        elif what < 0.95:
            found = self.read(tx, name)
            self.write(tx, name, (*(found or ()), element), mode="overwrite")
        elif self.read(tx, name) is not None and name not in self._changed:
            self._journal.stepped(tx.id, Drop(name))
            self._changed[name] = Drop
            tx.drop(key_of(name))

    def _list(self, tx: Transaction) -> None:
        """Find out which lists there are: of those that are absent, that is all there is to read."""
        there = {str(one.key) for one in tx.tables(NAMESPACE)}
        for name in LISTS:
            if key_of(name) not in there:
                self._journal.stepped(tx.id, Read(name, None))

    def read(self, tx: Transaction, name: str) -> Value:
        """All of a list."""
        found = value_of(tx.table(key_of(name)))
        self._journal.stepped(tx.id, Read(name, found))
        return found

    def write(self, tx: Transaction, name: str, elements: tuple[str, ...], mode: str) -> None:
        """Write elements, of which the last is new."""
        self._journal.stepped(tx.id, Append(name, elements[-1]))
        self._changed[name] = Append
        given: dict[str, Any] = {"mode": mode, "format": format_of(name)}
        between = self.interrupts.get(self._writes, lambda: None)
        tx.write(rows(elements, between), key_of(name), **given)
        self._writes += 1


def settled(lake: Lake, id: str) -> Outcome:  # noqa: A002
    """How a transaction has ended, whoever ran it: one that is open ends here, one that is landing lands."""
    try:
        tx = lake.find_transaction(id)
    except TransactionNotFound:
        return Outcome.ABORTED  # it had never begun
    if tx.info.state is TransactionState.OPEN:
        tx.abort("whoever ran it is gone")
    if tx.info.state is TransactionState.COMMITTING:
        with suppress(ConflictError):
            tx.land()
    state = tx.info.state
    assert state in (TransactionState.COMMITTED, TransactionState.ABORTED), state
    return Outcome(state.value)
