"""A lake that is older than its tables, in PostgreSQL and behind a server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import penstock
from penstock.errors import Denied, OutOfSync
from penstock.lake.lake import Lake
from penstock.server.access import TokenGate
from penstock.server.native import NATIVE
from tests.lake.restored import FORMATS, KEYS, ids, location_of, read_outside, restore_lake, rows, write
from tests.server.running import local

in_each_format = pytest.mark.parametrize("kind", FORMATS)


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not installed")
def test_a_database_that_pg_restore_brought_back_is_noticed_and_resynced(
    postgres_url: str, tmp_path: Path
) -> None:
    dump, warehouse = tmp_path / "lake.dump", tmp_path / "warehouse"
    penstock.init(postgres_url, warehouse=str(warehouse)).close()
    with penstock.open(postgres_url) as lake:
        for kind in FORMATS:
            write(lake, kind, 1)
        lake.finish_background()
    _run("pg_dump", "--format=custom", "--file", str(dump), "--dbname", postgres_url)
    with penstock.open(postgres_url) as lake:
        for kind in FORMATS:
            write(lake, kind, 2)
        lake.finish_background()
    _run("pg_restore", "--clean", "--if-exists", "--dbname", postgres_url, str(dump))
    with penstock.open(postgres_url) as lake:
        for kind in FORMATS:
            assert ids(lake.table(KEYS[kind]).to_arrow()) == [1]
            with pytest.raises(OutOfSync):
                write(lake, kind, 3)
        assert len(lake.resync().tables) == len(FORMATS)
        for kind in FORMATS:
            write(lake, kind, 3)
        lake.finish_background()
        for kind in FORMATS:
            there = [ids(lake.table(KEYS[kind]).to_arrow()), *read_outside(location_of(lake, kind), kind)]
            assert there == [[1, 2, 3]] * len(there)
        assert lake.fsck().damages == ()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


@in_each_format
def test_clients_of_a_server_are_refused_and_who_may_maintain_resyncs(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "lake"
    restore_lake(place, lambda lake: write(lake, kind, 1), lambda lake: write(lake, kind, 2))
    with penstock.open(place) as behind:
        writer = behind.create_token("writer", "write")
        operator = behind.create_token("operator", "maintain")
        with local(behind.catalogue, [NATIVE], gate=TokenGate(behind.catalogue)) as server:
            with penstock.open(server.url, token=writer) as lake:
                with pytest.raises(OutOfSync, match=f"penstock resync {KEYS[kind]}"):
                    _append(lake, kind, 3)
                with pytest.raises(Denied, match="'maintain'"):
                    lake.resync(KEYS[kind])
            with penstock.open(server.url, token=operator) as lake:
                (done,) = lake.resync(KEYS[kind]).tables
                assert done.version == done.known + 1
            with penstock.open(server.url, token=writer) as lake:
                _append(lake, kind, 3)
        behind.finish_background()
        newest = behind.log()
        assert [one.committer for one in newest if one.message.startswith("resync")] == ["operator"]
        there = [ids(behind.table(KEYS[kind]).to_arrow()), *read_outside(location_of(behind, kind), kind)]
        assert there == [[1, 2, 3]] * len(there)


def _append(lake: Lake, kind: str, number: int) -> None:
    if kind == "delta":
        lake.table(KEYS[kind]).append(rows(number))
    else:
        lake.table(KEYS[kind]).write(rows(number), format="lance")
