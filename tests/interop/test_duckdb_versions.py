"""The oldest and the newest DuckDB: a branch's queries keep their promises, and users see no warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.installed import packages
from tests.servers.process import Missing

ROOT = Path(__file__).parents[2]
RUN_MAX_S = 900.0


@pytest.mark.timeout(RUN_MAX_S)
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_queries_are_asked_without_a_warning(which: str) -> None:
    try:
        directory = packages(f"duckdb-{which}")
    except Missing as missing:
        pytest.skip(str(missing))
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**own, "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT / "src")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    asking = [
        *(f"tests/audits/test_{one}.py" for one in ("queries", "expectations", "file_rows")),
        "tests/rows/test_sql.py",
    ]
    ran = subprocess.run(
        [*command, "-W", "error::UserWarning", *asking],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=RUN_MAX_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = subprocess.run(
        [sys.executable, "-c", "import duckdb; print(duckdb.__file__)"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.startswith(str(directory))
