"""History against brute force on the graph of what was committed and merged."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice, pairwise
from random import Random

import pytest

from penstock.errors import CommitNotFound, Damaged
from penstock.kernel.history import History
from penstock.kernel.kernel import Kernel
from penstock.kernel.objects import Objects
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore
from tests.kernel.graphs import Graph, long_line, merged, random_graph
from tests.kernel.lakes import head, new_kernel, places, reopened

SEEDS = range(8)


def _pairs(graph: Graph, seed: int, count: int) -> list[tuple[ObjectId, ObjectId]]:
    random = Random(seed)
    everything = [NO_COMMIT, *graph.commits]
    return [(random.choice(everything), random.choice(everything)) for _ in range(count)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_commit_knows_the_parents_it_was_made_with(seed: int) -> None:
    graph = random_graph(seed, 60)
    cold = reopened(graph.kernel)
    for one in graph.commits:
        stored = cold.history.read_commit(one)
        assert [stored.parent, *stored.further_parents] == graph.parents[one]
        assert stored.depth == len(graph.line(one)) - 1
        assert stored.generation == 1 + max(
            (cold.history.read_commit(parent).generation for parent in graph.parents[one]), default=0
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_is_ancestor_equals_brute_force(seed: int) -> None:
    graph = random_graph(seed, 60)
    history = reopened(graph.kernel).history
    for one, other in _pairs(graph, seed, 600):
        assert history.is_ancestor(one, other) == (one in graph.ancestors(other))


@pytest.mark.parametrize("seed", SEEDS)
def test_merge_bases_equal_brute_force(seed: int) -> None:
    graph = random_graph(seed, 60)
    history = reopened(graph.kernel).history
    for one, other in _pairs(graph, seed, 400):
        found = history.merge_bases(one, other)
        assert len(set(found)) == len(found)
        assert set(found) == graph.merge_bases(one, other)


def test_the_random_graphs_have_merges_that_crossed() -> None:
    graphs = [(seed, random_graph(seed, 60)) for seed in SEEDS]
    bases = [graph.merge_bases(*pair) for seed, graph in graphs for pair in _pairs(graph, seed, 100)]
    assert max(map(len, bases)) > 1


@pytest.mark.parametrize("seed", SEEDS)
def test_only_in_equals_brute_force_oldest_first(seed: int) -> None:
    graph = random_graph(seed, 60)
    history = reopened(graph.kernel).history
    for source, target in _pairs(graph, seed, 300):
        found = [one for one, _ in history.list_commits_only_in(source, target)]
        assert set(found) == graph.ancestors(source) - graph.ancestors(target)
        assert len(set(found)) == len(found)
        for position, one in enumerate(found):
            assert not set(graph.parents[one]) & set(found[position:])


@pytest.mark.parametrize("seed", SEEDS)
def test_how_far_apart_two_commits_are_equals_brute_force(seed: int) -> None:
    graph = random_graph(seed, 60)
    history = reopened(graph.kernel).history
    for one, other in _pairs(graph, seed, 300):
        relation = history.compare_commits(one, other)
        assert set(relation.bases) == graph.merge_bases(one, other)
        assert relation.ahead == len(graph.ancestors(one) - graph.ancestors(other))
        assert relation.behind == len(graph.ancestors(other) - graph.ancestors(one))


def test_only_in_does_not_count_what_both_have_from_before_the_fork() -> None:
    """The source merged a branch that forked long before the target and the source parted."""
    graph = Graph()
    for _ in range(10):
        graph.commit("main")
    graph.branch("old", graph.commits[1])
    aside = graph.commit("old")
    graph.branch("dev", head(graph.kernel))
    own = graph.commit("dev")
    merge = graph.merge(aside, "dev")
    target = graph.commit("main")
    found = {one for one, _ in graph.kernel.history.list_commits_only_in(head(graph.kernel, "dev"), target)}
    assert found == {aside, own, merge}


@pytest.mark.parametrize("seed", SEEDS)
def test_predecessors_and_times_equal_the_line_of_first_parents(seed: int) -> None:
    graph = random_graph(seed, 60)
    cold = reopened(graph.kernel)
    for one in graph.commits:
        line = graph.line(one)
        assert [cold.history.find_predecessor(one, steps) for steps in range(len(line))] == line
        with pytest.raises(CommitNotFound, match="ancestors"):
            cold.history.find_predecessor(one, len(line))
        for each, before in pairwise(line):
            time_us = cold.history.read_commit(each).time_us
            assert cold.history.find_commit_at_time(one, time_us) == each
            assert cold.history.find_commit_at_time(one, time_us - 1) == before
        assert cold.history.find_commit_at_time(one, 2**60) == one


@pytest.mark.parametrize("seed", SEEDS)
def test_walks_go_newest_first_over_every_commit_once(seed: int) -> None:
    graph = random_graph(seed, 60)
    cold = reopened(graph.kernel)
    for one in graph.commits[::5]:
        assert [each for each, _ in cold.walk_commits(one)] == graph.line(one)[:-1]
        everything = [each for each, _ in cold.walk_commits(one, all_parents=True)]
        assert everything[0] == one
        assert set(everything) | {NO_COMMIT} == graph.ancestors(one)
        for position, each in enumerate(everything):
            assert not set(graph.parents[each]) & set(everything[:position])
    assert list(cold.walk_commits(NO_COMMIT)) == []


def _crossed() -> tuple[Graph, ObjectId, ObjectId]:
    """Two branches that merged each other's heads of before."""
    graph = Graph()
    graph.commit("main")
    graph.branch("dev", head(graph.kernel))
    one, other = graph.commit("main"), graph.commit("dev")
    graph.merge(other, "main")
    graph.merge(one, "dev")
    return graph, one, other


def test_crossed_merges_have_two_newest_common_ancestors() -> None:
    graph, one, other = _crossed()
    graph.commit("main")
    graph.commit("dev")
    left, right = head(graph.kernel), head(graph.kernel, "dev")
    assert set(graph.kernel.history.merge_bases(left, right)) == {one, other}
    assert set(graph.kernel.history.merge_bases(right, left)) == {one, other}
    settled = graph.merge(right, "main")
    assert settled is not None
    assert graph.kernel.history.merge_bases(settled, right) == [right]


def test_the_steps_of_a_revision_follow_the_graph() -> None:
    graph, one, other = _crossed()
    kernel, tip = graph.kernel, head(graph.kernel)
    first = graph.commits[0]
    time = kernel.history.read_commit(one).time_us // 1000
    for text, expected in {
        "main": tip,
        "main~0": tip,
        "main^0": tip,
        "main~1": one,
        "main^1": one,
        "main^2": other,
        "main^2~1": first,
        "main~2": first,
        "main~3": NO_COMMIT,
        "main~1~1": first,
        f"main*{time}": one,
        f"main^2*{time}": first,
        f"main^2*{time}~1": NO_COMMIT,
        "main*1970-01-01": NO_COMMIT,
        f"main@{one.hex()}": one,
        f"main@{other.hex()}~1": first,
        f"{tip.hex()[:12]}^2": other,
    }.items():
        assert kernel.resolve_revision(text)[0] == expected, text
    for text in ("main~4", "main^3", "main^2^2", "main~1^2"):
        with pytest.raises(CommitNotFound):
            kernel.resolve_revision(text)


def test_a_merge_into_an_empty_branch_has_nothing_before_it_by_first_parents() -> None:
    kernel = new_kernel()
    graph = Graph(kernel)
    graph.branch("dev", NO_COMMIT)
    graph.commit("dev")
    source = graph.commit("dev")
    made = graph.merge(source, "main")
    assert made is not None
    assert places(kernel) == places(kernel, "dev")
    assert kernel.history.find_predecessor(made, 1) == NO_COMMIT
    assert [one for one, _ in kernel.walk_commits(made)] == [made]
    assert kernel.history.merge_bases(made, source) == [source]
    assert {one for one, _ in kernel.walk_commits(made, all_parents=True)} == {made, *graph.commits[:2]}


# -- what it costs -------------------------------------------------------------------------------------


def _cold(store: CountingStore) -> History:
    store.reset()
    return History(Objects(store), tuple)


def _reads_of_a_line(length: int) -> dict[str, int]:
    """How many objects each question reads in a history without merges, at worst."""
    store = CountingStore(MemoryStore())
    line = long_line(store, length)
    places_ = [0, 1, length // 3, length // 2, length - 2]
    questions = ("is_ancestor", "predecessor", "at_time", "merge_bases", "compare", "not_an_ancestor")
    worst = dict.fromkeys(questions, 0)

    def note(question: str) -> None:
        worst[question] = max(worst[question], store.counts.objects_read)

    for place in places_:
        assert _cold(store).is_ancestor(line[place], line[-1])
        note("is_ancestor")
        assert _cold(store).find_predecessor(line[-1], length - 1 - place) == line[place]
        note("predecessor")
        assert _cold(store).find_commit_at_time(line[-1], 1_000_000 + place) == line[place]
        note("at_time")
        for far in (1, 700):
            side = long_line(store, far, line[place])[-1]
            assert _cold(store).merge_bases(side, line[-1]) == [line[place]]
            note("merge_bases")
            assert _cold(store).merge_bases(line[-1], side) == [line[place]]
            note("merge_bases")
            assert _cold(store).compare_commits(side, line[-1]) == ([line[place]], far, length - 1 - place)
            note("compare")
            assert not _cold(store).is_ancestor(side, line[-1])
            note("not_an_ancestor")
    return worst


def test_without_merges_every_question_reads_o_log_n_commits() -> None:
    short, long = _reads_of_a_line(2_000), _reads_of_a_line(20_000)
    for question, reads in long.items():
        assert reads <= 6 * (20_000).bit_length(), question
        assert reads <= 2 * short[question] + 10, question


def _reads_around_a_fork(behind: int) -> dict[str, int]:
    """How many objects are read where both sides merged since they parted, after so long a history."""
    store = CountingStore(MemoryStore())
    trunk = long_line(store, behind)
    sides = []
    for _ in range(2):
        tip = long_line(store, 20, trunk[-1])[-1]
        tip = merged(store, tip, long_line(store, 3, trunk[-1])[-1])
        sides.append(long_line(store, 20, tip)[-1])
    reads = {}
    assert _cold(store).merge_bases(*sides) == [trunk[-1]]
    reads["merge_bases"] = store.counts.objects_read
    assert len(_cold(store).list_commits_only_in(*sides)) == 44
    reads["only_in"] = store.counts.objects_read
    return reads


def test_with_merges_in_between_what_lies_behind_the_fork_costs_nothing() -> None:
    near, far = _reads_around_a_fork(100), _reads_around_a_fork(10_000)
    log_n = (10_000).bit_length()
    for question, reads in near.items():
        assert reads <= 2 * 90 + 6 * log_n, question
        assert far[question] <= reads + 6 * log_n, question


def test_a_walk_reads_only_as_far_as_it_is_followed() -> None:
    store = CountingStore(MemoryStore())
    line = long_line(store, 3_000)
    newest = [one for one, _ in islice(_cold(store).walk_commits(line[-1]), 10)]
    assert newest == line[:-11:-1]
    assert store.counts.objects_read <= 12


@pytest.mark.parametrize(("length", "requests_max"), [(20, 25), (700, 120), (3_000, 250)])
def test_a_walk_that_goes_on_reads_many_commits_with_one_request(length: int, requests_max: int) -> None:
    """It never reads more than twice as many as it is followed for."""
    store = CountingStore(MemoryStore())
    line = long_line(store, 4_000)
    followed = [one for one, _ in islice(_cold(store).walk_commits(line[-1]), length)]
    assert followed == line[: -length - 1 : -1]
    assert store.counts.objects_read <= 2 * length + 2
    assert store.counts.requests <= requests_max
    store.reset()
    assert len(list(_cold(store).walk_commits(line[-1]))) == 4_000
    assert store.counts.objects_read == 4_000


class _Broken(MemoryStore):
    """A store that has lost bytes of one object."""

    broken: ObjectId = NO_COMMIT

    def fetch(self, ids: Collection[ObjectId]) -> dict[ObjectId, bytes]:
        fetched = super().fetch(ids)
        return {one: b"" if one == self.broken else data for one, data in fetched.items()}


def test_a_damaged_commit_stops_a_walk_only_when_it_comes_to_it() -> None:
    store = _Broken()
    line = long_line(store, 200)
    store.broken = line[-40]
    walk = History(Objects(store), tuple).walk_commits(line[-1])
    assert [one for one, _ in islice(walk, 39)] == line[:-40:-1]
    with pytest.raises(Damaged, match=line[-40].hex()):
        next(walk)


def test_a_commit_that_is_missing_but_has_not_expired_is_damage() -> None:
    kernel = new_kernel()
    graph = Graph(kernel)
    commits = [graph.commit("main") for _ in range(4)]
    page, _ = kernel.store.scan(b"", 1000)
    assert kernel.store.delete([one for one in page if one.id == commits[1]]) == 1
    cold = reopened(kernel)
    assert [one for one, _ in islice(cold.walk_commits(commits[3]), 2)] == [commits[3], commits[2]]
    with pytest.raises(Damaged, match=commits[1].hex()):
        list(cold.walk_commits(commits[3]))
    with pytest.raises(Damaged, match=commits[1].hex()):
        cold.history.find_predecessor(commits[3], 2)


def test_an_unknown_commit_is_not_found_and_no_other_object_is_taken_for_one() -> None:
    kernel: Kernel = new_kernel()
    graph = Graph(kernel)
    graph.commit("main")
    log_entry = kernel.references.get_reference("main").log
    for one in (b"x" * 32, b"short", log_entry):
        with pytest.raises(CommitNotFound):
            kernel.history.read_commit(one)
    assert kernel.history.is_ancestor(NO_COMMIT, head(kernel))
    assert not kernel.history.is_ancestor(b"x" * 32, head(kernel))
