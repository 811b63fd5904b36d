"""The Delta format of a lake, loaded when the lake first has to do with a Delta table.

Most commands of the command line have not, and a lake may have no such table at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.kernel.format import Applied, Format, Table
from penstock.model.content import AnyContent, DeltaTable
from penstock.model.encoding import ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Change


class DeltaOnDemand(Format):
    """Stands for the format until it is needed."""

    name = "delta"

    def __init__(self, real: Callable[[], Format]) -> None:
        self._real = real

    def manages(self, content: AnyContent) -> bool:
        return isinstance(content, DeltaTable) and content.is_managed

    def prepare(self, table: Table, change: Change) -> Any:
        return self._real().prepare(table, change)

    def apply(self, table: Table, change: Change, prepared: Any) -> Applied:
        return self._real().apply(table, change, prepared)

    def merge(
        self,
        table: Table,
        base: AnyContent | None,
        source: AnyContent | None,
        intents: Sequence[bytes] | None,
    ) -> Applied:
        return self._real().merge(table, base, source, intents)

    def restore(self, table: Table, wanted: AnyContent | None) -> Applied:
        return self._real().restore(table, wanted)

    def admit(self, table: Table, content: AnyContent | None) -> None:
        self._real().admit(table, content)

    def landed(
        self, key: Key, content: AnyContent | None, commit: ObjectId, *, branch: str, is_default: bool
    ) -> None:
        self._real().landed(key, content, commit, branch=branch, is_default=is_default)

    def may_move(self, before: AnyContent | None, after: AnyContent | None) -> str | None:
        return self._real().may_move(before, after)
