"""Ending in the background what its programs left: transactions whose lease ran out, or that are to land.

Whoever does it, and however many do it at once, it comes to the same. So each server does it by itself, now
and then.
"""

from __future__ import annotations

import logging
import threading
from random import uniform
from typing import Final

from penstock.errors import PenstockError
from penstock.lake.embedded import Embedded
from penstock.server.logs import Log, LogLevel

logger = logging.getLogger("penstock")

EVERY_S: Final = 60.0


class TransactionReaper:
    """Ends transactions that were left, every so many seconds until it is stopped."""

    def __init__(self, catalogue: Embedded, log: Log, every_s: float = EVERY_S) -> None:
        self._catalogue, self._log, self._every_s = catalogue, log, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run_until_stopped, name="penstock-settle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Begin nothing more, and wait a while until what is under way has come to its end."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run_until_stopped(self) -> None:
        while not self._stopped.wait(uniform(0.5, 1.5) * self._every_s):
            try:
                self.end_abandoned_transactions()
            except PenstockError as problem:
                self._log.log_message(
                    LogLevel.WARNING, f"the search for abandoned transactions failed: {problem.message}"
                )
            except Exception:  # the next look may find it mended, and there is nobody else to have it
                logger.exception("the search for abandoned transactions failed")

    def end_abandoned_transactions(self) -> int:
        """End what was left; how many that were."""
        ended = self._catalogue.transactions.end_abandoned_transactions()
        if ended:
            what = "1 abandoned transaction" if ended == 1 else f"{ended} abandoned transactions"
            self._log.log_message(LogLevel.INFO, f"ended {what}")
        return ended
