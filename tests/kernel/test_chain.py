"""Chains of commits against a list of dicts: each commit, read by anyone at any time, is what was written."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel import chain, lake_state, tree
from penstock.kernel.chain import FOLD_BYTES, FOLD_OPERATIONS, CommitChain, CommitDraft
from penstock.kernel.lake_state import diff_commits, open_state, read_recent_changes
from penstock.kernel.objects import Objects, PendingObjects, split_value
from penstock.model.commits import CommitMeta
from penstock.model.encoding import NO_COMMIT, ObjectId
from penstock.model.objects import EMPTY_ROOT, OBJECT_MAX_BYTES, CommitObject, Value
from penstock.stores.memory import MemoryStore
from penstock.testing import CountingStore
from tests.chance import seeds
from tests.kernel.trees import Forest

Changes = dict[bytes, bytes | None]
Model = dict[bytes, bytes]


class Line:
    """A chain in a store, and what every commit of it must hold."""

    def __init__(self) -> None:
        self.store = CountingStore(MemoryStore())
        self.objects = Objects(self.store)
        self.chain = CommitChain(self.objects, NO_COMMIT)
        self.commits: list[tuple[ObjectId, Model]] = [(NO_COMMIT, {})]
        self.now_us = 1_000_000

    def land(self, batch: list[Changes]) -> list[CommitObject]:
        """Add commits by one batch."""
        model = self.commits[-1][1]
        models = []
        for changes in batch:
            drawn: dict[bytes, Value | None] = {}
            blobs: dict[ObjectId, bytes] = {}
            for key, data in changes.items():
                drawn[key] = None
                if data is not None:
                    drawn[key], parts = split_value(data)
                    blobs.update(parts)
            self.chain.add_draft(
                CommitDraft(drawn, CommitMeta(message=f"{len(changes)} changes"), blobs=blobs)
            )
            model = {key: data for key, data in {**model, **changes}.items() if data is not None}
            models.append(model)
        sealed = self.chain.build_commits(self.now_us)
        self.store.store(self.chain.objects.fresh)
        self.chain.note_stored()
        assert self.chain.tip == (sealed[-1][0] if sealed else self.commits[-1][0])
        self.commits += [(one, held) for (one, _), held in zip(sealed, models, strict=True)]
        return [commit for _, commit in sealed]

    def reopen(self) -> None:
        """Go on as another process would, with nothing in memory."""
        self.objects = Objects(self.store)
        self.chain = CommitChain(self.objects, self.commits[-1][0])

    def check(self, numbers: list[int] | None = None) -> None:
        """Compare commits, each read by someone who has nothing in memory, with what they must hold."""
        for number in numbers if numbers is not None else range(len(self.commits)):
            one, model = self.commits[number]
            cold = Objects(self.store)
            commit = cold.get_commit(one)
            view = open_state(cold, commit)
            assert [(key, cold.read_value(value)) for key, value in view.scan_entries()] == sorted(
                model.items()
            )
            if number == 0:
                continue
            assert (commit.parent, commit.depth) == (self.commits[number - 1][0], number)
            self._check_operations(commit, self.commits[number - 1][1], model)
            self._check_folded(cold, commit)

    def _check_operations(self, commit: CommitObject, before: Model, after: Model) -> None:
        cold = Objects(self.store)
        found = diff_commits(cold, cold.get_commit(commit.parent), commit)
        read = {
            key: tuple(None if value is None else cold.read_value(value) for value in values)
            for key, values in found.items()
        }
        keys = sorted(before.keys() | after.keys())
        assert read == {k: (before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)}
        assert list(read) == sorted(read)

    def _check_folded(self, cold: Objects, commit: CommitObject) -> None:
        """Its tree with its newest changes folded in is the tree of its content."""
        values = dict(open_state(cold, commit).scan_entries())
        folded = tree.update_tree(PendingObjects(cold), commit.root, read_recent_changes(cold, commit))
        assert folded == Forest().grow(values)


keys = st.sampled_from([b"k%d" % number for number in range(12)] + [b"k\0a", b"k\0b"])
values = st.sampled_from([b"", b"one", b"two", b"x" * 900, b"large" * 500])
changes: st.SearchStrategy[Changes] = st.one_of(
    st.just({}),
    st.dictionaries(keys, st.one_of(st.none(), values), max_size=6),
    st.integers(0, 3).map(lambda n: {b"many%03d" % i: b"v%d" % n for i in range(n, FOLD_OPERATIONS, 2)}),
)
histories = st.lists(st.tuples(st.booleans(), st.lists(changes, max_size=5)), max_size=7)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(histories)
def test_every_commit_holds_what_the_model_holds(history: list[tuple[bool, list[Changes]]]) -> None:
    line = Line()
    for anew, batch in history:
        if anew:
            line.reopen()
        line.land(batch)
    line.check()


@pytest.mark.parametrize("seed", seeds(5))
def test_a_long_line_of_any_batches_holds_what_the_model_holds(seed: int) -> None:
    random = Random(seed)
    line = Line()
    while len(line.commits) < 250:
        batch: list[Changes] = []
        for _ in range(random.choice([1, 1, 1, 2, 7, 30])):
            size = random.choice([0, 1, 1, 1, 1, 3, 20, 150, FOLD_OPERATIONS + 5])
            batch.append(
                {
                    b"key-%d" % random.randrange(random.choice([5, 700])): None
                    if random.random() < 0.2
                    else random.choice([b"a", b"b", b"y" * 700, b"z" * 40_000])
                    for _ in range(size)
                }
            )
        line.land(batch)
        if random.random() < 0.3:
            line.reopen()
    line.check(sorted(random.sample(range(len(line.commits)), 60)))
    line.check([len(line.commits) - 1])
    assert any(not line.objects.get_commit(one).recent for one, _ in line.commits[1:])


@pytest.mark.parametrize("seed", seeds(4))
def test_ranges_of_commits_are_read_and_compared_as_of_dicts(seed: int) -> None:
    random = Random(seed)
    line = Line()
    for _ in range(40):
        size = random.choice([1, 2, 10, 200])
        line.land([{b"%03d" % random.randrange(400): random.choice([None, b"a", b"b"]) for _ in range(size)}])
    for _ in range(150):
        (one, before), (other, after) = random.choice(line.commits), random.choice(line.commits)
        start, stop = sorted(b"%03d" % random.randrange(401) for _ in range(2))
        cold = Objects(line.store)
        view = open_state(cold, cold.get_commit(other))
        assert list(view.scan_entries(start, stop)) == sorted(
            (k, v) for k, v in after.items() if start <= k < stop
        )
        asked = [b"%03d" % random.randrange(401) for _ in range(9)]
        assert view.get_many(asked) == {key: after[key] for key in asked if key in after}
        found = diff_commits(cold, cold.get_commit(one), cold.get_commit(other), start, stop)
        keys = sorted(key for key in before.keys() | after.keys() if start <= key < stop)
        assert found == {k: (before.get(k), after.get(k)) for k in keys if before.get(k) != after.get(k)}


def test_empty_commits_first_and_in_the_middle_hold_what_was_there() -> None:
    line = Line()
    line.land([{}])
    line.land([{}, {b"a": b"1"}, {}, {b"b": b"2"}, {}])
    line.land([{}])
    line.reopen()
    line.land([{}, {b"a": None}])
    line.check()
    assert len({one for one, _ in line.commits}) == len(line.commits)


def test_a_fold_in_the_middle_of_a_batch_leaves_the_commits_before_it_as_they_were() -> None:
    line = Line()
    small: list[Changes] = [{b"small%d" % number: b"v"} for number in range(5)]
    big: Changes = {b"big%04d" % number: b"v" for number in range(FOLD_OPERATIONS)}
    after: list[Changes] = [{b"after%d" % number: b"v"} for number in range(5)]
    line.land([{b"before": b"v"}])
    sealed = line.land([*small, big, *after, {}, {b"big0001": None}])
    assert [bool(commit.recent) for commit in sealed] == [True] * 5 + [False] + [True] * 7
    assert len({commit.root for commit in sealed}) == 2
    line.check()


def test_two_folds_in_one_batch_give_three_roots() -> None:
    line = Line()
    big: list[Changes] = [
        {b"%s%04d" % (letter, number): b"v" for number in range(FOLD_OPERATIONS + 1)}
        for letter in (b"a", b"b")
    ]
    sealed = line.land([{b"x": b"1"}, big[0], {b"y": b"1"}, big[1], {b"z": b"1"}])
    assert [commit.root == EMPTY_ROOT for commit in sealed] == [True, False, False, False, False]
    assert len({commit.root for commit in sealed}) == 3
    line.check()


def test_changes_are_folded_after_a_number_of_them_or_of_bytes() -> None:
    for size, most in ((10, FOLD_OPERATIONS), (1000, FOLD_BYTES // 1000)):
        line = Line()
        for number in range(FOLD_OPERATIONS + 2):
            line.land([{b"key%04d" % number: b"v" * size}])
        folded = [
            number for number, (one, _) in enumerate(line.commits) if not line.objects.get_commit(one).recent
        ]
        assert folded[1] <= most + 1
        line.check([1, folded[1] - 1, folded[1], folded[1] + 1, len(line.commits) - 1])


@pytest.mark.parametrize("reopening", [False, True])
def test_a_commit_carries_few_segments_and_is_read_in_few_requests(reopening: bool) -> None:
    line = Line()
    line.land([{b"key%05d" % number: b"v" for number in range(3000)}])
    random = Random(1)
    for _ in range(600):
        line.land([{b"key%05d" % random.randrange(3000): b"%d" % random.randrange(9)}])
        if reopening:
            line.reopen()
    segments = [len(line.objects.get_commit(one).recent) for one, _ in line.commits]
    assert max(segments) <= FOLD_OPERATIONS.bit_length()
    for one, model in line.commits[-300::37]:
        line.store.reset()
        cold = Objects(line.store)
        key = b"key%05d" % random.randrange(3000)
        assert open_state(cold, cold.get_commit(one)).get(key) == model[key]
        assert line.store.counts.objects_read <= 1 + FOLD_OPERATIONS.bit_length() + 5


@pytest.mark.parametrize("reopening", [False, True])
def test_no_object_of_a_line_is_larger_than_an_object_may_be(reopening: bool) -> None:
    """The same long keys again and again: what is carried is more than what it amounts to."""
    line = Line()
    for number in range(FOLD_OPERATIONS + 10):
        line.land([{(b"%d" % (number % 3)).ljust(2000, b"k"): b"v%03d" % number * 250}])
        if reopening:
            line.reopen()
    line.check([len(line.commits) - 1, FOLD_OPERATIONS])
    page, _ = line.store.scan(b"", 100_000)
    assert max(one.size for one in page) <= OBJECT_MAX_BYTES


def test_time_only_grows_along_a_line_whatever_the_clock_says() -> None:
    line = Line()
    times = []
    for now_us in (5_000_000, 5_000_000, 4_000_000, 0, 6_000_000):
        line.now_us = now_us
        times += [commit.time_us for commit in line.land([{b"a": b"1"}, {b"a": b"2"}])]
    expected = [5_000_000 + number for number in range(8)]
    assert times == [*expected, 6_000_000, 6_000_001]


def test_a_chain_knows_what_it_has_not_touched_since_a_commit() -> None:
    line = Line()
    for number in range(10):
        line.land([{b"key%d" % number: b"v"}])
    commits = [one for one, _ in line.commits]
    for number, one in enumerate(commits):
        assert line.chain.contains_commit(one)
        for key in range(10):
            assert line.chain.is_key_unchanged_since(one, b"key%d" % key) == (key < number)
    line.reopen()
    assert [line.chain.contains_commit(one) for one in commits] == [False] * 10 + [True]
    assert not line.chain.is_key_unchanged_since(commits[3], b"key0")


def test_a_chain_remembers_so_many_keys_and_no_wrong_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "TOUCHED_MAX", 20)
    line, changed = Line(), dict[bytes, int]()
    for number in range(100):
        keys = {b"key%d" % (7 * number % 90), b"key%d" % (number + 1000)}
        line.land([dict.fromkeys(keys, b"%d" % number)])
        changed |= dict.fromkeys(keys, number)
        assert len(line.chain._touched) <= 22
        for since, (one, _) in enumerate(line.commits[1:]):
            for key in keys:
                assert not line.chain.is_key_unchanged_since(one, key) or changed[key] <= since


def test_a_tree_that_is_only_written_to_remembers_so_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "FOLD_OPERATIONS", 5)
    monkeypatch.setattr(lake_state, "KNOWN_MAX", 30)
    line = Line()
    for number in range(100):
        line.land([{b"key%d" % number: b"v"}])
    assert len(line.chain._tree._known) <= 30 + 6


def test_a_batch_reads_its_own_large_values_before_they_are_stored() -> None:
    line = Line()
    data = b"large" * 100_000
    value, blobs = split_value(data)
    line.chain.add_draft(CommitDraft({b"a": value}, CommitMeta(), blobs=blobs))
    held = line.chain.view.get(b"a")
    assert held is not None
    assert line.chain.objects.read_value(held) == data


def test_the_nodes_that_a_format_hands_over_are_in_memory_once_they_are_stored() -> None:
    store = CountingStore(MemoryStore())
    objects = Objects(store)
    chain = CommitChain(objects, NO_COMMIT)
    values: dict[bytes, Value | None] = {f"{number:03}".encode(): b"value" for number in range(100)}
    root, blobs = tree.apply_changes(objects, EMPTY_ROOT, values)
    chain.add_draft(CommitDraft({b"table": root}, CommitMeta(), blobs=blobs))
    chain.build_commits(1)
    store.store(chain.objects.fresh)
    chain.note_stored()
    store.reset()
    assert dict(tree.scan_entries(objects, root)) == values
    assert store.counts.requests == 0
