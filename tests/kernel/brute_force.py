"""What a merge, transplant or revert must come to, worked out the slow way on plain dicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from uuid import UUID

import msgspec

from penstock.errors import CommitConflict
from penstock.kernel.kernel import Kernel
from penstock.model.commits import CommitMeta
from penstock.model.conflicts import Conflict, ConflictKind
from penstock.model.content import AnyContent, Namespace, Unknown, decode_content
from penstock.model.encoding import ObjectId, encode
from penstock.model.keys import Key
from penstock.model.merges import KeyMerge, MergeMode
from penstock.model.operations import Delete, Operation, Put, Unchanged
from tests.kernel.lakes import State, branch, head, new_kernel, state, table

Told = set[tuple[ConflictKind, Key]]


class Expected(msgspec.Struct):
    """What the target must hold, or the conflicts that must be told."""

    held: State
    conflicts: Told
    chosen: set[Key]
    """Keys that hold a given content, whose id may be new."""


def undo(was: State, wanted: State, now: State) -> Expected:
    """Bring a difference that undoes a commit: a namespace stays if something is in it."""
    while True:
        expected = bring(was, wanted, now)
        filled = {
            key: was[key]
            for kind, key in expected.conflicts
            if kind is ConflictKind.NAMESPACE_NOT_EMPTY and key in was and key not in wanted
        }
        if not filled:
            return expected
        wanted = {**wanted, **filled}


def bring(
    was: State,
    wanted: State,
    now: State,
    keys: Mapping[Key, KeyMerge] | None = None,
    default: MergeMode = MergeMode.NORMAL,
    ambiguous: Mapping[Key, Sequence[AnyContent | None]] | None = None,
) -> Expected:
    """Bring the difference between two states onto a third.

    ``ambiguous`` are the keys of which nobody can say what they were, with what each base says.
    """
    ambiguous = ambiguous or {}
    expected = Expected(dict(now), set(), set())
    for key in sorted(was.keys() | wanted.keys() | set(ambiguous)):
        before, after, found = was.get(key), wanted.get(key), now.get(key)
        if before == after and key not in ambiguous:
            continue
        how = (keys or {}).get(key, KeyMerge(mode=default))
        wrong = (how.expected is not None or how.expect_absent) and found != how.expected
        if wrong:
            expected.conflicts.add((kind_of(how.expected, found), key))
        elif how.mode is MergeMode.DROP:
            pass
        elif how.content is not None:
            _hold(expected, key, how.content)
            expected.chosen.add(key)
        elif found == after:
            pass
        elif how.mode is MergeMode.FORCE or (found == before and key not in ambiguous):
            _hold(expected, key, after)
        elif isinstance(after, Namespace) and isinstance(found, Namespace):
            met = _met(ambiguous.get(key, [before]), after, found)
            if met is None:
                expected.conflicts.add((kind_of(before, found), key))
            else:
                _hold(expected, key, met)
        else:
            expected.conflicts.add((kind_of(before, found), key))
    expected.conflicts |= misplaced(now, expected.held)
    return expected


def carry_out(
    operations: Sequence[Operation], now: State, base: State | None = None, create_namespaces: bool = False
) -> Expected:
    """What a commit of some operations must come to, with what its writer read. New ids are not told."""
    expected = Expected(dict(now), set(), set())
    held, deleted = expected.held, set()
    freed: dict[UUID | None, AnyContent] = {}
    for operation in operations:
        if isinstance(operation, Delete) and _as_read(expected, operation.key, base, now):
            gone = held.pop(operation.key, None)
            if gone is None:
                expected.conflicts.add((ConflictKind.KEY_DOES_NOT_EXIST, operation.key))
            else:
                deleted.add(operation.key)
                freed[gone.id] = gone
    for operation in operations:
        if isinstance(operation, Unchanged):
            _as_read(expected, operation.key, base, now)
        elif isinstance(operation, Put) and (
            operation.key in deleted or _as_read(expected, operation.key, base, now)
        ):
            _put(expected, operation, freed, create_namespaces)
    expected.conflicts |= misplaced(now, held)
    return expected


def _as_read(expected: Expected, key: Key, base: State | None, now: State) -> bool:
    if base is None or base.get(key) == now.get(key):
        return True
    expected.conflicts.add((kind_of(base.get(key), now.get(key)), key))
    return False


def _put(
    expected: Expected, put: Put, freed: Mapping[UUID | None, AnyContent], create_namespaces: bool
) -> None:
    key, content, current = put.key, put.content, expected.held.get(put.key)
    if current is None and content.id is not None and content.id not in freed:
        expected.conflicts.add((ConflictKind.KEY_DOES_NOT_EXIST, key))
    elif current is not None and current.type != content.type:
        expected.conflicts.add((ConflictKind.PAYLOAD_DIFFERS, key))
    elif current is not None and content.id not in (None, current.id):
        expected.conflicts.add((ConflictKind.CONTENT_ID_DIFFERS, key))
    elif content.id is not None and content.id in freed and freed[content.id].type != content.type:
        expected.conflicts.add((ConflictKind.PAYLOAD_DIFFERS, key))
    else:
        for parent in key.parents if create_namespaces else ():
            if parent not in expected.held:
                expected.held[parent] = Namespace()
                expected.chosen.add(parent)
        if content.id is None:
            if current is not None and not _has_no_room_for_an_id(content):
                content = msgspec.structs.replace(content, id=current.id)
            else:
                expected.chosen.add(key)
        expected.held[key] = content


def _has_no_room_for_an_id(content: AnyContent) -> bool:
    """A newer version's content stays as it came."""
    return isinstance(content, Unknown) and not content.type_name


def _hold(expected: Expected, key: Key, content: AnyContent | None) -> None:
    if content is None:
        expected.held.pop(key, None)
    else:
        expected.held[key] = content


def _met(bases: Sequence[AnyContent | None], source: Namespace, target: Namespace) -> Namespace | None:
    """Two namespaces: the target's, with every property that only the source set or removed.

    ``None`` if both sides did something else to one, or nobody knows who did.
    """
    olds = [old.properties if isinstance(old, Namespace) else {} for old in bases]
    properties = dict(target.properties)
    for name in {name for held in (*olds, source.properties, target.properties) for name in held}:
        mine, theirs = source.properties.get(name), target.properties.get(name)
        is_mine = any(old.get(name) != mine for old in olds)
        is_theirs = any(old.get(name) != theirs for old in olds)
        if mine != theirs and is_mine and is_theirs:
            return None
        if is_mine and mine is None:
            properties.pop(name, None)
        elif is_mine and mine is not None:
            properties[name] = mine
    return msgspec.structs.replace(target, properties=properties)


def kind_of(expected: AnyContent | None, found: AnyContent | None) -> ConflictKind:
    if expected is None:
        return ConflictKind.KEY_EXISTS
    if found is None:
        return ConflictKind.KEY_DOES_NOT_EXIST
    if expected.type != found.type:
        return ConflictKind.PAYLOAD_DIFFERS
    if expected.id != found.id:
        return ConflictKind.CONTENT_ID_DIFFERS
    return ConflictKind.VALUE_DIFFERS


def misplaced(before: State, after: State) -> Told:
    """What is wrong with the namespaces of what changed."""
    told: Told = set()
    for key in before.keys() | after.keys():
        if before.get(key) == after.get(key):
            continue
        if key in after:
            for parent in key.parents:
                if parent not in after:
                    told.add((ConflictKind.NAMESPACE_ABSENT, parent))
                elif not isinstance(after[parent], Namespace):
                    told.add((ConflictKind.NOT_A_NAMESPACE, parent))
        ended = isinstance(before.get(key), Namespace) and not isinstance(after.get(key), Namespace)
        if ended and any(key in other.parents for other in after):
            told.add((ConflictKind.NAMESPACE_NOT_EMPTY, key))
    return told


Ambiguous = dict[Key, Sequence[AnyContent | None]]


def virtual_base(one: State, other: State, origin: State) -> tuple[State, Ambiguous]:
    """The base of a merge after merges crossed, and the keys of which nobody can say what it was."""
    held: State = {}
    ambiguous: Ambiguous = {}
    for key in one.keys() | other.keys():
        mine, theirs, was = one.get(key), other.get(key), origin.get(key)
        content = theirs if mine == was else mine
        if was not in (mine, theirs) and mine != theirs:
            ambiguous[key] = mine, theirs
        if content is not None:
            held[key] = content
    return held, ambiguous


def told(conflicts: Collection[Conflict]) -> Told:
    return {(conflict.kind, conflict.key) for conflict in conflicts}


def without_ids(held: State, keys: Collection[Key]) -> State:
    return {k: msgspec.structs.replace(c, id=None) if k in keys else c for k, c in held.items()}


# -- random lakes --------------------------------------------------------------------------------------

NAMES = ("a", "a.x", "a.y", "a.b", "a.b.x", "c", "c.x", "c.y", "d", "e", "f")
KEYS = [Key.parse(name) for name in NAMES]


def random_content(random: Random) -> AnyContent:
    """One of few, so that the same content stands under many keys; some have no id to tell them apart."""
    chance = random.random()
    if chance < 0.35:
        return decode_content(encode([99, None, random.randrange(3)]))
    if chance < 0.65:
        return table(random.randrange(3))
    return Namespace(
        properties={random.choice("pq"): random.choice("12") for _ in range(random.randrange(3))}
    )


def random_operations(random: Random, held: State) -> list[Operation]:
    """Puts, deletes, re-creations and renames; many of them can be carried out."""
    key = random.choice(KEYS)
    current = held.get(key)
    chance = random.random()
    if current is None or chance < 0.4:
        content = random_content(random)
        return [Put(key, content)]
    if chance < 0.6:
        return [Delete(key)]
    if chance < 0.75:
        return [Delete(key), Put(key, random_content(random))]
    return [Delete(key), Put(random.choice(KEYS), current)]


def wander(kernel: Kernel, name: str, random: Random, steps: int) -> None:
    """Commit at random; what is refused is left out."""
    for _ in range(steps):
        operations = random_operations(random, state(kernel, name))
        try:
            kernel.commit(name, operations, CommitMeta(message=f"{operations}"[:200]))
        except CommitConflict:
            continue


def forked(random: Random, own: int = 6) -> tuple[Kernel, list[ObjectId]]:
    """Two branches that parted, and the commits of ``dev`` since, oldest first."""
    kernel = new_kernel()
    wander(kernel, "main", random, 12)
    fork = head(kernel)
    branch(kernel, "dev")
    wander(kernel, "main", random, random.randrange(4))
    wander(kernel, "dev", random, own)
    return kernel, line(kernel, head(kernel, "dev"), fork)


def line(kernel: Kernel, tip: ObjectId, after: ObjectId) -> list[ObjectId]:
    """The commits between two, oldest first, by first parents."""
    found: list[ObjectId] = []
    while tip != after:
        found.append(tip)
        tip = kernel.history.read_commit(tip).parent
    return found[::-1]
