"""The RocksDB store keeps every promise of the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.stores.rocksdb import RocksdbStore
from penstock.stores.wrapped import WrappedStore
from penstock.testing import StoreContract
from penstock.testing.samples import OpenStore


class _Closing(WrappedStore):
    """Knows whether it was closed."""

    is_closed = False

    def close(self) -> None:
        super().close()
        self.is_closed = True


class TestRocksdbStore(StoreContract):
    """One handle that all threads share: the directory belongs to whoever opened it first."""

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        handles: list[_Closing] = []

        def open_once() -> _Closing:
            if not handles or handles[-1].is_closed:
                handles.append(_Closing(RocksdbStore(tmp_path / "lake")))
            return handles[-1]

        return open_once
