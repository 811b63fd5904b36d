"""In which order the elements of a list came, from nothing but what was read of it.

Lists only grow, until they are dropped. So of two states of a list, the one came from the other if it has all
of its elements; and whatever lies between two neighbouring states came after the one and before the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.reliability.transactions.anomalies import Anomaly, Kind
from tests.reliability.transactions.history import Done, Drop, History, Look, Outcome, Read


class External(NamedTuple):
    """What somebody read of a list that was not their own."""

    reader: Done | Look
    name: str
    found: frozenset[str] | None


class Life(NamedTuple):
    """A list, from when it was made until it was dropped or for ever."""

    name: str
    layers: tuple[frozenset[str], ...]
    """The ids of those who wrote to it, in their order. Nobody saw in which order those of one layer came."""
    states: Mapping[frozenset[str], int]
    """How many layers each state has that was read."""
    dropped_by: str | None
    is_only: bool
    """Whether whoever found no list was there before this one."""


def externals(history: History) -> Iterator[External]:
    """All reads, without the readers' own elements; of a transaction, the first of each list."""
    for done in history.transactions:
        seen = set[str]()
        changed = set[str]()
        for step in done.steps:
            if not isinstance(step, Read):
                changed.add(step.name)
            elif step.name not in seen:
                seen.add(step.name)
                found = None if step.found is None else frozenset(step.found) - done.appended(step.name)
                if step.name in changed and not found:
                    continue  # its own list, or one that it dropped: it tells nothing of others
                yield External(done, step.name, found)
    for look in history.looks:
        for name, value in look.found.items():
            yield External(look, name, None if value is None else frozenset(value))


def landed(history: History) -> frozenset[str]:
    """The transactions that landed: those that were told so, and those of which others saw something."""
    writers = history.writers()
    seen = {element for one in externals(history) for element in one.found or ()}
    found = {writers[element].id for element in seen if element in writers}
    return frozenset(
        one.id
        for one in history.transactions
        if one.outcome is Outcome.COMMITTED or (one.outcome is Outcome.UNKNOWN and one.id in found)
    )


def lives(history: History) -> tuple[list[Life], list[Anomaly]]:
    """Every list with the order in which it was written to; and those of which there is none."""
    reads: dict[str, set[frozenset[str]]] = defaultdict(set)
    for one in externals(history):
        if one.found:
            reads[one.name].add(one.found)
    landed_ids, found, anomalies = landed(history), list[Life](), list[Anomaly]()
    for name, states in sorted(reads.items()):
        groups = _together(states)
        drops = _drops(history, name, landed_ids)
        for group in groups:
            life = _life(history, name, group, drops, is_only=len(groups) == 1 and not drops)
            if isinstance(life, Anomaly):
                anomalies.append(life)
            else:
                found.append(life)
    return found, anomalies


def _together(states: set[frozenset[str]]) -> list[list[frozenset[str]]]:
    """States by the list that they are of: one that was dropped and made anew is another."""
    groups: list[tuple[set[str], list[frozenset[str]]]] = []
    for state in sorted(states, key=lambda one: (len(one), sorted(one))):
        joined, members = set(state), [state]
        others = []
        for elements, group in groups:
            if elements & joined:
                joined |= elements
                members = [*group, *members]
            else:
                others.append((elements, group))
        groups = [*others, (joined, members)]
    return [group for _, group in groups]


def _drops(history: History, name: str, landed_ids: frozenset[str]) -> dict[frozenset[str], str]:
    """Who dropped a list of that name, by the state in which they had read it."""
    found: dict[frozenset[str], str] = {}
    by_reader = {id(one.reader): one.found for one in externals(history) if one.name == name}
    for done in history.transactions:
        if done.id in landed_ids and any(isinstance(one, Drop) and one.name == name for one in done.steps):
            found[by_reader.get(id(done)) or frozenset()] = done.id
    return found


def _life(
    history: History,
    name: str,
    states: Sequence[frozenset[str]],
    drops: Mapping[frozenset[str], str],
    *,
    is_only: bool,
) -> Life | Anomaly:
    writers = history.writers()
    layers: list[frozenset[str]] = []
    counted: dict[frozenset[str], int] = {frozenset(): 0}
    before: frozenset[str] = frozenset()
    for state in sorted(states, key=len):
        if not before <= state:
            told = f"'{name}' was {_told(before - state)} and {_told(state - before)}, besides what both have"
            return Anomaly(Kind.FORKED, told)
        # Whose elements are in an earlier layer too was half read, which is told elsewhere.
        layers.append(frozenset(writers[one].id for one in state - before if one in writers))
        counted[state] = len(layers)
        before = state
    dropped_by = next((by for state, by in drops.items() if state & before), None)
    return Life(name, tuple(layers), counted, dropped_by, is_only)


def _told(elements: frozenset[str]) -> str:
    return ", ".join(sorted(elements)) or "nothing"


def value_told(value: Collection[str] | None) -> str:
    return "absent" if value is None else f"[{', '.join(sorted(value))}]"
