"""A process that remembers what another one sweeps, and sweeps that do not agree on the grace period."""

from pathlib import Path

import pytest

import penstock
from penstock.errors import HistoryExpired, InvalidRequest
from penstock.lake.lake import Lake
from penstock.stores.memory import MemoryStore
from tests.queue.hooks import HookedStore, SetClock, new_lake, table


def _pair(place: Path) -> tuple[Lake, Lake]:
    """The same lake opened twice: for reading and writing, and for sweeping without a grace period."""
    return penstock.open(place, create=True), penstock.open(
        place, create=True, settings=penstock.Settings(grace_s=0, nobody_writes=True)
    )


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


@pytest.mark.parametrize("is_loosened", [False, True])
def test_a_sweep_that_was_stopped_leaves_no_damage_and_the_next_one_goes_on(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch, is_loosened: bool
) -> None:
    """The oldest objects went first; the commit at the horizon, which leads to them, is still there."""
    monkeypatch.setattr("penstock.kernel.sweep.SCAN_PAGE", 20)
    monkeypatch.setattr("penstock.kernel.sweep.DELETE_MAX", 1)
    store = HookedStore(MemoryStore(clock))
    settings = penstock.Settings(grace_s=10, nobody_writes=True)
    lake = new_lake(store, clock, settings)
    for number in range(60):
        lake.branch().put("t", table(str(number)))
    lake.keep_history(max_commits=5)
    clock.go_on(100)
    lake.branch().put("t", table("last"))
    clock.go_on(100)
    pages = iter(range(4))

    def stop(_: object) -> None:
        if next(pages, None) is None:
            raise KeyboardInterrupt

    store.before_delete = stop
    with pytest.raises(KeyboardInterrupt):
        lake.sweep()
    store.before_delete = lambda _: None
    lake = new_lake(store, clock, settings)
    assert lake.fsck().damages == ()
    if is_loosened:
        lake.keep_history()
        clock.go_on(100)
    assert lake.sweep().removed > 0
    assert lake.fsck().damages == ()
    assert lake.at("main").get("t") == lake.table("t").content


def test_within_the_horizon_a_branch_can_be_made_at_a_commit_of_any_age(clock: SetClock) -> None:
    store = MemoryStore(clock)
    lake = new_lake(store, clock)
    lake.keep_history(max_days=30)
    for number in range(60):
        lake.branch().put("t", table(str(number)))
        clock.go_on(3600)
    for steps in range(60):
        lake.branch(f"at-{steps}").create(at=f"main~{steps}")
