"""What a lake stores of a table of the format."""

from __future__ import annotations

from penstock.model.content import ManagedTable


class LanceTable(ManagedTable, frozen=True, kw_only=True, tag=6):
    """A Lance table."""

    content_type = "LANCE_TABLE"
    noun = "a Lance table"
    holds_trees = True
