"""The upkeep of a table, whatever its format: what is asked for, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeAlias

import msgspec

from penstock.model.keys import Key

OptimizeProgress: TypeAlias = Callable[[int, int], None]
"""Is told how many bytes are rewritten, and of how many."""


def ignore_progress(done_bytes: int, all_bytes: int) -> None:
    """Tell nobody."""


class OptimizeOrder(NamedTuple):
    """How files of a table are to be rewritten, with the same rows."""

    target_file_bytes: int | None = None
    """How large files become; what the table says, if nothing is given."""
    where: str | None = None
    """Only partitions for which this condition is true."""
    zorder_by: tuple[str, ...] = ()
    """Sort rows along a curve of these columns; those that the table is clustered by, if it is."""
    progress: OptimizeProgress = ignore_progress

    @classmethod
    def from_arguments(
        cls,
        target_file_bytes: int | None,
        where: str | None,
        zorder_by: str | Sequence[str],
        progress: OptimizeProgress,
    ) -> Self:
        """The order of a program, which may name a single column."""
        columns = (zorder_by,) if isinstance(zorder_by, str) else tuple(zorder_by)
        return cls(target_file_bytes, where, columns, progress)


class OptimizedTable(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a table that were rewritten, with the same rows."""

    key: Key
    version: int | None = None
    """The last version that it made; ``None`` if there was nothing to do, or tables of the format have no
    versions."""
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
