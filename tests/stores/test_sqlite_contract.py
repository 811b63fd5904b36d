"""The SQLite store keeps every promise of the port: handles of one file, threads, and both families."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.stores.port import Store
from penstock.stores.sqlite import SqliteStore
from penstock.testing import FaultyStore, StoreContract
from penstock.testing.contract_races import RaceContract
from penstock.testing.samples import OpenStore


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore(tmp_path / "penstock.db")


class TestSqliteStoreOfOneHandle(RaceContract):
    """One handle that all threads share, as the threads of one process do. One alone does with a handle what
    it does with the first of two."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with closing(SqliteStore(tmp_path / "penstock.db")) as opened:
            yield opened

    @pytest.fixture
    def other(self, store: Store) -> Store:
        return store


@pytest.mark.verify
class TestSqliteStoreWithoutLocks(StoreContract):
    """The same file used as a key-value store would be: objects first, then a swap that can be lost."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: FaultyStore(SqliteStore(tmp_path / "penstock.db"), locking=False)
