"""A table of a million files is read within a gibibyte, and its checkpoint is written within one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.formats.delta.protocol.actions import write_commit
from penstock.formats.delta.protocol.names import LOG, ClassicName, CommitName
from tests.formats.delta.logs import CHECKPOINT_SCHEMA, add, checkpoint_bytes, metadata, protocol

FILES = 1_000_000
SLICE = 10_000
MEMORY_MAX_MIB = 1024

READ = """
import resource, sys
from penstock.formats.delta.log.log_files import PlaceFiles
from penstock.formats.delta.log.snapshot import load_snapshot
from penstock.storage.places import Places

places = Places()
found = load_snapshot(PlaceFiles(places.open_place(sys.argv[1])))
count = sum(1 for _ in found.read_files())
places.close()
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""

WRITE = """
import resource, sys
from penstock.formats.delta.publishing.maintenance import make_checkpoint
from penstock.storage.places import Places

places = Places()
made = make_checkpoint(places.open_place(sys.argv[1]), int(sys.argv[2]), 0)
places.close()
print(made.last.num_of_add_files, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def stats(number: int) -> str:
    least = {"id": number, "name": f"a{number}", "at": f"2024-01-01T00:00:00.{number:06}Z"}
    nulls = {"id": 0, "name": number % 9, "at": 0}
    every = {"numRecords": 1000, "minValues": least, "maxValues": {**least, "name": f"z{number}"}}
    return msgspec.json.encode({**every, "nullCount": nulls}).decode()


def path(number: int) -> str:
    return (
        f"part-{number:05}-{(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128:032x}-c000.snappy.parquet"
    )


def write_commits(root: Path, count: int) -> None:
    """All files in this many commits."""
    for version in range(count):
        with (root / str(CommitName(version))).open("wb") as file:
            if version == 0:
                file.write(write_commit([protocol(), metadata()]))
            for number in range(version * FILES // count, (version + 1) * FILES // count):
                file.write(write_commit([add(path(number), size=number, stats=stats(number))]))


def write_checkpoint(root: Path) -> None:
    (root / str(CommitName(0))).write_bytes(write_commit([protocol(), metadata()]))
    with pq.ParquetWriter(root / str(ClassicName(0)), CHECKPOINT_SCHEMA) as writer:
        writer.write_table(pq.read_table(pa.BufferReader(checkpoint_bytes([protocol(), metadata()]))))
        plain = {"partitionValues": [], "modificationTime": 0, "dataChange": True}
        for first in range(0, FILES, SLICE):
            rows = [
                {"add": {"path": path(number), "size": number, "stats": stats(number), **plain}}
                for number in range(first, first + SLICE)
            ]
            writer.write_table(pa.Table.from_pylist(rows, schema=CHECKPOINT_SCHEMA))


@pytest.mark.reliability
@pytest.mark.parametrize("shape", ["one commit", "many commits", "a checkpoint"])
def test_a_million_files_are_read_within_a_gibibyte(tmp_path: Path, shape: str) -> None:
    (tmp_path / LOG).mkdir()
    if shape == "a checkpoint":
        write_checkpoint(tmp_path)
    else:
        write_commits(tmp_path, 1 if shape == "one commit" else 100)
    count, used_mib = run(READ, str(tmp_path))
    print(f"{shape}: {used_mib} MiB")
    assert count == FILES
    assert used_mib < MEMORY_MAX_MIB


@pytest.mark.reliability
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_checkpoint_of_a_million_files_is_written_within_a_gibibyte(tmp_path: Path, policy: str) -> None:
    (tmp_path / LOG).mkdir()
    write_commits(tmp_path, 100)
    if policy == "v2":
        asked = metadata(delta_checkpointPolicy="v2", **{"delta_checkpoint.writeStatsAsStruct": "true"})
        data = write_commit([protocol(reader=["v2Checkpoint"]), asked])
        (tmp_path / str(CommitName(100))).write_bytes(data)
    count, used_mib = run(WRITE, str(tmp_path), "100" if policy == "v2" else "99")
    print(f"{policy}: {used_mib} MiB")
    assert count == FILES
    assert used_mib < MEMORY_MAX_MIB
    for name in (tmp_path / LOG).glob("*.json"):
        if int(name.name[:20]) < 99:
            name.unlink()
    assert run(READ, str(tmp_path))[0] == FILES


def run(script: str, *given: str) -> tuple[int, int]:
    """What a script of ours counted, and how many MiB it took."""
    ran = subprocess.run(
        [sys.executable, "-c", script, *given], check=True, capture_output=True, text=True, timeout=240
    )
    count, used_mib = map(int, ran.stdout.split())
    return count, used_mib
