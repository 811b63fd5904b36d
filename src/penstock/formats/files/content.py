"""What a lake stores of a table of the format."""

from __future__ import annotations

from penstock.model.content import ManagedTable


class FilesTable(ManagedTable, frozen=True, kw_only=True, tag=7):
    """A tree of immutable files in any format."""

    content_type = "FILES_TABLE"
    noun = "a table of files"
    holds_trees = True
