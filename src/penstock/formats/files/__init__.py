"""Tables of files: any format, one tree from path to file for each table, no directory to list."""

from __future__ import annotations

from typing import Final

from penstock.formats.registry import FormatCommand, TableFormat

FORMAT: Final = TableFormat(
    name="files",
    plugin="penstock.formats.files.plugin:FilesPlugin",
    content_type="FILES_TABLE",
    content="penstock.formats.files.content:FilesTable",
    access_rules="penstock.formats.files.access:RULES",
    metrics="penstock.formats.files.metrics:METRICS",
    cli="penstock.formats.files.cli.format_cli:FilesCli",
    table_view="penstock.formats.files.lake.view:FilesView",
    row_formats=("parquet", "csv"),
    members={
        "lake.abort_job": "penstock.formats.files.lake.calls:AbortJob",
        "lake.files_system": "penstock.formats.files.lake.members:open_files_system",
        "lake.jobs": "penstock.formats.files.lake.calls:ListJobs",
        "merge.folder": "penstock.formats.files.lake.paths:check_folder",
        "proposed.files": "penstock.formats.files.lake.proposed_files:find_proposed_files",
        "table.files": "penstock.formats.files.lake.table:Files",
    },
    routes="penstock.formats.files.routes:ROUTES",
    server_imports=("penstock.formats.files.lake.handlers",),
    spark="penstock.formats.files.spark.format:FilesSpark",
    sql="penstock.formats.files.lake.sql_format:FilesSql",
    commands={
        "files": FormatCommand(
            "penstock.formats.files.cli.commands:files", summary="List, read, write and copy files of tables."
        ),
        "jobs": FormatCommand(
            "penstock.formats.files.cli.jobs:jobs", summary="List and abort jobs that write tables of files."
        ),
    },
)
