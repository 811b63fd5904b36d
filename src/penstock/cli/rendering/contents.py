"""Contents and changes of contents, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from penstock.cli.rendering.columns import Cell, Row, columns
from penstock.cli.rendering.screen import Screen, printable
from penstock.cli.rendering.times import counted, size
from penstock.errors import Damaged
from penstock.formats.files.content import FilesTable
from penstock.formats.lance.content import LanceTable
from penstock.model.content import AnyContent, Content
from penstock.model.keys import Key
from penstock.model.merges import ChangeSummary
from penstock.model.nessie import DeltaTable

if TYPE_CHECKING:
    from penstock.formats.delta.lines.line import Line
    from penstock.formats.files.files import FilesState
    from penstock.formats.lance.state import LanceState


class Changed(Protocol):
    """A key, and what it held before and after."""

    @property
    def key(self) -> Key: ...
    @property
    def before(self) -> AnyContent | None: ...
    @property
    def after(self) -> AnyContent | None: ...


SIGN_STYLES = {"+": "added", "-": "removed", "~": "changed", "=": "dim"}


def sign(before: AnyContent | None, after: AnyContent | None) -> str:
    """``+`` added, ``-`` removed, ``~`` changed, ``=`` the same."""
    if before == after:
        return "="
    return "+" if before is None else "-" if after is None else "~"


def place(content: Content) -> str:
    """Where a content says that its table is, if it does."""
    return printable(getattr(content, "metadata_location", "") or getattr(content, "location", ""))


def version(content: Content | None) -> str:
    """The version of a Delta or Lance table whose commits the lake decides, as ``v118``; how many files a
    table of files has; empty for all others."""
    line, files, lance = _line(content), _files(content), _lance(content)
    if files is not None:
        return counted(files.files, "file")
    if lance is not None:
        return f"v{lance.newest}" if lance.newest else ""
    return f"v{line.latest}" if line is not None else ""


def _line(content: Content | None) -> Line | None:
    if not isinstance(content, DeltaTable) or not content.is_managed:
        return None
    from penstock.formats.delta.lines.line import line_of

    with suppress(Damaged):  # 'fsck' tells of it; a list goes on
        return line_of(content)
    return None


def _files(content: Content | None) -> FilesState | None:
    if not isinstance(content, FilesTable) or not content.state:
        return None
    from penstock.formats.files.files import state_of

    with suppress(Damaged):
        return state_of(content)
    return None


def _lance(content: Content | None) -> LanceState | None:
    if not isinstance(content, LanceTable) or not content.state:
        return None
    from penstock.formats.lance.state import state_of

    with suppress(Damaged):
        return state_of(content)
    return None


def summary(content: Content) -> str:
    """A content in a few words."""
    return " ".join(filter(None, (content.type, version(content), place(content))))


def fields(content: Content) -> list[tuple[str, str]]:
    """What a content says, without what it leaves at its default."""
    line = _line(content)
    if isinstance(content, DeltaTable) and line is not None:
        told = [
            ("id", str(content.id)),
            ("location", place(content)),
            ("version", str(line.latest)),
            ("published", f"version {line.published} or later" if line.published >= 0 else ""),
            ("phase", "" if line.phase == "owned" else line.phase),
        ]
        return [(name, text) for name, text in told if text]
    files = _files(content)
    if files is not None:
        told = [
            ("id", str(content.id)),
            ("files", f"{files.files:,}"),
            ("size", size(files.size)),
            ("format", printable(files.layout.format)),
            ("partitions", printable(", ".join(files.layout.partition_by))),
            ("tree", files.root.hex()),
        ]
        return [(name, text) for name, text in told if text]
    lance = _lance(content)
    if isinstance(content, LanceTable) and lance is not None:
        told = [
            ("id", str(content.id)),
            ("location", place(content)),
            ("version", str(lance.newest or "")),
            ("line", printable(lance.chain)),
            ("private", "yes" if lance.is_private else ""),
            *((printable(name), printable(text)) for name, text in sorted(lance.properties.items())),
        ]
        return [(name, text) for name, text in told if text]
    shown = []
    for field in msgspec.structs.fields(content):
        value = getattr(content, field.name)
        if value is not None and value != field.default and value not in ((), {}):
            shown.append((field.name, _text(value)))
    return shown


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return size(len(value))
    if isinstance(value, tuple):
        return ", ".join(one.hex() if isinstance(one, bytes) else printable(str(one)) for one in value)
    if isinstance(value, dict):
        return ", ".join(f"{printable(name)}={printable(text)}" for name, text in value.items())
    return printable(str(value))


def change(before: AnyContent | None, after: AnyContent | None) -> str:
    """What became of a content: what it is, or was, or which of its fields changed and how."""
    if before is None or after is None:
        content = after if after is not None else before
        return summary(content) if content is not None else ""
    if before.type != after.type:
        return f"{summary(before)} → {summary(after)}"
    changed = []
    if before.id == after.id and _line(before) and _line(after) and place(before) == place(after):
        return f"{version(before)} → {version(after)}"
    if before.id == after.id and _files(before) and _files(after):
        return (
            f"{version(before)} → {version(after)}" if version(before) != version(after) else "files changed"
        )
    if before.id == after.id and _lance(before) and _lance(after) and place(before) == place(after):
        return _lance_change(before, after)
    for field in msgspec.structs.fields(after):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old != new:
            changed.append(_changed(field.name, old, new))
    if before.id != after.id:
        changed = ["dropped and created anew", *(text for text in changed if not text.startswith("id "))]
    return ", ".join(changed)


def file_counts(counts: ChangeSummary) -> str:
    """What a change does to a table: ``3 files added, 1 removed, 120 rows added, 4 removed``."""
    files = _added_and_removed(counts.files_added, counts.files_removed, "file")
    if counts.files_changed:
        changed = f"{counts.files_changed:,}" if files else counted(counts.files_changed, "file")
        files.append(f"{changed} changed")
    if counts.files_added is None and counts.files_removed is None:
        return "files unknown"
    if not files:
        return "no files added or removed"
    is_known = counts.rows_added is not None and counts.rows_removed is not None
    rows = _added_and_removed(counts.rows_added, counts.rows_removed, "row")
    has_versions = counts.version_before is not None or counts.version_after is not None
    return ", ".join([*files, *(rows if is_known else ["rows unknown"] if has_versions else [])])


def _added_and_removed(added: int | None, removed: int | None, thing: str) -> list[str]:
    told = [f"{counted(added, thing)} added"] if added else []
    if removed:
        told.append(f"{removed:,} removed" if told else f"{counted(removed, thing)} removed")
    return told


def _lance_change(before: Content, after: Content) -> str:
    old, new = version(before) or "declared", version(after) or "declared"
    was, becomes = _lance(before), _lance(after)
    assert was is not None
    assert becomes is not None
    if old == new and was.chain != becomes.chain:
        return f"{old} → {new} of another line, whose rows may be others"
    return f"{old} → {new}" if old != new else "branches, tags, properties or older versions changed"


def _changed(name: str, old: object, new: object) -> str:
    if isinstance(old, bytes | tuple | dict):
        return f"{name} changed"
    return f"{name} {_shortened(_text(old), _text(new))} → {_shortened(_text(new), _text(old))}"


def _shortened(text: str, other: str) -> str:
    """A path without the directories that it has in common with another."""
    mine, theirs = text.split("/"), other.split("/")
    same = 0
    while same < min(len(mine), len(theirs)) - 1 and mine[same] == theirs[same]:
        same += 1
    if same < 2:
        return text or '""'
    return "…/" + "/".join(mine[same:])


def changes(screen: Screen, changed: Sequence[Changed], indent: str = "  ") -> Iterator[str]:
    """One line for each key: its sign, its name, and what became of it."""
    return columns(screen, [change_row(one) for one in changed], indent=indent, flexible=1)


def change_row(one: Changed) -> Row:
    mark = sign(one.before, one.after)
    style = SIGN_STYLES[mark]
    return [Cell(f"{mark} {printable(str(one.key))}", style), change(one.before, one.after)]
