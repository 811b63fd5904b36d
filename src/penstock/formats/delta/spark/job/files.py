"""Rows as files of a table, and the actions that would make them part of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from penstock.errors import InvalidRequest, PenstockError
from penstock.formats.delta.errors import UnsupportedFeature
from penstock.formats.delta.lake.file_actions import file_actions
from penstock.formats.delta.lake.footer_stats import select_footer_leaves
from penstock.formats.delta.lake.job_outputs import JobTarget
from penstock.formats.delta.lake.partition_folders import list_partition_fields
from penstock.formats.delta.lake.table import data_folder
from penstock.formats.delta.protocol.actions import Add, Cdc, Metadata
from penstock.formats.delta.protocol.column_mapping import element_ids, has_nested_ids
from penstock.formats.delta.protocol.properties import RANDOM_PREFIXES, iceberg_version, is_on
from penstock.formats.delta.rows.file_writer import check_features
from penstock.formats.delta.rows.merged_schemas import check_names
from penstock.formats.delta.rows.stats import indexed_leaves
from penstock.formats.delta.spark.job import jobs
from penstock.formats.delta.spark.job.constraints import enforce_constraints
from penstock.formats.delta.spark.job.partitions import prepare_partition_columns
from penstock.formats.delta.spark.job.stored_columns import (
    as_stored,
    keep_partitions,
    list_directory_columns,
    place_partitions,
)
from penstock.formats.rows.schema import parse_schema
from penstock.lake.job_files import remove_files
from penstock.spark import jar
from penstock.spark.row_refusals import raise_refusals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.lake.lake import Lake

PREFIX_LENGTH_DEFAULT: Final = 2
NAME_MAX_BYTES: Final = 255
"""The longest name in a directory that file systems take."""


def write_files(
    df: DataFrame,
    lake: Lake,
    location: str,
    metadata: Metadata,
    *,
    branch: str,
    has_changes: bool = False,
    clustering: Collection[tuple[str, ...]] = frozenset(),
    options: Mapping[str, str] = {},
    are_checked: bool = False,
) -> list[Add | Cdc]:
    """Write rows as files of a table that is at a location, or will be; see ``JobTable.write_rows``.

    Rows that are written anew ``are_checked``: they satisfy the table's constraints.
    ``InvalidRequest`` for rows that the table cannot have; then no file is left, as far as possible.
    """
    check_features(metadata)
    ids = _make_element_id_option(df, metadata)
    check_names(metadata)
    fields = list_partition_fields(metadata)
    leaves = select_footer_leaves(indexed_leaves(metadata, clustering))
    target = JobTarget(
        place=lake.places.open_place(location),
        partition_by=list_directory_columns(fields, metadata),
        has_changes=has_changes,
        subdirectory=data_folder(lake, branch).rstrip("/"),
        prefix_length=_prefix_length(metadata.configuration),
        columns=tuple(leaf.stored for leaf in leaves),
        options={**options, **ids},
    )
    checked = df if are_checked else enforce_constraints(df, metadata, fields, has_changes=has_changes)
    with raise_refusals():
        with_copies = keep_partitions(checked, fields, metadata)
        named = prepare_partition_columns(with_copies, fields, _name_max_bytes(target))
        stored = place_partitions(as_stored(named, metadata), fields, metadata)
        files = jobs.write_rows(stored, target, uuid4())
    try:
        actions = file_actions(files, metadata, leaves)
    except PenstockError:
        remove_files(target.place, (file.name for file in files))
        raise
    remove_files(target.place, (file.name for file in files if not file.rows))
    return actions


def _make_element_id_option(df: DataFrame, metadata: Metadata) -> dict[str, str]:
    """The option that has Spark write ids of elements of arrays and maps, where the table needs them.

    ``UnsupportedFeature`` without Penstock's jar: Spark itself writes none.
    """
    elements = [*element_ids(parse_schema(metadata.schema_string))] if has_nested_ids(metadata) else []
    if not elements:
        return {}
    if not jar.has_protocol(df.sparkSession):
        raise UnsupportedFeature(
            "Spark does not write field ids for elements of arrays and maps, which the table needs for "
            "Iceberg, without Penstock's jar: write its rows without Spark (table.append, table.update, "
            "table.merge) or by format('penstock')",
            feature=f"icebergCompatV{iceberg_version(metadata.configuration)}",
        )
    return {"penstock.element.ids": msgspec.json.encode([element._asdict() for element in elements]).decode()}


def _name_max_bytes(target: JobTarget) -> int | None:
    """How long the name of a partition's directory may be; ``None`` where none is made, or not on a disk."""
    return None if target.prefix_length or "://" in target.place.url else NAME_MAX_BYTES


def _prefix_length(properties: Mapping[str, str]) -> int:
    """How long the random folder names are that a table wants for its files; 0 if it wants none."""
    if not is_on(properties, RANDOM_PREFIXES):
        return 0
    text = properties.get("delta.randomPrefixLength", str(PREFIX_LENGTH_DEFAULT)).strip()
    if not text.isdecimal() or not int(text):
        raise InvalidRequest(
            f"the property delta.randomPrefixLength must be an integer of at least 1, got {text!r}"
        )
    return int(text)
