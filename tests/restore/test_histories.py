"""Random histories with restores, against a plain model of the rows of each table on each branch."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from tests.chance import RecordCounts, seeds, share
from tests.restore.histories import History

STEPS = 20
LONG_STEPS = 120
CHECKED_EVERY = 10
"""In a long history all branches are read after so many steps, and after each the one that may have moved."""


@pytest.mark.parametrize("seed", seeds(6))
def test_histories_with_restores_read_as_a_plain_model_everywhere(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, STEPS)


@pytest.mark.reliability
@pytest.mark.parametrize("seed", share(range(100, 140)))
def test_long_histories_with_restores_read_as_a_plain_model_everywhere(
    tmp_path: Path, seed: int, record_counts: RecordCounts
) -> None:
    record_counts(run(tmp_path, seed, LONG_STEPS).count)


def run(place: Path, seed: int, steps: int) -> History:
    with penstock.open(place / "lake", create=True, author="tester") as lake:
        history = History(lake, seed)
        done: list[str] = []
        try:
            for number in range(1, steps + 1):
                done.append(history.step())
                history.check(None if steps == STEPS or number % CHECKED_EVERY == 0 else (history.last,))
            history.check_commits()
        except BaseException as problem:
            problem.add_note(f"seed {seed} after {done}")
            raise
        assert lake.fsck().damages == ()
    return history
