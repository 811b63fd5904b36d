"""The rules of the commit owner, over a lake in a directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.owner.orders import Opening
from tests.owner.suite import OwnerSuite
from tests.owner.ways import embedded


class TestSqlite(OwnerSuite):
    has_smoke_set = True

    @pytest.fixture(scope="class")
    @classmethod
    def opening(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opening]:
        lake = str(tmp_path_factory.mktemp("lake"))
        with embedded(lake, tmp_path_factory.getbasetemp()) as opening:
            yield opening
