"""Fresh environments of Python, filled with the versions that the tests ran with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from release import ROOT

CONSTRAINTS: Final = ROOT / "src" / "penstock" / "constraints.txt"
PINS: Final = ROOT / "requirements" / "dev.txt"
"""Hashes of all that the constraints name, and of what builds those that come as source."""
UV: Final = ROOT / ".venv" / "bin" / "uv"


def create(place: Path) -> Path:
    """Make an environment with nothing in it, and return its Python."""
    run([UV, "venv", "--quiet", "--no-python-downloads", "--python", sys.executable, place])
    return place / "bin" / "python"


def install(python: Path, what: Sequence[str]) -> None:
    """Install as a user does who takes the published constraints."""
    command: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", python]
    run([*command, "--constraints", CONSTRAINTS, "--build-constraints", PINS, *what])


def run(command: Sequence[str | Path], cwd: Path = ROOT) -> str:
    """What a command prints; if it fails, ``SystemExit`` with all that it said.

    It does not see what this process was told about Python and Penstock.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PENSTOCK_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        named = " ".join(map(str, command))
        raise SystemExit(f"release: {named}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
