"""Files and folders of a local disk that survive a power cut. Other storage has done so when it closed a
file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from penstock.storage.places import Place


def make_root(place: Place) -> None:
    """Have the folder of a table that is to come. Whoever writes below it sees to what is there alone."""
    if "://" in place.url:
        return
    root = Path(place.url)
    missing = [one for one in (root, *root.parents) if not one.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _synchronise(folder.parent, os.O_DIRECTORY)


def keep(place: Place, names: Iterable[str]) -> None:
    """Make files below a table, and the folders that they are in, durable."""
    if "://" in place.url:
        return
    root = Path(place.url)
    folders: dict[Path, None] = {}
    for name in names:
        path = root / name
        _synchronise(path)
        for folder in path.parents:
            if folder in folders or not folder.is_relative_to(root):
                break
            folders[folder] = None
    for folder in folders:
        _synchronise(folder, os.O_DIRECTORY)


def _synchronise(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
