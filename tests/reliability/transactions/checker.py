"""Finds what no history of transactions may show: ``check``. The rest of this folder makes such histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from tests.reliability.transactions.anomalies import Anomaly, Kind
from tests.reliability.transactions.history import (
    Append,
    Done,
    Drop,
    History,
    Look,
    Outcome,
    Read,
    Value,
    elements_of,
)
from tests.reliability.transactions.order import circles
from tests.reliability.transactions.versions import External, externals, landed, lives, value_told


def check(history: History) -> tuple[Anomaly, ...]:
    """All anomalies of a history, and of those that are circles the worst one; none if it may have been.

    A reader at the branch that everybody lands on is held to see one instant of it. A transaction is held to
    what its isolation and policy promise: what it read is all of the instant at which it began, and is as it
    was when it lands, as far as it changed it too, or all of it if it is serializable.
    """
    lists, anomalies = lives(history)
    for find in (_values, _internal, _reads, _lost, _gone, _unstable):
        anomalies += find(history)
    return (*anomalies, *circles(history, lists))


def _values(history: History) -> Iterator[Anomaly]:
    """An element is written once, so it is there once."""
    found: list[tuple[object, str, Value]] = [
        (one.id, step.name, step.found)
        for one in history.transactions
        for step in one.steps
        if isinstance(step, Read)
    ]
    found += [(one, name, value) for one in history.looks for name, value in one.found.items()]
    for who, name, value in found:
        twice = [element for element, count in Counter(value).items() if count > 1]
        if twice:
            yield Anomaly(Kind.DUPLICATED, f"{who} found {', '.join(twice)} more than once in '{name}'")


def _internal(history: History) -> Iterator[Anomaly]:
    """A transaction reads what it read before, with what it has done to it since."""
    for one in history.transactions:
        known: dict[str, frozenset[str] | None] = {}
        own: dict[str, set[str]] = {}
        for step in one.steps:
            if isinstance(step, Append):
                own.setdefault(step.name, set()).add(step.element)
                if step.name in known:
                    known[step.name] = (known[step.name] or frozenset()) | {step.element}
            elif isinstance(step, Drop):
                known[step.name] = None
                own.pop(step.name, None)
            else:
                found = None if step.found is None else frozenset(step.found)
                lacks = own.get(step.name, set()) - (found or frozenset())
                if lacks or known.get(step.name, found) != found:
                    told = f"{one.id} found '{step.name}' {value_told(step.found)}"
                    if lacks:
                        told += f", without its own {', '.join(sorted(lacks))}"
                    else:
                        before = known[step.name]
                        told += f", and by its own doing it is {value_told(before)}"
                    yield Anomaly(Kind.INTERNAL, told)
                known[step.name] = found


def _reads(history: History) -> Iterator[Anomaly]:
    """What is read was written by somebody, who landed it, and all of it."""
    writers = history.writers()
    for read in externals(history):
        by_writer: dict[str, tuple[Done, set[str]]] = {}
        for element in sorted(read.found or ()):
            writer = writers.get(element)
            if writer is None:
                yield Anomaly(Kind.GHOST, f"{_who(read)} found {element} in '{read.name}'")
                continue
            by_writer.setdefault(writer.id, (writer, set()))[1].add(element)
        for writer, seen in by_writer.values():
            if writer.outcome is Outcome.ABORTED:
                told = f"{_who(read)} found {', '.join(sorted(seen))} of {writer.id} in '{read.name}'"
                yield Anomaly(Kind.DIRTY_READ, told)
            elif lacks := writer.appended(read.name) - seen:
                told = f"{_who(read)} found {', '.join(sorted(seen))} in '{read.name}'"
                yield Anomaly(Kind.INTERMEDIATE_READ, f"{told} without {', '.join(sorted(lacks))}")


def _lost(history: History) -> Iterator[Anomaly]:
    """Whoever looks after a transaction has landed finds its elements, unless their list was dropped."""
    seen = elements_of(value for look in history.looks for value in look.found.values())
    landed_ids = landed(history)
    for one in history.transactions:
        if one.id not in landed_ids or one.ended_ns is None:
            continue
        later = [look for look in history.looks if (look.begun_ns or 0) > one.ended_ns]
        for step in one.steps:
            is_dropped = Drop(step.name) in one.steps
            if isinstance(step, Append) and later and step.element not in seen and not is_dropped:
                yield Anomaly(Kind.LOST, f"{step.element} of {one.id} is never in '{step.name}'")


def _gone(history: History) -> Iterator[Anomaly]:
    """From commit to commit, a list grows or is dropped; what was dropped does not come back."""
    landed_ids = landed(history)
    dropped = {
        step.name
        for one in history.transactions
        if one.id in landed_ids
        for step in one.steps
        if isinstance(step, Drop)
    }
    looks = sorted(history.looks, key=lambda one: one.place)
    for name in sorted({name for look in looks for name in look.found}):
        over = set[str]()
        for before, after in pairwise(look for look in looks if name in look.found):
            had, has = frozenset(before.found[name] or ()), frozenset(after.found[name] or ())
            if has & over:
                yield Anomaly(Kind.GONE, f"{', '.join(sorted(has & over))} came back to '{name}': {after}")
            gone = had - has
            if gone and (gone != had or name not in dropped):
                yield Anomaly(Kind.GONE, f"{', '.join(sorted(gone))} of '{name}': {before}, {after}")
            over |= gone


def _unstable(history: History) -> Iterator[Anomaly]:
    first: dict[tuple[int, str], tuple[Look, frozenset[str] | None]] = {}
    for look in history.looks:
        for name, value in look.found.items():
            found = None if value is None else frozenset(value)
            before, was = first.setdefault((look.place, name), (look, found))
            if was != found:
                yield Anomaly(Kind.UNSTABLE, f"'{name}' was {was} and {found} to {before}")


def _who(read: External) -> str:
    return read.reader.id if isinstance(read.reader, Done) else str(read.reader)
