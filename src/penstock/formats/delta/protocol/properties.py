"""Properties of tables that have a meaning in more than one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APPEND_ONLY: Final = "delta.appendOnly"
AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
"""Writers put small files together by themselves, if it is ``true`` or ``auto``."""
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
DELETION_VECTORS: Final = "delta.enableDeletionVectors"
MAPPING_MODE: Final = "delta.columnMapping.mode"
ROW_TRACKING_ENABLED: Final = "delta.enableRowTracking"
MATERIALIZE_PARTITIONS: Final = "materializePartitionColumns"
"""The feature; writers go by its property, which tables of a lake have."""
MATERIALIZED_PARTITIONS: Final = "delta.enableMaterializePartitionColumnsFeature"
"""Files hold the columns that their table is partitioned by, too."""
UNIFORM: Final = "delta.universalFormat.enabledFormats"
"""By which Delta Spark writes metadata of Iceberg, too, with every commit that it makes."""
ICEBERG_COMPAT: Final = {version: f"delta.enableIcebergCompatV{version}" for version in (1, 2, 3)}
"""By version, the property of a table that suits Iceberg, too."""
PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
"""Up to this version a log is removed as a whole or not at all, commits before checkpoints: it holds versions
that not every client reads who reads later ones, and checkpoints keep these clients from having to. Tables
have it from which a feature was dropped (``checkpointProtection``)."""


def is_auto_compacted(properties: Mapping[str, str]) -> bool:
    """Whether a table's writers put its small files together."""
    return properties.get(AUTO_COMPACT, "").lower() in ("true", "auto")


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Whether a table has a property that says ``true``, in whatever case."""
    return properties.get(name, "").lower() == "true"


def iceberg_version(properties: Mapping[str, str]) -> int | None:
    """The version of the rules by which a table suits Iceberg; ``None`` if it does not have to."""
    return next((version for version, name in ICEBERG_COMPAT.items() if is_on(properties, name)), None)


def complete_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new table, with those that others of them require and that are not set."""
    version = iceberg_version(properties)
    needed = {} if version is None else {MAPPING_MODE: "name"}
    if f"delta.feature.{MATERIALIZE_PARTITIONS}" in properties:
        needed[MATERIALIZED_PARTITIONS] = "true"
    if version == 3:
        needed[ROW_TRACKING_ENABLED] = "true"
    return {**needed, **properties}


def materializes_partition_columns(properties: Mapping[str, str]) -> bool:
    """Whether files hold the columns that their table is partitioned by."""
    return (
        iceberg_version(properties) is not None
        or is_on(properties, MATERIALIZED_PARTITIONS)
        or is_on(properties, "delta.writePartitionColumnsToParquet")
    )
