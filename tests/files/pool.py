"""What lies in the pool of a lake on a disk."""

from __future__ import annotations

from pathlib import Path

from penstock.formats.files.lake.pool import find_pool
from penstock.lake.lake import Lake


def stored(lake: Lake) -> set[str]:
    """All files in storage, whether a table has them or not."""
    pool = Path(find_pool(lake.warehouse))
    found = (path.relative_to(pool) for path in pool.rglob("*") if path.is_file())
    return {str(path) for path in found if path.parts[0] != "_penstock"}
