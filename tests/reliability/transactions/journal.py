"""What a worker writes down, line by line, so that whoever is left knows what it was at when it died."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import msgspec

from penstock.model.transactions import Isolation, Policy
from tests.reliability.transactions.history import AnyStep, Done, Outcome


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """It is about to begin a transaction."""

    id: str
    isolation: Isolation
    policy: Policy
    at_ns: int


class Stepped(msgspec.Struct, frozen=True, tag="stepped"):
    """It has read something, or is about to write something."""

    id: str
    step: AnyStep


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """It knows how a transaction has ended."""

    id: str
    outcome: Outcome
    at_ns: int
    why: str = ""


class Died(msgspec.Struct, frozen=True, tag="died"):
    """It kills itself now."""

    where: str


Line: TypeAlias = Begun | Stepped | Ended | Died


class Journal:
    """A file to which lines are added; what is written before the process dies is there after it."""

    def __init__(self, path: str | Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def begun(self, id: str, isolation: Isolation, policy: Policy, at_ns: int | None = None) -> None:  # noqa: A002
        self._write(Begun(id, isolation, policy, at_ns or time.monotonic_ns()))

    def stepped(self, id: str, step: AnyStep) -> None:  # noqa: A002
        self._write(Stepped(id, step))

    def ended(self, id: str, outcome: Outcome, why: str = "") -> None:  # noqa: A002
        self._write(Ended(id, outcome, time.monotonic_ns(), why))

    def died(self, where: str) -> None:
        self._write(Died(where))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, line: Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def lines_of(path: Path) -> list[Line]:
    found = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Line) for line in found]


def transactions_of(lines: Iterable[Line]) -> list[Done]:
    """The transactions that lines tell of, in the order in which they were begun."""
    found: dict[str, Done] = {}
    for line in lines:
        if isinstance(line, Begun):
            found[line.id] = Done(
                id=line.id,
                outcome=Outcome.UNKNOWN,
                isolation=line.isolation,
                policy=line.policy,
                begun_ns=line.at_ns,
            )
        elif isinstance(line, Stepped):
            one = found[line.id]
            found[line.id] = msgspec.structs.replace(one, steps=(*one.steps, line.step))
        elif isinstance(line, Ended):
            found[line.id] = msgspec.structs.replace(
                found[line.id], outcome=line.outcome, ended_ns=line.at_ns
            )
    return list(found.values())
