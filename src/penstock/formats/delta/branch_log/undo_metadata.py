"""Undoing a change of a Delta table's metadata, where the metadata and the files may have changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.formats.delta.protocol.actions import Add, Metadata
from penstock.formats.delta.protocol.added_columns import can_hold_files, only_adds_columns
from penstock.formats.delta.protocol.column_mapping import MAX_ID, stored_name
from penstock.formats.delta.protocol.column_rules import keep_marks, remove_identity_marks
from penstock.formats.delta.protocol.commit_summary import list_first_names
from penstock.formats.rows.schema import StructType, parse_schema, write_schema

_BINDS_FILES: Final = ("delta.constraints.", "delta.columnMapping.mode")
"""How properties begin that ask something of the rows that are there."""


class UndoneMetadata(msgspec.Struct, frozen=True):
    """What metadata becomes without a change."""

    metadata: Metadata
    changed_since: list[str]
    """What the change had changed and others have changed since, each in words."""
    used: dict[str, list[str]]
    """What files that came since need, in words, with their paths."""


def undo_metadata(
    before: Metadata,
    after: Metadata,
    now: Metadata,
    files_since: Callable[[], Sequence[Add]],
    rewritten_since: Callable[[], Sequence[Add]],
) -> UndoneMetadata:
    """The metadata ``now`` without what made ``after`` of ``before``.

    Of each property and field what it was before, if it is still as the change left it. ``rewritten_since``
    are those of the files since that have rows of others.
    """
    marked = now
    before, after, now = map(remove_identity_marks, (before, after, now))
    changed: list[str] = []
    used: dict[str, list[str]] = {}
    configuration = dict(now.configuration)
    for name in sorted(before.configuration.keys() | after.configuration.keys()):
        old_value, became, is_now = (metadata.configuration.get(name) for metadata in (before, after, now))
        if old_value == became or is_now == old_value or name == MAX_ID:
            continue
        if is_now != became:
            changed.append(f"the property '{name}'")
        elif name.startswith(_BINDS_FILES) and (since := files_since()):
            used[f"the property '{name}' cannot be undone, because files were added since"] = _shorten_paths(
                since
            )
        elif old_value is None:
            del configuration[name]
        else:
            configuration[name] = old_value
    fields: dict[str, Any] = {"configuration": configuration}
    for field in ("name", "description", "partition_columns", "format"):
        old_value, became, is_now = (getattr(metadata, field) for metadata in (before, after, now))
        if old_value == became or is_now == old_value:
            continue
        if is_now != became:
            changed.append(f"the table's {field.replace('_', ' ')}")
        elif field == "partition_columns" and (since := files_since()):
            used["files were added since that are partitioned in this way"] = _shorten_paths(since)
        else:
            fields[field] = old_value
    schema_string = _undo_schema(before.schema_string, after.schema_string, now.schema_string)
    if schema_string is None:
        changed.append("a column that it changed")
    elif schema_string != now.schema_string:
        fields["schema_string"] = schema_string
        names = _find_lost_columns(schema_string, now.schema_string)
        if files := _list_files_with_columns(schema_string, now.schema_string, names, files_since):
            shown_names = list_first_names([f"'{name}'" for name in names]) or "others"
            used[f"rows were added since that may use the columns {shown_names}"] = files
        for name, files in _find_columns_without_values(schema_string, now.schema_string, rewritten_since):
            used[f"rows were written anew since, without their values of '{name}'"] = files
    # How far numbers were given away is not undone.
    undone = keep_marks(msgspec.structs.replace(now, **fields), marked)
    if parse_schema(undone.schema_string) == parse_schema(marked.schema_string):
        undone = msgspec.structs.replace(undone, schema_string=marked.schema_string)  # as it is spelled
    return UndoneMetadata(undone, changed, used)


def _undo_schema(before: str, after: str, now: str) -> str | None:
    """A schema without a change; ``None`` if it was changed since in a way that does not go with that."""
    if before == after or now == before:
        return now
    if now == after:
        return before
    if not only_adds_columns(before, after):
        return None
    old_schema, became, schema = parse_schema(before), parse_schema(after), parse_schema(now)
    fields = []
    for field in schema.fields:
        known_field, added = old_schema.field(field.name), became.field(field.name)
        if known_field is None and added is not None:
            if added != field:
                return None
            continue
        if known_field != added:
            return None  # parts of a column were added
        fields.append(field)
    return write_schema(StructType(tuple(fields)))


def _find_lost_columns(schema_string: str, now: str) -> list[str]:
    remaining_schema = parse_schema(schema_string)
    return [field.name for field in parse_schema(now).fields if remaining_schema.field(field.name) is None]


def _list_files_with_columns(
    schema_string: str, now: str, lost: Sequence[str], files_since: Callable[[], Sequence[Add]]
) -> list[str]:
    """The files that came since and may have values which the schema would not show."""
    schema = parse_schema(now)
    remaining_schema = StructType(tuple(field for field in schema.fields if field.name not in lost))
    stored = [stored_name(field) for field in schema.fields if field.name in lost]
    if not can_hold_files(schema_string, write_schema(remaining_schema)):
        return _shorten_paths(files_since())
    return [file.key.path for file in files_since() if not all(_is_null(file, name) for name in stored)]


def _find_columns_without_values(
    schema_string: str, now: str, rewritten_since: Callable[[], Sequence[Add]]
) -> Iterator[tuple[str, list[str]]]:
    """The columns that would come back, each with the files whose rows had values of it that are lost."""
    present = {stored_name(field) for field in parse_schema(now).walk()}
    returning = [field for field in parse_schema(schema_string).walk() if stored_name(field) not in present]
    for field in returning:
        if files := [
            file for file in rewritten_since() if not _has_statistics_of_column(file, stored_name(field))
        ]:
            yield field.name, _shorten_paths(files)


def _has_statistics_of_column(file: Add, name: str) -> bool:
    """Whether a file's statistics tell of a column, at any depth."""
    try:
        waiting = [msgspec.json.decode(file.stats or "{}").get("nullCount")]
    except (msgspec.MsgspecError, AttributeError):
        return False
    while waiting:
        counts = waiting.pop()
        if isinstance(counts, dict):
            if name in counts:
                return True
            waiting += counts.values()
    return False


def _is_null(file: Add, name: str) -> bool:
    """Whether a file's statistics tell that it has no value in a column."""
    try:
        stats = msgspec.json.decode(file.stats or "{}")
        rows, nulls = stats.get("numRecords"), stats.get("nullCount", {}).get(name)
    except (msgspec.MsgspecError, AttributeError):
        return False
    return isinstance(rows, int) and rows == nulls


def _shorten_paths(files: Sequence[Add]) -> list[str]:
    return [file.key.path for file in files]
