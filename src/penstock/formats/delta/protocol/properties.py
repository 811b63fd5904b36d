"""Properties of tables that have a meaning in more than one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APPEND_ONLY: Final = "delta.appendOnly"
AUTO_COMPACT: Final = "delta.autoOptimize.autoCompact"
"""Writers put small files together by themselves, if it is ``true`` or ``auto``."""
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"
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
