"""A process that remembers what another one sweeps, and sweeps that do not agree on the grace period."""

from pathlib import Path

import pytest

import penstock
from penstock.errors import HistoryExpired, InvalidRequest
from penstock.lake.lake import Lake
from tests.queue.hooks import table


def _pair(place: Path) -> tuple[Lake, Lake]:
    """The same lake opened twice: for reading and writing, and for sweeping without a grace period."""
    return penstock.open(place), penstock.open(place, settings=penstock.Settings(grace_s=0))


def test_history_that_another_process_swept_is_expired_and_not_damaged(tmp_path: Path) -> None:
    mine, other = _pair(tmp_path)
    for number in range(10):
        other.branch().put("t", table(str(number)))
    mine.resolve("main~3")  # remembers the newest commits, and no more
    other.keep_history(max_commits=3)
    other.sweep()
    assert 3 <= len(mine.log()) <= 10
    with pytest.raises(HistoryExpired):
        mine.resolve("main~9")
    assert mine.fsck().damages == ()


def test_what_a_sweep_without_grace_removed_is_no_damage_to_the_next_one(tmp_path: Path) -> None:
    mine, other = _pair(tmp_path)
    mine.branch("dev").create().put("t", table())
    mine.branch("dev").delete()
    assert other.sweep().removed > 0
    assert mine.sweep().removed == 0
    assert mine.fsck().damages == ()


def test_a_horizon_that_is_true_is_refused(tmp_path: Path) -> None:
    mine, _ = _pair(tmp_path)
    for limits in ({"max_commits": True}, {"max_days": True}):
        with pytest.raises(InvalidRequest):
            mine.keep_history(**limits)  # type: ignore[arg-type]
    assert penstock.open(tmp_path).history_rules == ()


def test_the_outcome_of_a_rebase_can_be_asked_for(tmp_path: Path) -> None:
    mine, _ = _pair(tmp_path)
    mine.branch("dev").create().put("t", table())
    mine.branch().put("u", table())
    made = mine.rebase("dev", idempotency_key="k")
    found = mine.outcome("k", "dev")
    assert found is not None
    assert (found.id,) == made.commits
