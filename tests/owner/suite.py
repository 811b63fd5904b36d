"""The rules of the commit owner, as they can be seen from outside, over any store and through any door.

Whoever inherits says how its lake is opened, and nothing else. The rules themselves are grouped as in the
document that states them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.owner.orders import Opening, created
from tests.owner.rules_of_commits import RulesOfCommits
from tests.owner.rules_of_handover import RulesOfHandover
from tests.owner.rules_of_metadata import RulesOfMetadata
from tests.owner.rules_of_publishing import RulesOfPublishing
from tests.owner.rules_of_readers import RulesOfReaders
from tests.owner.rules_of_upkeep import RulesOfUpkeep


class OwnerSuite(
    RulesOfCommits, RulesOfReaders, RulesOfPublishing, RulesOfHandover, RulesOfUpkeep, RulesOfMetadata
):
    """Every rule, for one way to a lake."""

    has_smoke_set: ClassVar[bool] = False
    """Whether `make test` tries the rules of `tests.owner.smoke` only, and `make verify` all of them."""

    @pytest.fixture(scope="class")
    @classmethod
    def opening(cls) -> Iterator[Opening]:
        """Opens the lake, any number of times. Tables may be anywhere in the directories of tests."""
        raise NotImplementedError(f"{cls.__name__} does not say how its lake is opened")

    @pytest.fixture(scope="class")
    @classmethod
    def lake(cls, opening: Opening) -> Lake:
        """One for all tests, of which each has tables of its own."""
        return opening()

    @pytest.fixture(scope="class")
    @classmethod
    def another(cls, opening: Opening) -> Lake:
        """The same lake, as another process has it."""
        return opening()

    @pytest.fixture(scope="class")
    @classmethod
    def narrow(cls, opening: Opening) -> Lake:
        """The same lake in a process that lets three versions wait to be published, and no more."""
        return opening(unpublished_max=3)

    @pytest.fixture
    def key(self, tmp_path: Path) -> str:
        """A name for the test's table."""
        return f"sales.{tmp_path.name}"

    @pytest.fixture
    def dev(self, tmp_path: Path) -> str:
        """A name for the test's branch."""
        return f"dev-{tmp_path.name}"

    @pytest.fixture
    def table(self, lake: Lake, key: str, tmp_path: Path) -> Table:
        """The orders, at version 0."""
        return created(lake, tmp_path / "orders", key)
