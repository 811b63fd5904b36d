"""A table of orders that a lake owns, and what can be seen of it from outside: its files, its log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable as ForeignTable

from penstock.formats.delta.lake.answers import TableVersions
from penstock.lake.lake import Lake
from penstock.lake.table import Table

SCHEMA = pa.schema({"id": pa.int64()})
DAY_S = 24 * 3600

Opening: TypeAlias = Callable[..., Lake]
"""Opens the lake anew, as another process does; takes settings by their names."""


def created(lake: Lake, place: Path, key: str, **more: Any) -> Table:
    """A table at a named place."""
    return lake.create_table(key, schema=SCHEMA, location=str(place), **more)


def add(path: str, **more: Any) -> dict[str, Any]:
    """An action that adds a file, which need not exist."""
    fields = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": fields | more}


def remove(path: str) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def root_of(table: Table) -> Path:
    return Path(table.get_commits().location)


def log_file(table: Table, version: int) -> Path:
    """Where a version is, or will be, published."""
    return root_of(table) / "_delta_log" / f"{version:020}.json"


def published_versions(table: Table) -> list[int]:
    """What the table's own log holds, by listing it."""
    folder = root_of(table) / "_delta_log"
    return sorted(int(one.stem) for one in folder.iterdir() if one.suffix == ".json" and one.stem.isdigit())


def staged_names(table: Table) -> list[str]:
    folder = root_of(table) / "_delta_log" / "_commits"
    return sorted(one.name for one in folder.iterdir()) if folder.exists() else []


def actions_in(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def paths(table: Table, version: int | None = None) -> list[str]:
    """The files of a version, as a reader finds them that asks the owner."""
    return sorted(one.path for one in table.snapshot(version).files())


def foreign_paths(table: Table) -> list[str]:
    """The files of the table, as a reader finds them that knows nothing of the lake."""
    found = pa.table(ForeignTable(str(root_of(table))).get_add_actions())
    return sorted(found["path"].to_pylist())


def foreign_version(table: Table) -> int:
    return int(ForeignTable(str(root_of(table))).version())


@contextmanager
def blocked(table: Table, version: int) -> Iterator[Path]:
    """Somebody else's file stands at a version of the log, until the end of the block."""
    foreign = log_file(table, version)
    foreign.write_bytes(b'{"commitInfo":{"operation":"somebody else"}}\n')
    try:
        yield foreign
    finally:
        foreign.unlink()


def let_look(table: Table) -> None:
    """Have the lake compare the log with what it knows, which it does once before it commits."""
    table.lake.delta.clean_log(table.key, dry_run=True)


@contextmanager
def unpublished(table: Table) -> Iterator[None]:
    """The one commit in here is not published, nor is what comes afterwards, until somebody asks for it.

    The log is blocked, which stops the publisher. A commit waits for it, so it has stopped when the commit is
    answered. No second one is taken before the foreign file is gone.
    """
    let_look(table)
    with blocked(table, table.backfill_to_version() + 1):
        yield


def left_unpublished(table: Table, count: int) -> TableVersions:
    """So many versions that are ratified and not published, each with one file named after its version."""
    first = table.get_commits().latest_version + 1
    with unpublished(table):
        table.append_actions([add(f"of-{first}")])
    for version in range(first + 1, first + count):
        table.append_actions([add(f"of-{version}")])
    return table.get_commits(start=first)


def check_commits(table: Table, got: TableVersions) -> None:
    """What every answer of the owner promises: no gap, the latest at the end, files that are there."""
    versions = [one.version for one in got.commits]
    assert versions == list(range(got.published + 1, got.latest_version + 1))
    folder = Path(got.location)
    for one in got.commits:
        assert (folder / one.name).stat().st_size == one.size
    assert all((folder / "_delta_log" / f"{number:020}.json").exists() for number in range(got.published + 1))
    assert table.key == got.key


def aged(path: Path, days: float) -> None:
    """Make a file this many days old."""
    then_s = path.stat().st_mtime - days * DAY_S
    os.utime(path, (then_s, then_s))
