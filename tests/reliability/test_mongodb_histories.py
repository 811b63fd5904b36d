"""The kernel on MongoDB: many clients, and connections that are cut, leave one history."""

from __future__ import annotations

from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from penstock.stores.mongodb import MongoStore
from penstock.stores.port import Store
from penstock.testing import CountingStore
from penstock.testing.drill import TickingClock
from tests.reliability.cut_connections import commit_over_cuts, sweep_leftovers
from tests.reliability.test_histories import threads_on
from tests.servers.proxy import Direction, Proxy

LENGTHS: dict[Direction, int] = {"to_server": 4000, "to_client": 900}
"""Of a commit's requests and answers, roughly."""


def threads_leave_one_history(url: str, threads: int, count: int, seed: int) -> int:
    """Say how many swaps were lost."""
    with ExitStack() as opened:
        stores = [CountingStore(opened.enter_context(closing(MongoStore(url)))) for _ in range(3)]
        threads_on(list[Store](stores), threads, count, seed)
        return sum(store.counts.swaps_lost for store in stores)


@pytest.mark.verify
def test_threads_leave_one_history(mongodb_url: str, seed: int) -> None:
    assert threads_leave_one_history(mongodb_url, threads=9, count=12, seed=seed) > 0


@pytest.mark.reliability
def test_threads_leave_one_history_for_long(mongodb_url: str, seed: int) -> None:
    assert threads_leave_one_history(mongodb_url, threads=32, count=100, seed=seed) > 0


def cut_commits(url: str, count: int, seed: int) -> int:
    parts = urlsplit(url)
    if parts.hostname != "127.0.0.1" or parts.port is None:
        pytest.skip("connections to this server cannot be cut")
    with Proxy(parts.port) as proxy, closing(MongoStore(url)) as good:
        behind = parts._replace(netloc=f"127.0.0.1:{proxy.port}", query="heartbeatFrequencyMS=60000")
        with closing(MongoStore(behind.geturl(), create=False)) as cut:
            return commit_over_cuts(cut, good, proxy, count, seed, LENGTHS)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver looks for a lost server at once, not twice a second."""
    monkeypatch.setattr("pymongo.common.MIN_HEARTBEAT_INTERVAL", 0.02)


@pytest.mark.verify
@pytest.mark.usefixtures("_quick")
def test_commits_over_connections_that_are_cut_land_once(mongodb_url: str, seed: int) -> None:
    assert cut_commits(mongodb_url, 40, seed) >= 20


@pytest.mark.reliability
@pytest.mark.usefixtures("_quick")
def test_hundreds_of_commits_over_connections_that_are_cut_land_once(mongodb_url: str, seed: int) -> None:
    assert cut_commits(mongodb_url, 900, seed) >= 500


@pytest.mark.verify
def test_a_sweep_removes_what_nobody_needs_and_nothing_else(mongodb_url: str) -> None:
    clock = TickingClock()
    with closing(MongoStore(mongodb_url, clock=clock)) as store:
        sweep_leftovers(store, clock)
