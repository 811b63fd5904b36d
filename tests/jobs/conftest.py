"""The stores that jobs are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.stores.memory import MemoryStore
from penstock.stores.port import Store


@pytest.fixture(params=["memory", "sqlite", "directory", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A real store: with transactions and without, in this process, on disk, and on a server."""
    if request.param == "memory":
        store: Store = MemoryStore()
    elif request.param == "sqlite":
        store = open_store(str(tmp_path / "lake"), True, now_us)
    elif request.param == "directory":
        store = open_store(f"file://{tmp_path}/objects", True, now_us)
    else:
        store = open_store(request.getfixturevalue("postgres_schema_url"), True, now_us)
    yield store
    store.close()
