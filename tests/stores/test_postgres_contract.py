"""The PostgreSQL store keeps the contract."""

from __future__ import annotations

import pytest

from penstock.stores.postgres import PostgresStore
from penstock.testing import StoreContract
from penstock.testing.samples import OpenStore


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, postgres_schema_url: str) -> OpenStore:
        return lambda: PostgresStore(postgres_schema_url)
