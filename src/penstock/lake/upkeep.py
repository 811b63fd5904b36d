"""What the upkeep of a table came to, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from penstock.model.keys import Key

OptimizeProgress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes are rewritten, and of how many."""


class OptimizedTable(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a table that were rewritten, with the same rows."""

    key: Key
    version: int | None = None
    """The last version that came of it; ``None`` if there was nothing to do, or tables have no versions."""
    files_removed: int = 0
    files_added: int = 0
    bytes_removed: int = 0
    bytes_added: int = 0
    files_skipped: int = 0
    """Files that others kept changing meanwhile; the next run takes them."""


class AnalyzedTable(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a table whose statistics were completed."""

    key: Key
    version: int | None = None
    """The version that has them; ``None`` if none was lacking."""
    files: int = 0


def no_progress(done_bytes: int, all_bytes: int) -> None:
    """Tell nobody."""
