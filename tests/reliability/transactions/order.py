"""What must have come before what, and the circles in it: no history of instants has one.

A transaction has two instants: its beginning, at which it sees all that it reads, and its landing, at which
others see all that it wrote. Who added the last element that somebody saw landed before they began; who added
the next one landed after that. What must be unchanged when a transaction lands ties its landing, too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.model.transactions import Isolation, Policy
from tests.reliability.transactions.anomalies import Anomaly, Kind
from tests.reliability.transactions.history import History, Look
from tests.reliability.transactions.versions import External, Life, externals, landed


class Why(StrEnum):
    """What an edge is made of."""

    WW = "ww"
    WR = "wr"
    RW = "rw"
    WITHIN = "within"
    CHAIN = "chain"
    TIME = "time"


DATA: Final = (Why.WW, Why.WR, Why.WITHIN, Why.CHAIN)


class Instant(NamedTuple):
    """When a transaction began or landed, or when a reader looked."""

    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


class Edge(NamedTuple):
    """One instant came before another."""

    before: Instant
    after: Instant
    why: Why
    name: str = ""
    """Of the list that tells it."""

    def __str__(self) -> str:
        return f"{self.before} -{self.why}{f' {self.name}' if self.name else ''}-> {self.after}"


def circles(history: History, lists: Sequence[Life]) -> Iterator[Anomaly]:
    """A shortest circle of the first kind of which there is one, from the worst to the mildest."""
    edges = list(dict.fromkeys(_Edges(history, lists).all()))
    for kind, found in _first(edges):
        yield Anomaly(kind, "; ".join(map(str, found)))
        return


def _first(edges: Sequence[Edge]) -> Iterator[tuple[Kind, list[Edge]]]:
    for kind, allowed in ((Kind.G0, (Why.WW, Why.WITHIN)), (Kind.G1C, DATA)):
        found = _shortest(
            edges, [one for one in edges if one.why in allowed and one.why is not Why.WITHIN], allowed
        )
        if found:
            yield kind, found
    reads = [one for one in edges if one.why is Why.RW]
    if found := _shortest(edges, reads, DATA):
        yield _single(found), found
    if found := _shortest(edges, reads, (*DATA, Why.RW)):
        yield Kind.G2_ITEM, found
    if found := _shortest(edges, [one for one in edges if one.why is Why.TIME], tuple(Why)):
        yield Kind.STALE, found


def _single(found: Sequence[Edge]) -> Kind:
    """What a circle with one read in it is called."""
    told = [one for one in found if one.why is not Why.WITHIN]
    names, whys = {one.name for one in told}, {one.why for one in told}
    if len(told) == 2 and len(names) == 1 and Why.WW in whys:
        return Kind.LOST_UPDATE
    if len(told) == 2 and whys == {Why.WR, Why.RW} and any(one.before.what == SEEN for one in told):
        return Kind.TORN
    return Kind.G_SINGLE


def _shortest(edges: Sequence[Edge], through: Sequence[Edge], allowed: Collection[Why]) -> list[Edge]:
    """The shortest way round through one of some edges and else only along allowed ones; empty if none."""
    onward: dict[Instant, list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.why in allowed:
            onward[edge.before].append(edge)
    best: list[Edge] = []
    for edge in through:
        path = _path(onward, edge.after, edge.before)
        if path is not None and (not best or len(path) + 1 < len(best)):
            best = [edge, *path]
    return best


def _path(onward: dict[Instant, list[Edge]], start: Instant, goal: Instant) -> list[Edge] | None:
    came: dict[Instant, Edge | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == goal:
            path: list[Edge] = []
            while (edge := came[here]) is not None:
                path.append(edge)
                here = edge.before
            return path[::-1]
        for edge in onward[here]:
            if edge.after not in came:
                came[edge.after] = edge
                waiting.append(edge.after)
    return None


BEGUN: Final = "began"
LANDED: Final = "landed"
SEEN: Final = "looked"


class _Edges:
    """All that is known of the order of the instants of a history."""

    def __init__(self, history: History, lists: Sequence[Life]) -> None:
        self._history, self._lists = history, lists
        self._done = {one.id: one for one in history.transactions}
        self._landed = landed(history)
        self._look = {id(one): Instant(f"{one} ({number})", SEEN) for number, one in enumerate(history.looks)}

    def all(self) -> Iterator[Edge]:
        yield from self._within()
        for life in self._lists:
            yield from self._writes(life)
        for read in externals(self._history):
            yield from self._read(read)
        yield from self._chain()
        yield from self._time()

    def _within(self) -> Iterator[Edge]:
        for one in self._landed:
            yield Edge(Instant(one, BEGUN), Instant(one, LANDED), Why.WITHIN)

    def _writes(self, life: Life) -> Iterator[Edge]:
        layers = [*life.layers, *([frozenset([life.dropped_by])] if life.dropped_by else [])]
        for before, after in pairwise(layers):
            for one in before:
                for other in after - {one}:
                    # Under this policy nobody lands who changed what somebody else has changed meanwhile.
                    is_alone = self._done[other].policy is Policy.SNAPSHOT
                    what = BEGUN if is_alone else LANDED
                    yield Edge(Instant(one, LANDED), Instant(other, what), Why.WW, life.name)

    def _read(self, read: External) -> Iterator[Edge]:
        sees, rests = self._instants(read)
        for life in self._lists:
            if life.name != read.name:
                continue
            state = frozenset[str]() if read.found is None and life.is_only else read.found
            if state is None or state not in life.states:
                continue
            count = life.states[state]
            for writer in life.layers[count - 1] if count else ():
                if writer != sees.who:
                    yield Edge(Instant(writer, LANDED), sees, Why.WR, read.name)
            if count < len(life.layers):
                later = life.layers[count]
            else:
                later = frozenset([life.dropped_by] if life.dropped_by else [])
            for writer in later - {sees.who}:
                yield Edge(rests, Instant(writer, LANDED), Why.RW, read.name)

    def _instants(self, read: External) -> tuple[Instant, Instant]:
        """When the reader saw it, and until when it must have stayed so."""
        reader = read.reader
        if isinstance(reader, Look):
            return self._look[id(reader)], self._look[id(reader)]
        begun = Instant(reader.id, BEGUN)
        must_stay = read.name in reader.changed or (
            reader.isolation is Isolation.SERIALIZABLE and bool(reader.changed)
        )
        return begun, Instant(reader.id, LANDED) if must_stay and reader.id in self._landed else begun

    def _chain(self) -> Iterator[Edge]:
        looks = sorted(self._history.looks, key=lambda one: one.place)
        for one, other in pairwise(looks):
            if one.place < other.place:
                yield Edge(self._look[id(one)], self._look[id(other)], Why.CHAIN)

    def _time(self) -> Iterator[Edge]:
        """Who was told of an end before somebody else began, began after it."""
        ends = [
            (one.ended_ns, Instant(one.id, LANDED))
            for one in self._history.transactions
            if one.ended_ns is not None and one.id in self._landed
        ]
        ends += [
            (one.ended_ns, self._look[id(one)]) for one in self._history.looks if one.ended_ns is not None
        ]
        begins = [
            (one.begun_ns, Instant(one.id, BEGUN))
            for one in self._history.transactions
            if one.begun_ns is not None
        ]
        begins += [
            (one.begun_ns, self._look[id(one)]) for one in self._history.looks if one.begun_ns is not None
        ]
        for ended_ns, end in ends:
            for begun_ns, begin in begins:
                if ended_ns < begun_ns:
                    yield Edge(end, begin, Why.TIME)
