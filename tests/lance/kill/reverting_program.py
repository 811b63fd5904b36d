"""A process that reverts a commit on a Lance table, and ends itself with signal 9 on the way.

`python reverting_program.py LAKE COMMIT POINT`
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore
from tests.lance.kill.dying_program import IN_THE_STORE, die, die_while_promoting
from tests.lance.kill.points import At


def main(place: str, commit: str, point: str) -> None:
    at = At(point)
    store = FaultyStore(open_store(place, False, now_us))
    lake = open_lake(store, catch_up=False)
    if at in IN_THE_STORE:
        store.at(IN_THE_STORE[at], die, name="main")
    else:
        die_while_promoting(at)
    lake.revert(commit, "main")
    lake.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
