"""Rows of tables as they would be, and as they are where they are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import KeyNotFound, NotManaged
from penstock.formats.plugin import FormatPlugin
from penstock.formats.registry import make_not_installed_error
from penstock.formats.rows.reader import TableRows
from penstock.lake.plugins import find_plugin, is_foreign, suggest_use
from penstock.model.content import AnyContent
from penstock.model.keys import Key

if TYPE_CHECKING:
    from penstock.kernel.checks import BranchProposal
    from penstock.lake.embedded import Embedded
    from penstock.lake.table import Table


def open_proposed_rows(lake: Embedded, proposal: BranchProposal, key: Key) -> TableRows:
    """The rows that a table would have. ``KeyNotFound`` if there would be none, ``NotManaged`` if the lake
    does not know what they are."""
    content, plugin = find_proposed_table(lake, proposal, key)
    return TableRows(key, plugin.proposed_rows(proposal, key, content))


def find_proposed_table(
    lake: Embedded, proposal: BranchProposal, key: Key
) -> tuple[AnyContent, FormatPlugin]:
    """What a table would be, and its format. Raises as ``open_proposed_rows``."""
    content = proposal.get_content(key)
    if content is None:
        raise KeyNotFound(
            f"the query reads '{key}', which would not exist on '{proposal.branch}' after this commit",
            key=str(key),
        )
    if (plugin := lake.find_plugin(content)) is None:
        raise no_rows_error(key, content)
    return content, plugin


def open_rows_at(table: Table) -> TableRows:
    """The rows of a table where it is looked at, wherever the lake is. Raises as ``open_proposed_rows``."""
    content = table.content
    if (plugin := find_plugin(content)) is None:
        raise no_rows_error(table.key, content)
    return plugin.open_rows(table)


def no_rows_error(key: Key, content: AnyContent) -> NotManaged:
    """What is said of a content whose rows cannot be read."""
    if is_foreign(content):
        return NotManaged(
            make_not_installed_error(f"'{key}' is {content.type_in_words}").message, table=str(key)
        )
    return NotManaged(
        f"'{key}' is {content.type_in_words}, and the lake cannot read its rows: it reads only Delta "
        f"tables, Lance tables and tables of files that it manages{suggest_use(key, content)}",
        table=str(key),
    )
