"""Drivers that are killed while Spark compacts a table: all rows stay, and so does a writer's commit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.formats.delta.lake.auto_compaction import LOOK_EVERY
from tests.chance import share
from tests.row_changes.test_deaths import named_files
from tests.sweep.tables import LateClock, data_files

PROGRAM = Path(__file__).with_name("killed_compaction_program.py")
STEPS = [
    "before the rewrite",
    "between the files",
    "before the commit",
    "before the answer",
    "after the commit",
]
LANDED = {"before the answer", "after the commit"}
LEFT = {"between the files", "before the commit"}
"""Steps at which there are files that no commit names."""
AUTO = {"delta.autoOptimize.autoCompact": "true"}


def rows(first: int) -> pa.Table:
    """Many small files of a partition need compaction, so each append brings some of both."""
    return pa.table({"id": pa.array(range(first, first + 2), pa.int64()), "day": ["a", "b"]})


@pytest.mark.reliability
@pytest.mark.parametrize("step", share(STEPS))
@pytest.mark.parametrize("how", ["optimize", "call", "append"])
def test_a_driver_that_dies_in_a_compaction_leaves_all_rows(tmp_path: Path, how: str, step: str) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, create=True, author="tester") as lake:
        table = lake.delta.create(
            "t", data=rows(0), partition_by=["day"], properties=AUTO if how == "append" else {}
        )
        for number in range(1, FILES):
            table.append(rows(2 * number))
        before = table.version
    killed = subprocess.run(
        [sys.executable, str(PROGRAM), str(place), how, step],
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    expected = [*range(2 * FILES), *([1000] if how == "append" else ())]
    with penstock.open(place, author="tester", clock=LateClock(days=8)) as lake:
        table = lake.table("t")
        commits = (how == "append") + (step in LANDED)
        assert table.version == before + commits, (
            "the writer's commit stands, and the compaction if it landed"
        )
        assert sorted(table.to_arrow()["id"].to_pylist()) == expected
        done = table.optimize()
        assert (done.files_removed > 0) == (step not in LANDED), "the next run does what is left, and no more"
        assert table.optimize().version is None
        assert sorted(table.to_arrow()["id"].to_pylist()) == expected
        named, root = named_files(table), Path(table.location)
        assert (data_files(root) > named) == (step in LEFT), "files that it wrote are left"
        lake.sweep_tables(remove_data=True)
        assert data_files(root) == named
        assert sorted(table.to_arrow()["id"].to_pylist()) == expected


FILES = 5 * LOOK_EVERY
"""So many that the next append is one after which a writer looks, and finds enough of them."""
