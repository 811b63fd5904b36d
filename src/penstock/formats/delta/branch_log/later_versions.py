"""The versions of a table that came after a change of it: what they say, and what became of its files.

They are those of the branch's own line, and those of other branches that had the change and were merged: what
a merge brings, it brings in sum, and does not name files that came and went on the other branch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeGuard

import msgspec

from penstock.formats.delta.branch_log.branch_log import BranchLog, BranchLogTip, decode_branch_log
from penstock.formats.delta.branch_log.commits import CommitReader
from penstock.formats.delta.branch_log.file_transitions import collect_paths
from penstock.formats.delta.branch_log.net_change import RESTORE, NetStep
from penstock.formats.delta.branch_log.past_operations import MERGED
from penstock.formats.delta.branch_log.prepared_table import (
    find_parting_version,
    read_steps,
    read_steps_beyond_appends,
)
from penstock.formats.delta.protocol.actions import Add, CommitInfo, FileKey, Remove
from penstock.formats.delta.protocol.transaction import find_last_action
from penstock.kernel.format import LaterCommit, LaterCommitLookup, Table
from penstock.model.decoders import get_json_decoder
from penstock.model.nessie import DeltaTable

MERGE_INFO: Final = {"operation": MERGED, "operationParameters": {}}
REVERTED: Final = "revertedVersion"
"""In a ``commitInfo``, the version that the commit undoes."""
RESTORED: Final = "version"
"""The one whose state it restores."""
REPEATED: Final = "repeatedVersion"
"""The one that it does again."""
HELD_IN: Final = "repeatedRowsWereIn"
"""Other files that rows of a repeated commit were in, which are gone: they must not come back beside them."""


class LaterVersion(NamedTuple):
    """A version that came after the commit."""

    step: NetStep
    tip: BranchLogTip
    commit: LaterCommit | None = None
    """The lake's commit that brought it, where that is known without a search."""
    has_parts: bool = False
    """It is the sum of versions that are listed before it."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is on another line than this branch's."""
        return self.commit is not None

    @property
    def is_undo(self) -> bool:
        """Whether it only brought files back and took files away: it wrote no rows into others."""
        info = find_last_action(self.step.actions, CommitInfo)
        return info is not None and info.operation == RESTORE

    @property
    def undone_version(self) -> int | None:
        """The version that it undid, of the line on which that was."""
        return self._read_number(REVERTED) if self.is_undo else None

    @property
    def restored_version(self) -> int | None:
        """The version whose state it restored, likewise."""
        return self._read_number(RESTORED) if self.is_undo else None

    @property
    def redone_version(self) -> int | None:
        """The version that it did again, likewise."""
        return self._read_number(REPEATED)

    @property
    def files_with_restored_rows(self) -> frozenset[str]:
        """Other files that hold rows which it brought again."""
        try:
            return frozenset(get_json_decoder(list[str]).decode(self._read_parameter(HELD_IN) or "[]"))
        except msgspec.MsgspecError:
            return frozenset()

    def _read_number(self, name: str) -> int | None:
        parameter = self._read_parameter(name)
        return int(parameter) if parameter is not None and parameter.isdecimal() else None

    def _read_parameter(self, name: str) -> str | None:
        info = find_last_action(self.step.actions, CommitInfo)
        parameters = None if info is None else info.fields.get("operationParameters")
        value = parameters.get(name) if isinstance(parameters, dict) else None
        return value if isinstance(value, str) else None

    @property
    def is_sum(self) -> bool:
        """Whether it may be what several versions of another line came to."""
        info = find_last_action(self.step.actions, CommitInfo)
        return info is not None and info.operation == MERGED

    @property
    def adds(self) -> list[Add]:
        return [action for action in self.step.actions if isinstance(action, Add)]

    @property
    def removes(self) -> list[Remove]:
        return [action for action in self.step.actions if isinstance(action, Remove)]

    def may_carry(self) -> bool:
        """Whether rows of files that it removed may be in those that it added."""
        replaced_blindly = self.step.terms.replaces is not None and self.step.terms.reads.nothing
        return not self.is_undo and not replaced_blindly and not self.has_parts


class LaterVersions:
    """What came after a change, up to the end of a branch's line."""

    def __init__(
        self,
        table: Table,
        commits: CommitReader,
        target: DeltaTable,
        newest: DeltaTable,
        parted: int,
        since: LaterCommitLookup | None,
    ) -> None:
        """``target`` is the end of the line, ``newest`` the state that the change led to, ``parted`` the
        version before it."""
        self._table, self._commits, self._since = table, commits, since
        self._target, self._newest, self._parted = target, newest, parted

    @cached_property
    def is_on_line(self) -> bool:
        """Whether the change is on this branch's line, and did not come by a merge."""
        return BranchLogTip.from_line(decode_branch_log(self._newest)).is_on(
            decode_branch_log(self._target), self._table.read
        )

    @cached_property
    def changing_versions(self) -> list[LaterVersion]:
        """The versions that came after the change and did more than to append: on this branch's line, and on
        branches on which it was."""
        since = self.landing_versions[1], decode_branch_log(self._target).latest
        return self._add_merged_versions(
            read_steps_beyond_appends(self._table, self._commits, self._target, *since)
        )

    @cached_property
    def all_versions(self) -> list[LaterVersion]:
        """The same with those that appended."""
        since = self.landing_versions[1], decode_branch_log(self._target).latest
        return self._add_merged_versions(read_steps(self._table, self._commits, self._target, *since))

    @cached_property
    def positions_by_file(self) -> dict[str, list[int]]:
        """Of each file that later versions changed, which of these did, by their places."""
        places: dict[str, list[int]] = {}
        for number, later in enumerate(self.changing_versions):
            for path in collect_paths(later.removes) | collect_paths(later.adds):
                places.setdefault(path, []).append(number)
        return places

    @cached_property
    def landing_versions(self) -> tuple[int, int]:
        """The version of this branch's line before the change came to it, and the one with which it was
        there: a merge may have brought it, in sum with others."""
        line, read = decode_branch_log(self._target), self._table.read
        parted = find_parting_version(decode_branch_log(self._newest), line, read)
        # A merge into a branch takes the versions of the default branch, which are on its line from then on.
        if self.is_on_line or parted > self._parted:
            return self._parted, parted
        for commit in self._since.commits if self._since is not None else ():
            after = commit.after
            if (
                commit.other_side
                and isinstance(after, DeltaTable)
                and after.id == self._target.id
                and after.state
            ):
                tip = BranchLogTip.from_line(decode_branch_log(after))
                if tip.version > parted and tip.is_on(line, read):
                    before = [
                        decode_branch_log(content).latest
                        for content in commit.before
                        if self._is_here(content, tip)
                    ]
                    return max(before, default=parted), tip.version
        return parted, parted

    def _is_here(self, content: object, until: BranchLogTip) -> TypeGuard[DeltaTable]:
        """Whether a content is a state of the table on this branch's line, before a version of it."""
        if not isinstance(content, DeltaTable) or content.id != self._target.id or not content.state:
            return False
        tip = BranchLogTip.from_line(decode_branch_log(content))
        return tip.version < until.version and tip.is_on(decode_branch_log(self._target), self._table.read)

    def _add_merged_versions(self, here: Sequence[NetStep]) -> list[LaterVersion]:
        """Versions of this branch's line, and before each that a merge brought those of which it is the sum:
        it does not name files that they brought back and wrote anew."""
        line, read = decode_branch_log(self._target), self._table.read
        remaining = [
            LaterVersion(step, BranchLogTip.from_line_version(line, step.version, read)) for step in here
        ]
        if self._since is None or (self.is_on_line and not any(later.is_sum for later in remaining)):
            return remaining
        ordered: list[LaterVersion] = []
        parts, are_all = 0, True
        """Versions of others since the last merge, and whether they are all that a merge can bring."""
        for commit in self._since.commits:
            after = commit.after
            if not isinstance(after, DeltaTable) or not after.state or after.id != self._target.id:
                continue
            tip = BranchLogTip.from_line(decode_branch_log(after))
            if not tip.is_on(line, read):
                others = self._read_merged_versions(commit, after)
                ordered, parts = [*ordered, *others], parts + len(others)
                are_all = are_all and bool(others)
                continue
            here_now = [later for later in remaining if later.step.version <= tip.version]
            if here_now and commit.is_merge:
                here_now[-1] = here_now[-1]._replace(has_parts=bool(parts) and are_all)
                parts, are_all = 0, True
            ordered += here_now
            remaining = remaining[len(here_now) :]
        return [*ordered, *remaining]

    def _read_merged_versions(self, commit: LaterCommit, after: DeltaTable) -> list[LaterVersion]:
        """The versions of another line that a commit brought there."""
        before = commit.before[0] if commit.before and not commit.is_merge else None
        if commit.is_parallel or not isinstance(before, DeltaTable) or not before.state:
            return []
        until, came, read = (
            decode_branch_log(after),
            BranchLogTip.from_line(decode_branch_log(before)),
            self._table.read,
        )
        if not came.is_on(until, read):
            return []
        since = read_steps(self._table, self._commits, after, came.version, until.latest)
        return [
            LaterVersion(step, BranchLogTip.from_line_version(until, step.version, read), commit)
            for step in since
        ]

    def files_with_rows_of(
        self, own: Mapping[str, FileKey | None], but: Collection[str] = ()
    ) -> dict[str, int]:
        """The files into which later versions wrote rows of some files, each with the place of the version
        that wrote it. Removing the given state of such a file does not count, nor do files of ``but``."""
        carried: dict[str, int] = {}
        waiting, passed = [*own], set[int]()
        while waiting:
            path = waiting.pop()
            for number in self.positions_by_file.get(path, ()):
                later = self.changing_versions[number]
                if number in passed or not later.may_carry():
                    continue
                if any(remove.key.path == path and remove.key != own.get(path) for remove in later.removes):
                    passed.add(number)
                    new = collect_paths(later.adds) - collect_paths(later.removes)
                    new -= carried.keys() | set(but)
                    carried |= dict.fromkeys(new, number)
                    waiting += new
        return carried

    def _find_line_with(self, later: LaterVersion) -> BranchLog:
        """A line on which a version is."""
        after = None if later.commit is None else later.commit.after
        return decode_branch_log(after if isinstance(after, DeltaTable) else self._target)

    def is_version_on_line(self, one: LaterVersion, version: int | None, later: LaterVersion) -> bool:
        """Whether a version is the one of this number on the line of another one."""
        return one.step.version == version and one.tip.is_on(self._find_line_with(later), self._table.read)

    def own_versions_on(self, later: LaterVersion) -> range:
        """The numbers of the change's own versions on the line of another one; none if they are not there."""
        tip = BranchLogTip.from_line(decode_branch_log(self._newest))
        is_there = tip.is_on(self._find_line_with(later), self._table.read)
        return range(self._parted + 1, tip.version + 1) if is_there else range(0)

    def describe_version(self, later: LaterVersion | None) -> str:
        """A version as a conflict names it, with the lake's commit that brought it."""
        if later is None:
            return "a later version"
        info = find_last_action(later.step.actions, CommitInfo)
        operation = f" ({info.operation})" if info is not None and info.operation else ""
        commit = later.commit or self._commit_of(later.tip)
        brought = "" if commit is None else f" of {commit.describe()}"
        return f"version {later.step.version}{operation}{brought}"

    def _commit_of(self, tip: BranchLogTip) -> LaterCommit | None:
        """The commit of the lake that brought a version to this branch."""
        read = self._table.read

        def has_version(content: object) -> bool:
            return (
                isinstance(content, DeltaTable)
                and bool(content.state)
                and tip.is_on(decode_branch_log(content), read)
            )

        for commit in self._since.commits if self._since is not None else ():
            if has_version(commit.after) and not any(map(has_version, commit.before)):
                return commit
        return None
