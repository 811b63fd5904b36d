"""A lake behind a server is backed up at its store, while the server and its clients go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.errors import InvalidRequest
from penstock.lake.backup import backup_lake, registered_backups, restore_backup, verify_backup
from penstock.lake.copy import move_lake
from penstock.server.access import OpenGate
from penstock.server.native import NATIVE
from tests.server.running import local

COMMITS_MIN = 5


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def test_a_backup_at_the_store_of_a_running_server_is_one_moment_and_no_client_is_refused(
    tmp_path: Path,
) -> None:
    place, target = tmp_path / "lake", tmp_path / "backups"
    with (
        penstock.open(place, create=True, author="server") as lake,
        local(lake.catalogue, [NATIVE], gate=OpenGate()) as server,
        ThreadPoolExecutor(1) as client,
    ):
        lake.create_table("t", data=ids(0))
        started, ended = Event(), Event()
        running = client.submit(_append, server.url, started, ended)
        assert started.wait(60)
        made = [backup_lake(place, target, data=True, verify=True).point for _ in range(2)]
        ended.set()
        last = running.result(timeout=60)
        lake.finish_background()
        assert sorted(lake.at().table("t").to_arrow()["id"].to_pylist()) == [*range(last + 1)]
        assert [one.id for one in registered_backups(place)] == [one.id for one in made]
    for number, point in enumerate(made):
        assert verify_backup(target, point.id).damages == ()
        restore_backup(target, tmp_path / f"again{number}", at=point.id)
        with penstock.open(tmp_path / f"again{number}") as again:
            found = sorted(again.at().table("t").snapshot().to_arrow()["id"].to_pylist())
        assert found == [*range(len(found))], "the rows up to some commit, and no others"
        assert COMMITS_MIN <= len(found) <= last + 1


def _append(url: str, started: Event, ended: Event) -> int:
    """Append a row with every commit until it is enough; the last one."""
    number = 0
    with penstock.open(url, author="client") as remote:
        while not ended.is_set() or number < COMMITS_MIN:
            number += 1
            remote.table("t").append(ids(number))
            if number == COMMITS_MIN:
                started.set()
    return number


def test_a_server_is_told_apart_before_anything_is_written(tmp_path: Path) -> None:
    for call in (backup_lake, move_lake):
        with pytest.raises(InvalidRequest, match="run this where the database can be reached"):
            call("http://localhost:1", tmp_path / "target")
    assert [*tmp_path.iterdir()] == []
