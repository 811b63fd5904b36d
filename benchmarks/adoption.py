"""What it costs to take over very many Delta tables at once, and to hand them back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Final

import penstock
from benchmarks.lakes import Workshop
from benchmarks.report import Cell, Findings, at_most, table
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.formats.delta.ownership.handover_settler import TABLES_AT_ONCE
from penstock.formats.delta.protocol.actions import Add, Metadata, Protocol, write_commit
from penstock.formats.delta.protocol.names import CommitName
from penstock.formats.rows.schema import Field, StructType, write_schema
from penstock.lake.lake import Lake
from penstock.storage.places import Places

QUESTION = "How long does it take to take over a thousand Delta tables, and to hand them back?"

VERSIONS: Final = 10
TABLE_MAX_MS: Final = 5
SCHEMA: Final = write_schema(StructType((Field(name="id", type="long", nullable=True),)))


def ask(workshop: Workshop) -> Findings:
    count = workshop.size(1000, 5)
    with workshop.place() as place:
        folder = place / "tables"
        for number in range(count):
            _make_table(folder / f"schema_{number % 10}" / f"table_{number}", number)
        with penstock.init(place / "lake", roots=[str(folder)]) as lake:
            read_s = _read_logs(folder)
            plan_s = _adopt(lake, folder, count, dry_run=True)
            adopt_s = _adopt(lake, folder, count, dry_run=False)
            read_again_s = _read_logs(folder)
            started_s = perf_counter()
            released = lake.delta.release_all()
            release_s = perf_counter() - started_s
            assert {one.outcome for one in released.tables} == {"released"}
    reading_s = min(read_s, read_again_s)
    steps = {
        "read their logs, in as many threads": reading_s,
        "plan (--dry-run)": plan_s,
        "adopt all": adopt_s,
        "release all": release_s,
    }
    rows: list[list[Cell]] = [[what, took_s, took_s * 1000 / count] for what, took_s in steps.items()]
    beyond_ms = (adopt_s - reading_s) * 1000 / count
    note = (
        f"Tables of {VERSIONS} versions on a local disk, a lake on SQLite, durable. Adopting all is one "
        "commit that promises them, one file in the log of each, and one commit that notes what came of it."
    )
    return Findings(
        tables=(table(f"{count:,} Delta tables at once", ["step", "s", "ms a table"], rows, note),),
        goals=(at_most("adopting a table beyond reading its log", beyond_ms, TABLE_MAX_MS, "ms"),),
    )


def _make_table(root: Path, number: int) -> None:
    (root / "_delta_log").mkdir(parents=True)
    about = Metadata(id=f"00000000-0000-4000-8000-{number:012}", schema_string=SCHEMA, partition_columns=())
    first = [Protocol(min_reader_version=1, min_writer_version=2), about]
    for version in range(VERSIONS):
        file = Add(
            path=f"{version}.parquet", partition_values={}, size=1, modification_time=0, data_change=True
        )
        lines = write_commit([*(first if version == 0 else ()), file])
        (root / str(CommitName(version))).write_bytes(lines)


def _read_logs(folder: Path) -> float:
    """How long it takes to read the logs of all tables, as adopting them does."""
    places, started_s = Places(), perf_counter()
    roots = sorted(path.parent for path in folder.glob("*/*/_delta_log"))
    with ThreadPoolExecutor(TABLES_AT_ONCE) as threads:
        for version in threads.map(lambda root: _read_log(places, root), roots):
            assert version >= VERSIONS - 1
    took_s = perf_counter() - started_s
    places.close()
    return took_s


def _read_log(places: Places, root: Path) -> int:
    snapshot = load_snapshot(PlaceFiles(places.open_place(str(root))))
    assert sum(1 for _ in snapshot.file_keys()) == VERSIONS
    return snapshot.version


def _adopt(lake: Lake, folder: Path, count: int, *, dry_run: bool) -> float:
    started_s = perf_counter()
    done = lake.delta.adopt_all(folder, dry_run=dry_run)
    took_s = perf_counter() - started_s
    assert [table.outcome for table in done.tables] == ["planned" if dry_run else "adopted"] * count
    return took_s
