"""A format that lets something happen between a commit's preparation and its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.formats.delta.format import DeltaFormat
from penstock.kernel.format import Table
from penstock.model.operations import Change
from tests.formats.delta.managed import Owner


class Interrupted(DeltaFormat):
    """Lets something happen after a change was prepared, once, and counts how often one is."""

    between: Callable[[], object] | None = None
    prepared = 0

    def prepare(self, table: Table, change: Change) -> Any:
        result = super().prepare(table, change)
        self.prepared += 1
        work, self.between = self.between, None
        if work is not None:
            work()
        return result


def rounds(owner: Owner, between: Callable[[], object], work: Callable[[], object]) -> int:
    """How often some work was prepared, when something else came in between."""
    format_ = owner.format
    assert isinstance(format_, Interrupted)
    format_.between, format_.prepared = between, 0
    work()
    return format_.prepared
