"""A process that commits to three Lance tables at once, and ends itself with signal 9 on the way.

`python dying_program.py LAKE TEMPLATE VERSION POINT`
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from threading import Event

sys.path.insert(0, str(Path(__file__).parents[3]))

from penstock.formats.lance.lake.calls import CommitLance, CreateLanceVersion, DeclareLance, LanceOperation
from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.model.keys import Key
from penstock.storage.local import LocalBucket
from penstock.stores import open_store
from penstock.testing.faults import FaultyStore, Point
from tests.lance.kill.points import NEW, OLD, At, location_of
from tests.lance.versions import put_data, stage

IN_THE_STORE = {
    At.BEFORE_FLIP: Point.BEFORE_OBJECTS,
    At.INSIDE_THE_STORE: Point.BEFORE_SWAP,
    At.AFTER_FLIP: Point.AFTER_SWAP,
}
PROMOTED = {At.FIRST_LINK: 1, At.ONE_PROMOTED: 1, At.TWO_PROMOTED: 2, At.ALL_PROMOTED: 3}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_promoting(at: At) -> None:
    """Right after a link; or when so many are promoted, before whatever is done to storage next."""
    put_new, delete = LocalBucket.put_new_now, LocalBucket.delete
    begun, done, enough = count(1), count(1), Event()

    def is_manifest(key: str) -> bool:
        return "_versions/" in key and key.endswith(".manifest")

    def watched_put(self: LocalBucket, key: str, data: bytes) -> bool:
        if not is_manifest(key):
            return put_new(self, key, data)
        if next(begun) > PROMOTED[at]:  # tables are promoted side by side: those ahead may be under way
            enough.wait()
            die()
        is_new = put_new(self, key, data)
        if at is At.FIRST_LINK:
            die()
        if next(done) == PROMOTED[at]:
            enough.set()
        return is_new

    async def watched_delete(self: LocalBucket, keys: Sequence[str]) -> None:
        if enough.is_set():
            die()
        await delete(self, keys)

    LocalBucket.put_new_now = watched_put  # type: ignore[method-assign]
    LocalBucket.delete = watched_delete  # type: ignore[method-assign]


def operations(
    lake_place: Path, template: Path, version: int, after_staging: Callable[[], None]
) -> tuple[LanceOperation, ...]:
    """The next version of each old table, and the first of a new one."""
    found: list[LanceOperation] = []
    new = location_of(lake_place, f"{NEW}{version}")
    new.mkdir(parents=True)
    put_data(template, new)
    found.append(DeclareLance(key=Key(f"{NEW}{version}"), location=str(new)))
    for name, number in (*((name, version) for name in OLD), (f"{NEW}{version}", 1)):
        location = location_of(lake_place, name)
        path = stage(template, location, number)
        found.append(CreateLanceVersion(key=Key(name), version=number, manifest=f"{location}/{path}"))
        after_staging()
    return tuple(found)


def main(place: str, template: str, version: str, point: str) -> None:
    at = At(point)
    store = FaultyStore(open_store(place, False, now_us))
    lake = open_lake(store, catch_up=False)
    asked = operations(
        Path(place), Path(template), int(version), die if at is At.HALF_STAGED else lambda: None
    )
    if at in IN_THE_STORE:
        store.at(IN_THE_STORE[at], die, name="main")
    else:
        die_while_promoting(at)
    lake.do(CommitLance(operations=asked))
    lake.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
