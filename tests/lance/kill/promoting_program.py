"""A process that opens a lake, and meets others before it puts the first manifest at its place.

`python promoting_program.py LAKE MEETING NUMBER PROCESSES`
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event
from time import monotonic

sys.path.insert(0, str(Path(__file__).parents[3]))

import penstock
from penstock.formats.lance.plugin import LancePlugin
from penstock.lake.embedded import Embedded
from penstock.storage.local import LocalBucket
from tests.plugins import plugin_of

WAIT_MAX_S = 45.0


def meet(meeting: Path, number: str, processes: int) -> None:
    """Wait until all are here."""
    (meeting / number).touch()
    pause, ends_s = Event(), monotonic() + WAIT_MAX_S
    while len(list(meeting.iterdir())) < processes:
        assert monotonic() < ends_s, "the others did not come"
        pause.wait(0.005)


def meet_before_manifests(meeting: Path, number: str, processes: int) -> None:
    put_new = LocalBucket.put_new_now

    def watched(self: LocalBucket, key: str, data: bytes) -> bool:
        if "_versions/" in key:
            meet(meeting, number, processes)
        return put_new(self, key, data)

    LocalBucket.put_new_now = watched  # type: ignore[method-assign]


def main(place: str, meeting: str, number: str, processes: str) -> None:
    meet_before_manifests(Path(meeting), number, int(processes))
    with penstock.open(place, create=False) as lake:
        assert isinstance(lake.catalogue, Embedded)
        parts = plugin_of(lake.catalogue, LancePlugin).parts
        lake.finish_background(WAIT_MAX_S)  # a lake that is closed does not wait so long for the others
    assert parts.promoter.list_unpublished() == (), "all of it is promoted"


if __name__ == "__main__":
    main(*sys.argv[1:])
