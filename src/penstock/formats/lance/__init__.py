"""Lance tables: a line of versions, each a manifest that its writer has made and the lake ratifies."""

from __future__ import annotations

from typing import Final

from penstock.formats.registry import FormatCommand, TableFormat

FORMAT: Final = TableFormat(
    name="lance",
    plugin="penstock.formats.lance.plugin:LancePlugin",
    content_type="LANCE_TABLE",
    content="penstock.formats.lance.content:LanceTable",
    access_rules="penstock.formats.lance.access:RULES",
    metrics="penstock.formats.lance.metrics:METRICS",
    cli="penstock.formats.lance.cli.format_cli:LanceCli",
    table_view="penstock.formats.lance.lake.view:LanceView",
    row_formats=("lance",),
    members={
        "lake.export_lance": "penstock.formats.lance.lake.members:export_tables",
        "lake.import_lance": "penstock.formats.lance.lake.members:import_tables",
        "lake.lance": "penstock.formats.lance.lake.members:open_namespace",
        "table.to_lance": "penstock.formats.lance.lake.members:open_dataset",
    },
    spark="penstock.formats.lance.spark.format:LanceSpark",
    commands={
        "lance": FormatCommand(
            "penstock.formats.lance.cli.commands:lance",
            summary="List, promote, import and export Lance tables.",
        ),
    },
    row_work_imports=(
        "penstock.formats.lance.rest.client_package",  # before Lance
        "penstock.formats.lance.rest.row_work",
        "lance",
    ),
    apis=("penstock.formats.lance.rest.api:LANCE",),
)
