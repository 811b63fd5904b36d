"""The pool in a bucket is swept as one on a disk is."""

from __future__ import annotations

import pytest

from penstock.formats.files.lake.calls import AbortJob
from penstock.lake.lake import Lake
from penstock.storage import places
from tests.sweep.pool import Pool, swept
from tests.sweep.tables import LateClock

NAMES = ("part-0", "day=1/ü ä", "day=100%25/a+b", "a:b/c~d", "日本/x", "_SUCCESS", "k=v&w/x;y", "a'b(c)!*")


@pytest.fixture
def lake(lake_in_a_bucket: Lake) -> Lake:
    return lake_in_a_bucket


def test_what_nobody_names_goes_from_a_bucket_and_what_is_named_stays(
    lake: Lake, later: LateClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "LISTED_AT_ONCE", 3)
    pool = Pool(lake)
    folder = pool.write("t", *NAMES)
    left = pool.put(folder, "unnamed") | pool.put(pool.folder(), *NAMES)
    begun = pool.begin("t")
    early = pool.put(pool.below(begun), "a")
    lake.do(AbortJob(id=begun.job.id))
    later.days = 1 / 20
    assert set(swept(lake).names) == early
    later.days = 8
    assert set(swept(lake, dry_run=True).names) == left
    assert swept(lake).data_files == len(left)
    assert swept(lake).data_files == 0
    assert pool.files() == {folder + name for name in NAMES}
    assert pool.read("t") == {name: name.encode() for name in NAMES}
