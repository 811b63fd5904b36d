"""A lake moves through stores of every family that needs no server, and comes back as it was."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from penstock.kernel.settings import Settings
from penstock.lake.copy import move_lake
from penstock.lake.opener import open_lake
from penstock.model.clock import now_us
from penstock.stores import open_store
from tests.copy.lakes import fill, objects, reopened, rows, table


def test_a_lake_moves_from_store_to_store_and_back(tmp_path: Path) -> None:
    places = [
        str(tmp_path / "first"),
        f"rocksdb://{tmp_path}/second",
        f"file://{tmp_path}/third",
        f"sqlite://{tmp_path}/fourth",
    ]
    with open_lake(places[0], create=True, author="ada", settings=Settings()) as lake:
        fill(lake, 7)
        identity, head = lake.id, lake.branch().head
    for source, target in pairwise(places):
        moved = move_lake(source, target)
        assert moved.id == identity
        stores = [open_store(place, False, now_us) for place in (source, target)]
        assert rows(stores[0]) == rows(stores[1])
        assert objects(stores[0]) == objects(stores[1])
        for store in stores:
            store.close()
    last = open_store(places[-1], False, now_us)
    there = reopened(last)
    assert there.branch().head == head
    assert [line.event for line in there.reflog("main")][:3] == ["seal"] * 3
    assert there.branch().put("t0", table("end")).parents == (head,)
    there.close()
