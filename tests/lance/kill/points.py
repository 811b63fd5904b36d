"""Where a process that commits to Lance tables can die, and the tables that it commits to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

OLD = ("t1", "t2")
"""Tables that have a version already."""
NEW = "new"
"""How the names of tables begin that are made by the commit."""


class At(StrEnum):
    """Where it dies."""

    HALF_STAGED = "half staged"
    BEFORE_FLIP = "before the flip"
    INSIDE_THE_STORE = "inside the store's transaction"
    AFTER_FLIP = "after the flip"
    FIRST_LINK = "after the first link"
    ONE_PROMOTED = "after one is promoted"
    TWO_PROMOTED = "after two are promoted"
    ALL_PROMOTED = "after all are promoted"


UNLANDED = (At.HALF_STAGED, At.BEFORE_FLIP, At.INSIDE_THE_STORE)


def location_of(lake: Path, name: str) -> Path:
    return lake / "tables" / name
