"""A package that brings a table format, installed for a test: a folder with what pip would write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.cli import format_cli
from penstock.formats import registry
from penstock.lake import plugins
from penstock.server.access import format_rules

SOURCE = Path(__file__).parent / "src"
JOURNAL = "penstock_journal:FORMAT"


def install(
    folder: Path, *, package: str = "penstock-journal", name: str = "journal", at: str = JOURNAL
) -> Path:
    """Install a package in a folder of its own, which is to be put on ``sys.path``."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[penstock.formats]\n{name} = {at}\n")
    return folder


def environment(*folders: Path) -> dict[str, str]:
    """The environment of a process in which packages are installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, SOURCE)))}


@contextmanager
def installed(*folders: Path) -> Iterator[None]:
    """Packages are installed in this process."""
    before = list(sys.path)
    sys.path[:0] = [str(folder) for folder in (*folders, SOURCE)]
    forget()
    try:
        yield
    finally:
        sys.path[:] = before
        forget()


def forget() -> None:
    """Forget which formats are installed."""
    for known in (
        registry.load_other_formats,
        plugins.list_other_plugin_types,
        format_rules.load_other_format_rules,
        format_cli.format_clis,
    ):
        known.cache_clear()
