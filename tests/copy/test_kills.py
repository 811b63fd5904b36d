"""``kill -9`` of real processes that move a lake, while real processes write to it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.model.keys import Key
from penstock.model.operations import Put
from tests.chance import share
from tests.copy.lakes import fill, table

KILLS = 8

MOVE = """
import sys
from penstock.kernel import object_copy
from penstock.lake.copy import move_lake
object_copy.SCAN_PAGE = 40
move_lake(sys.argv[1], sys.argv[2], progress=lambda what, count, total: print(what, count, flush=True))
"""

WRITE = """
import sys
import penstock
from penstock import IcebergTable, errors
with penstock.open(sys.argv[1], create=False) as lake:
    print("ready", flush=True)
    for number in range(100_000):
        try:
            commit = lake.branch().put(f"w{number % 7}", IcebergTable(metadata_location=f"s3://w/{number}"))
        except errors.LakeMoved:
            break
        print(commit.id, flush=True)
"""


def start(program: str, *places: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *map(str, places)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def takes_writes(place: Path) -> bool:
    try:
        with penstock.open(place, create=False) as lake:
            lake.branch("probe").create()
            lake.branch("probe").delete()
    except PenstockError:
        return False
    return True


def moved(source: Path, target: Path, lines_max: int | None = None) -> bool:
    """Move a lake, but kill the mover once it has said so much; whether it was done."""
    with start(MOVE, source, target) as mover:
        assert mover.stdout is not None
        for number, _ in enumerate(mover.stdout):
            if number == lines_max:
                mover.kill()
                break
    return mover.returncode == 0


@pytest.mark.reliability
@pytest.mark.parametrize("seed", share(range(8)))
def test_a_move_that_is_killed_again_and_again_loses_nothing(tmp_path: Path, seed: int) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    chosen = random.Random(seed)
    with penstock.open(source, create=True, author="ada") as lake:
        fill(lake, seed)
        lake.branch().commit([Put(Key(f"t{number}"), table(number)) for number in range(9000)])
    with start(WRITE, source) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        try:
            for _ in range(KILLS):
                assert not moved(source, target, chosen.randrange(25))
                assert not (takes_writes(source) and takes_writes(target))
            assert moved(source, target)
            landed = writer.stdout.read().split()
        except BaseException:
            writer.kill()
            raise
    assert writer.returncode == 0
    assert landed
    with penstock.open(target, create=False) as there:
        assert set(landed) <= {commit.id for commit in there.log(limit=None)}
        assert there.fsck().damages == ()
    assert (takes_writes(source), takes_writes(target)) == (False, True)
