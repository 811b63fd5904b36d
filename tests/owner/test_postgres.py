"""The rules of the commit owner, over a lake in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock
from tests.owner.orders import Opening
from tests.owner.suite import OwnerSuite
from tests.owner.ways import embedded
from tests.servers.postgresql import fresh_database


class TestPostgres(OwnerSuite):
    has_smoke_set = True

    @pytest.fixture(scope="class")
    @classmethod
    def opening(cls, tmp_path_factory: pytest.TempPathFactory, postgres_server_url: str) -> Iterator[Opening]:
        with fresh_database(postgres_server_url) as url:
            penstock.init(url).close()
            with embedded(url, tmp_path_factory.getbasetemp()) as opening:
                yield opening
