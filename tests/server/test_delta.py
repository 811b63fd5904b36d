"""A server that owns Delta tables: it publishes what it ratified, also as it starts and as it ends."""

from __future__ import annotations

import re
import time
from pathlib import Path

import deltalake
import pyarrow as pa  # type: ignore[import-untyped]

import penstock
from penstock import Settings
from penstock.lake.table import Table
from tests.server.running import program

ROWS = pa.table({"day": ["1"]})
LINE = '{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true}}'
WAIT_S = 20.0


def published(place: Path, version: int) -> bool:
    """Whether readers of the log see a version before long."""
    until = time.monotonic() + WAIT_S
    while deltalake.DeltaTable(place).version() < version and time.monotonic() < until:
        time.sleep(0.02)
    return deltalake.DeltaTable(place).version() == version


def left_unpublished(lake: Path) -> Path:
    """A table whose version 2 was ratified by a process that could not publish it."""
    settings = Settings(publish_wait_s=0.0, publish_close_s=0.0)
    with penstock.open(lake, settings=settings) as own:
        table: Table = own.create_table("t", schema=ROWS.schema)
        table.append(ROWS)
        table.backfill_to_version()
        place = Path(table.get_commits().location)
        (place / "_delta_log").rename(place / "aside")
        (place / "_delta_log").write_text("no directory")  # storage that takes no more files
        table.append_actions(LINE)
    (place / "_delta_log").unlink()
    (place / "aside").rename(place / "_delta_log")
    assert deltalake.DeltaTable(place).version() == 1
    return place


def test_a_server_publishes_what_others_left_and_what_it_ratified_itself(tmp_path: Path) -> None:
    place = left_unpublished(tmp_path / "lake")
    with program(tmp_path, "--lake", str(tmp_path / "lake")) as server:
        assert published(place, 2)
        with penstock.open(server.url) as far:
            table = far.table("t")
            table.append(ROWS)
            assert published(place, 3)
            for _ in range(20):
                table.append_actions(LINE.replace('"a"', f'"{_}"'))
        figures = server.get("/metrics").body.decode()
        assert re.search(r"^penstock_delta_unpublished_versions [0-9.]+$", figures, re.MULTILINE)
        assert re.search(r"^penstock_delta_published_total [1-9]", figures, re.MULTILINE)
        assert server.stop() == 0
        assert deltalake.DeltaTable(place).version() == 23
        assert "trace" not in server.log
