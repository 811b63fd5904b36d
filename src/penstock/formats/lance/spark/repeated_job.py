"""Finds what an earlier attempt of a job did: a job with an id is done once, however often it is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import HistoryExpired, JobOver, KeyNotFound, NotManaged
from penstock.formats.lance.lake.answers import LanceTableInfo
from penstock.formats.lance.lake.calls import GetLanceTable
from penstock.formats.lance.lake.jobs import find_landing, require_changed
from penstock.formats.lance.spark.lance_write_options import LanceWriteOptions
from penstock.formats.lance.spark.table_creation import find_earlier_landing
from penstock.lake.calls import GetCommit
from penstock.model.commits import Commit
from penstock.model.keys import Key
from penstock.model.transactions import PREFIX
from penstock.spark.requests import WriteResult

if TYPE_CHECKING:
    from penstock.lake.lake import Lake


def find_earlier_result(lake: Lake, key: Key, branch: str, order: LanceWriteOptions) -> WriteResult | None:
    """What a job came to that was done before; ``None`` if it was not.

    ``IdempotencyKeyReused`` if its id is that of something else, which did not write to the table.
    ``JobOver`` if it was done in a transaction that has lost the table since: nothing of it would land.
    """
    landing = find_landing(lake, order.job, key, branch)
    if landing is not None:
        then = lake.do(GetLanceTable(key=key, at=landing.head, via=branch))
        if branch.startswith(PREFIX):
            _require_version_there(lake, branch, order, then)
        return _make_repeated_result(branch, order, then, landing.commit)
    created = None if branch.startswith(PREFIX) else find_earlier_landing(lake, key, branch, order)
    if created is None or not created.commit:
        return None
    require_changed(lake, order.job, key, branch, created.commit)
    try:
        commit = lake.do(GetCommit(revision=created.commit, via=branch))
    except HistoryExpired:
        commit = None
    then = lake.do(GetLanceTable(key=key, at=created.commit, via=branch))
    return _make_repeated_result(branch, order, then, commit)


def _require_version_there(lake: Lake, branch: str, order: LanceWriteOptions, then: LanceTableInfo) -> None:
    try:
        is_there = lake.do(GetLanceTable(key=then.key, at=branch)).id == then.id
    except (KeyNotFound, NotManaged):
        is_there = False
    if not is_there:
        raise JobOver(
            f"job {order.job} has written '{then.key}' in this transaction, but the table no longer "
            "exists there\n  To write it again, give the job another id.",
            job=order.job,
        )


def _make_repeated_result(
    branch: str, order: LanceWriteOptions, then: LanceTableInfo, commit: Commit | None
) -> WriteResult:
    return WriteResult(
        key=then.key,
        branch=branch,
        version=then.version or 0,
        commit=commit,
        job=order.job,
        is_repeated=True,
    )
