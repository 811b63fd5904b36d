"""How many requests moved a branch and how many met a conflict, from what the server tells Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from penstock.errors import CommitConflict, PenstockError
from penstock.formats.registry import load
from penstock.metrics.table import REQUESTS

ReadFigures: TypeAlias = Callable[[Mapping[str, str]], bytes]
"""What ``/metrics`` says to who sends these headers; ``Denied`` if they may not see it."""
OK: Final = "ok"


class RequestCounts(NamedTuple):
    """What requests to one branch came to."""

    total: int = 0
    conflicts: int = 0
    others: int = 0
    """Those that ended with another error."""

    @property
    def conflict_share(self) -> float:
        return self.conflicts / self.total if self.total else 0.0


def count_requests(figures: bytes) -> dict[str, RequestCounts]:
    """By branch."""
    # The library of Prometheus looks at its environment when it is loaded, which the server sets before.
    read_samples = load("penstock.server.metrics_endpoint:read_samples")
    codes = conflict_codes()
    counts: dict[str, RequestCounts] = {}
    for labels, value in read_samples(figures, REQUESTS.name):
        branch, outcome, number = labels["branch"], labels["outcome"], int(value)
        requests = counts.get(branch, RequestCounts())
        counts[branch] = RequestCounts(
            requests.total + number,
            requests.conflicts + (number if outcome in codes else 0),
            requests.others + (number if outcome not in (*codes, OK) else 0),
        )
    return counts


def conflict_codes() -> frozenset[str]:
    """The codes of all errors that somebody else's change is the reason of."""
    codes: set[str] = set()
    waiting: list[type[PenstockError]] = [CommitConflict]
    while waiting:
        kind = waiting.pop()
        codes.add(kind.code)
        waiting += kind.__subclasses__()
    return frozenset(codes)
