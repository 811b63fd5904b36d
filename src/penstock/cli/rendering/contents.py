"""Contents and changes of contents, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from penstock.cli.format_cli import find_format_cli
from penstock.cli.rendering.screen import Screen, escape_controls
from penstock.cli.rendering.text_columns import Row, StyledText, align_columns
from penstock.cli.rendering.times import format_count, format_size
from penstock.errors import Damaged
from penstock.model.content import AnyContent, Content
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary


class ChangedContent(Protocol):
    """A key, and what it held before and after."""

    @property
    def key(self) -> Key: ...
    @property
    def before(self) -> AnyContent | None: ...
    @property
    def after(self) -> AnyContent | None: ...


SIGN_STYLES = {"+": "added", "-": "removed", "~": "changed", "=": "dim"}


def difference_sign(before: AnyContent | None, after: AnyContent | None) -> str:
    """``+`` added, ``-`` removed, ``~`` changed, ``=`` the same."""
    if before == after:
        return "="
    return "+" if before is None else "-" if after is None else "~"


def describe_location(content: Content) -> str:
    """Where a content says that its table is, if it does."""
    return escape_controls(getattr(content, "metadata_location", "") or getattr(content, "location", ""))


def describe_version(content: Content | None) -> str:
    """The version of a table that the lake manages, as its format tells it; empty for all others."""
    format_cli = find_format_cli(content)
    if format_cli is not None:
        with suppress(Damaged):  # 'fsck' tells of it; a list goes on
            return format_cli.describe_version(content)
    return ""


def summarize_content(content: Content) -> str:
    """A content in a few words."""
    return " ".join(filter(None, (content.type, describe_version(content), describe_location(content))))


def list_fields(content: Content) -> list[tuple[str, str]]:
    """What a content says, without what it leaves at its default."""
    format_cli = find_format_cli(content)
    if format_cli is not None:
        with suppress(Damaged):
            facts = format_cli.describe_fields(content)
            if facts is not None:
                return [(name, text) for name, text in facts if text]
    shown = []
    for field in msgspec.structs.fields(content):
        value = getattr(content, field.name)
        if value is not None and value != field.default and value not in ((), {}):
            shown.append((field.name, _format_value(value)))
    return shown


def _format_value(value: object) -> str:
    if isinstance(value, bytes):
        return format_size(len(value))
    if isinstance(value, tuple):
        return ", ".join(
            item.hex() if isinstance(item, bytes) else escape_controls(str(item)) for item in value
        )
    if isinstance(value, dict):
        return ", ".join(f"{escape_controls(name)}={escape_controls(text)}" for name, text in value.items())
    return escape_controls(str(value))


def describe_change(before: AnyContent | None, after: AnyContent | None) -> str:
    """What became of a content: what it is, or was, or which of its fields changed and how."""
    if before is None or after is None:
        content = after if after is not None else before
        return summarize_content(content) if content is not None else ""
    if before.type != after.type:
        return f"{summarize_content(before)} → {summarize_content(after)}"
    format_cli = find_format_cli(after)
    is_same_table = before.id == after.id and describe_location(before) == describe_location(after)
    if format_cli is not None and format_cli is find_format_cli(before) and is_same_table:
        with suppress(Damaged):
            change = format_cli.describe_change(before, after)
            if change is not None:
                return change
    changed = []
    for field in msgspec.structs.fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            changed.append(_describe_field_change(field.name, old, new))
    if before.id != after.id:
        changed = ["dropped and created again", *(text for text in changed if not text.startswith("id "))]
    return ", ".join(changed)


def format_file_counts(counts: ChangeSummary) -> str:
    """What a change does to a table: ``3 files added, 1 removed, 120 rows added, 4 removed``."""
    files = _format_added_and_removed(counts.files_added, counts.files_removed, "file")
    if counts.files_changed:
        changed = f"{counts.files_changed:,}" if files else format_count(counts.files_changed, "file")
        files.append(f"{changed} changed")
    if counts.files_added is None and counts.files_removed is None:
        return "files unknown"
    if not files:
        return "no files added or removed"
    is_known = counts.rows_added is not None and counts.rows_removed is not None
    rows = _format_added_and_removed(counts.rows_added, counts.rows_removed, "row")
    has_versions = counts.version_before is not None or counts.version_after is not None
    return ", ".join([*files, *(rows if is_known else ["rows unknown"] if has_versions else [])])


def _format_added_and_removed(added: int | None, removed: int | None, thing: str) -> list[str]:
    phrases = [f"{format_count(added, thing)} added"] if added else []
    if removed:
        phrases.append(f"{removed:,} removed" if phrases else f"{format_count(removed, thing)} removed")
    return phrases


def _describe_field_change(name: str, old: object, new: object) -> str:
    if isinstance(old, bytes | tuple | dict):
        return f"{name} changed"
    return (
        f"{name} {_shorten_common_folders(_format_value(old), _format_value(new))} → "
        f"{_shorten_common_folders(_format_value(new), _format_value(old))}"
    )


def _shorten_common_folders(text: str, other: str) -> str:
    """A path without the directories that it has in common with another."""
    mine, theirs = text.split("/"), other.split("/")
    same = 0
    while same < min(len(mine), len(theirs)) - 1 and mine[same] == theirs[same]:
        same += 1
    if same < 2:
        return text or '""'
    return "…/" + "/".join(mine[same:])


def format_changes(screen: Screen, changed: Sequence[ChangedContent], indent: str = "  ") -> Iterator[str]:
    """One line for each key: its sign, its name, and what became of it."""
    return align_columns(
        screen, [format_change_row(changed_content) for changed_content in changed], indent=indent, flexible=1
    )


def format_change_row(changed_content: ChangedContent) -> Row:
    mark = difference_sign(changed_content.before, changed_content.after)
    style = SIGN_STYLES[mark]
    return [
        StyledText(f"{mark} {escape_controls(str(changed_content.key))}", style),
        describe_change(changed_content.before, changed_content.after),
    ]
