"""The heartbeat of a transaction: its lease is renewed for as long as a program holds it."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import TYPE_CHECKING, Final

from penstock.errors import OutcomeUnknown, PenstockError, TransactionOver, TryAgainError

if TYPE_CHECKING:
    from penstock.lake.transactions.transaction import Transaction

logger = logging.getLogger("penstock")

BEATS: Final = 3
"""How often a lease is renewed in the time that it lasts."""


class Heartbeat:
    """Renews the lease of a transaction, until that ends or nobody holds it any more."""

    def __init__(self, transaction: Transaction, every_s: float) -> None:
        self._transaction = weakref.ref(transaction, lambda _: self._stopped.set())
        self._stopped, self._every_s = threading.Event(), every_s
        name = f"penstock-tx-{transaction.id[:8]}"
        self._thread = threading.Thread(target=self._renew_until_stopped, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _renew_until_stopped(self) -> None:
        wait_s = self._every_s
        while not self._stopped.wait(wait_s):
            wait_s = self._every_s
            try:
                self._keep_transaction()
            except TransactionOver:
                return  # whoever writes or commits next is told
            except (TryAgainError, OutcomeUnknown) as problem:
                logger.info("the lease of a transaction could not be renewed yet: %s", problem)
                wait_s = self._every_s / BEATS
            except PenstockError as problem:
                logger.warning(
                    "the lease of a transaction is no longer renewed, so it will time out: %s", problem
                )
                return

    def _keep_transaction(self) -> None:
        transaction = self._transaction()
        if transaction is not None and not self._stopped.is_set():
            transaction.keep()
