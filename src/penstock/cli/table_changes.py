"""What commits did to a table, told for people beside a merge: from its log, as far as that can be read."""

from __future__ import annotations

from penstock.cli.format_cli import find_format_cli
from penstock.cli.rendering import contents
from penstock.cli.via import if_readable, reference_in
from penstock.lake.calls import GetContents
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeResult


class TableChanges:
    """Tells what was done to tables of a lake. What cannot be read is told as nothing."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def describe_commit(self, commit: Commit, key: Key, revision: str) -> str:
        """What a commit did to a table that the lake manages; ``revision`` is where it was found."""
        return if_readable(lambda: self._describe_commit(commit, key, reference_in(revision))) or ""

    def describe_merge(self, result: MergeResult, merged_key: MergedKey, target: str) -> str:
        """How many files and rows a merge brings to a table, and takes from it.

        A dry run tells itself. Of one that has landed, the table's log may.
        """
        if merged_key.change is not None:
            return contents.file_counts(merged_key.change)
        return if_readable(lambda: self._describe_merge(result, merged_key, target)) or ""

    def _describe_commit(self, commit: Commit, key: Key, via: str | None) -> str:
        after = self._read_content(commit.id, via, key)
        before = self._read_content(commit.parents[0], via, key) if commit.parents else None
        format_cli = find_format_cli(after)
        if format_cli is None or not contents.version(after):
            return ""
        description = format_cli.describe_commit(Table(self._lake, key, commit.id, via), before, after)
        if description is not None:
            return description
        return contents.change(before, after) if before is not None else "created it"

    def _describe_merge(self, result: MergeResult, merged_key: MergedKey, target: str) -> str:
        format_cli = find_format_cli(merged_key.after)
        if not result.applied or format_cli is None:
            return ""
        table = Table(self._lake, merged_key.key, result.head, target)
        return format_cli.describe_merge(table, merged_key.before, merged_key.after)

    def _read_content(self, commit: str, via: str | None, key: Key) -> AnyContent | None:
        entries = self._lake.do(GetContents(at=commit, via=via, key=(key,)))
        return entries[0].content if entries else None
