"""Rows of a table that differ between two revisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from penstock.cli.command_context import CommandContext
from penstock.cli.progress import ProgressBar
from penstock.cli.rendering.rows import format_rows as show_rows
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.formats.rows.row_values import list_rows, to_json_value
from penstock.lake.lake import Lake

ROWS_LIMIT: Final = 50
SIGNS: Final = {"insert": "+", "delete": "-", "update_preimage": "<", "update_postimage": ">"}


class DifferingRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a table that differ between two revisions."""

    key: str
    """The key."""
    added: int
    """How many rows only the second revision has."""
    removed: int
    """How many rows only the first revision has."""
    changed: int
    """How many rows have the same key and other values; 0 if no key columns were named."""
    columns: tuple[str, ...]
    """The names of the columns."""
    rows: tuple[tuple[Any, ...], ...]
    """Some of these rows, each with a value for every column. The last one, `_change_type`, is `insert`,
    `delete`, `update_preimage` or `update_postimage`."""


def show_row_diff(
    call: CommandContext, lake: Lake, before: str, after: str, key: str, on: str | None, limit: int
) -> None:
    """Answer with the rows of a table that differ."""
    names = [name.strip() for name in on.split(",")] if on else None
    with ProgressBar(call.json) as progress:
        diff = lake.diff_rows(key, before, after, on=names, progress=progress)
    head = diff.head(limit)
    header, rows = head.schema.names, list_rows(head)

    def render_text(screen: Screen) -> Iterator[str]:
        heading = screen.style(f"{escape_controls(key)}  {before} → {after}", "strong")
        yield screen.replace_unsupported(f"{heading}   {diff.summary}")
        for columns, sign in ((diff.added_columns, "+"), (diff.removed_columns, "-")):
            yield from (f"  {sign} column {escape_controls(name)}" for name in columns)
        if rows:
            lines = [(SIGNS[row[-1]], *row[:-1]) for row in rows]
            yield from show_rows(screen, [" ", *header[:-1]], lines)
        if diff.num_rows > len(rows):
            yield screen.replace_unsupported(
                f"… {diff.num_rows - len(rows):,} more; --limit shows more of them"
            )

    call.print_answer(
        lambda: DifferingRows(
            key=key,
            added=diff.num_added,
            removed=diff.num_removed,
            changed=diff.num_changed,
            columns=tuple(header),
            rows=tuple(tuple(map(to_json_value, row)) for row in rows),
        ),
        render_text,
    )
