"""The rules of the commit owner, over a lake in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.stores.memory import MemoryStore
from tests.owner.orders import Opening
from tests.owner.suite import OwnerSuite
from tests.owner.ways import embedded


class TestMemory(OwnerSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def opening(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opening]:
        with embedded(MemoryStore(), tmp_path_factory.getbasetemp()) as opening:
            yield opening
