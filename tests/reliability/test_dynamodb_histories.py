"""The kernel on DynamoDB: many clients, and connections that are cut, leave one history."""

from __future__ import annotations

from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import msgspec
import pytest

from penstock.stores.dynamodb import DynamoStore
from penstock.stores.port import Store
from penstock.testing import CountingStore
from penstock.testing.drill import TickingClock
from tests.reliability.cut_connections import commit_over_cuts, sweep_leftovers
from tests.reliability.test_histories import threads_on
from tests.servers.dynamodb import DynamoDBPlace
from tests.servers.proxy import Direction, Proxy

LENGTHS: dict[Direction, int] = {"to_server": 3500, "to_client": 300}
"""Of a commit's requests and answers, roughly."""


def threads_leave_one_history(place: DynamoDBPlace, threads: int, count: int, seed: int) -> int:
    """Say how many swaps were lost."""
    with ExitStack() as opened:
        stores = [CountingStore(opened.enter_context(closing(DynamoStore(place.url)))) for _ in range(3)]
        threads_on(list[Store](stores), threads, count, seed)
        return sum(store.counts.swaps_lost for store in stores)


@pytest.mark.verify
def test_threads_leave_one_history(dynamodb_place: DynamoDBPlace, seed: int) -> None:
    assert threads_leave_one_history(dynamodb_place, threads=6, count=8, seed=seed) > 0


@pytest.mark.reliability
def test_threads_leave_one_history_for_long(dynamodb_place: DynamoDBPlace, seed: int) -> None:
    assert threads_leave_one_history(dynamodb_place, threads=24, count=60, seed=seed) > 0


def cut_commits(place: DynamoDBPlace, count: int, seed: int) -> int:
    port = urlsplit(place.endpoint or "").port
    if port is None:
        pytest.skip("connections to this server cannot be cut")
    with Proxy(port) as proxy, closing(DynamoStore(place.url)) as good:
        behind = msgspec.structs.replace(place, endpoint=f"http://127.0.0.1:{proxy.port}")
        with closing(DynamoStore(behind.url, create=False)) as cut:
            return commit_over_cuts(cut, good, proxy, count, seed, LENGTHS)


@pytest.mark.verify
def test_commits_over_connections_that_are_cut_land_once(dynamodb_place: DynamoDBPlace, seed: int) -> None:
    assert cut_commits(dynamodb_place, 30, seed) >= 15


@pytest.mark.reliability
def test_hundreds_of_commits_over_connections_that_are_cut_land_once(
    dynamodb_place: DynamoDBPlace, seed: int
) -> None:
    assert cut_commits(dynamodb_place, 700, seed) >= 500


@pytest.mark.verify
def test_a_sweep_removes_what_nobody_needs_and_nothing_else(dynamodb_place: DynamoDBPlace) -> None:
    clock = TickingClock()
    with closing(DynamoStore(dynamodb_place.url, clock=clock)) as store:
        sweep_leftovers(store, clock)
