"""The store in memory keeps every promise of the port."""

from __future__ import annotations

import pytest

from penstock.stores.memory import MemoryStore
from penstock.testing import StoreContract
from penstock.testing.samples import OpenStore


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        store = MemoryStore()
        return lambda: store
