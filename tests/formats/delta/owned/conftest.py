"""Kernels that own Delta tables, over both kinds of stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from tests.formats.delta.managed import Owner


@pytest.fixture(params=["memory", pytest.param("sqlite", marks=pytest.mark.verify)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """What a format does at a turn it does with rows and objects alone; `tests/owner` tries it on SQLite."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "lake.db", create=True)
    yield store
    store.close()


@pytest.fixture
def owner(store: Store, tmp_path: Path) -> Iterator[Owner]:
    owner = Owner(store, tmp_path)
    yield owner
    owner.close()
