"""A lake as a Dagster resource: the assets of a run are written to a branch, and published together.

``dagster dev -f orders.py``, with the lake's address in ``PENSTOCK_LAKE``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import PrivateAttr

import penstock

CHECKS = {"no negative amounts": "SELECT * FROM sales.orders WHERE amount < 0"}


class PenstockLake(dg.ConfigurableResource):
    """A lake, and a branch for each run. The branch of a run that failed stays, to be looked at."""

    address: str
    _lake: penstock.Lake = PrivateAttr()
    _branch: str = PrivateAttr()

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator["PenstockLake"]:
        self._branch = f"dagster/{context.run_id}"
        with penstock.open(self.address, create=False, author="dagster") as self._lake:
            if not any(branch.name == self._branch for branch in self._lake.branches()):
                self._lake.branch(self._branch).create()
            yield self

    def table(self, key: str) -> Any:
        return self._lake.table(key, self._branch)

    def publish(self) -> str:
        """Check the branch, merge it, delete it, and return the id of the commit."""
        commit = self._lake.publish(self._branch, checks=CHECKS, message=f"run {self._branch}").commit
        self._lake.branch(self._branch).delete()
        return str(commit)


class Orders(dg.Config):
    """What arrived. An example has its rows in the run's configuration."""

    ids: list[int]
    amounts: list[float]


@dg.asset
def orders(config: Orders, lake: PenstockLake) -> None:
    lake.table("sales.orders").append({"id": config.ids, "amount": config.amounts})


@dg.asset(deps=[orders])
def totals(lake: PenstockLake) -> None:
    amounts = lake.table("sales.orders").to_arrow(columns=["amount"])["amount"].to_pylist()
    lake.table("sales.totals").write({"orders": [len(amounts)], "total": [sum(amounts)]}, mode="overwrite")


@dg.asset(deps=[orders, totals])
def published(lake: PenstockLake) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(metadata={"commit": lake.publish()})


defs = dg.Definitions(
    assets=[orders, totals, published],
    resources={"lake": PenstockLake(address=dg.EnvVar("PENSTOCK_LAKE"))},
)
