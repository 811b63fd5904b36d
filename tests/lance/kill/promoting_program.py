"""A process that opens a lake, and meets others before it puts the first manifest at its place.

`python promoting_program.py LAKE MEETING NUMBER PROCESSES`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import monotonic

sys.path.insert(0, str(Path(__file__).parents[3]))

import penstock
from penstock.lake.embedded import Embedded
from penstock.storage.local import LocalBucket

WAIT_MAX_S = 45.0


def meet(meeting: Path, number: str, processes: int) -> None:
    """Wait until all are here."""
    (meeting / number).touch()
    pause, ends_s = Event(), monotonic() + WAIT_MAX_S
    while len(list(meeting.iterdir())) < processes:
        assert monotonic() < ends_s, "the others did not come"
        pause.wait(0.005)


def meet_before_manifests(meeting: Path, number: str, processes: int) -> None:
    put_all = LocalBucket.put_all

    async def watched(self: LocalBucket, items: Sequence[tuple[str, bytes]]) -> int:
        if any("_versions/" in key for key, _ in items):
            meet(meeting, number, processes)
        return await put_all(self, items)

    LocalBucket.put_all = watched  # type: ignore[method-assign]


def main(place: str, meeting: str, number: str, processes: str) -> None:
    meet_before_manifests(Path(meeting), number, int(processes))
    with penstock.open(place, create=False) as lake:
        assert isinstance(lake.catalogue, Embedded)
        parts = lake.catalogue.lance
        looking = parts._catching_up
        assert looking is not None
        looking.join(WAIT_MAX_S)
    assert parts.promoter.backlog() == (), "all of it is promoted"


if __name__ == "__main__":
    main(*sys.argv[1:])
