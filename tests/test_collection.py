"""The names of tests are the same in every process: workers that collect other names run nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.verify
def test_names_of_tests_depend_on_neither_time_nor_hashes() -> None:
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"]
    processes = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        processes.append(
            subprocess.Popen(collect, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        )
        time.sleep(1.1)  # a time in a name has seconds at least
    first, second = (
        {line for line in process.communicate()[0].splitlines() if "::" in line} for process in processes
    )
    assert len(first) > 10_000
    assert sorted(first ^ second) == []
