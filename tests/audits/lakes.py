"""What these tests share: lakes, orders that are good or bad, and what is expected of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import penstock
from penstock.errors import LakeExists, ReferenceExists
from penstock.formats.rows.arrow_types import pa
from penstock.kernel.checks import BranchProposal, ExpectationEngine
from penstock.kernel.description import make_description, write_description
from penstock.kernel.kernel import Kernel
from penstock.lake.lake import Lake
from penstock.model.encoding import NO_COMMIT
from penstock.model.expectations import Expectation
from penstock.model.references import Kind
from penstock.stores.port import Store

POSITIVE = "select * from sales.orders where amount < 0"
"""Finds bad orders."""


def open_lake(store: Store, warehouse: Path) -> Lake:
    """A process's view of the lake in a store, which is made if there is none."""
    with suppress(ReferenceExists, LakeExists):
        if store.reference("@lake") is None:
            Kernel(store).references.create_reference("main", Kind.BRANCH, NO_COMMIT)
            write_description(store, make_description(1_800_000_000_000_000, "main", str(warehouse), ()))
    return penstock.open(store, create=False, author="tester")


def orders(*ids: int) -> pa.Table:
    """Orders by number; those below zero have an amount that nobody wants."""
    return pa.table({"id": pa.array(ids, pa.int64()), "amount": pa.array(map(float, ids), pa.float64())})


def ids(lake: Lake, branch: str = "main", key: str = "sales.orders") -> list[int]:
    found: list[int] = sorted(lake.table(key, branch).to_arrow()["id"].to_pylist())
    return found


class Counting:
    """Counts what is asked of an engine."""

    def __init__(self, lake: Lake) -> None:
        assert lake.kernel.checks.engine is not None
        self._engine: ExpectationEngine = lake.kernel.checks.engine
        self.asked: list[str] = []
        lake.kernel.checks.engine = self

    def require_available(self) -> None:
        self._engine.require_available()

    def find_violation(self, proposal: BranchProposal, expectation: Expectation) -> str | None:
        self.asked.append(expectation.name)
        return self._engine.find_violation(proposal, expectation)
