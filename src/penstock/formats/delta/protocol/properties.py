"""Properties of tables that have a meaning in more than one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APPEND_ONLY: Final = "delta.appendOnly"
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
PROTECTED_BEFORE: Final = "delta.requireCheckpointProtectionBeforeVersion"
"""Up to this version a log is removed as a whole or not at all, commits before checkpoints: it holds versions
that not every client reads who reads later ones, and checkpoints keep these clients from having to. Tables
have it from which a feature was dropped (``checkpointProtection``)."""


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Whether a table has a property that says ``true``, in whatever case."""
    return properties.get(name, "").lower() == "true"
