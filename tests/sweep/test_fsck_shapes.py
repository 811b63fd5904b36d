"""fsck: it names what has a valid hash, but cannot have been written by Penstock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.kernel.tree import pack_node
from penstock.model.encoding import ObjectId
from penstock.model.objects import (
    Blob,
    CommitObject,
    Large,
    Leaf,
    Node,
    Segment,
    decode_object,
)
from tests.sweep.damage import Database, names_damaged


def _first_leaf(database: Database) -> tuple[list[ObjectId], tuple[int, ...]]:
    steps: tuple[int, ...] = ()
    while isinstance(database.node(database.path(*steps)[-1]), Node):
        steps += (0,)
    return database.path(*steps), steps


def _leaf_at(database: Database, steps: tuple[int, ...]) -> Leaf:
    leaf = database.node(database.path(*steps)[-1])
    assert isinstance(leaf, Leaf)
    return leaf


def _put_leaf(database: Database, leaf: Leaf, at: tuple[int, ...]) -> ObjectId:
    one = database.add(leaf)
    database.put_node(database.path(*at), at, one)
    return one


def _leaf_in_wrong_order(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    keys = [leaf.keys[1], leaf.keys[0], *leaf.keys[2:]]
    return _put_leaf(database, Leaf(b"", keys, leaf.values), steps)


def _leaf_with_a_key_twice(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    return _put_leaf(database, Leaf(b"", [leaf.keys[0], *leaf.keys], [leaf.values[0], *leaf.values]), steps)


def _leaf_that_ends_elsewhere(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    return _put_leaf(database, _canonical(leaf.keys[:-1], leaf.values[:-1]), steps)


def _canonical(keys: list[bytes], values: list[bytes | Large]) -> Leaf:
    found = decode_object(pack_node(0, keys, values)[0])
    assert isinstance(found, Leaf)
    return found


def _leaf_not_in_canonical_form(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    return _put_leaf(database, Leaf(b"", leaf.keys, leaf.values), steps)


def _leaf_that_reaches_into_the_one_before(database: Database) -> ObjectId:
    """In order by itself, and it ends as its parent says; but it begins before the leaf before it ends."""
    _, steps = _first_leaf(database)
    before = _leaf_at(database, steps)
    later = (*steps[:-1], 1)
    leaf = _leaf_at(database, later)
    keys = [before.keys[0] + b"x", *leaf.keys[1:]]
    return _put_leaf(database, _canonical(keys, leaf.values), later)


def _leaf_with_something_unreadable(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    return _put_leaf(database, _canonical(leaf.keys, [b"\xc1", *leaf.values[1:]]), steps)


def _leaf_with_fewer_values_than_keys(database: Database) -> ObjectId:
    _, steps = _first_leaf(database)
    leaf = _leaf_at(database, steps)
    return _put_leaf(database, _canonical(leaf.keys, leaf.values[:-1]), steps)


def _node_with_children_in_wrong_order(database: Database) -> ObjectId:
    root = database.node(database.head().root)
    assert isinstance(root, Node)
    keys = [root.keys[1], root.keys[0], *root.keys[2:]]
    children = [root.children[1], root.children[0], *root.children[2:]]
    one = database.add(Node(root.level, b"", keys, children))
    database.put_head(root=one)
    return one


def _node_on_a_wrong_level(database: Database) -> ObjectId:
    root = database.node(database.head().root)
    assert isinstance(root, Node)
    one = database.add(pack_node(root.level + 1, root.keys, root.children)[0])
    database.put_head(root=one)
    return root.children[0]


def _node_with_a_commit_as_child(database: Database) -> ObjectId:
    path, steps = _first_leaf(database)
    commit = database.reference().head
    database.put_node(path, steps, commit)
    return commit


def _root_with_one_child_only(database: Database) -> ObjectId:
    """The same content would have two roots."""
    root = database.node(database.head().root)
    assert isinstance(root, Node)
    one = database.add(pack_node(root.level + 1, [root.keys[-1]], [database.head().root])[0])
    database.put_head(root=one)
    return one


def _segment_with_something_unreadable(database: Database) -> ObjectId:
    return database.put_segment(Segment([b"a"], [b"\xc1"]))


def _segment_with_fewer_values_than_keys(database: Database) -> ObjectId:
    return database.put_segment(Segment([b"a", b"b"], [None]))


def _segment_that_is_too_short(database: Database) -> ObjectId:
    segment = database.add(Segment([b"a"], [None]))
    return database.put_head(recent=((segment, 5),))


def _large_value_of_another_size(database: Database) -> ObjectId:
    blob = database.add(Blob(b"short"))
    return database.put_segment(Segment([b"a"], [Large(5000, (blob,))]))


def _large_value_made_of_something_else(database: Database) -> ObjectId:
    commit = database.reference().head
    database.put_segment(Segment([b"a"], [Large(5000, (commit,))]))
    return commit


def _object_that_is_too_large(database: Database) -> ObjectId:
    return database.put_head(message="x" * 300_000)


WRONG_TREES: list[Callable[[Database], ObjectId]] = [
    _leaf_in_wrong_order,
    _leaf_with_a_key_twice,
    _leaf_that_ends_elsewhere,
    _leaf_not_in_canonical_form,
    _leaf_that_reaches_into_the_one_before,
    _leaf_with_something_unreadable,
    _leaf_with_fewer_values_than_keys,
    _node_with_children_in_wrong_order,
    _node_on_a_wrong_level,
    _node_with_a_commit_as_child,
    _root_with_one_child_only,
    _segment_with_something_unreadable,
    _segment_with_fewer_values_than_keys,
    _segment_that_is_too_short,
    _large_value_of_another_size,
    _large_value_made_of_something_else,
    _object_that_is_too_large,
]


@pytest.mark.parametrize("spoil", WRONG_TREES, ids=lambda spoil: spoil.__name__)
def test_a_tree_with_valid_hashes_but_wrong_is_named(
    place: Path, database: Database, spoil: Callable[[Database], ObjectId]
) -> None:
    wrong = spoil(database)
    assert wrong.hex() in names_damaged(place)


def _parent(database: Database) -> CommitObject:
    found = decode_object(database.get(database.head().parent))
    assert isinstance(found, CommitObject)
    return found


WRONG_COMMITS: dict[str, Callable[[Database], ObjectId]] = {
    "depth": lambda database: database.put_head(depth=3),
    "generation": lambda database: database.put_head(generation=99),
    "time": lambda database: database.put_head(time_us=_parent(database).time_us),
    "merges": lambda database: database.put_head(merges=7),
    "jump off its own line": lambda database: database.put_head(jump=database.reference("dev").head),
    "root that is a commit": lambda database: database.put_head(root=database.head().parent),
    "parent that is a log entry": lambda database: database.put_head(parent=database.reference().log),
}


@pytest.mark.parametrize("spoil", WRONG_COMMITS.values(), ids=WRONG_COMMITS.keys())
def test_a_commit_with_a_valid_hash_but_wrong_is_named(
    place: Path, database: Database, spoil: Callable[[Database], ObjectId]
) -> None:
    wrong = spoil(database)
    names = names_damaged(place)
    head = database.head()
    assert any(one.hex() in names for one in (wrong, head.root, head.parent))


WRONG_ENTRIES: dict[str, Callable[[Database], ObjectId]] = {
    "position": lambda database: database.put_entry(position=77),
    "where it starts": lambda database: database.put_entry(before=_parent(database).parent),
    "where it ends": lambda database: database.put_entry(after=_parent(database).parent),
    "name": lambda database: database.put_entry(name="another"),
    "incarnation": lambda database: database.put_entry(incarnation=b"\0" * 16),
    "previous that is a commit": lambda database: database.put_entry(previous=database.reference().head),
}


@pytest.mark.parametrize("spoil", WRONG_ENTRIES.values(), ids=WRONG_ENTRIES.keys())
def test_a_log_entry_with_a_valid_hash_but_wrong_is_named(
    place: Path, database: Database, spoil: Callable[[Database], ObjectId]
) -> None:
    wrong = spoil(database)
    names = names_damaged(place)
    assert wrong.hex() in names or "main" in names or database.reference().head.hex() in names
