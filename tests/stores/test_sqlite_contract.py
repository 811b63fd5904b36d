"""The SQLite store keeps every promise of the port: handles of one file, threads, and both families."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.stores.sqlite import SqliteStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing import FaultyStore, StoreContract
from penstock.testing.samples import OpenStore


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: SqliteStore(tmp_path / "penstock.db")


class _Closing(WrappedStore):
    """Knows whether it was closed."""

    is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True


class TestSqliteStoreOfOneHandle(StoreContract):
    """One handle that all threads share, as the threads of one process do."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        handles: list[_Closing] = []

        def open_once() -> _Closing:
            if not handles or handles[-1].is_closed:
                handles.append(_Closing(SqliteStore(tmp_path / "penstock.db")))
            return handles[-1]

        return open_once


class TestSqliteStoreWithoutLocks(StoreContract):
    """The same file used as a key-value store would be: objects first, then a swap that can be lost."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: FaultyStore(SqliteStore(tmp_path / "penstock.db"), locking=False)
