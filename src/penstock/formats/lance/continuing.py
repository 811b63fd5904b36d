"""Continuing: whether a new version of a table is the one before it with what its transaction says was done.

A writer that was overtaken works out from the folder what came in between, and takes the version that it
finds there under a number for the lake's. It need not be: the lake's own one may wait to be promoted, or be
in a transaction, or somebody may have written past the lake. Whatever the lake's version has and the other
one has not would be lost, though the numbers are right.

What is compared is where rows lie: the data files of fragments and their files of deleted rows. Fragments
that are the same bytes are not read, so that a large table costs little.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from penstock.formats.lance.manifests import Manifest, ManifestOperation
from penstock.formats.lance.rehoming import BASE_OF_FILE, DELETION_FILE, FILES, FRAGMENT_ID, INDEX_UUID
from penstock.formats.lance.wire import Message, unpacked_numbers

ANEW: Final = frozenset((ManifestOperation.OVERWRITE, ManifestOperation.RESTORE, ManifestOperation.CLONE))
"""What makes a table of something else than its predecessor."""
_FRAGMENTS: Final = 2
_OVERLAYS: Final = 11
"""From here on fields of a fragment are not known here, and are compared as they are."""
_NEXT_ROW_ID: Final = 14
_RESHAPING: Final = frozenset((ManifestOperation.MERGE, ManifestOperation.PROJECT, ManifestOperation.CONFIG))
_UNINDEXED: Final = frozenset(
    (
        ManifestOperation.APPEND,
        ManifestOperation.CONFIG,
        ManifestOperation.RESERVE,
        ManifestOperation.CREATE_INDEX,
    )
)
"""What leaves every index as it is that it does not name. Others may make one useless, which then goes."""
_OWN_INDEXES: Final = "__lance_"


class Gap(NamedTuple):
    """What a version does not have of its predecessor, or has of another one."""

    why: str
    is_sure: bool
    """Whether no writer comes to that who went on from the predecessor. Otherwise one of Lance's versions
    may, and it is to be looked at what else it could have gone on from."""


class _Said(NamedTuple):
    """What a transaction says that it did to fragments."""

    new: frozenset[tuple[tuple[str | None, int | None], ...]] = frozenset()
    """By their data files, since their numbers come later."""
    updated: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    is_known: bool = True
    """Whether it is understood here."""
    is_whole: bool = False
    """Whether it names all fragments that are left."""
    is_narrowing: bool = False
    """Whether it drops columns, and with them files in which there are no others."""


class _Fragment(NamedTuple):
    number: int
    files: tuple[tuple[str | None, int | None], ...]
    """Each by its name and its base."""
    deletions: tuple[int | None, ...]
    others: tuple[object, ...]

    @staticmethod
    def read(data: bytes) -> _Fragment:
        found = Message.read(data)
        deletion = found.message(DELETION_FILE) or Message()
        return _Fragment(
            found.number(FRAGMENT_ID) or 0,
            tuple(_file(one) for one in found.all(FILES)),
            (*(deletion.number(field) or 0 for field in (1, 2, 3, 4)), deletion.number(BASE_OF_FILE)),
            tuple(field for field in found if field.number >= _OVERLAYS),
        )


def gap(before: Manifest, after: Manifest) -> Gap | None:
    """Why a version does not continue another one, if so. ``Malformed`` if one cannot be read."""
    operation = after.operation
    if operation in ANEW:
        return None
    said = _said(after.transaction or Message())
    return _of_fragments(before, after, said) or _of_table(before, after) or _of_indexes(before, after)


def _of_fragments(before: Manifest, after: Manifest, said: _Said) -> Gap | None:
    was, now = before.body.all(_FRAGMENTS), after.body.all(_FRAGMENTS)
    if was == now:
        return None
    left, known = set(was), set(now)
    gone = {one.number: one for one in map(_Fragment.read, (one for one in was if one not in known))}
    come = [_Fragment.read(one) for one in now if one not in left]
    for one in come:
        former = gone.pop(one.number, None)
        if former is None:
            if one.files not in said.new:
                return _lacking(
                    said, f"has a fragment {one.number} that neither it nor its predecessor names"
                )
        elif former != one and (problem := _of_update(former, one, said)) is not None:
            return problem
    if lost := sorted(gone.keys() - said.removed):
        return _lacking(said, f"has lost fragment {lost[0]}, which its transaction does not remove")
    return None


def _of_update(former: _Fragment, one: _Fragment, said: _Said) -> Gap | None:
    """A fragment that is another one than before: its transaction must have named it."""
    if one.number in said.removed and one.files in said.new:
        return None
    is_narrowed = set(one.files) < set(former.files) and former._replace(files=one.files) == one
    if is_narrowed and said.is_narrowing:
        return None
    if one.number not in said.updated:
        return _lacking(said, f"has another fragment {one.number}, which its transaction does not change")
    if not set(former.files) & set(one.files):
        return Gap(f"has another fragment {one.number} of the same number", is_sure=False)
    if former.deletions != one.deletions and said.is_whole:
        return Gap(f"has other rows deleted in fragment {one.number}", is_sure=False)
    return None


def _lacking(said: _Said, why: str) -> Gap:
    return Gap(why, is_sure=said.is_known and not said.is_whole)


def _of_table(before: Manifest, after: Manifest) -> Gap | None:
    operation = after.operation
    if operation not in _RESHAPING and not after.has_schema_of(before):
        return Gap("has other columns", is_sure=False)
    if operation is not ManifestOperation.CONFIG and not after.has_settings_of(before):
        return Gap("has other settings", is_sure=False)
    if after.max_fragment_id < before.max_fragment_id:
        return Gap("numbers fragments anew", is_sure=False)
    if (after.body.number(_NEXT_ROW_ID) or 0) < (before.body.number(_NEXT_ROW_ID) or 0):
        return Gap("numbers rows anew", is_sure=False)
    return None


def _of_indexes(before: Manifest, after: Manifest) -> Gap | None:
    was, now = ({_uuid(one): one for one in side.indexes} for side in (before, after))
    if was.keys() == now.keys():
        return None
    new, removed, names = _said_of_indexes(after.transaction or Message())
    for uuid, index in now.items():
        if uuid not in was and uuid not in new and not (index.text(3) or "").startswith(_OWN_INDEXES):
            return Gap("has an index that neither it nor its predecessor names", is_sure=False)
    for uuid, index in was.items():
        is_named = uuid in removed or index.text(3) in names
        if uuid not in now and not is_named and after.operation in _UNINDEXED:
            return Gap("has lost an index", is_sure=False)
    return None


# -- transactions ------------------------------------------------------------------------------------------


def _said(transaction: Message) -> _Said:
    """What a transaction says of fragments, by the numbers that Lance gives its operations."""
    for field in transaction:
        if field.number < 100 or not isinstance(field.value, bytes):
            continue
        what = Message.read(field.value)
        match field.number:
            case 100:
                return _Said(new=_files(what.all(1)))
            case 101:
                return _Said(updated=_ids(what.all(1)), removed=_numbers(what, 2))
            case 104:
                groups = [what, *map(Message.read, what.all(3))]
                new = frozenset(files for one in groups for files in _files(one.all(2)))
                return _Said(new, removed=frozenset(old for one in groups for old in _ids(one.all(1))))
            case 105:
                return _Said(_files(what.all(1)), updated=_ids(what.all(1)), is_whole=True)
            case 108:
                return _Said(_files(what.all(3)), _ids(what.all(2)), _numbers(what, 1))
            case 111 | 115:
                groups = [Message.read(one) for one in what.all(1)]
                return _Said(updated=frozenset(one.number(1) or 0 for one in groups))
            case 109:
                return _Said(is_narrowing=True)
            case 103 | 107 | 110 | 112 | 114 | 116:
                return _Said()
    return _Said(is_known=False)


def _said_of_indexes(transaction: Message) -> tuple[set[bytes], set[bytes], set[str | None]]:
    """The indexes that a transaction makes and removes, and the names under which it makes them."""
    if (what := transaction.message(103)) is not None:
        new, removed = ([Message.read(one) for one in what.all(field)] for field in (1, 2))
        return {*map(_uuid, new)}, {*map(_uuid, removed)}, {one.text(3) for one in new}
    if (what := transaction.message(104)) is not None:
        pairs = [Message.read(one) for one in what.all(4)]
        return {_last(one, 2) for one in pairs}, {_last(one, 1) for one in pairs}, set()
    return set(), set(), set()


def _uuid(index: Message) -> bytes:
    return _last(index, INDEX_UUID)


def _last(message: Message, field: int) -> bytes:
    found = message.all(field)
    return found[-1] if found else b""


def _file(data: bytes) -> tuple[str | None, int | None]:
    found = Message.read(data)
    return found.text(1), found.number(BASE_OF_FILE)


def _files(fragments: Iterable[bytes]) -> frozenset[tuple[tuple[str | None, int | None], ...]]:
    return frozenset(_Fragment.read(one).files for one in fragments)


def _ids(fragments: Iterable[bytes]) -> frozenset[int]:
    return frozenset(Message.read(one).number(FRAGMENT_ID) or 0 for one in fragments)


def _numbers(message: Message, field: int) -> frozenset[int]:
    return frozenset(_each_number(message, field))


def _each_number(message: Message, field: int) -> Iterator[int]:
    """The integers of a list, written as one field or as many."""
    for one in message:
        if one.number == field:
            yield from (one.value,) if isinstance(one.value, int) else unpacked_numbers(one.value)
