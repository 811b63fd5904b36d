"""The tree against a plain dict: whatever its history, it reads like the dict and has the dict's one root."""

from __future__ import annotations

from bisect import bisect_left
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernel import tree
from penstock.kernel.lake_state import find_prefix_end
from penstock.model.objects import EMPTY_ROOT, Large, Value
from tests.chance import seeds
from tests.kernel.trees import Forest

# Few letters, so that keys are each other's neighbours and prefixes; few values, so that they repeat.
keys = st.binary(max_size=5).map(lambda raw: b"k" + bytes(b"\x00ab\xff"[byte % 4] for byte in raw))
values: st.SearchStrategy[Value] = st.one_of(
    st.sampled_from([b"", b"one", b"two", b"\x00" * 40]),
    st.sampled_from([Large(5000, (b"p" * 32,)), Large(5000, (b"q" * 32, b"p" * 32))]),
)
mappings = st.dictionaries(keys, values, max_size=60)
batches = st.lists(st.dictionaries(keys, st.one_of(st.none(), values), max_size=25), max_size=8)
edges = st.one_of(keys, st.just(b""), keys.map(lambda key: key + b"\0"))
quick = settings(derandomize=True, deadline=None, max_examples=150)


def _apply(model: dict[bytes, Value], changes: dict[bytes, Value | None]) -> None:
    for key, value in changes.items():
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value


def _between(model: dict[bytes, Value], start: bytes, stop: bytes | None) -> list[tuple[bytes, Value]]:
    return sorted((k, v) for k, v in model.items() if start <= k and (stop is None or k < stop))


@quick
@given(st.lists(st.binary(max_size=12), max_size=90), st.integers(0, 3))
def test_the_first_cut_is_the_first_of_all_cuts(run: list[bytes], level: int) -> None:
    assert tree.find_first_node_end(level, run) == next(tree.find_node_ends(level, run), 0)


@quick
@given(mappings, st.lists(keys, max_size=30))
def test_get_and_get_many_equal_the_dict(model: dict[bytes, Value], wanted: list[bytes]) -> None:
    forest = Forest()
    root = forest.grow(model)
    asked = [*model, *wanted]
    cold = forest.cold()
    assert [tree.find_value(cold, root, key) for key in asked] == [model.get(key) for key in asked]
    assert tree.find_values(forest.cold(), root, asked) == {key: model[key] for key in asked if key in model}


@quick
@given(mappings, edges, st.one_of(st.none(), edges))
def test_scan_equals_the_sorted_dict_within_any_range(
    model: dict[bytes, Value], start: bytes, stop: bytes | None
) -> None:
    forest = Forest()
    root = forest.grow(model)
    expected = sorted((k, v) for k, v in model.items() if start <= k and (stop is None or k < stop))
    assert list(tree.scan_entries(forest.cold(), root, start, stop)) == expected


@quick
@given(mappings, keys)
def test_scan_by_prefix_finds_what_begins_so(model: dict[bytes, Value], prefix: bytes) -> None:
    forest = Forest()
    root = forest.grow(model)
    found = list(tree.scan_entries(forest.cold(), root, prefix, find_prefix_end(prefix)))
    assert found == sorted((key, value) for key, value in model.items() if key.startswith(prefix))


def test_nothing_comes_after_a_prefix_of_highest_bytes() -> None:
    assert find_prefix_end(b"") is None
    assert find_prefix_end(b"\xff\xff") is None
    assert find_prefix_end(b"a\xff") == b"b"


@quick
@given(mappings, st.integers(1, 7))
def test_pages_from_a_token_are_the_whole_in_order(model: dict[bytes, Value], size: int) -> None:
    forest = Forest()
    root = forest.grow(model)
    seen: list[tuple[bytes, Value]] = []
    token = b""
    while True:
        page = [
            entry
            for entry, _ in zip(tree.scan_entries(forest.objects, root, token), range(size), strict=False)
        ]
        seen += page
        if len(page) < size:
            break
        token = page[-1][0] + b"\0"
    assert seen == sorted(model.items())


@quick
@given(batches)
def test_any_history_leads_to_the_root_of_its_content(history: list[dict[bytes, Value | None]]) -> None:
    forest = Forest()
    model: dict[bytes, Value] = {}
    root = EMPTY_ROOT
    for changes in history:
        root = forest.grow(changes, root)
        _apply(model, changes)
        assert root == Forest().grow(model)
        assert list(tree.scan_entries(forest.cold(), root)) == sorted(model.items())


@quick
@given(mappings, mappings, edges, st.one_of(st.none(), edges))
def test_diff_equals_brute_force_within_any_range(
    one: dict[bytes, Value], other: dict[bytes, Value], start: bytes, stop: bytes | None
) -> None:
    forest = Forest()
    before, after = forest.grow(one), forest.grow(other)
    expected = {
        key: (one.get(key), other.get(key))
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key) and start <= key and (stop is None or key < stop)
    }
    found = tree.diff_trees(forest.cold(), before, after, start, stop)
    assert found == expected
    assert list(found) == list(expected)


def _random_key(random: Random, space: int) -> bytes:
    return f"ns{random.randrange(7)}\0table-{random.randrange(space)}".encode()


@pytest.mark.parametrize("seed", seeds(6))
def test_a_long_random_history_equals_the_dict_at_every_step(seed: int) -> None:
    random = Random(seed)
    forest = Forest()
    model: dict[bytes, Value] = {}
    root = EMPTY_ROOT
    roots: list[tuple[bytes, dict[bytes, Value]]] = []
    for _ in range(60):
        size = random.choice([0, 1, 1, 2, 5, 40, 300])
        changes: dict[bytes, Value | None] = {
            _random_key(random, 400): None if random.random() < 0.35 else b"v%d" % random.randrange(5)
            for _ in range(size)
        }
        if random.random() < 0.1:
            changes |= dict.fromkeys(random.sample(sorted(model), len(model) // 2))
        root = forest.grow(changes, root)
        _apply(model, changes)
        assert root == Forest().grow(model)
        sample = [_random_key(random, 400) for _ in range(20)]
        assert tree.find_values(forest.objects, root, sample) == {k: model[k] for k in sample if k in model}
        start, stop = sorted((_random_key(random, 400), _random_key(random, 400)))
        assert list(tree.scan_entries(forest.cold(), root, start, stop)) == _between(model, start, stop)
        roots.append((root, dict(model)))
    for _ in range(60):
        (before, old), (after, new) = random.choice(roots), random.choice(roots)
        expected = {k: (old.get(k), new.get(k)) for k in old.keys() | new.keys() if old.get(k) != new.get(k)}
        assert tree.diff_trees(forest.cold(), before, after) == expected


@pytest.mark.parametrize("seed", seeds(4))
def test_insert_order_deletes_and_re_inserts_leave_no_trace(seed: int) -> None:
    random = Random(seed)
    model: dict[bytes, Value] = {_random_key(random, 5000): b"%d" % random.randrange(4) for _ in range(1500)}
    expected = Forest().grow(model)
    forest, root = Forest(), EMPTY_ROOT
    order = list(model)
    random.shuffle(order)
    while order:
        part, order = order[: random.choice([1, 3, 200])], order[200:] if len(order) > 1400 else order[3:]
        root = forest.grow({key: model[key] for key in part}, root)
    extra = {_random_key(random, 9000): b"extra" for _ in range(500)}
    root = forest.grow(extra, root)
    root = forest.grow(dict.fromkeys(random.sample(sorted(model), 700)), root)
    root = forest.grow(dict.fromkeys(extra), root)
    for key in random.sample(sorted(model), 50):
        root = forest.grow({key: None}, forest.grow({key: b"other"}, root))
    root = forest.grow(model, root)
    assert root == expected


def test_a_tree_from_which_everything_is_removed_is_the_empty_one() -> None:
    random = Random(0)
    model: dict[bytes, Value] = {_random_key(random, 900): b"v" for _ in range(600)}
    forest = Forest()
    root = forest.grow(model)
    assert forest.grow(dict.fromkeys(model), root) == EMPTY_ROOT
    order = sorted(model)
    while order:
        gone = {order.pop(random.randrange(len(order))): None for _ in range(min(37, len(order)))}
        root = forest.grow(gone, root)
    assert root == EMPTY_ROOT
    assert list(tree.scan_entries(forest.objects, EMPTY_ROOT)) == []


def test_changes_that_change_nothing_leave_the_root() -> None:
    model: dict[bytes, Value] = {b"%04d" % number: b"v" for number in range(500)}
    forest = Forest()
    root = forest.grow(model)
    assert forest.grow({}, root) == root
    assert forest.grow({b"0100": b"v", b"0499": b"v"}, root) == root
    assert forest.grow({b"absent": None, b"": None, b"zzz": None}, root) == root
    assert forest.grow({b"absent": None}, EMPTY_ROOT) == EMPTY_ROOT


def test_repeated_contents_under_different_keys_are_told_apart() -> None:
    """Runs of equal values make many nodes alike but for their keys."""
    one: dict[bytes, Value] = {b"a%05d" % number: b"same" for number in range(800)}
    other: dict[bytes, Value] = {b"b%05d" % number: b"same" for number in range(800)}
    forest = Forest()
    before = forest.grow(one)
    both = forest.grow({**one, **other})
    assert tree.diff_trees(forest.cold(), before, both) == dict.fromkeys(other, (None, b"same"))
    moved = forest.grow({**dict.fromkeys(one), **other}, before)
    assert moved == forest.grow(other)
    found = tree.diff_trees(forest.cold(), before, moved)
    assert found == {**dict.fromkeys(one, (b"same", None)), **dict.fromkeys(other, (None, b"same"))}


def test_replacing_values_never_moves_a_cut() -> None:
    random = Random(3)
    model: dict[bytes, Value] = {_random_key(random, 5000): b"v" for _ in range(2000)}
    forest = Forest()
    root = forest.grow(model)
    replaced = forest.grow(
        {key: b"w" * random.randrange(1000) for key in random.sample(sorted(model), 400)}, root
    )
    shapes = [[(level, node.keys) for level, node, _, _ in forest.nodes(one)] for one in (root, replaced)]
    assert shapes[0] == shapes[1]


def test_a_key_stands_in_the_node_that_its_parents_point_to() -> None:
    random = Random(5)
    model: dict[bytes, Value] = {_random_key(random, 9000): b"v" for _ in range(3000)}
    forest = Forest()
    root = forest.grow(model)
    for key in random.sample(sorted(model), 200):
        node = forest.objects.get(root)
        while hasattr(node, "children"):
            node = forest.objects.get(node.children[bisect_left(node.keys, key)])
        assert key in node.keys
