"""What a merge is told to do per key, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from penstock.model import html
from penstock.model.conflicts import Conflict
from penstock.model.content import AnyContent
from penstock.model.keys import Key


class MergeMode(StrEnum):
    """How a merge treats a key."""

    NORMAL = "normal"
    """Take the source's change unless the target changed the key too."""
    FORCE = "force"
    """Take the source's state, whatever the target has."""
    DROP = "drop"
    """Leave the target as it is."""


class KeyMerge(msgspec.Struct, frozen=True, kw_only=True):
    """How to merge one key.

    ``content`` settles a conflict by a given content. ``expected`` refuses the merge unless the target holds
    exactly that; ``expect_absent`` unless it holds nothing. ``paths`` divides a table of files: what is below
    a folder is merged by the mode of the longest one that it is in, such as ``{"day=1/": "force"}``.
    """

    mode: MergeMode = MergeMode.NORMAL
    content: AnyContent | None = None
    expected: AnyContent | None = None
    expect_absent: bool = False
    paths: dict[str, MergeMode] = {}


HowToMerge: TypeAlias = KeyMerge | MergeMode | str | Mapping[str, MergeMode | str]
"""How to merge one key, as programs may say it: a mode, modes by folder, or all that can be said."""


class ChangeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what a change does to a table. ``null`` if it is not known without reading data files.

    A file whose deletion vector changes is neither added nor removed: it is among ``files_changed``, and the
    rows that it loses or gets back are among those removed or added.
    """

    version_before: int | None = None
    """The table's latest version before; nothing if it has none, or its format has no versions."""
    version_after: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    files_changed: int | None = None
    """Files that stay, with other deleted rows."""
    rows_added: int | None = None
    rows_removed: int | None = None
    bytes_added: int | None = None
    """Of the files added."""
    bytes_removed: int | None = None


KEYS_SHOWN: Final = 100
"""How many keys of a merge a notebook shows."""
CONFLICTS_SHOWN: Final = 10
"""How many conflicts it shows in words."""


class MergedKey(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one key: its state ``before`` and ``after`` on the target, or the conflicts."""

    key: Key
    mode: MergeMode = MergeMode.NORMAL
    before: AnyContent | None = None
    after: AnyContent | None = None
    conflicts: tuple[Conflict, ...] = ()
    change: ChangeSummary | None = None
    """In a dry run: what would change in a table that the lake manages."""

    @property
    def action(self) -> str:
        """What becomes of the key: ``created``, ``dropped``, ``changed`` or ``unchanged``."""
        if self.before == self.after:
            return "unchanged"
        return "created" if self.before is None else "dropped" if self.after is None else "changed"

    @property
    def conflict(self) -> Conflict | None:
        """The first conflict, if there is one."""
        return self.conflicts[0] if self.conflicts else None


class MergeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a merge, transplant, rebase, revert or restore did, or would do.

    ``commits`` are the new commits, oldest first; none if there was nothing to do or it was a dry run.
    """

    commits: tuple[str, ...] = ()
    head: str
    """The target's head afterwards; in a dry run, its present head."""
    base: str | None = None
    """The common ancestor that the merge started from."""
    source: str | None = None
    keys: tuple[MergedKey, ...] = ()
    applied: bool = False
    """Whether the target moved."""
    dry_run: bool = False

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        return tuple(conflict for key in self.keys for conflict in key.conflicts)

    @property
    def commit(self) -> str | None:
        """The newest of the new commits."""
        return self.commits[-1] if self.commits else None

    def _repr_html_(self) -> str:
        title = "Preview" if self.dry_run else "Done" if self.applied else "Nothing to do"
        counts = f"{_format_count(len(self.keys), 'key')}, {_format_count(len(self.conflicts), 'conflict')}"
        rows = [
            (key.key, "conflict" if key.conflicts else key.action, _describe_change(key.change))
            for key in self.keys[:KEYS_SHOWN]
        ]
        parts = [
            html.show_heading(title, f"{counts}, head {self.head[:8]}"),
            html.show_table(("key", "action", "change"), rows),
        ]
        if len(self.keys) > KEYS_SHOWN:
            parts.append(html.show_line(f"… {len(self.keys) - KEYS_SHOWN} more"))
        lines: list[str] = []
        for conflict in self.conflicts[:CONFLICTS_SHOWN]:
            reason, *more = conflict.describe_in_merge()
            lines += [reason, *(f"  {line}" for line in more)]
        if lines:
            parts += [html.show_heading("Conflicts"), html.show_lines(lines)]
        if len(self.conflicts) > CONFLICTS_SHOWN:
            parts.append(html.show_line(f"… {len(self.conflicts) - CONFLICTS_SHOWN} more"))
        return html.show_block(*parts)

    def __repr__(self) -> str:
        what = "dry run" if self.dry_run else "applied" if self.applied else "nothing to do"
        counts = f"keys: {len(self.keys)}, conflicts: {len(self.conflicts)}"
        return f"<MergeResult {what}: {counts}, head {self.head[:8]}>"


def _describe_change(change: ChangeSummary | None) -> str:
    """What a dry run counted, as far as it is known."""
    if change is None:
        return ""
    counted = [
        (change.files_added, "file", "added"),
        (change.files_removed, "file", "removed"),
        (change.files_changed, "file", "changed"),
        (change.rows_added, "row", "added"),
        (change.rows_removed, "row", "removed"),
    ]
    versions = "" if change.version_after is None else f"v{change.version_after}: "
    return versions + ", ".join(
        f"{_format_count(count, what)} {how}" for count, what, how in counted if count
    )


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
