"""Room: whether a disk has any left, and the error that says that there is none."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from penstock.errors import StorageFull

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says of a disk that is full, and of a user who has used up their share of it."""


def has_room(path: Path) -> bool:
    """Whether the disk of a folder has a block and a file left for this process; yes if nobody can tell."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    is_root = os.geteuid() == 0  # which may use what is reserved
    blocks, files = (disk.f_bfree, disk.f_ffree) if is_root else (disk.f_bavail, disk.f_favail)
    return blocks > 0 and (files > 0 or disk.f_files == 0)  # some file systems do not count files


def storage_full_error(
    location: str, problem: str | OSError, then: str = "then try again", **details: str
) -> StorageFull:
    """The error for a place that has no room left."""
    reason = (
        (problem.strerror or str(problem)).lower() if isinstance(problem, OSError) else problem.rstrip(".")
    )
    return StorageFull(f"{location} has no room left: {reason}. Free space there, {then}", **details)
