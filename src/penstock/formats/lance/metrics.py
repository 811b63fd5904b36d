"""What is measured of Lance tables that the lake owns."""

from __future__ import annotations

from typing import Final

from penstock.metrics.table import Metric, Type, declare_counter

UNPROMOTED: Final = Metric(
    "penstock_lance_unpromoted_versions",
    Type.GAUGE,
    "Versions of Lance tables that were ratified and, as far as this process knows, are not promoted "
    "yet: readers that do not ask the lake do not see them.",
    (),
    "{versions}",
)
UNPROMOTED_SECONDS: Final = Metric(
    "penstock_lance_unpromoted_seconds",
    Type.GAUGE,
    "Age of the oldest of these versions, since it was ratified; 0 if there is none.",
    (),
    "s",
)
PROMOTED: Final = declare_counter(
    "penstock_lance_promoted_total",
    "versions",
    "Versions of Lance tables that this process promoted.",
)
PROMOTE_ERRORS: Final = declare_counter(
    "penstock_lance_promote_errors_total",
    "errors",
    "Attempts to promote versions of a Lance table that ended with an error, by the error's code.",
    "error",
)
FOREIGN: Final = declare_counter(
    "penstock_lance_foreign_manifests_total",
    "manifests",
    "Times that a Lance table had another writer's manifest at a version that Penstock ratified: an "
    "alarm. Nothing more is promoted there until an administrator acts.",
)

METRICS: Final[tuple[Metric, ...]] = (UNPROMOTED, UNPROMOTED_SECONDS, PROMOTED, PROMOTE_ERRORS, FOREIGN)
"""All of them."""
