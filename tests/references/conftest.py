"""A lake on each family of stores, with a store that counts and a clock that can be set."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import HookedStore, SetClock, new_lake


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: SetClock) -> Iterator[HookedStore]:
    inner: Store
    if request.param == "memory":
        inner = MemoryStore(clock)
    else:
        inner = SqliteStore(tmp_path / "penstock.db", clock=clock, synchronous="OFF")
    yield HookedStore(inner)
    inner.close()


@pytest.fixture
def lake(store: HookedStore, clock: SetClock) -> Lake:
    return new_lake(store, clock)
