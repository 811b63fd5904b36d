"""Other people's clients, as `make interop` has laid them out under build/interop."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import files
from pathlib import Path

from tests.servers.process import Missing

BUILD = Path(__file__).parents[2] / "build" / "interop"
RUN_MAX_S = 200.0


def python_environment(name: str) -> Path:
    """The directory of an environment's programs."""
    # The file of pins is written last: without it the installation was cut short.
    if not (BUILD / name / "pins.txt").exists():
        raise Missing(f"the Python environment of {name} is not installed: run `make interop`")
    return BUILD / name / "bin"


def packages(name: str) -> Path:
    """A directory of Python packages, which comes before those of this environment."""
    if not (BUILD / name / "pins.txt").exists():
        raise Missing(f"the packages of {name} are not installed: run `make interop`")
    return BUILD / name


def java() -> Path:
    found = shutil.which("java")
    if found is None:
        raise Missing("there is no Java on this machine: run `make setup` as root")
    return Path(found)


def java_libraries(name: str) -> Path:
    """A directory of libraries, which a pom of ours names."""
    if not (BUILD / name / "pom.xml").exists():
        raise Missing(f"the Java libraries in build/interop/{name} are not installed: run `make interop`")
    return BUILD / name


def java_classes() -> Path:
    """The directory of our own programs."""
    if not (BUILD / "scenarios").exists():
        raise Missing("the programs in tests/interop/java are not compiled: run `make interop`")
    return BUILD / "scenarios"


def described(directory: Path) -> Path:
    """A directory with what is known of the installed package, as its version, and no code."""
    for one in files("penstock") or ():
        if one.parts[0].endswith(".dist-info"):
            copy = directory / one
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(one.locate()), copy)
    return directory


def run(
    command: Sequence[str | Path],
    environment: dict[str, str],
    directory: Path,
    stdin: str = "",
    timeout_s: float = RUN_MAX_S,
) -> subprocess.CompletedProcess[str]:
    """Run somebody's program to its end. It sees no environment but the one given here."""
    return subprocess.run(
        [str(part) for part in command],
        env={
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "HOME": str(directory),
            **environment,
        },
        cwd=directory,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
