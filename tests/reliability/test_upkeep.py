"""Files are compacted beside writers: nothing is lost or doubled, and nobody is refused for a compaction.

Appends never are, nor deletes by deletion vectors or by rewriting. Two deletes of one file may meet; then one
is refused, as Delta's rules say, and does it again.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event, Lock

import pytest

import penstock
from penstock.errors import TableConflict
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from tests.chance import RecordCounts, times

SECONDS = float(os.environ.get("PENSTOCK_UPKEEP_SECONDS", "600"))
"""How long writers go on in `make reliability`."""
SHARED_SECONDS = 6.0
APPENDERS = 4
DELETERS = 2


class Traffic:
    """Writers of one table, all that they wrote, and a reader that follows its versions as a stream does."""

    def __init__(self, lake: Lake, key: str, properties: dict[str, str], seed: int) -> None:
        schema = {"id": [0], "day": ["d0"]}
        self.table = lake.delta.create(key, data=schema, partition_by=["day"], properties=properties)
        self._lake, self._key, self._seed = lake, key, seed
        self._lock = Lock()
        self.appended, self.deleted = {0}, set[int]()
        self._waiting: list[int] = []
        self.followed, self._seen = Counter[int](), 0
        self.counts = Counter[str]()

    def _open(self) -> Table:
        return self._lake.table(self._key)

    def append(self, number: int, is_over: Event) -> None:
        """Any refusal ends the test."""
        table, chance, batch = self._open(), Random(self._seed + number), 0
        while not is_over.is_set():
            first = (number + 1) * 10_000_000 + batch * 10
            ids = list(range(first, first + chance.randint(1, 5)))
            table.append({"id": ids, "day": [f"d{chance.randint(0, 2)}"] * len(ids)})
            batch += 1
            with self._lock:
                self.appended.update(ids)
                self._waiting += ids
                self.counts["appends"] += 1

    def delete(self, number: int, is_over: Event) -> None:
        table, chance = self._open(), Random(self._seed + 100 + number)
        while not is_over.is_set():
            with self._lock:
                chance.shuffle(self._waiting)
                chosen, self._waiting = self._waiting[:3], self._waiting[3:]
            if not chosen:
                is_over.wait(0.01)
                continue
            condition = f"id in ({', '.join(map(str, chosen))})"
            while True:
                try:
                    assert table.delete(condition).deleted == len(chosen)
                    break
                except TableConflict as conflict:
                    if "(OPTIMIZE)" in conflict.message:
                        raise
                    self.counts["deletes that met"] += 1
            with self._lock:
                self.deleted.update(chosen)
                self.counts["deletes"] += 1

    def maintain(self, _: int, is_over: Event) -> None:
        table = self._open()
        while not is_over.is_set():
            done = table.optimize()
            self.counts["compactions"] += done.version is not None
            self.counts["compacted files"] += done.files_removed
            if self.counts["compactions"] % 5 == 0:
                table.checkpoint()
            is_over.wait(0.05)

    def follow(self, _: int, is_over: Event) -> None:
        """Read what each version adds, and pass over those that say they change no rows, as streams do."""
        while not is_over.is_set():
            self.read_new_versions()
            is_over.wait(0.05)

    def read_new_versions(self) -> None:
        table = self._open()
        latest = table.version
        for version in range(self._seen + 1, latest + 1):
            table.backfill_to_version(version)
            self._read_added(Path(table.location), version)
        self._seen = latest

    def _read_added(self, root: Path, version: int) -> None:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        lines = (root / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        actions = [json.loads(line) for line in lines]
        if any("remove" in action for action in actions):  # skipChangeCommits
            return
        for action in actions:
            if action.get("add", {}).get("dataChange"):
                self.followed.update(pq.ParquetFile(root / action["add"]["path"]).read()["id"].to_pylist())

    def check(self) -> None:
        ids = Counter(self.table.to_arrow()["id"].to_pylist())
        assert max(ids.values()) == 1, "a row is there twice"
        assert set(ids) == self.appended - self.deleted
        assert max(self.followed.values()) == 1, "a stream saw a row twice"
        assert set(self.followed) == self.appended - {0}
        for what in ("appends", "deletes", "compacted files"):
            assert self.counts[what] > 1, self.counts


@pytest.mark.reliability
@pytest.mark.share
def test_nothing_is_lost_and_nobody_refused_beside_compactions(
    tmp_path: Path, seed: int, record_counts: RecordCounts
) -> None:
    seconds = SECONDS if times(4) == 4 else SHARED_SECONDS
    with penstock.open(tmp_path / "lake", author="tester") as lake:
        traffics = [
            Traffic(lake, "vectors", {"delta.enableDeletionVectors": "true"}, seed),
            Traffic(lake, "rewritten", {"delta.enableRowTracking": "true"}, seed + 1),
        ]
        is_over = Event()
        with ThreadPoolExecutor(2 * (APPENDERS + DELETERS + 2)) as threads:
            jobs = []
            for traffic in traffics:
                jobs += [threads.submit(traffic.append, number, is_over) for number in range(APPENDERS)]
                jobs += [threads.submit(traffic.delete, number, is_over) for number in range(DELETERS)]
                jobs += [threads.submit(work, 0, is_over) for work in (traffic.maintain, traffic.follow)]
            until = time.monotonic() + seconds
            while time.monotonic() < until and not any(job.done() for job in jobs):
                time.sleep(0.05)
            is_over.set()
            for job in jobs:
                job.result()
        for traffic in traffics:
            traffic.read_new_versions()  # of writers that were not done yet when it was over
            traffic.check()
            record_counts({f"{what} of {traffic.table.key}": n for what, n in traffic.counts.items()})
        assert not lake.fsck().damages
