"""What the kernel tells a meter about a request: what it was, what came of it, how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.errors import PenstockError
from penstock.metrics.meter import SILENT, Meter
from penstock.metrics.table import REQUEST_SECONDS, REQUESTS
from penstock.model.transactions import PREFIX, is_transaction

TRANSACTIONS: Final = PREFIX + "*"
"""What the branches of all transactions are counted as: each lives for a short while only."""


@contextmanager
def measure_request(meter: Meter, branch: str, kind: str) -> Iterator[None]:
    """Count and time the request that is made within."""
    if meter is SILENT:
        yield
        return
    start, outcome = time.perf_counter(), "ok"
    try:
        yield
    except PenstockError as refused:
        outcome = refused.code
        raise
    except BaseException:
        outcome = "error"
        raise
    finally:
        meter.count(REQUESTS, branch=label_of(branch), kind=kind, outcome=outcome)
        meter.observe(REQUEST_SECONDS, time.perf_counter() - start, kind=kind)


def label_of(branch: str) -> str:
    """What a branch is called in metrics."""
    return TRANSACTIONS if is_transaction(branch) else branch
