"""A process that runs a job and ends itself with signal 9 after a number of swaps.

`python dying_process.py LAKE SWAPS OWN_BRANCH`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore, Point
from tests.jobs import lakes


def main(place: str, swaps: str, own_branch: str) -> None:
    store = FaultyStore(open_store(place, False, now_us))
    lake = lakes.open_lake(store)
    store.at(Point.AFTER_SWAP, lambda: os.kill(os.getpid(), signal.SIGKILL), skip=int(swaps))
    lakes.begin(lake, own_branch=own_branch == "1")
    lakes.commit(lake)


if __name__ == "__main__":
    main(*sys.argv[1:])
