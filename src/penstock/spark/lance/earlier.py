"""Earlier attempts: a job that its caller names is done once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import HistoryExpired, IdempotencyKeyReused, KeyNotFound
from penstock.lake.calls import GetCommit, GetOutcome
from penstock.lake.lance.calls import GetLanceTable
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
    outcome = lake.do(GetOutcome(key=order.job, branch=branch))
    if outcome is not None and outcome.commits:
        return _written(lake, key, branch, order, outcome.head, outcome.commit)
    created = None if branch.startswith(PREFIX) else landed_before(lake, order)
    if created is None or not created.commit:
        return None
    try:
        commit = lake.do(GetCommit(revision=created.commit, via=branch))
    except HistoryExpired:
        commit = None
    return _written(lake, key, branch, order, created.commit, commit)


def _written(
    lake: Lake, key: Key, branch: str, order: LanceOrder, at: str, commit: Commit | None
) -> LanceWritten:
    try:
        about = lake.do(GetLanceTable(key=key, at=at, via=branch))
    except KeyNotFound:
        raise IdempotencyKeyReused(
            f"'{order.job}' is the id of something else that was done on '{branch}': give this job another",
            key=order.job,
        ) from None
    return LanceWritten(key=key, branch=branch, version=about.version or 0, commit=commit, job=order.job)
