"""The history checker: does what clients were told fit what the branch says happened?

>>> import penstock
>>> from penstock.testing.chain import read_chain
>>> from penstock.testing.client import Client
>>> from penstock.testing.recorder import Recorder
>>> kernel = penstock.open("memory:").kernel
>>> client = Client(kernel, Recorder("me"))
>>> _ = client.write({"orders": "1", "customers": "1"}), client.read(["orders"])
>>> HistoryChecker(client.recorder.events).check(read_chain(kernel))
[]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import inf

from penstock.model.encoding import NO_COMMIT
from penstock.testing.chain import BranchChain, ChainLink
from penstock.testing.reads import check_reads
from penstock.testing.recorder import Answer, Attempt, Event, ReadDone, Values, attempts
from penstock.testing.violations import (
    BrokenChain,
    BrokenLog,
    DoubledCommit,
    LostCommit,
    LostUpdate,
    OutOfOrder,
    RefusedButApplied,
    StrangeCommit,
    TornCommit,
    Violation,
    WrongAnswer,
)


class HistoryChecker:
    """What many clients did to one branch, to be checked against the branch."""

    def __init__(self, events: Iterable[Event]) -> None:
        events = list(events)
        self.attempts = attempts(events)
        self.reads = [event for event in events if isinstance(event, ReadDone)]
        self._by_key: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in self.attempts:
            self._by_key[attempt.call.key].append(attempt)

    def check(self, chain: BranchChain, since_depth: int = 0) -> list[Violation]:
        """Everything that is wrong; nothing if every promise was kept.

        Commits up to ``since_depth`` were there before the clients began.
        """
        chain_links = [link for link in chain.links if link.depth > since_depth]
        violations: list[Violation] = []
        violations += _check_chain(chain)
        violations += _check_log(chain)
        violations += self.check_presence(chain_links)
        violations += self._check_contents(chain.links, since_depth)
        violations += self._check_order(chain_links)
        violations += check_reads(self.reads, self._by_key, chain.links)
        return violations

    def check_presence(self, links: list[ChainLink]) -> Iterator[Violation]:
        """Acknowledged: once. Refused: never. Unknown: at most once. Not asked for: never."""
        commits: dict[str, list[ChainLink]] = defaultdict(list)
        for link in links:
            commits[link.key].append(link)
            if link.key not in self._by_key:
                yield StrangeCommit(key=link.key, commit=link.commit)
        for key, made in self._by_key.items():
            chain_links = commits.get(key, [])
            if len(chain_links) > 1:
                yield DoubledCommit(key=key, commits=tuple(link.commit for link in chain_links))
            accepted = [attempt for attempt in made if attempt.answer is Answer.OK]
            for attempt in accepted:
                if not chain_links:
                    yield LostCommit(key=key, client=attempt.call.client, commit=attempt.commit)
                elif attempt.commit is not None and attempt.commit not in {
                    link.commit for link in chain_links
                }:
                    yield WrongAnswer(key=key, told=attempt.commit, found=chain_links[0].commit)
            refusal = _final_refusal(made)
            if refusal is not None and chain_links:
                yield RefusedButApplied(
                    key=key, client=refusal.call.client, commit=chain_links[0].commit, why=refusal.why
                )

    def _check_contents(self, links: Iterable[ChainLink], since_depth: int) -> Iterator[Violation]:
        """Every commit holds exactly what was asked, on top of exactly what its writer saw."""
        state: Values = {}
        for link in links:
            before = dict(state)
            state.update(link.changes)
            made = self._by_key.get(link.key, [])
            if link.depth <= since_depth or not made:
                continue
            fitting = [attempt for attempt in made if not _compare_changes(attempt, link, state)]
            if not fitting:
                yield _describe_torn_commit(made[0], link, state)
            for attempt in made:
                if attempt.answer is Answer.OK and fitting and attempt not in fitting:
                    yield _describe_torn_commit(attempt, link, state)
            for table, seen in (fitting or made)[0].call.reads.items():
                if before.get(table) != seen:
                    yield LostUpdate(
                        key=link.key,
                        commit=link.commit,
                        table=table,
                        seen=repr(seen),
                        found=repr(before.get(table)),
                    )

    def _check_order(self, links: list[ChainLink]) -> Iterator[Violation]:
        """What was acknowledged before another request was made comes before it."""
        earliest, whose = inf, ""
        for link in reversed(links):
            made = self._by_key.get(link.key)
            if not made:
                continue
            if earliest < made[0].call.at_ns:
                yield OutOfOrder(first=whose, second=link.key)
            acknowledged = min(
                (attempt.returned_ns or inf for attempt in made if attempt.answer is Answer.OK), default=inf
            )
            if acknowledged < earliest:
                earliest, whose = acknowledged, link.key


def _final_refusal(attempts: list[Attempt]) -> Attempt | None:
    """The answer that rules out that a request was applied by any of its attempts, if there is one."""
    answers = {attempt.answer for attempt in attempts}
    if Answer.OK in answers:
        return None
    if Answer.UNKNOWN not in answers:
        return next((attempt for attempt in attempts if attempt.answer is Answer.REFUSED), attempts[0])
    in_doubt_until = max(
        (inf if attempt.returned_ns is None else attempt.returned_ns)
        for attempt in attempts
        if attempt.answer is Answer.UNKNOWN
    )
    for attempt in attempts:
        same = attempt.call.writes == attempts[0].call.writes
        if attempt.answer is Answer.REFUSED and attempt.call.at_ns > in_doubt_until and same:
            return attempt
    return None


def _compare_changes(attempt: Attempt, link: ChainLink, after: Values) -> dict[str, tuple[str, str]]:
    """Per key what was asked and what is there, where that differs."""
    written = attempt.call.writes
    wrong = {
        table: (repr(value), repr(after.get(table)))
        for table, value in written.items()
        if after.get(table) != value
    }
    wrong |= {
        table: ("what it was", repr(value)) for table, value in link.changes.items() if table not in written
    }
    return wrong


def _describe_torn_commit(attempt: Attempt, link: ChainLink, after: Values) -> TornCommit:
    table, (expected, actual) = next(iter(_compare_changes(attempt, link, after).items()))
    return TornCommit(key=link.key, commit=link.commit, table=table, asked=expected, found=actual)


def _check_chain(chain: BranchChain) -> Iterator[Violation]:
    """One chain from the empty lake to the head, with depths 1 to n and growing times."""
    parent, time_us = NO_COMMIT.hex(), -1
    for depth, link in enumerate(chain.links, 1):
        if link.parent != parent:
            yield BrokenChain(commit=link.commit, why=f"its parent is {link.parent[:8]}, not {parent[:8]}")
        if link.depth != depth:
            yield BrokenChain(commit=link.commit, why=f"it is at depth {link.depth}, not {depth}")
        if link.time_us <= time_us:
            yield BrokenChain(commit=link.commit, why="it is not younger than its parent")
        parent, time_us = link.commit, link.time_us
    if parent != chain.head:
        yield BrokenChain(commit=chain.head, why=f"the chain ends at {parent[:8]}")


def _check_log(chain: BranchChain) -> Iterator[Violation]:
    """Every swap has its entry: the entries follow each other, end at the head and name every commit."""
    if not chain.log:
        yield BrokenLog(position=0, why="there is none")
        return
    after = chain.log[0].after
    for position, entry in enumerate(chain.log[1:], chain.log[0].position + 1):
        if entry.position != position:
            yield BrokenLog(position=entry.position, why=f"it stands where entry {position} should")
        if entry.before != after:
            yield BrokenLog(
                position=entry.position, why=f"it starts at {entry.before[:8]}, not at {after[:8]}"
            )
        after = entry.after
    if after != chain.head:
        yield BrokenLog(
            position=chain.log[-1].position, why=f"it ends at {after[:8]}, not at the head {chain.head[:8]}"
        )
    if {entry.kind for entry in chain.log} <= {"create", "commit"} and chain.log[0].before == NO_COMMIT.hex():
        named = [landed for entry in chain.log for landed in entry.landed]
        made = [(link.key, link.commit, 1) for link in chain.links]
        for position, (landed, is_there) in enumerate(zip(named, made, strict=False), 1):
            if landed != is_there:
                yield BrokenLog(
                    position=position, why=f"it names {landed}, but the commit there is {is_there}"
                )
                return
        if len(named) != len(made):
            yield BrokenLog(
                position=len(named), why=f"{len(named)} commits are named, but there are {len(made)}"
            )
