"""The plugin that has background work come late finds a test that reads a folder too early, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

EXAMPLE = """
from pathlib import Path

import pyarrow as pa
import pytest

import penstock


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_table_is_published(tmp_path: Path, is_awaited: bool) -> None:
    with penstock.open(tmp_path / "lake") as lake:
        table = lake.create_table("t", data=pa.table({"n": [1]}))
        if is_awaited:
            lake.finish_background()
        assert list(Path(table.location).glob("_delta_log/*.json"))
"""


@pytest.mark.verify
def test_what_reads_a_folder_while_it_moves_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_example.py").write_text(EXAMPLE)
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            os.devnull,
            "-p",
            "tests.slow_background",
            str(tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "PENSTOCK_SLOW_S": "60"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "FAILED" in ran.stdout, ran.stdout + ran.stderr
    assert "1 failed, 1 passed" in ran.stdout
    assert "test_a_table_is_published[False]" in ran.stdout
