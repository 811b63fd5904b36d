"""A process that dies while it reverts leaves the table as it was, or as the revert makes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from tests.formats.lance.tables import keys_of, keys_seen, opened, write
from tests.lance.kill.points import UNLANDED, At

pytest.importorskip("lance")
PROGRAM = Path(__file__).with_name("reverting_program.py")


@pytest.mark.parametrize("at", [At.BEFORE_FLIP, At.INSIDE_THE_STORE, At.AFTER_FLIP, At.FIRST_LINK])
def test_a_killed_revert_is_done_or_not_and_can_be_done_again(tmp_path: Path, at: At) -> None:
    place = tmp_path / "lake"
    with penstock.open(place, create=True) as lake:
        write(lake, "main", 1, 2, 3, mode="create")
        opened(lake).update({"v": "0.5"}, where="k = 1")
        bad = lake.resolve("main")
        write(lake, "main", 4)
    died = subprocess.run(
        [sys.executable, str(PROGRAM), str(place), bad, at.value],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    with penstock.open(place) as lake:
        lake.finish_background()
        value = 0.5 if at in UNLANDED else 1.0
        assert opened(lake).to_table(filter="k = 1")["v"].to_pylist() == [value]
        assert keys_of(lake) == keys_seen(lake) == [1, 2, 3, 4]
        lake.revert(bad, "main")
        write(lake, "main", 5)
        assert opened(lake).to_table(filter="k = 1")["v"].to_pylist() == [1.0]
        assert keys_of(lake) == keys_seen(lake) == [1, 2, 3, 4, 5]
        assert lake.fsck().damages == ()
