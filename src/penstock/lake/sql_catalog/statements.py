"""Statements that change something and are sent again when their answer is lost: each is done once.

A driver without Python gives every statement an id, and sends the same request until it is answered. The id
is the idempotency key of the one write that the statement makes. So the lake knows whether it has landed.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from penstock.kernel.reachable import Progress, show_no_progress
from penstock.lake.call import RetrySafety, WriteCall, find_retry_safety
from penstock.lake.calls import Call
from penstock.lake.catalogue import Catalogue
from penstock.lake.lake import Lake
from penstock.lake.read_calls import GetOutcome
from penstock.lake.sql_catalog.requests import CatalogRequest

R = TypeVar("R")

_DONE: Final[dict[str, dict[str, Any]]] = {
    "create": {},
    "create_namespace": {},
    "alter": {},
    "alter_namespace": {},
    "drop": {"is_done": True},
    "drop_namespace": {"is_done": True},
    "rename": {},
    "write_view": {},
    "truncate": {},
}
"""What statements are answered that have landed, each by one commit of a branch."""


class StatementCatalogue:
    """A catalogue on which one statement is carried out: its first write has the statement's id as key."""

    def __init__(self, catalogue: Catalogue, statement: str) -> None:
        self._catalogue, self._statement = catalogue, statement
        self._is_used = False
        self.page_max = catalogue.page_max

    def do(self, call: Call[R], progress: Progress = show_no_progress) -> R:
        keyed: Call[R] = call
        if (
            isinstance(call, WriteCall)
            and call.fixed_key is None
            and find_retry_safety(call) is RetrySafety.BY_KEY
        ):
            if call.idempotency_key is None and not self._is_used:
                keyed = msgspec.structs.replace(call, idempotency_key=self._statement)
            self._is_used = True
        return self._catalogue.do(keyed, progress)

    def close(self) -> None:
        self._catalogue.close()


def find_landed(lake: Lake, step: str, request: CatalogRequest) -> dict[str, Any] | None:
    """The answer to a statement that was carried out before; ``None`` if it was not, or is a call."""
    if not request.statement or step not in _DONE:
        return None
    outcome = lake.do(GetOutcome(key=request.statement, branch=_find_changed_branch(step, request)))
    return None if outcome is None else _DONE[step]


def _find_changed_branch(step: str, request: CatalogRequest) -> str | None:
    """The branch that a statement changes; ``None`` for the default one."""
    if step == "truncate":
        return request.written_table[1]
    return request.branch if step.endswith("_namespace") else request.written_key[1]
