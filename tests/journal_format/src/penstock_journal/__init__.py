"""Journals: a table is a list of lines, and every change adds one."""

from __future__ import annotations

from typing import Final

from penstock.formats.registry import FormatCommand, TableFormat

FORMAT: Final = TableFormat(
    name="journal",
    plugin="penstock_journal.plugin:JournalPlugin",
    content_type="JOURNAL",
    access_rules="penstock_journal.access:RULES",
    cli="penstock_journal.words:JournalCli",
    table_view="penstock_journal.view:JournalView",
    row_formats=("journal",),
    commands={
        "journal": FormatCommand("penstock_journal.commands:journal", summary="Write and read journals.")
    },
)
