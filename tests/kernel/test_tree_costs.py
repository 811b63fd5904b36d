"""What the tree costs: nodes read and written, and how large they can get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random
from uuid import UUID

import pytest

from penstock.kernel import tree
from penstock.kernel.objects import INLINE_MAX_BYTES
from penstock.model.keys import LENGTH_MAX_CHARS
from penstock.model.objects import OBJECT_MAX_BYTES, Value
from tests.kernel.trees import Forest, ends_a_node

LEVELS = 6


def _key(number: int) -> bytes:
    return f"sales\0orders-{number:07}".encode()


def _grown(size: int) -> tuple[Forest, bytes]:
    forest = Forest()
    return forest, forest.grow({_key(2 * number): b"v" * 60 for number in range(size)})


@pytest.mark.parametrize(("size", "height_max"), [(100, 3), (1_000, 4), (10_000, 5), (40_000, 6)])
def test_a_one_key_change_reads_and_writes_one_path(size: int, height_max: int) -> None:
    forest, root = _grown(size)
    height = forest.height(root)
    assert height <= height_max
    random = Random(size)
    for _ in range(60):
        number = random.randrange(size)
        forest.grow({_key(2 * number): b"other"}, root)
        assert len(forest.written) == height
        # An insert or delete may split or join a node on every level, and join the neighbour once more.
        for change in ({_key(2 * number + 1): b"new"}, {_key(2 * number): None}):
            forest.objects = forest.cold()
            forest.grow(change, root)
            assert len(forest.written) <= 3 * height
            assert forest.store.counts.objects_read <= 4 * height


def test_a_look_up_reads_one_node_a_level() -> None:
    forest, root = _grown(20_000)
    for number in (0, 1, 777, 39_998, 39_999, 10**6):
        cold = forest.cold()
        tree.find_value(cold, root, _key(number))
        assert forest.store.counts.objects_read <= forest.height(root)
    cold = forest.cold()
    tree.find_values(cold, root, [_key(number) for number in range(0, 40_000, 97)])
    assert forest.store.counts.requests == forest.height(root)


def test_a_scan_of_a_range_reads_that_range() -> None:
    forest, root = _grown(20_000)
    cold = forest.cold()
    found = list(tree.scan_entries(cold, root, _key(20_000), _key(20_060)))
    assert len(found) == 30
    assert forest.store.counts.objects_read <= 30 / tree.LEAF_CUT.least + 2 * forest.height(root)


@pytest.mark.parametrize("changed", [1, 10, 100])
def test_a_diff_reads_what_changed_and_not_what_exists(changed: int) -> None:
    reads = []
    for size in (2_000, 40_000):
        forest, root = _grown(size)
        random = Random(size)
        numbers = random.sample(range(size), changed)
        after = forest.grow({_key(2 * number): b"other" for number in numbers}, root)
        cold = forest.cold()
        assert len(tree.diff_trees(cold, root, after)) == changed
        reads.append(forest.store.counts.objects_read)
        assert reads[-1] <= 2 * changed * forest.height(root)
        assert forest.store.counts.requests <= 2 * forest.height(root) + 2
    assert reads[1] <= 3 * reads[0]


def test_trees_of_different_height_are_compared_by_what_differs() -> None:
    forest, root = _grown(8)
    larger = forest.grow({_key(2 * number): b"v" * 60 for number in range(5_000)}, root)
    assert forest.height(larger) > forest.height(root) + 1
    cold = forest.cold()
    assert len(tree.diff_trees(cold, root, larger)) == 4_992
    cold = forest.cold()
    assert len(tree.diff_trees(cold, larger, root)) == 4_992


def test_equal_trees_are_not_read_below_their_root() -> None:
    forest, root = _grown(20_000)
    cold = forest.cold()
    assert tree.diff_trees(cold, root, root) == {}
    assert forest.store.counts.objects_read <= 1


def _sequential() -> Iterator[bytes]:
    return (b"orders\0%08d" % number for number in count())


def _random_ids() -> Iterator[bytes]:
    random = Random(1)
    return (str(UUID(int=random.getrandbits(128))).encode() for _ in count())


def _letters() -> Iterator[bytes]:
    return (b"a" * (number % 40 + 1) + b"%d" % number for number in count())


@pytest.mark.parametrize("pattern", [_sequential, _random_ids, _letters])
def test_nodes_have_the_size_that_is_documented_for_all_kinds_of_keys(
    pattern: Callable[[], Iterator[bytes]],
) -> None:
    forest = Forest()
    root = forest.grow(dict.fromkeys(islice(pattern(), 30_000), b"v"))
    sizes: dict[int, list[int]] = defaultdict(list)
    for level, node, _, is_last in forest.nodes(root):
        if not is_last:
            sizes[level].append(len(node.keys))
    assert 5 <= sum(sizes[0]) / len(sizes[0]) <= 7
    assert 12 <= sum(sizes[1]) / len(sizes[1]) <= 18
    assert 12 <= sum(sizes[2]) / len(sizes[2]) <= 20


def test_keys_chosen_never_to_end_a_node_make_nodes_of_the_largest_size_and_no_larger() -> None:
    names = (b"%09d" % number for number in count())
    chosen = [
        name for name in islice(names, 60_000) if not any(ends_a_node(level, name) for level in range(LEVELS))
    ][:8_000]
    assert len(chosen) == 8_000
    forest = Forest()
    root = forest.grow(dict.fromkeys(chosen, b"v"))
    for level, node, _, is_last in forest.nodes(root):
        most = (tree.LEAF_CUT if level == 0 else tree.NODE_CUT).most
        assert len(node.keys) == most or (is_last and len(node.keys) < most)
    random = Random(0)
    gone = random.sample(chosen, 3_000)
    root = forest.grow(dict.fromkeys(gone), root)
    assert root == Forest().grow(dict.fromkeys(sorted(set(chosen) - set(gone)), b"v"))
    assert max(len(node.keys) for level, node, _, _ in forest.nodes(root)) == tree.NODE_CUT.most


def test_keys_chosen_always_to_end_a_node_make_nodes_of_the_smallest_size_and_no_smaller() -> None:
    names = (b"%09d" % number for number in count())
    chosen = list(islice((name for name in names if all(ends_a_node(level, name) for level in (0, 1))), 800))
    forest = Forest()
    root = forest.grow(dict.fromkeys(chosen, b"v"))
    for level, node, _, is_last in forest.nodes(root):
        if level < 2 and not is_last:
            assert len(node.keys) == (tree.LEAF_CUT if level == 0 else tree.NODE_CUT).least


def test_no_node_is_larger_than_an_object_may_be_even_with_the_longest_keys() -> None:
    """Keys of 500 characters of four bytes, none of which ends a node, with the largest values in place."""
    forest = Forest()
    value: Value = b"v" * INLINE_MAX_BYTES
    wanted: dict[bytes, Value] = {}
    for number in count():
        # What differs stands first: nothing of the key is shared and left out.
        text = "".join(chr(0x10000 + (number * 7 + at * 31) % 0x10000) for at in range(3))
        key = (text + "\U0001f600" * (LENGTH_MAX_CHARS - 3)).encode()
        assert len(key) == 4 * LENGTH_MAX_CHARS
        if not any(ends_a_node(level, key) for level in range(3)):
            wanted[key] = value
        if len(wanted) == 2_000:
            break
    root = forest.grow(wanted)
    sizes = [(level, size) for level, _, size, _ in forest.nodes(root)]
    assert max(size for _, size in sizes) <= OBJECT_MAX_BYTES
    assert max(size for level, size in sizes if level == 0) > 24 * (INLINE_MAX_BYTES + 1500)


def test_a_diff_reads_no_more_leaves_than_are_asked_for() -> None:
    forest, root = _grown(20_000)
    after = forest.grow({_key(2 * number): b"other" for number in range(20_000)}, root)
    cold = forest.cold()
    found = list(islice(tree.iterate_differences(cold, root, after), 100))
    assert found == [(_key(2 * number), b"v" * 60, b"other") for number in range(100)]
    some = forest.store.counts.objects_read
    cold = forest.cold()
    assert len(tree.diff_trees(cold, root, after)) == 20_000
    assert some < forest.store.counts.objects_read / 4
