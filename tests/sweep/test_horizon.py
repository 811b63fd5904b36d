"""K10: history has a horizon, by age or count; what lies behind it may be swept and is known to be gone."""

from typing import Any

import pytest

from penstock.errors import CommitNotFound, HistoryExpired, InvalidRequest
from penstock.lake.lake import Lake
from penstock.model.keys import Key
from penstock.model.operations import Put
from tests.queue.hooks import DAY_S, HookedStore, SetClock, everything, table
from tests.sweep.oracle import GRACE_S, ids, large, receipts, reopened


def _keeping(
    lake: Lake, *, commits: int | None = None, days: float | None = None, pattern: str = "*"
) -> Lake:
    """A lake that keeps so much history, and has said so a grace period ago."""
    lake.keep_history(pattern, max_commits=commits, max_days=days)
    clock = lake.kernel.clock
    assert isinstance(clock, SetClock)
    clock.go_on(GRACE_S + 1)
    return reopened(lake)


def _daily(lake: Lake, clock: SetClock, count: int, branch: str = "main") -> list[str]:
    """A commit a day, oldest first."""
    made = []
    for number in range(count):
        made.append(lake.branch(branch).put(f"{branch}{number}", large(number)).id)
        clock.go_on(DAY_S)
    return made


def _present(lake: Lake, commits: list[str]) -> list[bool]:
    stored = ids(lake.kernel.store)
    return [bytes.fromhex(commit) in stored for commit in commits]


@pytest.mark.parametrize("most", [1, 2, 7, 29, 30, 100])
def test_by_count_the_newest_stay(lake: Lake, clock: SetClock, most: int) -> None:
    commits = _daily(lake, clock, 30)
    lake = _keeping(lake, commits=most)
    lake.sweep()
    kept = min(most, 30)
    assert _present(lake, commits) == [False] * (30 - kept) + [True] * kept
    lake = reopened(lake)
    assert lake.fsck().damages == ()
    assert [commit.id for commit in lake.log(limit=None)] == commits[::-1][:kept]


@pytest.mark.parametrize("days", [0.5, 1.5, 10.5, 40])
def test_by_age_the_younger_stay(lake: Lake, clock: SetClock, days: float) -> None:
    commits = _daily(lake, clock, 30)
    lake = _keeping(lake, days=days)
    lake.sweep()
    kept = max(1, min(int(days), 30))
    assert _present(lake, commits) == [False] * (30 - kept) + [True] * kept
    assert reopened(lake).fsck().damages == ()


def test_with_both_a_commit_stays_if_one_of_them_keeps_it(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 20)
    lake = _keeping(lake, commits=3, days=8.5)
    lake.sweep()
    assert _present(lake, commits) == [False] * 12 + [True] * 8
    lake = _keeping(lake, commits=5, days=2.5)
    lake.sweep()
    assert _present(lake, commits) == [False] * 15 + [True] * 5


def test_without_limits_all_history_stays(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 10)
    swept = lake.sweep()
    assert swept.removed == swept.receipts
    assert all(_present(lake, commits))


def test_the_newest_state_is_whole_however_little_history_is_kept(lake: Lake, clock: SetClock) -> None:
    main = lake.branch()
    main.commit([Put(Key(f"key{number:03}"), large(number)) for number in range(600)])
    _daily(lake, clock, 10)
    before = dict(main.snapshot().entries())
    lake = _keeping(lake, commits=1)
    lake.sweep()
    lake = reopened(lake)
    assert dict(lake.at("main").entries()) == before
    lake.branch().put("goes on", table())
    assert len(lake.log()) == 2


def test_blobs_of_contents_that_only_old_commits_have_go(lake: Lake, clock: SetClock) -> None:
    main = lake.branch()
    main.put("big", large(1, 600_000))
    main.drop("big")
    main.commit([Put(Key(f"key{number:03}"), table()) for number in range(600)], message="folds all changes")
    clock.go_on(GRACE_S + 1)
    assert _keeping(lake, commits=1).sweep().removed_bytes > 600_000


def test_tags_and_other_branches_keep_what_they_name(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 20)
    lake.tag("v1").create(at="main~15")
    lake.branch("dev").create(at="main~10")
    lake = _keeping(lake, commits=2)
    lake.sweep()
    kept = {3, 4, 8, 9, 18, 19}
    assert _present(lake, commits) == [number in kept for number in range(20)]
    lake = reopened(lake)
    assert lake.fsck().damages == ()
    assert lake.at("v1").get("main4") is not None
    assert lake.resolve("dev~1") == commits[8]


def test_reading_past_the_horizon_says_so(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 20)
    early = lake.show(commits[2]).time
    lake = _keeping(lake, commits=5)
    lake.sweep()
    lake = reopened(lake)
    assert lake.resolve("main~4") == commits[15]
    for revision in ("main~6", "main~12", "main~19", f"main*{early.isoformat()}"):
        with pytest.raises(HistoryExpired):
            lake.resolve(revision)
    with pytest.raises(HistoryExpired) as caught:
        lake.at("main~5").get("main3")
    assert commits[14] in str(caught.value)
    with pytest.raises(HistoryExpired):
        lake.at(commits[14])
    with pytest.raises(CommitNotFound):
        lake.resolve("main~21")


def test_a_base_behind_the_horizon_is_refused(lake: Lake, store: HookedStore, clock: SetClock) -> None:
    commits = _daily(lake, clock, 10)
    lake = _keeping(lake, commits=3)
    lake.sweep()
    lake = reopened(lake)
    before = everything(store)
    with pytest.raises(HistoryExpired):
        lake.branch().put("late", table(), base=commits[6])
    assert everything(store) == before


def test_branches_whose_fork_lies_behind_the_horizon_have_no_common_ancestor(
    lake: Lake, clock: SetClock
) -> None:
    _daily(lake, clock, 3)
    lake.branch("dev").create()
    _daily(lake, clock, 10, "dev")
    _daily(lake, clock, 10)
    lake = _keeping(lake, commits=4)
    lake.sweep()
    with pytest.raises(CommitNotFound, match="no common ancestor"):
        reopened(lake).merge("dev", "main")


def test_sweeping_again_and_again_moves_the_horizon_along(lake: Lake, clock: SetClock) -> None:
    commits: list[str] = []
    lake = _keeping(lake, commits=4)
    for _ in range(5):
        commits += _daily(lake, clock, 3)
        swept = lake.sweep()
        assert (swept.removed > 0) == (len(commits) > 4)
        assert lake.sweep().removed == 0
        kept = min(4, len(commits))
        assert _present(lake, commits) == [False] * (len(commits) - kept) + [True] * kept
        assert reopened(lake).fsck().damages == ()
        with pytest.raises((HistoryExpired, CommitNotFound)):
            reopened(lake).resolve(f"main~{kept + 1}")


def test_a_horizon_taken_away_again_keeps_what_is_left(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 10)
    _keeping(lake, commits=4).sweep()
    lake = _keeping(lake)
    swept = lake.sweep()
    assert swept.removed == swept.receipts
    assert _present(lake, commits) == [False] * 6 + [True] * 4
    with pytest.raises(HistoryExpired):
        reopened(lake).resolve("main~5")
    assert reopened(lake).fsck().damages == ()


def test_merged_histories_are_cut_on_both_sides(lake: Lake, clock: SetClock) -> None:
    lake.branch("dev").create()
    mine, theirs = _daily(lake, clock, 6), _daily(lake, clock, 6, "dev")
    merged = lake.merge("dev", "main").head
    lake.branch("dev").delete()
    clock.go_on(DAY_S)
    lake = _keeping(lake, commits=3)
    lake.sweep()
    assert _present(lake, [merged]) == [True]
    assert _present(lake, mine) == [False] * 4 + [True] * 2
    assert _present(lake, theirs) == [False] * 4 + [True] * 2
    lake = reopened(lake)
    assert lake.fsck().damages == ()
    assert len(lake.log(all_parents=True)) == 5
    with pytest.raises(HistoryExpired):
        lake.resolve("main^2~2")


def test_a_new_horizon_is_heeded_after_the_grace_period(
    lake: Lake, store: HookedStore, clock: SetClock
) -> None:
    for number in range(10):
        lake.branch().put(f"t{number}", large(number))
    before = ids(store)
    lake.keep_history(max_commits=2)
    assert lake.sweep().removed == 0
    clock.go_on(GRACE_S - 10)
    assert lake.sweep().removed == 0
    assert ids(store) == before
    clock.go_on(20)
    assert lake.sweep().removed > 0
    assert receipts(store) <= ids(store)
    assert reopened(lake).fsck().damages == ()


def test_the_log_for_a_table_ends_at_the_horizon(lake: Lake, clock: SetClock) -> None:
    for number in range(10):
        lake.branch().put("hot", large(number))
        clock.go_on(DAY_S)
    lake = _keeping(lake, commits=3)
    lake.sweep()
    lake = reopened(lake)
    assert len(lake.log()) == 3
    assert 2 <= len(lake.log(table="hot")) <= 3


def test_each_reference_has_the_horizon_that_its_name_matches_last(lake: Lake, clock: SetClock) -> None:
    _daily(lake, clock, 1)
    for name in ("job/1", "job/kept", "other"):
        lake.branch(name).create()
    made = {name: _daily(lake, clock, 6, name) for name in ("job/1", "job/kept", "other")}
    lake.keep_history("*", max_commits=4)
    lake.keep_history("job/*", max_commits=2)
    lake.keep_history("job/kept", max_days=1000)
    clock.go_on(GRACE_S + 1)
    lake.sweep()
    assert _present(lake, made["job/1"]) == [False] * 4 + [True] * 2
    assert _present(lake, made["other"]) == [False] * 2 + [True] * 4
    assert _present(lake, made["job/kept"]) == [True] * 6
    assert [rule.pattern for rule in lake.history_rules] == ["*", "job/*", "job/kept"]
    assert reopened(lake).fsck().damages == ()


def test_what_one_reference_keeps_no_other_ones_horizon_removes(lake: Lake, clock: SetClock) -> None:
    commits = _daily(lake, clock, 10)
    lake.branch("archive").create()
    lake = _keeping(lake, commits=1, pattern="main")
    lake.sweep()
    assert all(_present(lake, commits))
    assert reopened(lake).resolve("main~9") == commits[0]


@pytest.mark.parametrize("limits", [{"max_commits": 0}, {"max_commits": -1}, {"max_days": -1.0}])
def test_a_horizon_that_cannot_be_is_refused(lake: Lake, store: HookedStore, limits: dict[str, Any]) -> None:
    before = everything(store)
    with pytest.raises(InvalidRequest):
        lake.keep_history("main", **limits)
    assert everything(store) == before


@pytest.mark.parametrize(
    "limits",
    [{"max_commits": "5"}, {"max_days": "5"}, {"max_commits": 2**70}, {"pattern": 5}, {"pattern": "\ud800"}],
)
def test_a_horizon_of_the_wrong_sort_is_refused_and_the_lake_stays_whole(
    lake: Lake, store: HookedStore, limits: dict[str, Any]
) -> None:
    before = everything(store)
    with pytest.raises(InvalidRequest):
        lake.keep_history(**{"pattern": "main", "max_days": 9.0, **limits})
    assert everything(store) == before
