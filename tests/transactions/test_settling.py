"""A server ends what programs left, by itself."""

from __future__ import annotations

import io
import threading

import penstock
from penstock.kernel.transactions import Transactions
from penstock.model.transactions import TransactionState
from penstock.server.logs import Log, LogLevel
from penstock.server.transaction_reaper import TransactionReaper
from tests.transactions.lakes import MINUTE_US, Clock


def test_a_server_ends_those_whose_lease_ran_out_and_no_other(clock: Clock) -> None:
    said = io.BytesIO()
    with penstock.open("memory:", author="ann", clock=clock) as lake:
        transactions = Transactions(lake.kernel)
        late = transactions.begin_transaction("a" * 32, "main", lease_us=MINUTE_US)
        live = transactions.begin_transaction("b" * 32, "main", lease_us=60 * MINUTE_US)
        settling = TransactionReaper(lake.catalogue, Log(said, LogLevel.INFO, True, 0))  # type: ignore[arg-type]
        assert settling.end_abandoned_transactions() == 0
        clock.us += 2 * MINUTE_US
        assert settling.end_abandoned_transactions() == 1
        assert transactions.get_transaction(late.transaction.id).state is TransactionState.ABORTED
        assert transactions.get_transaction(live.transaction.id).state is TransactionState.OPEN
    assert b"ended 1 abandoned transaction" in said.getvalue()


def test_it_stops_when_it_is_told() -> None:
    with penstock.open("memory:", author="ann") as lake:
        settling = TransactionReaper(lake.catalogue, Log(io.BytesIO(), LogLevel.INFO, True, 0), 0.001)  # type: ignore[arg-type]
        settling.start()
        settling.stop(60)
        assert "penstock-settle" not in {thread.name for thread in threading.enumerate()}
