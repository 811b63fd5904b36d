"""The wheel and the source distribution, both with the jar for Spark."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Final

from release import ROOT, environments

JAR: Final = "penstock/spark/jars/penstock-spark.jar"


def build_all(place: Path, project: Path = ROOT) -> tuple[Path, Path]:
    """Build both into a folder; ``SystemExit`` if one lacks the jar."""
    wheel, sources = build(project, "wheel", place), build(project, "sdist", place)
    with tarfile.open(sources) as archive:
        is_whole = any(name.endswith(JAR) for name in archive.getnames())
    if not is_whole or not has_jar(wheel):
        raise SystemExit("release: built without the jar for Spark; install a JDK, 17 or newer")
    return wheel, sources


def build(project: Path, target: str, place: Path) -> Path:
    """Build a wheel or an sdist with the pinned build tools."""
    environments.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", place], cwd=project)
    [built] = place.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def check_sources(sources: Path, wheel: Path, scratch: Path) -> None:
    """Build a wheel from the source distribution: it must hold the same files as that of the checkout."""
    shutil.unpack_archive(sources, scratch, filter="data")
    [unpacked] = scratch.iterdir()
    again = build(unpacked, "wheel", scratch / "dist")
    if contents(again) != contents(wheel):
        differing = {name for name, _ in contents(again) ^ contents(wheel)}
        raise SystemExit(f"release: {sources.name} builds another wheel: {', '.join(sorted(differing))}")


def contents(wheel: Path) -> set[tuple[str, int]]:
    """The files of a wheel with their checksums; all but its own list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {(one.filename, one.CRC) for one in archive.infolist() if not one.filename.endswith("/RECORD")}


def has_jar(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as archive:
        return JAR in archive.namelist()


def jar_of(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(JAR)


def extras(wheel: Path) -> set[str]:
    """The extras that a wheel offers."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return set(Parser().parsestr(archive.read(name).decode()).get_all("Provides-Extra") or ())
