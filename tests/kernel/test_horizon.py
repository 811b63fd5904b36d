"""The history horizon: what lies behind it goes, what lies before it stays whole, and who looks is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from threading import Thread

import pytest

from penstock.errors import CommitNotFound, HistoryExpired, PenstockError
from penstock.kernel.chain import FOLD_OPERATIONS
from penstock.kernel.fsck import fsck
from penstock.kernel.kernel import Kernel
from penstock.kernel.settings import Settings
from penstock.kernel.sweep import SweepResult, sweep_objects
from penstock.kernel.three_way import MergeOptions
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.keys import Key
from penstock.model.operations import Put
from penstock.model.references import Kind
from penstock.stores.memory import MemoryStore
from penstock.testing import FaultyStore, Point
from tests.kernel.graphs import Graph, random_graph
from tests.kernel.lakes import (
    Ticking,
    branch,
    commit,
    deletes,
    head,
    keep_history,
    large_table,
    new_kernel,
    places,
    puts,
    reopened,
    state,
)

DAY_S = 24 * 3600


def _swept(kernel: Kernel, progress: Callable[[str, int], None] = lambda *_: None) -> SweepResult:
    """Sweep everything that may be swept."""
    assert isinstance(kernel.clock, Ticking)
    kernel.clock.advance(1)
    return sweep_objects(kernel, progress=progress)


def _keeping(commits: int | None, days: float | None = None) -> Kernel:
    return keep_history(new_kernel(settings=Settings(grace_s=0, nobody_writes=True)), commits, days)


def _line(kernel: Kernel, count: int, name: str = "main") -> list[ObjectId]:
    return [commit(kernel, name, puts(**{f"{name}_{number % 7}": number})) for number in range(count)]


def _is_whole(kernel: Kernel) -> bool:
    return fsck(reopened(kernel)).damages == ()


def test_as_many_commits_are_kept_as_are_asked_for_and_the_newest_state_is_whole() -> None:
    kernel = _keeping(5)
    commits = _line(kernel, 30)
    expected = places(kernel)
    assert _swept(kernel).removed > 0
    cold = reopened(kernel)
    assert places(cold) == expected
    assert [one for one, _ in cold.walk_commits(head(cold))] == commits[:-6:-1]
    assert [one for one, _ in cold.walk_commits(head(cold), all_parents=True)] == commits[:-6:-1]
    assert _is_whole(kernel)


def test_reading_behind_the_horizon_says_that_it_expired() -> None:
    kernel = _keeping(5)
    commits = _line(kernel, 30)
    times = [kernel.history.read_commit(one).time_us for one in commits]
    _swept(kernel)
    cold = reopened(kernel)
    assert cold.resolve_revision("main~4")[0] == commits[-5]
    for steps in (5, 6, 17, 29, 30):
        with pytest.raises(HistoryExpired):
            cold.resolve_revision(f"main~{steps}")
    with pytest.raises(CommitNotFound):
        cold.resolve_revision("main~31")
    assert cold.history.find_commit_at_time(commits[-1], times[-3]) == commits[-3]
    for time_us in (times[-6], times[3], times[0], 1):
        with pytest.raises(HistoryExpired):
            cold.history.find_commit_at_time(commits[-1], time_us)
    with pytest.raises(HistoryExpired):
        cold.read_state(commits[-6])
    for one in commits[:-6]:
        with pytest.raises((HistoryExpired, CommitNotFound)):
            cold.read_state(one)


def test_writes_that_need_what_expired_are_refused_and_change_nothing() -> None:
    kernel = _keeping(5)
    commits = _line(kernel, 30)
    _swept(kernel)
    cold = reopened(kernel)
    expired, oldest = commits[-6], commits[-5]
    before = head(cold)
    with pytest.raises(HistoryExpired):
        commit(cold, "main", puts(t=1), base=expired)
    with pytest.raises(HistoryExpired):
        cold.merge(expired, "main", CommitMeta())
    with pytest.raises(HistoryExpired):
        cold.transplant([oldest], "main", CommitMeta())
    with pytest.raises(HistoryExpired):
        cold.revert(oldest, "main", CommitMeta())
    with pytest.raises(HistoryExpired):
        cold.references.create_reference("late", Kind.BRANCH, expired)
    with pytest.raises(HistoryExpired):
        cold.references.assign_reference("main", expired)
    with pytest.raises(HistoryExpired):
        cold.diff_commits(expired, before)
    assert head(cold) == before
    commit(cold, "main", puts(t=1), base=oldest)


def test_a_merge_base_behind_the_horizon_is_no_common_ancestor() -> None:
    kernel = _keeping(5)
    _line(kernel, 3)
    branch(kernel, "dev")
    _line(kernel, 10)
    _line(kernel, 10, "dev")
    _swept(kernel)
    cold = reopened(kernel)
    before = head(cold)
    for dry_run in (True, False):
        with pytest.raises(CommitNotFound, match="no common ancestor"):
            cold.merge(head(cold, "dev"), "main", CommitMeta(), dry_run=dry_run)
    assert head(cold) == before
    assert _is_whole(cold)


def test_a_merge_base_that_only_merged_sides_share_and_that_expired_is_no_common_ancestor() -> None:
    """Both branches began with nothing and merged the same commit since; that is where they parted."""
    kernel = _keeping(None, days=30)
    assert isinstance(kernel.clock, Ticking)
    commit(kernel, "main", puts(shared=1))
    shared = head(kernel)
    kernel.clock.advance(100 * DAY_S)
    for name in ("one", "other"):
        branch(kernel, name, NO_COMMIT)
        commit(kernel, name, puts(**{name: 1}))
        kernel.merge(shared, name, CommitMeta())
    commit(kernel, "main", puts(shared=2))
    commit(kernel, "one", deletes("shared"))
    commit(kernel, "other", puts(other=2))
    _swept(kernel)
    cold = reopened(kernel)
    with pytest.raises(HistoryExpired):
        cold.read_state(shared)
    with pytest.raises(CommitNotFound, match="no common ancestor"):
        cold.merge(head(cold, "other"), "one", CommitMeta())
    assert "shared" not in places(cold, "one")


def test_branches_that_parted_within_the_horizon_still_merge() -> None:
    kernel = _keeping(8)
    _line(kernel, 30)
    branch(kernel, "dev")
    dev = _line(kernel, 4, "dev")
    main = _line(kernel, 4)
    _swept(kernel)
    cold = reopened(kernel)
    result = cold.merge(dev[-1], "main", CommitMeta(), MergeOptions())
    assert result.commits
    assert places(cold).items() >= {f"dev_{number}": str(number) for number in range(4)}.items()
    assert cold.history.is_ancestor(main[0], head(cold))
    assert _is_whole(cold)


def test_heads_and_tags_stay_however_old_they_are() -> None:
    kernel = _keeping(None)
    commits = _line(kernel, 40)
    kernel.references.create_reference("v1", Kind.TAG, commits[4])
    branch(kernel, "old", commits[10])
    keep_history(kernel, 3)
    expected = {one: places(kernel, one) for one in (commits[4], commits[10], commits[-1])}
    _swept(kernel)
    cold = reopened(kernel)
    for one, held in expected.items():
        assert places(cold, one) == held
    kept = {4, 3, 2, 10, 9, 8, 39, 38, 37}
    for number, one in enumerate(commits):
        if number in kept:
            assert cold.history.read_commit(one).depth == number + 1
        else:
            with pytest.raises((HistoryExpired, CommitNotFound)):
                cold.history.read_commit(one)
    assert _is_whole(cold)


def test_days_keep_what_is_young_enough() -> None:
    kernel = _keeping(None, days=10)
    assert isinstance(kernel.clock, Ticking)
    commits = []
    for _ in range(30):
        commits += _line(kernel, 1)
        kernel.clock.advance(DAY_S)
    _swept(kernel)
    cold = reopened(kernel)
    assert [one for one, _ in cold.walk_commits(head(cold))] == commits[:-10:-1]
    assert _is_whole(cold)


def test_jumps_that_lead_behind_the_horizon_fall_back_to_shorter_ones() -> None:
    kernel = _keeping(20)
    commits: list[ObjectId] = []
    for _ in range(6):
        commits += _line(reopened(kernel), 25)
        _swept(kernel)
        kept = commits[-20:]
        cold = reopened(kernel)
        for number, one in enumerate(kept):
            assert [cold.history.find_predecessor(one, steps) for steps in range(number + 1)] == kept[
                number::-1
            ]
            for other in kept:
                assert cold.history.is_ancestor(other, one) == (kept.index(other) <= number)
                assert cold.history.merge_bases(one, other) == [min(one, other, key=kept.index)]
            with pytest.raises(HistoryExpired):
                cold.history.find_predecessor(one, number + 1)
        assert _is_whole(cold)


@pytest.mark.parametrize("seed", range(6))
def test_of_any_graph_what_is_near_a_head_is_kept_whole_and_the_rest_goes(seed: int) -> None:
    graph = random_graph(seed, 80)
    kernel = keep_history(
        Kernel(graph.kernel.store, (), Settings(grace_s=0, nobody_writes=True), graph.kernel.clock), 6
    )
    expected = {one: state(kernel, one) for one in graph.commits}
    kept = _near(graph, [one.head for one in kernel.references.list_all_references(Kind.BRANCH)], 6)
    _swept(kernel)
    cold = reopened(kernel)
    for one in graph.commits:
        if one in kept:
            assert state(cold, one) == expected[one]
        else:
            with pytest.raises((HistoryExpired, CommitNotFound)):
                cold.read_state(one)
    for one in kept:
        assert {each for each, _ in cold.walk_commits(one, all_parents=True)} <= kept
    assert _is_whole(cold)
    random = Random(seed)
    names = [one.name for one in kernel.references.list_all_references(Kind.BRANCH)]
    for number in range(15):
        name, source = random.choice(names), head(cold, random.choice(names))
        with suppress(CommitNotFound):
            cold.merge(source, name, CommitMeta())
        commit(cold, name, puts(**{f"new{number}": 1}))
    _swept(cold)
    assert _is_whole(cold)


def _near(graph: Graph, heads: list[ObjectId], steps: int) -> set[ObjectId]:
    """What is less than so many steps, by any parents, from one of the heads."""
    kept: set[ObjectId] = set()
    level = set(heads)
    for _ in range(steps):
        kept |= level
        level = {parent for one in level for parent in graph.parents[one]}
    return kept - {NO_COMMIT}


def test_without_a_horizon_everything_is_kept() -> None:
    graph = random_graph(3, 60)
    kernel = Kernel(graph.kernel.store, (), Settings(grace_s=0, nobody_writes=True), graph.kernel.clock)
    reachable = set().union(
        *(graph.ancestors(one.head) for one in kernel.references.list_all_references(Kind.BRANCH))
    )
    expected = {one: state(kernel, one) for one in reachable}
    _swept(kernel)
    cold = reopened(kernel)
    assert {one: state(cold, one) for one in reachable} == expected
    assert _is_whole(cold)


@pytest.mark.parametrize("way", ["branch", "tag", "assign", "merge", "transplant", "revert", "base"])
def test_what_is_written_while_a_sweep_runs_is_whole_afterwards(way: str) -> None:
    """A writer that reaches behind the horizon between the sweep's look and its deletes, or is refused."""
    kernel = keep_history(new_kernel(), 3)
    assert isinstance(kernel.clock, Ticking)
    many = puts(**{f"m{number}": number for number in range(FOLD_OPERATIONS + 1)})
    commits = [
        commit(kernel, "main", [Put(Key("t"), large_table(number)), *(many if number == 4 else ())])
        for number in range(8)
    ]
    branch(kernel, "other", NO_COMMIT)
    commit(kernel, "other", puts(own=1))
    target = commits[2]
    happened: list[str] = []
    kernel.clock.advance(30 * DAY_S)
    commit(kernel, "main", puts(young=1))

    def meanwhile(what: str, count: int) -> None:
        if what == "scanned" and not happened:
            happened.append(what)
            with suppress(PenstockError):
                _reach_back(reopened(kernel), way, target, commits)

    _swept(kernel, meanwhile)
    assert happened
    assert _is_whole(kernel)
    for name in [
        one.name for kind in (Kind.BRANCH, Kind.TAG) for one in kernel.references.list_all_references(kind)
    ]:
        state(reopened(kernel), name)


def test_a_commit_that_falls_behind_the_horizon_while_a_reference_is_made_there_stays() -> None:
    """It was within the horizon when the writer looked, and is not any more when the sweep does."""
    clock = Ticking()
    store = FaultyStore(MemoryStore(clock))
    kernel = keep_history(new_kernel(store, None, clock), 3)
    many = puts(**{f"m{number}": number for number in range(FOLD_OPERATIONS + 1)})
    commits = [
        commit(kernel, "main", [Put(Key("t"), large_table(number)), *(many if number == 6 else ())])
        for number in range(8)
    ]
    expected = state(kernel, commits[5])
    clock.advance(30 * DAY_S)
    gate = store.pause(Point.BEFORE_OBJECTS, name="late")

    def create() -> None:
        late = reopened(kernel)
        late.references.require_reachable(commits[5])
        late.references.create_reference("late", Kind.BRANCH, commits[5])

    writer = Thread(target=create)
    writer.start()
    gate.wait_until_reached()
    commit(kernel, "main", puts(u=1))

    def land(what: str, count: int) -> None:
        if what == "scanned":
            gate.open()
            writer.join()

    assert sweep_objects(kernel, progress=land).removed > 0
    assert _is_whole(kernel)
    assert state(reopened(kernel), "late") == expected


def test_what_a_merge_keeps_within_the_horizon_can_be_branched_from() -> None:
    """It is one step from the head, though it parted long before."""
    kernel = keep_history(new_kernel(), 10)
    assert isinstance(kernel.clock, Ticking)
    _line(kernel, 2)
    branch(kernel, "dev")
    merged = commit(kernel, "dev", puts(d=1))
    _line(kernel, 50)
    kernel.merge(merged, "main", CommitMeta())
    kernel.references.delete_reference("dev")
    kernel.clock.advance(200 * DAY_S)
    _swept(kernel)
    cold = reopened(kernel)
    assert cold.resolve_revision("main^2")[0] == merged
    cold.references.require_reachable(merged)
    assert places(cold, branch(cold, "again", merged))["d"] == "1"


def _reach_back(kernel: Kernel, way: str, target: ObjectId, commits: list[ObjectId]) -> None:
    meta = CommitMeta()
    if way in ("branch", "tag"):
        kernel.references.require_reachable(target)
        kernel.references.create_reference("late", Kind(way), target)
    elif way == "assign":
        kernel.references.require_reachable(target)
        kernel.references.assign_reference("main", target)
    elif way == "merge":
        kernel.merge(target, "other", meta)
    elif way == "transplant":
        kernel.transplant(commits[:3], "other", meta)
    elif way == "revert":
        for one in reversed(commits[3:]):
            kernel.revert(one, "main", meta)
    else:
        commit(kernel, "main", puts(u=7), base=target)
