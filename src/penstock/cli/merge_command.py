"""What the commands share that merge: merge, transplant, rebase, revert and restore."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import ClassVar, Final

import click

from penstock.cli.command_context import CommandContext
from penstock.cli.format_cli import find_format_cli
from penstock.cli.reference_access import find_reference_name, get_commit, read_or_none
from penstock.cli.rendering import contents
from penstock.cli.rendering.merges import NEEDED_AS_NAMESPACE, MergeSides, SideCommit, format_merge_page
from penstock.cli.rendering.screen import Screen
from penstock.errors import ConflictError, MergeConflict
from penstock.lake.calls import GetContents
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.commits import EMPTY_COMMIT_ID, Commit
from penstock.model.conflicts import ConflictKind
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeResult

COMMITS_MAX: Final = 3
"""How many commits of each side are told beside a conflict."""
TOLD_MAX: Final = 50
"""Of how many clean tables it is told what comes to them, which is read from their logs."""


class MergeCommand:
    """One such command: what it is called, between whom, and how the lake does it."""

    refusal: ClassVar = "cannot be merged"
    """What is said of a table with a conflict."""

    def __init__(
        self,
        call: CommandContext,
        lake: Lake,
        source: str,
        target: str,
        bring: Callable[[bool], MergeResult],
        *,
        heading: str = "",
        revision: str = "",
        base: Callable[[], str | None] = lambda: None,
        outcome: Callable[[MergedKey], str] | None = None,
    ) -> None:
        """``revision`` is where the source's changes are, if ``source`` itself does not say so.

        ``outcome`` says in a word what becomes of a key where nothing is in the way.
        """
        self._call, self._lake, self._bring, self._base = call, lake, bring, base
        self.source, self.target = source, target
        self._heading = heading or f"{source} → {target}"
        self._revisions = {source: revision or source, target: target}
        self._table_changes, self._outcome = TableChanges(lake), outcome

    def run_merge(
        self,
        dry_run: bool,
        *,
        done: Callable[[Screen, MergeResult], str],
        count: Callable[[MergeResult], int | None] | None = None,
        suggest_resolutions: Callable[[MergeResult], list[str]] | None = None,
    ) -> None:
        """Bring it, and answer with what came of it; conflicts are shown as a dry run shows them.

        ``count`` says of how many commits it was; without it, of those that were made.
        """
        count, suggest = count or _count_commits, suggest_resolutions or self.suggest_resolutions
        try:
            result = self._bring(dry_run)
        except MergeConflict:
            if self._call.json:
                raise
            result = self._bring(True)
            if not result.conflicts:
                raise  # what stood in the way has gone meanwhile

        def render_text(screen: Screen) -> Iterator[str]:
            if result.keys and (result.applied or result.dry_run):
                ways = suggest(result) if result.conflicts else []
                commits = read_or_none(lambda: count(result))
                yield from format_merge_page(
                    screen, self._heading, self._find_side_changes(result), result, commits, ways
                )
            if not result.dry_run or not result.keys:
                yield done(screen, result)

        self._call.print_answer(lambda: result, render_text)
        if result.conflicts:
            click.get_current_context().exit(ConflictError.exit_code)

    def _find_side_changes(self, result: MergeResult) -> MergeSides:
        base = result.base or read_or_none(self._base)
        since = read_or_none(lambda: self._find_base_time(base))

        def list_side_commits(side: str, key: Key) -> list[SideCommit]:
            return read_or_none(lambda: self._find_changes_since_base(side, key, base, since)) or []

        keys = {key.key for key in result.keys[:TOLD_MAX]}

        def describe_side_change(merged_key: MergedKey) -> str:
            if merged_key.change is None and merged_key.key not in keys:
                return ""
            return self._table_changes.describe_merge(result, merged_key, self.target)

        return MergeSides(
            self.source, self.target, list_side_commits, describe_side_change, self._outcome, self.refusal
        )

    def _find_base_time(self, base: str | None) -> datetime | None:
        """When a commit was made that both sides have in their history."""
        if base is None or base == EMPTY_COMMIT_ID:
            return None
        return get_commit(self._lake, base, find_reference_name(self._revisions[self.source])).time

    def _find_changes_since_base(
        self, side: str, key: Key, base: str | None, since: datetime | None
    ) -> list[SideCommit]:
        """The newest commits of one side that changed a key since the common ancestor."""
        revision = self._revisions[side]
        log = self._lake.log(revision, table=key, since=since, limit=COMMITS_MAX)
        return [
            SideCommit(commit, self._table_changes.describe_commit(commit, key, revision))
            for commit in log
            if commit.id != base
        ]

    def suggest_resolutions(self, result: MergeResult) -> list[str]:
        """What to do about conflicts, each as a command or an option that can be copied."""
        keys = list_keys_to_take(result)
        ways = self._suggest_sides(keys) if keys else []
        by_path = [
            conflict
            for merged in result.keys
            if (format_cli := find_format_cli(merged.before or merged.after)) and format_cli.merges_folders
            for conflict in merged.conflicts
            if "/" in conflict.path
        ]
        if by_path:
            folder = shlex.quote(f"{by_path[0].key}/{by_path[0].path.rpartition('/')[0]}/")
            ways.append(f"To take one side of a folder: --ours {folder} or --theirs {folder}.")
        return ways + [
            f"To have it there: penstock namespace create {shlex.quote(str(conflict.key))} --branch "
            f"{self.target}"
            for conflict in result.conflicts
            if conflict.kind is ConflictKind.NAMESPACE_ABSENT
        ]

    def _suggest_sides(self, keys: list[str]) -> list[str]:
        """How a side is taken of keys with conflicts."""
        text = f"To take one side: --take {self.target}={keys[0]} or --take {self.source}={keys[0]}"
        return [f"{text}." if len(keys) == 1 else f"{text}, and so on for the others."]


class RevertCommand(MergeCommand):
    """The command that undoes a commit, which is its source."""

    refusal = "cannot be undone"

    def _suggest_sides(self, keys: list[str]) -> list[str]:
        newest = "To undo it alone: revert the later commits first, beginning with the newest."
        back = f"To reset the table to its state before {self.source}, without any later change"
        take, leave = f"--take {self.source}={keys[0]}", f"--take {self.target}={keys[0]}"
        return [newest, f"{back}: {take}. To leave the table as it is: {leave}."]


def _count_commits(result: MergeResult) -> int | None:
    return len(result.commits) if result.applied else None


def list_keys_to_take(result: MergeResult) -> list[str]:
    """The keys that a side can be taken of: not namespaces that neither side brings."""
    return [
        shlex.quote(str(key.key))
        for key in result.keys
        if any(conflict.kind not in NEEDED_AS_NAMESPACE for conflict in key.conflicts)
    ]


class TableChanges:
    """Tells what was done to tables of a lake. What cannot be read is told as nothing."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def describe_commit(self, commit: Commit, key: Key, revision: str) -> str:
        """What a commit did to a table that the lake manages; ``revision`` is where it was found."""
        return read_or_none(lambda: self._describe_commit(commit, key, find_reference_name(revision))) or ""

    def describe_merge(self, result: MergeResult, merged_key: MergedKey, target: str) -> str:
        """How many files and rows a merge brings to a table, and takes from it.

        A dry run tells itself. Of one that has landed, the table's log may.
        """
        if merged_key.change is not None:
            return contents.format_file_counts(merged_key.change)
        return read_or_none(lambda: self._describe_merge(result, merged_key, target)) or ""

    def _describe_commit(self, commit: Commit, key: Key, via: str | None) -> str:
        after = self._read_content(commit.id, via, key)
        before = self._read_content(commit.parents[0], via, key) if commit.parents else None
        format_cli = find_format_cli(after)
        if format_cli is None or not contents.describe_version(after):
            return ""
        description = format_cli.describe_commit(Table(self._lake, key, commit.id, via), before, after)
        if description is not None:
            return description
        return contents.describe_change(before, after) if before is not None else "created it"

    def _describe_merge(self, result: MergeResult, merged_key: MergedKey, target: str) -> str:
        format_cli = find_format_cli(merged_key.after)
        if not result.applied or format_cli is None:
            return ""
        table = Table(self._lake, merged_key.key, result.head, target)
        return format_cli.describe_merge(table, merged_key.before, merged_key.after)

    def _read_content(self, commit: str, via: str | None, key: Key) -> AnyContent | None:
        entries = self._lake.do(GetContents(at=commit, via=via, key=(key,)))
        return entries[0].content if entries else None
