"""Columns: whether rows that were written for the columns of one version can be read with those of another.

Lance finds a column in a data file by its number. A file without it has nulls there, and one with a column
that the table does not have any more is read without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.formats.lance.manifests import Manifest
from penstock.formats.lance.protobuf import ProtobufMessage

_NAME: Final = 2
_ID: Final = 3
_PARENT: Final = 4
_NULLABLE: Final = 6
_NO_PARENT: Final = 2**64 - 1


class _ComparedColumn(NamedTuple):
    name: str
    parent: int
    is_nullable: bool
    rest: ProtobufMessage
    """Whatever else is said of it."""


def explain_unreadable_columns(written: Manifest, read: Manifest) -> str | None:
    """Why rows that were written for the columns of one version do not fit those of another, if so.

    The reason continues a sentence about one of two sides.
    """
    then, now = _index_columns_by_id(written), _index_columns_by_id(read)
    dropped = {then[number].name for number in then.keys() - now.keys()}
    for number, column in now.items():
        before = then.get(number)
        if before is not None:
            if before._replace(name=column.name) != column:
                return f"its column '{column.name}' was changed"
        elif column.name in dropped:
            return f"its column '{column.name}' was replaced"
        elif column.parent in then or not column.is_nullable:
            return f"it got a column '{column.name}' that is not nullable"
    return None


class ColumnsClash(Exception):
    """Columns were changed again since, so that a change of them cannot be undone. Names one of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def revert_fields(before: Manifest, after: Manifest, now: Manifest) -> Sequence[bytes] | None:
    """The columns of a version without the change of columns between two others; ``None`` if it changes none.

    ``ColumnsClash`` if one that was changed then was changed again since. A number tells a column only as
    long as it is not given to another one, which Lance may do: that is such a change.
    """
    if after.has_schema_of(before) or now.schema[0] == before.schema[0]:
        return None
    if now.schema[0] == after.schema[0]:
        return before.fields
    old_columns, new_columns, here = (_pair_columns_by_number(manifest) for manifest in (before, after, now))
    fields = {number: raw for number, (_, raw) in here.items()}
    for number in old_columns.keys() | new_columns.keys():
        old_column, made, column = (
            columns.get(number, _NOTHING) for columns in (old_columns, new_columns, here)
        )
        if old_column[0] == made[0] or column[0] == old_column[0]:
            continue
        if column[0] != made[0]:
            raise ColumnsClash(_get_name(made[1] or old_column[1]))
        if old_column[1]:
            fields[number] = old_column[1]
        else:
            del fields[number]
    _check_tree(fields)
    return tuple(fields.values())


def list_column_numbers(manifest: Manifest) -> frozenset[int]:
    """The numbers of its columns, with those inside of others."""
    return frozenset(_pair_columns_by_number(manifest))


_NOTHING: Final = (b"", b"")


def _pair_columns_by_number(manifest: Manifest) -> dict[int, tuple[bytes, bytes]]:
    """Each column as it is to be compared, and as it is written."""
    return {
        ProtobufMessage.decode(raw).get_number(_ID) or 0: (compared, raw)
        for compared, raw in zip(manifest.schema[0], manifest.fields, strict=True)
    }


def _get_name(field: bytes) -> str:
    return ProtobufMessage.decode(field).get_text(_NAME) or ""


def _check_tree(fields: Mapping[int, bytes]) -> None:
    """Every column has its parent, and no other one of its name beside it."""
    seen: set[tuple[int, str]] = set()
    for raw in fields.values():
        field = ProtobufMessage.decode(raw)
        parent = field.get_number(_PARENT)
        place = _NO_PARENT if parent is None else parent, field.get_text(_NAME) or ""
        if place in seen or place[0] not in (*fields, _NO_PARENT):
            raise ColumnsClash(place[1])
        seen.add(place)


def has_more_columns(manifest: Manifest, other: Manifest) -> bool:
    return bool(_index_columns_by_id(manifest).keys() - _index_columns_by_id(other).keys())


def _index_columns_by_id(manifest: Manifest) -> dict[int, _ComparedColumn]:
    columns: dict[int, _ComparedColumn] = {}
    for field in map(ProtobufMessage.decode, manifest.schema[0]):
        parent = field.get_number(_PARENT)
        columns[field.get_number(_ID) or 0] = _ComparedColumn(
            field.get_text(_NAME) or "",
            _NO_PARENT if parent is None else parent,
            bool(field.get_number(_NULLABLE)),
            field.replace_field(_NAME),
        )
    return columns
