"""Attempts of tasks that fail or come twice, in a Spark that tries them again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import InvalidRequest
from penstock.spark.java import find_java

PROGRAM = Path(__file__).parent / "retries_program.py"


@pytest.mark.verify
def test_attempts_that_fail_or_come_twice_leave_each_row_once(tmp_path: Path) -> None:
    """An attempt that fails in its rows, and one that fails when all that it wrote is in its place."""
    try:
        find_java()
    except InvalidRequest as missing:
        pytest.skip(missing.message)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        capture_output=True,
        check=False,
        timeout=240,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["in rows"] == told["after writing"] == list(range(30))
    assert told["attempts"] == 2
    assert told["left"] == 1  # what the attempt wrote that was lost is nobody's, and is swept later
