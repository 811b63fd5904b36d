"""What becomes of a file in a folder that is swept."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from penstock.storage.buckets import BucketEntry


class SweepDecision(Enum):
    """What becomes of a file."""

    KEPT = auto()
    """A retained commit references it."""
    FORKED = auto()
    """A fork of the lake may reference it."""
    WAITING = auto()
    """Nothing references it, but it is too young to be judged: its writer may yet commit it."""
    DATA = auto()
    """It holds rows, or held them, and may go. It goes only if that is asked for."""
    SCRATCH = auto()
    """It was made on the way to a commit, and may go."""

    @property
    def is_to_go(self) -> bool:
        return self in (SweepDecision.DATA, SweepDecision.SCRATCH)


class JudgedFile(NamedTuple):
    """A file whose fate is known."""

    entry: BucketEntry
    fate: SweepDecision
