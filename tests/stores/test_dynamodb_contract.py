"""The DynamoDB store keeps every promise of the port, on DynamoDB Local."""

from __future__ import annotations

import pytest

from penstock.stores.dynamodb import DynamoStore
from penstock.testing import StoreContract
from penstock.testing.samples import OpenStore
from tests.servers.dynamodb import DynamoDBPlace


class TestDynamoStore(StoreContract):
    @pytest.fixture
    def open_store(self, dynamodb_place: DynamoDBPlace) -> OpenStore:
        return lambda: DynamoStore(dynamodb_place.url)
