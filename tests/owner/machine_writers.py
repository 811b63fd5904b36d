"""Many writers, readers and publishers of one Delta table at once.

Each version adds one file, so that whoever sees a version knows how many files it has.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from threading import Event, Lock
from uuid import UUID, uuid4

from deltalake import DeltaTable as ForeignTable

from penstock.errors import TableConflict
from penstock.formats.delta.lake.answers import TableVersions
from penstock.formats.delta.protocol.actions import write_commit
from penstock.lake.table import Table
from tests.formats.delta.logs import add
from tests.owner.machine import Log

PAUSE_S = 0.01


class Witness:
    """What anybody has seen of the table so far, in this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._bytes: dict[int, bytes] = {}
        self._latest = self._published = 0

    def look(self, table: Table) -> TableVersions:
        """Ask for the commits, and check the answer; against the files, and against earlier ones."""
        with self._lock:
            latest = self._latest
        got = table.get_commits()
        assert got.latest_version >= latest
        versions = [one.version for one in got.commits]
        assert versions == list(range(got.published + 1, got.latest_version + 1))
        root = Path(got.location)
        found = {version: _published(root, version) for version in range(got.published + 1)}
        for one in got.commits:
            found[one.version] = (root / one.name).read_bytes()
            assert len(found[one.version]) == one.size
        with self._lock:
            self._latest = max(self._latest, got.latest_version)
            for version, data in found.items():
                assert self._bytes.setdefault(version, data) == data
        return got

    def look_at_rows(self, table: Table) -> None:
        """Read the table as one who asks the lake, and as one who does not."""
        with self._lock:
            latest, published = self._latest, self._published
        snapshot = table.snapshot()
        assert snapshot.version >= latest
        assert len(list(snapshot.files())) == snapshot.version
        foreign = ForeignTable(snapshot.location)
        assert foreign.version() >= published
        assert len(foreign.file_uris()) == foreign.version()
        with self._lock:
            self._published = max(self._published, foreign.version())


def write(table: Table, name: str, count: int, witness: Witness) -> dict[UUID, int]:
    """Commit so many files, some as a certain version, again and again until it is free, some as any; the
    version that each attempt became."""
    chance = random.Random(name)
    done = {}
    for number in range(count):
        attempt, line = uuid4(), write_commit([add(f"{name}-{number}")])
        while attempt not in done:
            if chance.random() < 0.4:
                done[attempt] = table.append_actions(line, attempt=attempt).version
                break
            version = witness.look(table).latest_version + 1
            try:
                done[attempt] = table.commit(version, line, attempt=attempt).version
            except TableConflict as lost:
                (winners,) = lost.details["winners"].values()
                assert winners["latest_version"] >= version
            else:
                assert done[attempt] == version
        assert witness.look(table).latest_version >= done[attempt]
    return done


def read(table: Table, stop: Event, witness: Witness) -> int:
    """Read until it is over; how often."""
    count = 0
    while not stop.wait(PAUSE_S):
        witness.look(table)
        witness.look_at_rows(table)
        count += 1
    return count


def publish(table: Table, stop: Event) -> int:
    """Publish until it is over; how often."""
    count = 0
    while not stop.wait(PAUSE_S):
        latest = table.get_commits().latest_version
        assert table.backfill_to_version(latest) >= latest
        count += 1
    return count


def check(table: Table, done: dict[UUID, int], count: int) -> None:
    """Everybody's commits are there, once, at the version that they were told."""
    assert len(done) == len(set(done.values())) == count
    assert table.backfill_to_version() == count
    log = Log(table.get_commits())
    log.check()
    attempts = list(log.attempts)
    assert set(Counter(attempts).values()) == {1}
    for attempt, version in done.items():
        assert attempts[version] == str(attempt)
    assert len(log.states[-1]) == count


def _published(root: Path, version: int) -> bytes:
    return (root / "_delta_log" / f"{version:020}.json").read_bytes()
