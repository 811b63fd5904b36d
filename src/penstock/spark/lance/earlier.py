"""Earlier attempts: a job that its caller names is done once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import HistoryExpired
from penstock.lake.calls import GetCommit
from penstock.lake.lance.calls import GetLanceTable
from penstock.lake.lance.jobs import landed, require_changed
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.spark.lance.creating import landed_before
from penstock.spark.lance.orders import LanceOrder, LanceWritten

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


def earlier(lake: Lake, key: Key, branch: str, order: LanceOrder) -> LanceWritten | None:
    """What a job came to that was done before; ``None`` if it was not.

    ``IdempotencyKeyReused`` if its id is that of something else, which did not write to the table.
    """
    landing = landed(lake, order.job, key, branch)
    if landing is not None:
        return _written(lake, key, branch, order, landing.head, landing.commit)
    created = None if branch.startswith(PREFIX) else landed_before(lake, key, branch, order)
    if created is None or not created.commit:
        return None
    require_changed(lake, order.job, key, branch, created.commit)
    try:
        commit = lake.do(GetCommit(revision=created.commit, via=branch))
    except HistoryExpired:
        commit = None
    return _written(lake, key, branch, order, created.commit, commit)


def _written(
    lake: Lake, key: Key, branch: str, order: LanceOrder, at: str, commit: Commit | None
) -> LanceWritten:
    about = lake.do(GetLanceTable(key=key, at=at, via=branch))
    return LanceWritten(key=key, branch=branch, version=about.version or 0, commit=commit, job=order.job)
