"""Whoever begins a transaction looks at a few others that may be over, and at no more."""

from __future__ import annotations

import penstock
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore

FEW = 30
"""Rows: those of the lake and of the branch, the transaction's own, and ten of each kind."""


def test_beginning_reads_few_rows_however_many_transactions_have_ended() -> None:
    store = CountingStore(MemoryStore())
    with penstock.open(store) as lake:
        for _ in range(100):
            lake.transaction().abort()
        left = [lake.transaction() for _ in range(50)]
        store.reset()
        last = lake.transaction()
        assert 0 < store.counts.rows_read <= FEW
        for one in (*left, last):
            one.abort()
