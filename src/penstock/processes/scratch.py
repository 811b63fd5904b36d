"""Folders for the temporary files of processes, which are removed also if whoever made them was killed.

A folder is locked for as long as the process lives that made it: the system lets go of the lock with the
process, however that ended. Whoever makes the next folder removes those that are not locked any more. A query
that spills to disk could leave gigabytes behind when its server is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Final

PREFIX: Final = "penstock-rows-"
LOCK: Final = "lock"
UNLOCKED_MAX_S: Final = 3600.0
"""How old a folder without a lock is at least before it is removed: a new one is locked a moment later."""


class ScratchFolder:
    """A folder of this process, until it is removed or the process ends."""

    def __init__(self) -> None:
        remove_abandoned_folders()
        self._lock: int | None = None
        while self._lock is None:
            self.path = tempfile.mkdtemp(prefix=PREFIX)
            self._lock = _lock_new(Path(self.path, LOCK))

    def remove_folder(self) -> None:
        """Remove it with all that is in it. May be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock_new(path: Path) -> int | None:
    """Lock the file of a new folder; ``None`` if the folder was removed as an abandoned one before that."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if path.exists():
        return lock
    os.close(lock)
    return None


def remove_abandoned_folders() -> None:
    """Remove the folders of processes that have ended. Those of other users are left alone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Whatever goes wrong with one is a matter of who owns it, or of who removes it at the same time.
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if time() - folder.lstat().st_mtime > UNLOCKED_MAX_S:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        # Held until the folder is gone: a maker that comes to lock it waits, and sees that.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
