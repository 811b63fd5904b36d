"""Rules and machines have modules of their own; their assertions are to be explained like any test's."""

from __future__ import annotations

import pytest

from tests.owner.smoke import SMOKE

pytest.register_assert_rewrite(
    "tests.owner.orders",
    "tests.owner.rules_of_commits",
    "tests.owner.rules_of_readers",
    "tests.owner.rules_of_publishing",
    "tests.owner.rules_of_handover",
    "tests.owner.rules_of_upkeep",
    "tests.owner.rules_of_metadata",
    "tests.owner.machine",
    "tests.owner.machine_writers",
    "tests.owner.machine_processes",
    "tests.owner.crashes",
    "tests.owner.crashes_handover",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Where a suite has a smoke set, the other rules are `make verify`'s."""
    suite = getattr(item, "cls", None)
    if getattr(suite, "has_smoke_set", False) and getattr(item, "originalname", None) not in SMOKE:
        item.add_marker(pytest.mark.verify)
