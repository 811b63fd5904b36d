"""What commits did to a table, told for people beside a merge: from its log, as far as that can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.cli.rendering import contents
from penstock.cli.via import if_readable, reference_in
from penstock.lake.calls import GetContents
from penstock.lake.lake import Lake
from penstock.lake.table import Table
from penstock.model.commits import Commit
from penstock.model.content import AnyContent
from penstock.model.keys import Key
from penstock.model.merges import MergedKey, MergeResult
from penstock.model.nessie import DeltaTable

if TYPE_CHECKING:
    from penstock.formats.delta.lines.line import Line
    from penstock.formats.delta.protocol.actions import Action


class Place(NamedTuple):
    """A commit, and the reference that leads to it."""

    commit: str
    via: str | None


class Deeds:
    """Tells what was done to tables of a lake. What cannot be read is told as nothing."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def of_commit(self, commit: Commit, key: Key, revision: str) -> str:
        """What a commit did to a table that the lake manages; ``revision`` is where it was found."""
        return if_readable(lambda: self._of_commit(commit, key, reference_in(revision))) or ""

    def of_merge(self, result: MergeResult, one: MergedKey, target: str) -> str:
        """How many files and rows a merge brings to a table, and takes from it.

        A dry run tells itself. Of one that has landed a Delta table's new versions tell.
        """
        if one.change is not None:
            return contents.file_counts(one.change)
        return if_readable(lambda: self._of_merge(result, one, target)) or ""

    def _of_commit(self, commit: Commit, key: Key, via: str | None) -> str:
        after = self._content(Place(commit.id, via), key)
        before = self._content(Place(commit.parents[0], via), key) if commit.parents else None
        if after is None or not contents.version(after):
            return ""
        if not isinstance(after, DeltaTable):
            return contents.change(before, after) if before is not None else "created it"
        from penstock.formats.delta.protocol.deeds import deed

        done = self._commits(Place(commit.id, via), key, before, after)
        told = deed([action for actions in done for action in actions]) if done else ""
        return f"{contents.version(after)} {told}" if told else contents.version(after)

    def _of_merge(self, result: MergeResult, one: MergedKey, target: str) -> str:
        if not result.applied or not isinstance(one.after, DeltaTable) or not contents.version(one.after):
            return ""
        from penstock.formats.delta.protocol.deeds import Files

        done = self._commits(Place(result.head, target), one.key, one.before, one.after)
        return str(Files.of(done)) if done else ""

    def _content(self, at: Place, key: Key) -> AnyContent | None:
        found = self._lake.do(GetContents(at=at.commit, via=at.via, key=(key,)))
        return found[0].content if found else None

    def _commits(
        self, at: Place, key: Key, before: AnyContent | None, after: AnyContent | None
    ) -> list[Sequence[Action]]:
        """The commits of a table that led from one of its states to another; none if they cannot be told."""
        from penstock.formats.delta.lake.snapshot import commits_of
        from penstock.formats.delta.protocol.actions import parse_commit

        first, last = _versions(before, after)
        if last < first:
            return []
        log = Table(self._lake, key, at.commit, at.via).get_commits(first, last)
        files = list(commits_of(log, self._lake.places.at(log.location), range(first, last + 1)))
        if any(one.data is None for one in files):
            return []
        return [[line.action for line in parse_commit(one.data or b"")] for one in files]


def _versions(before: AnyContent | None, after: AnyContent | None) -> tuple[int, int]:
    """The first and the last version that one state of a table has and another has not.

    None where the later one does not go on from the earlier one, as after a merge that put a branch on top of
    another line.
    """
    from penstock.formats.delta.lines.line import line_of

    if not isinstance(after, DeltaTable) or not after.is_managed:
        return 0, -1
    line = line_of(after)
    if not isinstance(before, DeltaTable) or not before.is_managed or before.id != after.id:
        return 0, line.latest
    was = line_of(before)
    return (was.latest + 1, line.latest) if _goes_on(was, line) else (0, -1)


def _goes_on(was: Line, line: Line) -> bool:
    """Whether a line has another's latest version, as far as its newest entries tell."""
    if was.tail is None:
        return was.latest <= line.fork
    back = line.latest - was.latest
    return 0 <= back < len(line.entries) and line.entries[-1 - back].uuid == was.entries[-1].uuid
