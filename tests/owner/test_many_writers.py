"""Eleven writers who want the same versions, with readers and publishers: everybody is told the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from uuid import UUID

import pytest

import penstock
from penstock import Settings
from penstock.lake.lake import Lake
from penstock.testing.threads import at_once
from tests.formats.delta.logs import SCHEMA
from tests.owner.machine_writers import Witness, check, publish, read, write

WRITERS, COMMITS = 11, 11
PATIENT = Settings(publish_wait_s=0.0, write_timeout_s=60.0, tries_max=100_000)


@pytest.fixture
def lakes(tmp_path: Path) -> Iterator[list[Lake]]:
    """Two processes of a lake, as far as the lake can tell."""
    with ExitStack() as stack:
        yield [stack.enter_context(penstock.open(tmp_path / "lake", settings=PATIENT)) for _ in range(2)]


def run(lakes: list[Lake], commits: int) -> dict[UUID, int]:
    """Eleven writers, two readers and a publisher, until the writers are done."""
    lakes[0].create_table("t", schema=SCHEMA)
    lakes[0].table("t").backfill_to_version()
    witness, stop = Witness(), Event()
    tables = [lake.table("t") for lake in lakes]
    writers: list[Callable[[], dict[UUID, int]]] = [
        partial(write, tables[number % 2], f"writer-{number}", commits, witness) for number in range(WRITERS)
    ]
    with ThreadPoolExecutor() as others:
        reading = [others.submit(read, table, stop, witness) for table in tables]
        publishing = others.submit(publish, tables[1], stop)
        try:
            done = at_once(*writers)
        finally:
            stop.set()
        assert all(one.result() for one in (*reading, publishing))
    return {attempt: version for each in done for attempt, version in each.items()}


def test_every_commit_gets_the_version_that_its_writer_was_told(lakes: list[Lake]) -> None:
    done = run(lakes, COMMITS)
    for lake in lakes:
        check(lake.table("t"), done, WRITERS * COMMITS)
