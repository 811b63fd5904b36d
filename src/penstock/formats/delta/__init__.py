"""Delta tables: their protocol, their log and rows in storage, and the lake as the owner of their commits."""

from __future__ import annotations

from typing import Final

from penstock.formats.registry import FormatCommand, TableFormat

FORMAT: Final = TableFormat(
    name="delta",
    plugin="penstock.formats.delta.plugin:DeltaPlugin",
    content_type="DELTA_LAKE_TABLE",
    access_rules="penstock.formats.delta.access:RULES",
    metrics="penstock.formats.delta.metrics:METRICS",
    cli="penstock.formats.delta.cli.format_cli:DeltaCli",
    table_view="penstock.formats.delta.lake.view:DeltaView",
    row_formats=("delta",),
    members={
        "lake.delta": "penstock.formats.delta.lake.tables:DeltaTables",
        "lake.publishing": "penstock.formats.delta.lake.calls:GetTableStatus",
        "table.delta": "penstock.formats.delta.lake.view:DeltaView",
    },
    server_imports=("penstock.formats.delta.lake.handlers",),
    spark="penstock.formats.delta.spark.format:DeltaSpark",
    sql="penstock.formats.delta.lake.sql_format:DeltaSql",
    commands={
        "delta": FormatCommand(
            "penstock.formats.delta.cli.commands:delta",
            summary="Create, adopt, read, publish and look after Delta tables.",
        ),
    },
)
