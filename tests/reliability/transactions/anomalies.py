"""The kinds of anomaly that a history can show, and what is told of one."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What is wrong. The letters are those by which the literature on isolation knows it."""

    DIRTY_READ = "G1a: what was aborted is read"
    INTERMEDIATE_READ = "G1b: what was only half written is read"
    INTERNAL = "a transaction does not read its own writes, or not twice the same"
    GHOST = "an element is read that nobody wrote"
    DUPLICATED = "an element is there twice"
    LOST = "a committed element is nowhere"
    GONE = "an element went, and nobody dropped its list"
    UNSTABLE = "a commit is read twice, and is not the same"
    FORKED = "a list is read in states of which neither came from the other"
    G0 = "G0: writes overtook each other"
    G1C = "G1c: information flows in a circle"
    LOST_UPDATE = "lost update: a list was changed by two that had read the same of it"
    TORN = "torn read: a part of a transaction is seen without the rest"
    G_SINGLE = "G-single: what was read is of no one instant"
    G2_ITEM = "G2-item: what was read was changed by others before the readers landed"
    STALE = "what was acknowledged before is not seen"


class Anomaly(msgspec.Struct, frozen=True):
    """One thing that no history may show."""

    kind: Kind
    told: str

    def __str__(self) -> str:
        return f"{self.kind}\n    {self.told}"
