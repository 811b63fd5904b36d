"""Properties of tables that are either on or off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APPEND_ONLY: Final = "delta.appendOnly"
CHANGE_DATA_FEED: Final = "delta.enableChangeDataFeed"
RANDOM_PREFIXES: Final = "delta.randomizeFilePrefixes"


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Whether a table has a property that says ``true``, in whatever case."""
    return properties.get(name, "").lower() == "true"
