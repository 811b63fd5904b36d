"""How Penstock names itself in a log."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version as version_of


@lru_cache(maxsize=1)
def engine_info() -> str:
    """The ``engineInfo`` of commits."""
    return f"Penstock/{version_of('penstock')}"
