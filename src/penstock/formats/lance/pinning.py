"""Pinning: telling Lance's own clean-up that a line's version is needed elsewhere.

What comes from a line to another chain, or begins one, names files that stay in the line's folder. Lance's
clean-up looks into that folder alone, where they may be in use no more, after a compaction for one. It keeps
what is tagged: so a version that another branch has taken is given a tag in Lance's own way. It is no tag of
the table, and goes with the line.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from penstock.errors import OutcomeUnknown
from penstock.formats.lance.names import PINS, REFS_OF_TAGS
from penstock.formats.lance.sides import Numbered
from penstock.model.clock import utc
from penstock.model.encoding import digest
from penstock.storage.places import Place

WHY: Final = "another branch of the lake has this version, and reads its files here"
"""For whoever lists a line's tags."""


def pin(place: Place, one: Numbered, branch: str, now_us: int) -> None:
    """Keep a version, of one of Lance's own branches in a line, from being cleaned up. Raises as storage
    does; one that is pinned already stays so."""
    time = utc(now_us).isoformat(timespec="microseconds").replace("+00:00", "Z")
    said: dict[str, object] = {
        "branch": branch or None,
        "version": one.number,
        "createdAt": time,
        "updatedAt": time,
        "manifestSize": one.version.size,
        "metadata": {"penstock": WHY},
    }
    own = f"{digest('lance pin', branch.encode()).hex()[:8]}-" if branch else ""
    name = f"{one.version.chain}{REFS_OF_TAGS}{PINS}{own}{one.number}.json"
    if place.size(name) is None:
        with suppress(OutcomeUnknown):
            place.create(name, msgspec.json.encode(said))
            return
        if place.size(name) is None:
            raise OutcomeUnknown(f"it is not known whether {place.url}/{name} was written; try again")
