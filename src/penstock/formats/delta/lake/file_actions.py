"""The actions that make a job's files part of a table."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from penstock.formats.delta.lake.footer_stats import encode_footer_stats
from penstock.formats.delta.lake.job_outputs import ParquetOutput
from penstock.formats.delta.lake.partition_folders import list_partition_fields, parse_partition_values
from penstock.formats.delta.protocol.actions import Add, Cdc, Metadata
from penstock.formats.delta.rows.stats import StatsLeaf


def file_actions(
    files: Sequence[ParquetOutput], metadata: Metadata, leaves: Sequence[StatsLeaf]
) -> list[Add | Cdc]:
    """What a commit says of files, in their order; files without rows are left out.

    ``leaves`` are the columns that they have statistics of.

    Their directories were named after partition columns as ``partitions`` prepares them. ``InvalidRequest``
    if one has a value that no log can hold.
    """
    fields = list_partition_fields(metadata)
    actions: list[Add | Cdc] = []
    for file in files:
        if not file.rows:
            continue
        path, values = quote(file.name, safe="/="), parse_partition_values(file.partition, fields)
        if file.is_change:
            actions.append(Cdc(path=path, partition_values=values, size=file.size, data_change=False))
            continue
        actions.append(
            Add(
                path=path,
                partition_values=values,
                size=file.size,
                modification_time=file.modified_ms,
                data_change=True,
                stats=encode_footer_stats(file, leaves),
            )
        )
    return actions
