"""`kill -9` of a process that appends, merges and publishes, while another one goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.owner.machine_processes import Lakeside


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(40, id="after 40 writes"),
        pytest.param(97, id="after 97 writes", marks=pytest.mark.verify),
        pytest.param(None, id="at random", marks=pytest.mark.verify),
    ],
)
def test_a_killed_process_leaves_whole_tables_and_its_requests_can_be_made_again(
    tmp_path: Path, seed: int, steps: int | None
) -> None:
    Lakeside(tmp_path / "lake", seed).kill(steps)
