"""A lake with a table of orders, and other processes that work with the same store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.lake.lake import Lake
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.testing.faults import FaultyStore
from tests.audits.lakes import open_lake, orders


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
def opening(store: Store, tmp_path: Path) -> Iterator[Callable[[Store | None], Lake]]:
    """Opens the lake once more, as another process does: with nothing in its memory."""
    with ExitStack() as opened:

        def again(seen: Store | None) -> Lake:
            return opened.enter_context(open_lake(seen or store, tmp_path / "warehouse"))

        yield again


@pytest.fixture
def lake(opening: Callable[[Store | None], Lake]) -> Lake:
    lake = opening(None)
    lake.create_table("sales.orders", data=orders(1, 2))
    return lake


@pytest.fixture
def other(lake: Lake, opening: Callable[[Store | None], Lake]) -> Lake:
    """Another process."""
    return opening(None)


@pytest.fixture
def faulty(store: Store) -> FaultyStore:
    """The same store for one process, in which a test can step between any two steps."""
    return FaultyStore(store, locking=False)


@pytest.fixture
def stopped(lake: Lake, faulty: FaultyStore, opening: Callable[[Store | None], Lake]) -> Lake:
    """A process that can be stepped into."""
    return opening(faulty)
