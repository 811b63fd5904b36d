"""Delta tables to measure on: what a writer commits, and logs as other writers would have left them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import penstock
from penstock import Lake, Settings

TABLE: Final = "events"
SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("id", "long"), ("amount", "double"), ("note", "string"))
        ],
    }
)
INTERVAL: Final = "delta.checkpointInterval"
NEVER: Final = 1_000_000_000
"""An interval of checkpoints that no table comes to."""


def path(number: int) -> str:
    """The ``number``-th file of a table."""
    return f"part-{number:08}-c000.snappy.parquet"


def add(number: int) -> str:
    """A line that adds a file, with the statistics that writers usually give: some 350 bytes."""
    stats = {
        "numRecords": 1000,
        "minValues": {"id": number * 1000, "amount": 0.25, "note": "a"},
        "maxValues": {"id": number * 1000 + 999, "amount": 99.75, "note": "z"},
        "nullCount": {"id": 0, "amount": 0, "note": 17},
    }
    action = {
        "path": path(number),
        "partitionValues": {},
        "size": 20_000 + number % 1000,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": json.dumps(stats, separators=(",", ":")),
    }
    return json.dumps({"add": action}, separators=(",", ":")) + "\n"


def remove(number: int) -> str:
    """A line that removes a file."""
    action = {"path": path(number), "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    return json.dumps({"remove": action}, separators=(",", ":")) + "\n"


@contextmanager
def opened(directory: Path, *, wait_s: float = 0.0, close_s: float = 60.0) -> Iterator[Lake]:
    """A lake on SQLite whose commits wait so long for their publication, if at all."""
    settings = Settings(publish_wait_s=wait_s, publish_close_s=close_s, unpublished_max=NEVER)
    with penstock.open(directory / "lake", create=True, settings=settings, catch_up=False) as lake:
        yield lake


def create(lake: Lake, checkpoint_interval: int = NEVER) -> Path:
    """An empty table; says where it is. It has no checkpoints but those that are asked for."""
    lake.delta.create(TABLE, schema=SCHEMA, properties={INTERVAL: str(checkpoint_interval)})
    lake.delta.publish(TABLE)
    (status,) = lake.delta.status(TABLE)
    return Path(status.location)


def write_log(directory: Path, commits: int, adds_each: int) -> None:
    """A log without a checkpoint, of so many commits after the one that made the table; nobody owns it."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "0b1e6a5c-5d2f-4a57-9b1f-6a3e0c9d7f11",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {INTERVAL: str(NEVER)},
        "createdTime": 1_700_000_000_000,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    lines = (json.dumps(one) for one in ({"protocol": protocol}, {"metaData": metadata}))
    (log / f"{0:020}.json").write_text("\n".join(lines) + "\n")
    for version in range(1, commits + 1):
        first = (version - 1) * adds_each
        info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
        adds = "".join(map(add, range(first, first + adds_each)))
        (log / f"{version:020}.json").write_text(f"{json.dumps(info)}\n{adds}")
