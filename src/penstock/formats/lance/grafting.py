"""Grafting: what one side did to a table since the sides parted, on top of what the other side has.

Only appends and deletions are grafted. Fragments that were appended come with numbers of their own, and their
files stay where they are. Rows that were deleted are deleted if the other side still has the fragment as it
was: the file that lists them takes the place of the former one, or the fragment goes. Whatever else was done,
or was done on both sides to one fragment, is for somebody to look at.

A fragment is known by where its data files lie, since each side numbers fragments by itself. A file of
deleted rows is named by the number of its fragment: where that becomes another one, the file is copied.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from penstock.formats.lance.manifests import Base, Flag, Manifest, Operation
from penstock.formats.lance.rehoming import (
    BASE_OF_FILE,
    DELETION_FILE,
    FILES,
    FRAGMENT_ID,
    Immovable,
    check_movable,
    move_fragment,
    rebased,
)
from penstock.formats.lance.wire import Message, packed_numbers
from penstock.model.encoding import digest

GRAFTED: Final = frozenset((Operation.APPEND, Operation.DELETE, Operation.RESERVE))
"""What can be done again on top of something else, and comes to the same."""
UNGROUNDED: Final = frozenset((Operation.OVERWRITE, Operation.RESTORE, Operation.CLONE, Operation.OTHER))
"""What nothing can be grafted onto: the other side may have meant rows that are not there any more."""
_SUFFIXES: Final = {0: "arrow", 1: "bin"}
"""How files of deleted rows end, by their kind."""
_FRESH: Final = 2**24 - 1
"""What is drawn anew of the number by which a file of deleted rows is named when it is copied: what another
attempt has left may be about to be swept. The rest tells what it is a copy of."""
MARK_BYTES: Final = 12
"""Long enough that no two fragments of a table ever have the same mark by chance."""
_BLOBS: Final = b"lance.blob.v2"
"""Columns whose rows may name the numbers of bases."""


class Ungraftable(Exception):
    """Two sides of a table do not go together. The reason continues a sentence; clashes name fragments."""

    def __init__(self, why: str, clashes: Collection[str] = ()) -> None:
        super().__init__(why)
        self.why, self.clashes = why, tuple(clashes)


class Side(NamedTuple):
    """A version of a table, and the folder that it is at."""

    manifest: Manifest
    folder: str


class Copy(NamedTuple):
    """A file that has to be copied for a grafted version to be read."""

    source: str
    """Its whole path or URL."""
    name: str
    """Below the folder of the target."""


class Grafted(NamedTuple):
    """The other side with what was grafted, and what that was, for the transaction of the version."""

    manifest: Manifest
    operation: Operation
    what: Message
    copies: tuple[Copy, ...]


class _Fragment(NamedTuple):
    """A fragment, as two sides can compare it."""

    message: Message
    files: tuple[str, ...]
    """The whole paths of its data files."""

    @property
    def number(self) -> int:
        return self.message.number(FRAGMENT_ID) or 0

    @property
    def deletions(self) -> tuple[int | None, ...] | None:
        """The file of its deleted rows, by what its name is made of; where it lies follows."""
        found = self.message.message(DELETION_FILE)
        if found is None:
            return None
        return found.number(1), found.number(2), (found.number(3) or 0) & ~_FRESH, found.number(4)

    def is_as(self, other: _Fragment) -> bool:
        """Whether both have the same rows and columns."""
        return self.files == other.files and self.deletions == other.deletions

    def is_among(self, others: Iterable[_Fragment]) -> bool:
        return any(self.is_as(one) for one in others)


_Fragments: TypeAlias = dict[str, _Fragment]
"""By their first data file, wherever that lies."""


def can_be_grafted(operations: Iterable[Operation]) -> bool:
    return GRAFTED.issuperset(operations)


def check_operations(grafted: Iterable[Operation], ground: Iterable[Operation]) -> None:
    """``Ungraftable`` if what was done on one side cannot come on top of what was done on the other."""
    if others := _told({*grafted} - GRAFTED):
        raise Ungraftable(
            f"was changed on both sides, and by {_listed(others)} on the one whose changes would come on top"
            " of the other's, which cannot be done again"
        )
    if others := _told({*ground} & UNGROUNDED):
        raise Ungraftable(
            f"was changed on both sides, and by {_listed(others)} on one of them, which nothing can be put on"
            " top of"
        )


def graft(
    bases: Sequence[Side],
    source: Side,
    target: Side,
    taken: Collection[bytes] = (),
    *,
    only_grafted: bool = False,
) -> Grafted:
    """What became of ``bases`` at ``source``, done to ``target``. ``Ungraftable``, ``Immovable`` if not.

    Both sides come from every base: what one of them has is not new, and what is as in one of them has not
    changed, since rows that were deleted do not come back.
    ``only_grafted`` tells that nothing else was done to ``target`` either: a fragment that is gone there was
    deleted, and not rewritten. Merges that crossed bring the same deletions to both sides.
    ``taken`` are marks of fragments that ``target`` got by commits which were repeated there.
    """
    for side in (*bases, source, target):
        check_movable(side.manifest)
        if side.manifest.flags & Flag.STABLE_ROW_IDS:
            raise Ungraftable("was changed on both sides, and its rows have numbers of their own on each")
    _check_alike(bases[0].manifest, source.manifest, target.manifest)
    before: dict[str, list[_Fragment]] = {}
    for name, one in (each for base in bases for each in _located(base).items()):
        before.setdefault(name, []).append(one)
    after, there = _located(source), _located(target)
    lost = set() if only_grafted else before.keys()  # their rows may be there still, in other fragments
    gone = {name for name in before if name not in after and (name in there or name in lost)}
    changed = {name for name in before if name in after and not after[name].is_among(before[name])}
    changed -= {name for name in changed & there.keys() if there[name].is_as(after[name])}
    twice = {name for name in after if name not in before and name in there}
    clashes = [name for name in changed | gone if name not in there or not there[name].is_among(before[name])]
    clashes += [name for name in twice if not there[name].is_as(after[name])]
    if clashes:
        raise Ungraftable("had rows of the same fragments deleted or rewritten on both sides", clashes)
    added = [one for name, one in after.items() if name not in before and name not in twice]
    if again := [one.files[0] for one in added if mark_of(one.files[0]) in taken]:
        raise Ungraftable(
            "has fragments that came to one side by a repeated commit, and were deleted or rewritten there"
            " since, so that their rows would be there twice or come back",
            again,
        )
    moving = _Moving(source, target)
    kept = [moving.onto(there[name], after[name]) if name in changed else there[name].message
            for name in there if name not in gone]  # fmt: skip
    first = target.manifest.max_fragment_id + 1
    new = [moving.as_number(one, first + place) for place, one in enumerate(added)]
    manifest = target.manifest.with_parts(
        fragments=[*kept, *new],
        bases=moving.bases if added or changed else None,
        max_fragment_id=first + len(new) - 1,
    )
    numbers = {there[name].number for name in changed}
    updated = [one for one in kept if (one.number(FRAGMENT_ID) or 0) in numbers]
    removed = packed_numbers(sorted(there[name].number for name in gone))
    return Grafted(manifest, *_said(new, updated, removed), tuple(moving.copies))


def marks_between(before: Side | None, after: Side) -> list[bytes]:
    """Marks of the fragments that one version has and another has not. Raises as ``graft``."""
    known = _located(before) if before is not None else {}
    return [mark_of(name) for name in _located(after) if name not in known]


def mark_of(file: str) -> bytes:
    """By which a fragment is remembered: a hash of where its first data file lies."""
    return digest("lance fragment", file.encode())[:MARK_BYTES]


class _Moving:
    """Fragments of one side on their way to the other."""

    def __init__(self, source: Side, target: Side) -> None:
        self.bases, self._moved = rebased(
            source.manifest.bases, source.folder, target.folder, target.manifest.bases
        )
        is_renumbered = any(old not in (None, new) for old, new in self._moved.items())
        if is_renumbered and any(_BLOBS in field for field in source.manifest.schema[0]):
            raise Ungraftable("was changed on both sides, and its blobs name places by other numbers on each")
        self._places = _places(source.manifest.bases, source.folder)
        self.copies: list[Copy] = []

    def as_number(self, fragment: _Fragment, number: int) -> Message:
        """A fragment as a new one of the target."""
        moved = move_fragment(fragment.message, self._moved).having(FRAGMENT_ID, number)
        deletion = self._deletion(fragment, number)
        return moved.having(DELETION_FILE, *(() if deletion is None else (deletion,)))

    def onto(self, there: _Fragment, fragment: _Fragment) -> Message:
        """A fragment of the target with the rows deleted that were deleted on the other side."""
        deletion = self._deletion(fragment, there.number)
        return there.message.having(DELETION_FILE, *(() if deletion is None else (deletion,)))

    def _deletion(self, fragment: _Fragment, number: int) -> bytes | None:
        """The file of a fragment's deleted rows for the target, whose number of the fragment is given."""
        found = fragment.message.message(DELETION_FILE)
        if found is None:
            return None
        if number == fragment.number:
            return move_fragment(fragment.message, self._moved).all(DELETION_FILE)[-1]
        suffix = _SUFFIXES.get(found.number(1) or 0)
        if suffix is None:
            raise Immovable("lists deleted rows in a way that this version of Penstock does not know")
        named = f"{found.number(2) or 0}-{found.number(3) or 0}.{suffix}"
        folder = self._places[found.number(BASE_OF_FILE)].path
        chance = (found.number(3) or 0) & ~_FRESH | secrets.randbits(_FRESH.bit_length())
        name = f"_deletions/{number}-{found.number(2) or 0}-{chance}.{suffix}"
        self.copies.append(Copy(f"{folder}/_deletions/{fragment.number}-{named}", name))
        return found.having(BASE_OF_FILE).having(3, chance).pack()


def _said(new: list[Message], updated: list[Message], removed: bytes) -> tuple[Operation, Message]:
    """What was done, in the words that tell other writers what they may do at the same time."""
    if not updated and not removed:
        return Operation.APPEND, Message.of(*((1, one.pack()) for one in new))
    if not new:
        ids = ((2, removed),) if removed else ()
        return Operation.DELETE, Message.of(*((1, one.pack()) for one in updated), *ids, (3, "true"))
    gone = ((1, removed),) if removed else ()
    return Operation.UPDATE, Message.of(
        *gone, *((2, one.pack()) for one in updated), *((3, one.pack()) for one in new)
    )


def _check_alike(base: Manifest, source: Manifest, target: Manifest) -> None:
    if not base.schema == source.schema == target.schema:
        raise Ungraftable("was changed on both sides, and its columns are others on one of them")
    if source.settings != base.settings:
        raise Ungraftable("was changed on both sides, and its settings were on the other one")


def _places(bases: Iterable[Base], folder: str) -> Mapping[int | None, Base]:
    return {None: Base(-1, folder), **{one.id: one for one in bases}}


def _located(side: Side) -> _Fragments:
    places = _places(side.manifest.bases, side.folder)
    found: _Fragments = {}
    for fragment in side.manifest.fragments:
        files = []
        for file in map(Message.read, fragment.all(FILES)):
            base = places.get(file.number(BASE_OF_FILE))
            if base is None:
                raise Immovable(f"names the base {file.number(BASE_OF_FILE)}, which it does not have")
            files.append(
                f"{base.path}/data/{file.text(1)}" if base.is_root else f"{base.path}/{file.text(1)}"
            )
        if not files or files[0] in found:
            raise Ungraftable("has fragments that cannot be told apart by their data files")
        found[files[0]] = _Fragment(fragment, tuple(files))
    return found


def _told(operations: Iterable[Operation]) -> list[str]:
    unknown = "something that is not known, since versions were deleted or a newer Lance made them"
    return sorted(unknown if one is Operation.OTHER else one.value for one in operations)


def _listed(names: Collection[str]) -> str:
    return " and ".join(names)
