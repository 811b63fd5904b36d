"""Checking reads: each saw the branch after some of its commits, at a time when it was there to be seen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate

from penstock.model.encoding import NO_COMMIT
from penstock.testing.chain import ChainLink
from penstock.testing.recorder import Answer, Attempt, ReadDone
from penstock.testing.violations import StaleRead

Spans = list[tuple[int, int]]
"""Ranges of positions, both ends included; position n is the branch after its n-th commit."""


def check_reads(
    reads: Sequence[ReadDone], attempts_by_key: Mapping[str, list[Attempt]], links: Sequence[ChainLink]
) -> Iterator[StaleRead]:
    """A read that began after a commit was acknowledged sees it; one that ended before a commit was asked for
    does not; and one that began after another had ended sees no less than that one did."""
    held, visible = _Held(links), _Visible(links, attempts_by_key)
    ended: list[tuple[int, int]] = []
    seen = 0
    for read in sorted(reads, key=lambda one: one.from_ns):
        while ended and ended[0][0] < read.from_ns:
            seen = max(seen, heappop(ended)[1])
        least, most = max(visible.least_at(read.from_ns), seen), visible.most_at(read.at_ns)
        spans = held.spans(read)
        fitting = [max(first, least) for first, last in spans if last >= least and max(first, least) <= most]
        if fitting:
            # The least that it can have seen asks the least of later reads.
            heappush(ended, (read.at_ns, fitting[0]))
        elif not spans:
            yield _describe_stale_read(read, "the branch never was so")
        else:
            when = " or ".join(f"{first} to {last}" for first, last in spans[:3])
            yield _describe_stale_read(
                read, f"so it was after {when} commits, but by then there were {least} to {most}"
            )


def _describe_stale_read(read: ReadDone, why: str) -> StaleRead:
    at = f" at {read.head[:8]}" if read.head else ""
    return StaleRead(client=read.client, number=read.number, values=f"{read.values}{at}", why=why)


class _Held:
    """What the branch held when."""

    def __init__(self, links: Sequence[ChainLink]) -> None:
        self._count = len(links)
        self._positions = {link.commit: number for number, link in enumerate(links, 1)} | {NO_COMMIT.hex(): 0}
        self._since: dict[str, list[tuple[int, str | None]]] = defaultdict(lambda: [(0, None)])
        for number, link in enumerate(links, 1):
            for table, value in link.changes.items():
                self._since[table].append((number, value))

    def spans(self, read: ReadDone) -> Spans:
        """Where the branch was as a read saw it."""
        spans: Spans = [(0, self._count)]
        if read.head is not None:
            position = self._positions.get(read.head)
            spans = [(position, position)] if position is not None else []
        for table, value in read.values.items():
            spans = _intersect_spans(spans, self._positions_of_value(table, value))
        return spans

    def _positions_of_value(self, table: str, value: str | None) -> Spans:
        since = self._since[table]
        ends = [number - 1 for number, _ in since[1:]] + [self._count]
        return [(start, end) for (start, held), end in zip(since, ends, strict=True) if held == value]


def _intersect_spans(left: Spans, right: Spans) -> Spans:
    """The positions that are in both."""
    met: Spans = []
    at = 0
    for first, last in left:
        at = bisect_left(right, first, lo=at, key=lambda span: span[1])
        for start, end in right[at:]:
            if start > last:
                break
            met.append((max(first, start), min(last, end)))
    return met


class _Visible:
    """How much of the branch must, and may, have been seen at a time."""

    def __init__(self, links: Sequence[ChainLink], attempts_by_key: Mapping[str, list[Attempt]]) -> None:
        self._count = len(links)
        acknowledged: list[tuple[int, int]] = []
        ranges: list[tuple[int, int]] = []
        for number, link in enumerate(links, 1):
            attempts = attempts_by_key.get(link.key, [])
            ranges += [(attempts[0].call.at_ns, number)] if attempts else []
            reads_in_order = [
                attempt.returned_ns
                for attempt in attempts
                if attempt.answer is Answer.OK and attempt.returned_ns
            ]
            acknowledged += [(min(reads_in_order), number)] if reads_in_order else []
        acknowledged.sort()
        ranges.sort()
        self._acknowledged_ns = [at_ns for at_ns, _ in acknowledged]
        self._least = [0, *accumulate((number for _, number in acknowledged), max)]
        self._asked_ns = [at_ns for at_ns, _ in ranges]
        fewest = accumulate((number - 1 for _, number in reversed(ranges)), min)
        self._most = [*reversed(list(fewest)), self._count]

    def least_at(self, at_ns: int) -> int:
        """The last of the commits that were acknowledged before a time."""
        return self._least[bisect_left(self._acknowledged_ns, at_ns)]

    def most_at(self, at_ns: int) -> int:
        """The last commit before all that were only asked for after a time."""
        return self._most[bisect_right(self._asked_ns, at_ns)]
