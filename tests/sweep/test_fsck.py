"""fsck: it names every object whose bytes are not what was written, or that is missing."""

import random
from pathlib import Path

import msgspec
import pytest

import penstock
from penstock.model.encoding import ObjectId
from penstock.model.objects import (
    Blob,
    CommitObject,
    Leaf,
    LogEntry,
    Node,
    Receipt,
    Segment,
    decode_object,
)
from tests.sweep.damage import Database, check, names_damaged, needed

KINDS = [Blob, Leaf, Node, Segment, CommitObject, LogEntry]


def _edge(database: Database, index: int) -> list[ObjectId]:
    """The tree nodes of ``main`` from the root down, always the first child or always the last."""
    path = [database.head().root]
    while isinstance(node := database.node(path[-1]), Node):
        path.append(node.children[index])
    return path


def test_a_sound_lake_is_found_sound(place: Path, database: Database) -> None:
    checked = check(place)
    assert checked.damages == ()
    assert checked.references == 4
    assert checked.commits == 11
    stored = {type(decode_object(data)) for data in database.objects().values()}
    assert stored == {*KINDS, Receipt}, "the template has every kind of object"


def test_every_object_that_is_missing_is_named(place: Path, database: Database) -> None:
    stored = database.objects()
    for one in needed(place):
        database.remove(one)
        assert one.hex() in names_damaged(place), type(decode_object(stored[one]))
        assert database.add(stored[one]) == one
    assert check(place).damages == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_named(place: Path, database: Database, kind: type) -> None:
    chance = random.Random(kind.__name__)
    stored = database.objects()
    chosen = [one for one in needed(place) if isinstance(decode_object(stored[one]), kind)]
    for one in chance.sample(chosen, min(4, len(chosen))):
        data = stored[one]
        for position in {0, 1, len(data) - 1, *(chance.randrange(len(data)) for _ in range(12))}:
            flipped = data[position] ^ (1 << chance.randrange(8))
            database.replace(one, data[:position] + bytes([flipped]) + data[position + 1 :])
            assert one.hex() in names_damaged(place), f"byte {position}"
        database.replace(one, data[:-1])
        assert one.hex() in names_damaged(place), "the last byte is missing"
        database.replace(one, b"")
        assert one.hex() in names_damaged(place), "all bytes are missing"
        database.replace(one, data)
    assert check(place).damages == ()


@pytest.mark.parametrize("kind", KINDS)
def test_two_objects_that_changed_places_are_both_named(place: Path, database: Database, kind: type) -> None:
    """Two of a kind, neither of which is needed only by the other."""
    chance = random.Random(7)
    stored = database.objects()
    chosen = [one for one in needed(place) if isinstance(decode_object(stored[one]), kind)]
    if kind in (CommitObject, LogEntry):
        chosen = [database.reference(name).head for name in ("dev", "main")]
        if kind is LogEntry:
            chosen = [database.reference(name).log for name in ("dev", "main")]
    elif kind is Node:
        chosen = [_edge(database, 0)[1], _edge(database, -1)[1]]
    for _ in range(5):
        one, other = chance.sample(chosen, 2)
        database.replace(one, stored[other])
        database.replace(other, stored[one])
        names = names_damaged(place)
        assert one.hex() in names
        assert other.hex() in names
        database.replace(one, stored[one])
        database.replace(other, stored[other])


@pytest.mark.parametrize("kind", KINDS)
def test_a_receipt_in_the_place_of_an_object_is_named_and_hides_nothing(
    place: Path, database: Database, kind: type
) -> None:
    """A receipt is not named by its hash, so it could pass for anything."""
    stored, wanted = database.objects(), needed(place)
    receipt = next(data for data in stored.values() if isinstance(decode_object(data), Receipt))
    chosen: dict[type, ObjectId] = {
        Leaf: _edge(database, 0)[-1],
        Node: _edge(database, 0)[1],
        CommitObject: database.reference("dev").head,
        LogEntry: database.reference("main").log,
    }
    victim = chosen.get(kind) or next(one for one in wanted if isinstance(decode_object(stored[one]), kind))
    other = _edge(database, -1)[-1]
    database.replace(victim, receipt)
    database.remove(other)
    names = names_damaged(place)
    assert victim.hex() in names
    assert other.hex() in names


def test_several_damages_are_all_named(place: Path, database: Database) -> None:
    stored, wanted = database.objects(), needed(place)
    leaves = [one for one in wanted if isinstance(decode_object(stored[one]), Leaf)]
    blobs = [one for one in wanted if isinstance(decode_object(stored[one]), Blob)]
    for one in (*leaves[:5], *blobs[:2]):
        database.replace(one, stored[one][:-1] + b"\x00\x01")
    names = names_damaged(place)
    for one in (*leaves[:5], *blobs[:2]):
        assert one.hex() in names


def test_damage_is_told_for_people(place: Path, database: Database) -> None:
    one = database.head().root
    database.remove(one)
    damage = check(place).damages[0]
    assert damage.object == one.hex()
    assert str(damage).startswith(one.hex())
    assert "missing" in str(damage)
    assert msgspec.json.encode(damage)


def test_progress_is_told_and_only_grows(place: Path) -> None:
    counts: list[int] = []
    with penstock.open(place, create=False) as lake:
        lake.fsck(lambda _, count: counts.append(count))
    assert counts == sorted(counts)
    assert counts[-1] > 50
