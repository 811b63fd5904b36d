"""Stores to run the queue on: of the key-value family and of the transactional one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.queue.hooks import HookedStore


@pytest.fixture(params=["memory", "sqlite"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store: Store = (
        MemoryStore()
        if request.param == "memory"
        else SqliteStore(tmp_path / "penstock.db", synchronous="OFF")
    )
    yield store
    store.close()


@pytest.fixture
def store(inner: Store) -> HookedStore:
    return HookedStore(inner)


@pytest.fixture
def shared() -> MemoryStore:
    """A store that two handles share without a lock, so that swaps can be lost."""
    return MemoryStore()
