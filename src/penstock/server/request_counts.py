"""How many requests moved a branch and how many met a conflict, from what the server tells Prometheus."""

from __future__ import annotations

from typing import Final

from penstock.errors import CommitConflict, PenstockError
from penstock.lake.answers import RequestCounts
from penstock.metrics.table import REQUESTS
from penstock.server.metrics_endpoint import read_samples

OK: Final = "ok"


def count_requests(figures: bytes) -> tuple[RequestCounts, ...]:
    """By branch, those with the most requests first."""
    codes = list_conflict_codes()
    counts: dict[str, RequestCounts] = {}
    for labels, value in read_samples(figures, REQUESTS.name):
        branch, outcome, number = labels["branch"], labels["outcome"], int(value)
        requests = counts.get(branch, RequestCounts(branch=branch))
        counts[branch] = RequestCounts(
            branch=branch,
            total=requests.total + number,
            conflicts=requests.conflicts + (number if outcome in codes else 0),
            other_errors=requests.other_errors + (number if outcome not in (*codes, OK) else 0),
        )
    return tuple(sorted(counts.values(), key=lambda requests: (-requests.total, requests.branch)))


def list_conflict_codes() -> frozenset[str]:
    """The codes of all errors that somebody else's change is the reason of."""
    codes: set[str] = set()
    waiting: list[type[PenstockError]] = [CommitConflict]
    while waiting:
        kind = waiting.pop()
        codes.add(kind.code)
        waiting += kind.__subclasses__()
    return frozenset(codes)
