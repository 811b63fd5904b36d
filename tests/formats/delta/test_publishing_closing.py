"""Publishing at its end: a lake that is closed, a thread that is interrupted, a table that changes hands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from penstock.errors import ManagedElsewhere, Unavailable
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.delta.publishing.publisher import Publisher
from penstock.model.nessie import DeltaTable
from penstock.storage.places import Places
from tests.formats.delta.ratified import ID, KEY, WAIT_S, Disk, Disks, Ratified, publishing


def test_who_publishes_after_closing_does_not_wait_for_a_job_that_hangs(tmp_path: Path) -> None:
    stopped, go_on = Event(), Event()

    class Hanging(Disk):
        def at(self, step: str) -> None:
            if step == f"link {CommitName(0)}":
                stopped.set()
                assert go_on.wait(WAIT_S)

    places = Disks(Hanging)
    table = Ratified(str(tmp_path), places)
    publisher = publishing(table, places, background=True)
    content = table.held()
    publisher.table_committed(KEY, content, is_default=True)
    assert stopped.wait(WAIT_S)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(publisher.publish_line, content)
        publisher.close(0.01)
        try:
            with pytest.raises(Unavailable, match="was closed"):
                waiting.result(WAIT_S / 2)
            with pytest.raises(Unavailable, match="was closed"):
                publisher.publish_line(content)
        finally:
            go_on.set()
    places.close()


def test_what_is_told_while_an_older_line_is_found_to_be_anothers_is_published(tmp_path: Path) -> None:
    """As where a table of another lake is recovered by this one."""
    is_told, at_work, go_on = Event(), Event(), Event()

    class Handed(Publisher):
        def check_owned(self, content: DeltaTable) -> None:
            if content is older and is_told.is_set():
                at_work.set()
                assert go_on.wait(WAIT_S)
                raise ManagedElsewhere("it belonged to another lake")
            is_told.set()

    places = Places()
    table = Ratified(str(tmp_path), places)
    older = table.held()
    publisher = Handed(places, table.read)
    publisher.table_committed(KEY, older, is_default=True)
    assert at_work.wait(WAIT_S)
    publisher.table_committed(KEY, table.held(), is_default=True)
    go_on.set()
    assert publisher.wait_for_version(ID, 1, WAIT_S)
    publisher.close(WAIT_S)
    assert table.log() == table.ratified(0, 1)
    places.close()
