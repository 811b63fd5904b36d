"""Lists of files that readers made for Spark. They name partitions, and a reader may need one for a day."""

from __future__ import annotations

from typing import Final

from penstock.model.jobs import ID
from penstock.storage.buckets import BucketEntry
from penstock.storage.places import SCRATCH, Places

READS: Final = f"{SCRATCH}/reads"
"""Below the warehouse: lists of files that readers made for Spark, each in a folder of its own."""


def sweep_reads(places: Places, warehouse: str, before_us: int) -> list[BucketEntry]:
    """Remove what readers made for themselves before a time, and make again if they need it; what is left."""
    place = places.open_place(f"{warehouse.rstrip('/')}/{READS}")
    own = [entry for entry in place.entries() if ID.fullmatch(entry.key.partition("/")[0])]
    old = [entry.key for entry in own if entry.modified_us < before_us]
    if old:
        place.delete(old)
        place.prune()
    return [entry for entry in own if entry.modified_us >= before_us]
