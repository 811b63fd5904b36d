"""Which files of a table have rows, by their paths: the same for every engine that reads them."""

from __future__ import annotations

from typing import Final

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition whose column is null, in a path."""


def is_data(path: str) -> bool:
    """Whether engines read the file at a path: neither it nor a folder above is hidden."""
    return not any(is_hidden(part) for part in path.split("/"))


def is_hidden(name: str) -> bool:
    """Whether engines pass over files and folders of such a name: ``_SUCCESS`` or ``.x``, not ``_day=1``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
