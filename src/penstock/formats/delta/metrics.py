"""What is measured of Delta tables that the lake owns."""

from __future__ import annotations

from typing import Final

from penstock.metrics.table import Metric, Type, declare_counter

UNPUBLISHED: Final = Metric(
    "penstock_delta_unpublished_versions",
    Type.GAUGE,
    "Versions of Delta tables that were ratified and, as far as this process knows, are not in the tables' "
    "logs yet.",
    (),
    "{versions}",
)
UNPUBLISHED_SECONDS: Final = Metric(
    "penstock_delta_unpublished_seconds",
    Type.GAUGE,
    "Age of the oldest of these versions, since it was ratified; 0 if there is none.",
    (),
    "s",
)
PUBLISHED: Final = declare_counter(
    "penstock_delta_published_total",
    "versions",
    "Versions that this process wrote into logs of Delta tables.",
)
PUBLISH_ERRORS: Final = declare_counter(
    "penstock_delta_publish_errors_total",
    "errors",
    "Attempts to publish versions of a Delta table that ended with an error, by the error's code.",
    "error",
)
FOREIGN: Final = declare_counter(
    "penstock_delta_foreign_commits_total",
    "commits",
    "Times that the log of a Delta table had another writer's file at a version that Penstock "
    "ratified: an alarm. Nothing more is published there until an administrator acts.",
)
SWEPT_FILES: Final = declare_counter(
    "penstock_delta_swept_files_total",
    "files",
    (
        "Files of Delta tables that sweeps removed, by kind: 'data', or 'scratch' for temporary files "
        "beside a log."
    ),
    "kind",
)
SWEPT_BYTES: Final = declare_counter(
    "penstock_delta_swept_bytes_total", "By", "Bytes of these files, by kind.", "kind"
)

METRICS: Final[tuple[Metric, ...]] = (
    UNPUBLISHED,
    UNPUBLISHED_SECONDS,
    PUBLISHED,
    PUBLISH_ERRORS,
    FOREIGN,
    SWEPT_FILES,
    SWEPT_BYTES,
)
"""All of them."""
