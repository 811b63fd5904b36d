"""What transactions did to lists: who read what, who added what, and how each of them ended.

A list is a table with an element in every row. Nobody adds an element twice, so that of whatever is read it
is known who wrote it. What a list holds is told in no order: tables have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from penstock.model.transactions import Isolation, Policy

Value: TypeAlias = tuple[str, ...] | None
"""The elements of a list; ``None`` if there is no such list."""


class Outcome(StrEnum):
    """How a transaction ended, by what its program was told or what others found out."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Step(msgspec.Struct, frozen=True, tag=True):
    """Something that a transaction did to a list."""

    name: str


class Read(Step, frozen=True):
    """It read all of the list."""

    found: Value


class Append(Step, frozen=True):
    """It added an element, by an append or by writing all anew; a list that was absent is there then."""

    element: str


class Drop(Step, frozen=True):
    """It let the list be no more. Whoever does that has read it before, and does not write to it."""


AnyStep: TypeAlias = Read | Append | Drop


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction."""

    id: str
    steps: tuple[AnyStep, ...] = ()
    outcome: Outcome = Outcome.COMMITTED
    isolation: Isolation = Isolation.SNAPSHOT
    policy: Policy = Policy.REBASE
    begun_ns: int | None = None
    """Its program had not asked for it before."""
    ended_ns: int | None = None
    """Its program, or somebody else, knew by then how it had ended."""

    def appended(self, name: str) -> frozenset[str]:
        return frozenset(one.element for one in self.steps if isinstance(one, Append) and one.name == name)

    @property
    def elements(self) -> frozenset[str]:
        return frozenset(one.element for one in self.steps if isinstance(one, Append))

    @property
    def changed(self) -> frozenset[str]:
        """The lists that it wrote to."""
        return frozenset(one.name for one in self.steps if not isinstance(one, Read))


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All lists, as a reader found them at one commit of the branch that everybody lands on."""

    place: int
    """Of the commit in the branch's history, the oldest first."""
    found: Mapping[str, Value]
    begun_ns: int | None = None
    """When the reader asked for the branch's newest commit; ``None`` if it asked for an older one."""
    ended_ns: int | None = None

    def __str__(self) -> str:
        return f"a reader at commit {self.place}"


class History(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, by all who took part."""

    transactions: tuple[Done, ...]
    looks: tuple[Look, ...] = ()

    def writers(self) -> dict[str, Done]:
        """Who added each element."""
        return {element: one for one in self.transactions for element in one.elements}


def elements_of(values: Iterable[Value]) -> frozenset[str]:
    """All elements of some lists."""
    return frozenset(element for value in values for element in value or ())
