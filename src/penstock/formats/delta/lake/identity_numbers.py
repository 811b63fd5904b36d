"""Numbers of identity columns for a writer: reserved before rows are written, for all branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.delta.lake.calls import ReserveIdentities
from penstock.formats.delta.protocol.actions import Metadata
from penstock.formats.delta.protocol.column_rules import (
    IdentityColumn,
    list_identity_columns,
    remove_identity_marks,
    set_identity_marks,
)

if TYPE_CHECKING:
    from penstock.lake.lake import Lake
    from penstock.model.keys import Key


class IdentityNumbers:
    """What one write gives away of a table's numbers."""

    def __init__(self, metadata: Metadata) -> None:
        self.marks: dict[str, int] = {}
        """The furthest number of each column that the write has made use of."""
        self._metadata = metadata
        self.columns = {column.name: column for column in list_identity_columns(metadata)}

    def take_numbers(self, name: str, count: int) -> int:
        """The first of so many numbers of a column; the others follow by its step."""
        column = self.columns[name]
        last = self._reserve_numbers(column, count, None)
        self.note_number(name, last)
        return last - column.step * (count - 1)

    def note_number(self, name: str, number: int) -> None:
        """Remember that a row has a number."""
        column = self.columns[name]
        furthest = column.choose_furthest_mark(self.marks.get(name), number)
        assert furthest is not None  # of two
        is_before_start = (number - column.start) * column.step < 0
        if not is_before_start:
            self.marks[name] = furthest

    def keep_free(self) -> None:
        """Have nobody else be given numbers that rows came with."""
        for name, mark in self.marks.items():
            if self.columns[name].allows_explicit:
                self.note_number(name, self._reserve_numbers(self.columns[name], 0, mark))

    def mark_metadata(self, metadata: Metadata) -> Metadata:
        """Metadata that says how far numbers were given away."""
        return set_identity_marks(metadata, self.marks)

    def list_metadata_changes(self, metadata: Metadata) -> list[Metadata]:
        """Metadata that says how far numbers were given away; none, if what the table has does."""
        marked = self.mark_metadata(metadata)
        return [] if marked == metadata else [marked]

    def is_only_numbered(self, metadata: Metadata) -> bool:
        """Whether a table has changed by numbers that were given away alone since the write began."""
        return remove_identity_marks(metadata) == remove_identity_marks(self._metadata)

    def _reserve_numbers(self, column: IdentityColumn, count: int, reached: int | None) -> int:
        """The last of so many numbers: here those of a table that nobody else knows yet."""
        before = column.choose_furthest_mark(self.marks.get(column.name), column.mark, reached)
        last = column.start - column.step if before is None else before
        return last + column.step * count


class ReservedNumbers(IdentityNumbers):
    """Numbers of a table of a lake, which gives each of them away once."""

    def __init__(self, lake: Lake, key: Key, branch: str, metadata: Metadata) -> None:
        super().__init__(metadata)
        self._lake, self._key, self._branch = lake, key, branch

    def _reserve_numbers(self, column: IdentityColumn, count: int, reached: int | None) -> int:
        call = ReserveIdentities(
            key=self._key, branch=self._branch, column=column.name, count=count, reached=reached
        )
        return self._lake.do(call).last
