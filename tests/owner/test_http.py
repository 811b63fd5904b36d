"""The rules of the commit owner, through servers of a lake in a directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.owner.orders import Opening
from tests.owner.suite import OwnerSuite
from tests.owner.ways import served


class TestHttp(OwnerSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def opening(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opening]:
        lake = str(tmp_path_factory.mktemp("lake"))
        with served(lake, tmp_path_factory.getbasetemp()) as opening:
            yield opening
