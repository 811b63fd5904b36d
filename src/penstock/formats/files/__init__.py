"""Tables of files: any format, one tree from path to file for each table, no directory to list."""

from __future__ import annotations

from typing import Final

from penstock.formats.registry import Command, TableFormat

FORMAT: Final = TableFormat(
    name="files",
    plugin="penstock.formats.files.plugin:FilesPlugin",
    access_rules="penstock.formats.files.access:RULES",
    cli="penstock.formats.files.cli.format_cli:FilesCli",
    spark="penstock.formats.files.spark.format:FilesSpark",
    commands={
        "files": Command(
            "penstock.formats.files.cli.commands:files", summary="List, read, write and copy files of tables."
        ),
        "jobs": Command(
            "penstock.formats.files.cli.jobs:jobs", summary="List and abort jobs that write tables of files."
        ),
    },
)
