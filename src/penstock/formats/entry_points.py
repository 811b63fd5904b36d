"""Whether an installed package may declare entry points of a group, told without ``importlib.metadata``.

To import ``importlib.metadata`` takes longer than all else that ``penstock --help`` does. A look at the files
in which packages declare entry points is enough to know that there are none, as almost everywhere.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

_METADATA_FOLDERS = (".dist-info", ".egg-info", "egg-info")


def may_have_entry_points(group: str) -> bool:
    """False if no installed package has an entry point of the group.

    True also where only ``importlib.metadata`` can tell: for packages in archives, and for those that finders
    of other people find.
    """
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    section = f"[{group}]".encode()
    return any(_may_declare(folder or os.curdir, section) for folder in sys.path)


def _may_declare(folder: str, section: bytes) -> bool:
    try:
        with os.scandir(folder) as children:
            packages = [child.path for child in children if child.name.lower().endswith(_METADATA_FOLDERS)]
    except NotADirectoryError:
        return True
    except OSError:
        return False
    return any(section in _read_metadata_file(f"{package}/entry_points.txt") for package in packages)


def _read_metadata_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes a while to import
            return file.read()
    except OSError:
        return b""
