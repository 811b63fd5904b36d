"""Folders of temporary files go with their process, also if that is killed, and never while it lives."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.processes.scratch import LOCK, PREFIX, ScratchFolder, remove_abandoned_folders

MAKER = """
from pathlib import Path
from penstock.processes.scratch import ScratchFolder
folder = ScratchFolder()
Path(folder.path, "spilled").write_bytes(b"rows")
print(folder.path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_not_before(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as maker:
        assert maker.stdout is not None
        left = Path(maker.stdout.readline().decode().strip())
        remove_abandoned_folders()
        assert (left / "spilled").exists(), "its process lives"
        os.kill(maker.pid, signal.SIGKILL)
    folder = ScratchFolder()
    assert not left.exists()
    assert [path.name for path in place.iterdir()] == [Path(folder.path).name]
    folder.remove_folder()
    folder.remove_folder()
    assert not list(place.iterdir())


def test_a_folder_that_is_removed_before_it_was_locked_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process looks at the folder between its making and its locking."""
    lock, others = fcntl.flock, [1]

    def looked_at_first(file: int, how: int) -> None:
        if others and others.pop():
            remove_abandoned_folders()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", looked_at_first)
    folder = ScratchFolder()
    assert Path(folder.path, LOCK).exists()
    assert len(list(place.iterdir())) == 1
    folder.remove_folder()


def test_a_folder_without_a_lock_is_left_until_it_is_old(place: Path) -> None:
    (old, young, foreign) = (place / f"{PREFIX}old", place / f"{PREFIX}young", place / "rows")
    for folder in (old, young, foreign):
        folder.mkdir()
    os.utime(old, (0, 0))
    os.utime(foreign, (0, 0))
    remove_abandoned_folders()
    assert {path.name for path in place.iterdir()} == {young.name, foreign.name}
