"""Files and folders of a local disk that survive a power cut. Other storage has done so when it closed a
file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.storage.places import Place

AT_ONCE: Final = 8
"""How many are waited for together: a disk writes down many in the time of one."""


def make_root(place: Place, folder: str = "") -> None:
    """Have the folder of a table that is to come, or one below a place. Whoever writes below it sees to what
    is there alone."""
    if "://" in place.url:
        return
    root = Path(place.url, folder)
    missing = [path for path in (root, *root.parents) if not path.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _synchronise_folder(path.parent)


def make_durable(place: Place, names: Iterable[str]) -> None:
    """Make files below a table, and the folders that they are in, durable."""
    if "://" in place.url:
        return
    root = Path(place.url)
    files = [root / name for name in names]
    folders: dict[Path, None] = {}
    for path in files:
        for folder in path.parents:
            if folder in folders or not folder.is_relative_to(root):
                break
            folders[folder] = None
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for _ in threads.map(_synchronise, files):
            pass
        for _ in threads.map(_synchronise_folder, folders):
            pass


def _synchronise_folder(path: Path) -> None:
    _synchronise(path, os.O_DIRECTORY)


def _synchronise(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
