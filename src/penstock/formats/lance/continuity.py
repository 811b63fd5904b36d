"""Whether a new version of a table is the one before it with what its transaction says was done.

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
from penstock.formats.lance.protobuf import ProtobufMessage, unpack_numbers
from penstock.formats.lance.relocation import BASE_OF_FILE, DELETION_FILE, FILES, FRAGMENT_ID, INDEX_UUID

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


class VersionGap(NamedTuple):
    """What a version does not have of its predecessor, or has of another one."""

    why: str
    is_sure: bool
    """Whether no writer comes to that who went on from the predecessor. Otherwise one of Lance's versions
    may, and it is to be looked at what else it could have gone on from."""


class _ChangedFragments(NamedTuple):
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


class _FragmentFiles(NamedTuple):
    number: int
    files: tuple[tuple[str | None, int | None], ...]
    """Each by its name and its base."""
    deletions: tuple[int | None, ...]
    others: tuple[object, ...]

    @staticmethod
    def parse_fragment(data: bytes) -> _FragmentFiles:
        message = ProtobufMessage.decode(data)
        deletion = message.get_message(DELETION_FILE) or ProtobufMessage()
        return _FragmentFiles(
            message.get_number(FRAGMENT_ID) or 0,
            tuple(_read_file_key(data) for data in message.get_values(FILES)),
            (*(deletion.get_number(field) or 0 for field in (1, 2, 3, 4)), deletion.get_number(BASE_OF_FILE)),
            tuple(field for field in message if field.number >= _OVERLAYS),
        )


def find_gap(before: Manifest, after: Manifest) -> VersionGap | None:
    """Why a version does not continue another one, or ``None`` if it does. ``MalformedMessage`` if one cannot
    be read."""
    operation = after.operation
    if operation in ANEW:
        return None
    changed_fragments = _read_changed_fragments(after.transaction or ProtobufMessage())
    return (
        _find_fragment_gap(before, after, changed_fragments)
        or _find_table_gap(before, after)
        or _find_index_gap(before, after)
    )


def _find_fragment_gap(before: Manifest, after: Manifest, changes: _ChangedFragments) -> VersionGap | None:
    old_fragments, now = before.body.get_values(_FRAGMENTS), after.body.get_values(_FRAGMENTS)
    if old_fragments == now:
        return None
    old_set, new_set = set(old_fragments), set(now)
    gone = {
        data.number: data
        for data in map(
            _FragmentFiles.parse_fragment, (data for data in old_fragments if data not in new_set)
        )
    }
    come = [_FragmentFiles.parse_fragment(data) for data in now if data not in old_set]
    for fragment in come:
        former = gone.pop(fragment.number, None)
        if former is None:
            if fragment.files not in changes.new:
                return _make_unrecorded_change_gap(
                    changes, f"has a fragment {fragment.number} that neither it nor its predecessor names"
                )
        elif former != fragment and (problem := _find_update_gap(former, fragment, changes)) is not None:
            return problem
    if lost := sorted(gone.keys() - changes.removed):
        return _make_unrecorded_change_gap(
            changes, f"has lost fragment {lost[0]}, which its transaction does not remove"
        )
    return None


def _find_update_gap(
    former: _FragmentFiles, fragment: _FragmentFiles, changes: _ChangedFragments
) -> VersionGap | None:
    """A fragment that is another one than before: its transaction must have named it."""
    if fragment.number in changes.removed and fragment.files in changes.new:
        return None
    is_narrowed = (
        set(fragment.files) < set(former.files) and former._replace(files=fragment.files) == fragment
    )
    if is_narrowed and changes.is_narrowing:
        return None
    if fragment.number not in changes.updated:
        return _make_unrecorded_change_gap(
            changes, f"has another fragment {fragment.number}, which its transaction does not change"
        )
    if not set(former.files) & set(fragment.files):
        return VersionGap(f"has a different fragment with the number {fragment.number}", is_sure=False)
    if former.deletions != fragment.deletions and changes.is_whole:
        return VersionGap(f"has other rows deleted in fragment {fragment.number}", is_sure=False)
    return None


def _make_unrecorded_change_gap(changes: _ChangedFragments, why: str) -> VersionGap:
    return VersionGap(why, is_sure=changes.is_known and not changes.is_whole)


def _find_table_gap(before: Manifest, after: Manifest) -> VersionGap | None:
    operation = after.operation
    if operation not in _RESHAPING and not after.has_schema_of(before):
        return VersionGap("has other columns", is_sure=False)
    if operation is not ManifestOperation.CONFIG and not after.has_settings_of(before):
        return VersionGap("has other settings", is_sure=False)
    if after.max_fragment_id < before.max_fragment_id:
        return VersionGap("reuses numbers of fragments", is_sure=False)
    if (after.body.get_number(_NEXT_ROW_ID) or 0) < (before.body.get_number(_NEXT_ROW_ID) or 0):
        return VersionGap("reuses ids of rows", is_sure=False)
    return None


def _find_index_gap(before: Manifest, after: Manifest) -> VersionGap | None:
    old_indexes, now = ({_get_index_uuid(index): index for index in side.indexes} for side in (before, after))
    if old_indexes.keys() == now.keys():
        return None
    new, removed, names = _read_changed_indexes(after.transaction or ProtobufMessage())
    for uuid, index in now.items():
        if (
            uuid not in old_indexes
            and uuid not in new
            and not (index.get_text(3) or "").startswith(_OWN_INDEXES)
        ):
            return VersionGap("has an index that neither it nor its predecessor names", is_sure=False)
    for uuid, index in old_indexes.items():
        is_named = uuid in removed or index.get_text(3) in names
        if uuid not in now and not is_named and after.operation in _UNINDEXED:
            return VersionGap("has lost an index", is_sure=False)
    return None


# -- transactions ------------------------------------------------------------------------------------------


def _read_changed_fragments(transaction: ProtobufMessage) -> _ChangedFragments:
    """The fragments that a transaction says it adds, removes and changes, by the field numbers of Lance's
    operations."""
    for field in transaction:
        if field.number < 100 or not isinstance(field.value, bytes):
            continue
        what = ProtobufMessage.decode(field.value)
        match field.number:
            case 100:
                return _ChangedFragments(new=_list_file_keys(what.get_values(1)))
            case 101:
                return _ChangedFragments(
                    updated=_list_fragment_ids(what.get_values(1)), removed=_read_numbers(what, 2)
                )
            case 104:
                groups = [what, *map(ProtobufMessage.decode, what.get_values(3))]
                new = frozenset(files for group in groups for files in _list_file_keys(group.get_values(2)))
                return _ChangedFragments(
                    new,
                    removed=frozenset(
                        old for group in groups for old in _list_fragment_ids(group.get_values(1))
                    ),
                )
            case 105:
                return _ChangedFragments(
                    _list_file_keys(what.get_values(1)),
                    updated=_list_fragment_ids(what.get_values(1)),
                    is_whole=True,
                )
            case 108:
                return _ChangedFragments(
                    _list_file_keys(what.get_values(3)),
                    _list_fragment_ids(what.get_values(2)),
                    _read_numbers(what, 1),
                )
            case 111 | 115:
                groups = [ProtobufMessage.decode(data) for data in what.get_values(1)]
                return _ChangedFragments(updated=frozenset(group.get_number(1) or 0 for group in groups))
            case 109:
                return _ChangedFragments(is_narrowing=True)
            case 103 | 107 | 110 | 112 | 114 | 116:
                return _ChangedFragments()
    return _ChangedFragments(is_known=False)


def _read_changed_indexes(transaction: ProtobufMessage) -> tuple[set[bytes], set[bytes], set[str | None]]:
    """The indexes that a transaction makes and removes, and the names under which it makes them."""
    if (what := transaction.get_message(103)) is not None:
        new, removed = ([ProtobufMessage.decode(data) for data in what.get_values(field)] for field in (1, 2))
        return (
            {*map(_get_index_uuid, new)},
            {*map(_get_index_uuid, removed)},
            {message.get_text(3) for message in new},
        )
    if (what := transaction.get_message(104)) is not None:
        pairs = [ProtobufMessage.decode(data) for data in what.get_values(4)]
        return (
            {_get_last_value(pair, 2) for pair in pairs},
            {_get_last_value(pair, 1) for pair in pairs},
            set(),
        )
    return set(), set(), set()


def _get_index_uuid(index: ProtobufMessage) -> bytes:
    return _get_last_value(index, INDEX_UUID)


def _get_last_value(message: ProtobufMessage, field: int) -> bytes:
    values = message.get_values(field)
    return values[-1] if values else b""


def _read_file_key(data: bytes) -> tuple[str | None, int | None]:
    message = ProtobufMessage.decode(data)
    return message.get_text(1), message.get_number(BASE_OF_FILE)


def _list_file_keys(fragments: Iterable[bytes]) -> frozenset[tuple[tuple[str | None, int | None], ...]]:
    return frozenset(_FragmentFiles.parse_fragment(fragment).files for fragment in fragments)


def _list_fragment_ids(fragments: Iterable[bytes]) -> frozenset[int]:
    return frozenset(ProtobufMessage.decode(fragment).get_number(FRAGMENT_ID) or 0 for fragment in fragments)


def _read_numbers(message: ProtobufMessage, field: int) -> frozenset[int]:
    return frozenset(_list_numbers(message, field))


def _list_numbers(message: ProtobufMessage, field: int) -> Iterator[int]:
    """The integers of a list, written as one field or as many."""
    for field_value in message:
        if field_value.number == field:
            yield from (
                (field_value.value,)
                if isinstance(field_value.value, int)
                else unpack_numbers(field_value.value)
            )
