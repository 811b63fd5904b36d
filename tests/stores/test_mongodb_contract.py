"""The MongoDB store keeps every promise of the port, on a server that speaks MongoDB's protocol."""

from __future__ import annotations

import pytest

from penstock.stores.mongodb import MongoStore
from penstock.testing import StoreContract
from penstock.testing.samples import OpenStore


class TestMongoStore(StoreContract):
    @pytest.fixture
    def open_store(self, mongodb_url: str) -> OpenStore:
        return lambda: MongoStore(mongodb_url)
