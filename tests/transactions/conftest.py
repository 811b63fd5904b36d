"""The stores that transactions are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores import open_store
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore
from tests.transactions.lakes import Clock, Process


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """A real store, in this process and on disk."""
    is_memory = request.param == "memory"
    store: Store = MemoryStore(clock) if is_memory else open_store(str(tmp_path / "lake"), True, clock)
    yield store
    store.close()


@pytest.fixture
def process(database: Store, clock: Clock) -> Process:
    return Process(database, clock)


@pytest.fixture
def faulty() -> FaultyStore:
    """A store whose swaps can be lost and stopped at."""
    return FaultyStore(MemoryStore(), locking=False)
