"""Rows of a table as a stream of Arrow's that can be begun as often as somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import KeyNotFound, NotManaged
from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import not_installed
from penstock.lake.plugins import find_plugin, is_foreign
from penstock.model.content import AnyContent
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.kernel.checks import Proposal
    from penstock.lake.embedded import Embedded
    from penstock.lake.table import Table


class TableRows:
    """The rows of a table, in one state. Nothing is read before it is asked for, and never all at once."""

    def __init__(self, key: Key, begin: Callable[[], Any]) -> None:
        self.key, self._begin = key, begin

    def __repr__(self) -> str:
        return f"<TableRows of {self.key}>"

    @property
    def schema(self) -> Any:
        """Arrow's schema of them."""
        return self.to_batches().schema

    @property
    def has_columns(self) -> bool:
        """Whether there can be rows: not of a table that was only declared, or has no file yet."""
        return len(self.schema.names) > 0

    def to_batches(self) -> Any:
        """A ``pyarrow.RecordBatchReader``, from the first row on."""
        return self._begin()

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """All of them as a ``pyarrow.Table``, with all columns or some."""
        found = self.to_batches().read_all()
        return found if columns is None else found.select(list(columns))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """For whoever takes Arrow's stream: DuckDB, Polars, pandas. Each time it begins anew."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


def rows_proposed(lake: Embedded, proposal: Proposal, key: Key) -> TableRows:
    """The rows that a table would have. ``KeyNotFound`` if there would be none, ``NotManaged`` if the lake
    does not know what they are."""
    content, plugin = proposed_table(lake, proposal, key)
    return TableRows(key, plugin.proposed_rows(proposal, key, content))


def proposed_table(lake: Embedded, proposal: Proposal, key: Key) -> tuple[AnyContent, FormatPlugin]:
    """What a table would be, and its format. Raises as ``rows_proposed``."""
    content = proposal.get(key)
    if content is None:
        raise KeyNotFound(f"there would be no '{key}' on '{proposal.branch}'", key=str(key))
    if (plugin := lake.find_plugin(content)) is None:
        raise no_rows(key, content)
    return content, plugin


def rows_at(table: Table) -> TableRows:
    """The rows of a table where it is looked at, wherever the lake is. Raises as ``rows_proposed``."""
    if (plugin := find_plugin(table.content)) is None:
        raise no_rows(table.key, table.content)
    return TableRows(table.key, plugin.rows_of(table))


def no_rows(key: Key, content: AnyContent) -> NotManaged:
    """What is said of a content whose rows cannot be read."""
    if is_foreign(content):
        return NotManaged(not_installed(f"'{key}' is a {content.type}").message, table=str(key))
    return NotManaged(
        f"'{key}' is a {content.type} whose rows the lake does not read: only those of Delta, Lance and file "
        "tables that it keeps",
        table=str(key),
    )
