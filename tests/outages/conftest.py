"""A disk that can be filled up, for lakes and tables to be on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SIZE = "40m"


class SmallDisk:
    """A real file system of some megabytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room at all."""
        for size_bytes in (1024 * 1024, 4096):
            with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
                while file.write(bytes(size_bytes)) == size_bytes:
                    pass
        assert os.statvfs(self.path).f_bfree == 0

    def make_room(self) -> None:
        os.truncate(self._ballast, 0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Skipped where this process may not mount anything."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", path], check=True)
