"""Merges two states of a Lance table, entry by entry of its tree.

Each part goes by itself: the versions of Lance's main branch, those of Lance's other branches, tags, and the
properties. What only one side changed is taken, and what both changed is grafted or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from penstock.formats.lance.branch_chains import OwnedChain
from penstock.formats.lance.graft import OF_ROWS, PLAIN, GraftRefused, SideHistory, check_operations
from penstock.formats.lance.lineage import RowLineage, find_rewrites
from penstock.formats.lance.manifests import ManifestOperation
from penstock.formats.lance.merge_sides import (
    NumberedVersion,
    SidesHistory,
    TableSide,
    find_history_since,
    find_parting_version,
    find_sides_at_common_versions,
    has_undone_version,
    has_version_arrived,
    includes_version,
    is_based_on,
    is_same_version,
    list_standing_versions,
    list_versions_to_compare,
    select_newest_states,
)
from penstock.formats.lance.names import MAIN
from penstock.formats.lance.removals import LaterChanges, LaterLanceVersions, MergedChanges
from penstock.formats.lance.reversal import find_commit_rows
from penstock.formats.lance.row_sets import RowSet, unite_row_sets
from penstock.formats.lance.state import (
    Changes,
    LanceTableVersion,
    MergeArrivals,
    OwnBranch,
    OwnTag,
    RowTrace,
    apply_changes,
    encode_branch_key,
    encode_state_into_table,
    encode_tag_key,
    encode_version_key,
    list_differing_keys,
    parse_branch_key,
    parse_version_key,
)
from penstock.formats.lance.version_writer import WAY_OUT, VersionWriter, make_refusal
from penstock.kernel.format import AppliedChange, FormatRefused, PathClash
from penstock.kernel.objects import Objects

_ABOUT_TABLES: Final = frozenset(
    (ManifestOperation.CREATE_INDEX, ManifestOperation.PROJECT, ManifestOperation.CONFIG)
)
"""What Lance lets through whatever was done to rows meanwhile."""


class TableMerge:
    """A table while another state of it comes to it. New versions go to a chain."""

    def __init__(
        self,
        objects: Objects,
        here: TableSide,
        chain: OwnedChain,
        landing: VersionWriter,
        *,
        is_part: bool,
    ) -> None:
        """``is_part`` tells that not all comes that the other side has, but what one commit did."""
        self._objects, self._here, self._chain, self._landing = objects, here, chain, landing
        self._is_part = is_part
        self._changes: Changes = {}
        self._properties = dict(here.state.properties)
        self._others: Sequence[TableSide] = ()
        self._both_sides = "on both sides"
        """Where or when something else was done to what is to change, as a refusal says it."""
        self._goes_on = False
        """Whether there are versions that are written for the chain."""

    def merge_table(
        self, base: TableSide, source: TableSide, others: Sequence[TableSide] = ()
    ) -> AppliedChange:
        """The table with what became of a base on the other side.

        ``others`` are further states that both sides come from, where merges crossed.
        """
        self._others = others
        keys = list_differing_keys(self._objects, base.state, source.state)
        self._merge_versions(base, source, MAIN)
        for name in _list_branches(keys):
            self._merge_branch(base, source, name)
        self._merge_tags(base.versions.list_tags(), source)
        self._forget_removed_versions(base, source, keys)
        self._check_dropped()
        old_properties, new_properties = base.state.properties, source.state.properties
        for name in old_properties.keys() | new_properties.keys():
            self._merge_property(name, old_properties.get(name), new_properties.get(name))
        return self._build_result()

    def restore_table(self, side: TableSide) -> AppliedChange:
        """The table as it was in a wanted state."""
        source, newest = side.find_newest(), self._here.find_newest()
        if source is None and newest is not None:
            raise FormatRefused(
                "had no earlier version, and its first version cannot be undone; drop the table instead"
            )
        if source is not None and not is_same_version(source, newest):
            self._add_version(self._landing.write_whole_version(source, newest, None), MAIN)
        for name in self._here.versions.list_branches().keys() | side.versions.list_branches().keys():
            if self._here.get_own_state(name) == side.get_own_state(name):
                continue
            if side.versions.get_branch(name) is None:
                self._drop_branch(name)
            elif self._here.versions.get_branch(name) is None:
                self._take_branch(side, name)
            else:
                raise FormatRefused(f"had Lance's own branch '{name}' changed since, which cannot be undone")
        self._merge_tags(self._here.versions.list_tags(), side)
        self._check_dropped()
        self._properties = dict(side.state.properties)
        return self._build_result()

    def revert_table(self, side: TableSide, before: TableSide) -> AppliedChange:
        """The table without what one commit did, which led from one state to another.

        ``IrreversibleCommit``, ``UnknownPlacement`` or ``Damaged`` if rows cannot be undone,
        ``FormatRefused`` for all else.
        """
        self._both_sides = "since the commit"
        self._revert_versions(side, before, MAIN)
        for name in _list_branches(list_differing_keys(self._objects, before.state, side.state)):
            self._revert_branch(side, before, name)
        self._merge_tags(side.versions.list_tags(), before)
        self._check_dropped()
        old_properties, new_properties = side.state.properties, before.state.properties
        for name in old_properties.keys() | new_properties.keys():
            self._merge_property(name, old_properties.get(name), new_properties.get(name))
        return self._build_result()

    def _revert_branch(self, side: TableSide, before: TableSide, name: str) -> None:
        old_branch, new_branch, now = (side.get_own_state(name) for side in (side, before, self._here))
        if new_branch in (old_branch, now):
            return
        if None not in (old_branch[0], new_branch[0], now[0]):
            self._revert_versions(side, before, name)
        elif now != old_branch:
            raise FormatRefused(f"had Lance's own branch '{name}' changed since the commit")
        elif new_branch[0] is None:
            self._drop_branch(name)
        else:
            self._take_branch(before, name)

    def _revert_versions(self, finished_side: TableSide, before: TableSide, branch: str) -> None:
        old_version, version, now = (side.find_newest(branch) for side in (finished_side, before, self._here))
        if is_same_version(old_version, version) or is_same_version(now, version):
            return
        if old_version is None or version is None or now is None:
            raise FormatRefused(
                "had no earlier version, and its first version cannot be undone; drop the table instead"
            )
        if is_same_version(now, old_version):
            self._add_version(self._landing.write_whole_version(version, now, None, branch), branch)
            return
        compared = list_versions_to_compare([before, finished_side, self._here], branch)
        lineage = self._landing.open_lineage(find_rewrites(compared), branch)
        own = find_history_since(finished_side, before, branch)
        commit = find_commit_rows(lineage, own)
        later: LaterChanges | None = self._find_later_versions(finished_side, lineage, branch)
        if later is None:
            side = self._landing.read_side(now, branch)
            later = MergedChanges(lineage, find_history_since(self._here, finished_side, branch), own, side)
        landed = self._landing.write_reversal((version, old_version), now, lineage, commit, later, branch)
        if landed is not None:
            self._add_version(landed, branch)

    def _find_later_versions(
        self, side: TableSide, lineage: RowLineage, branch: str
    ) -> LaterLanceVersions | None:
        """The versions that came after a state, with that one; ``None`` if it is of another chain.

        One that is the same as that state, and did not come from it, may be of before: versions that follow
        it here may be such that the commit was made on top of.
        """
        old_newest = side.find_newest(branch)
        assert old_newest is not None
        has_own = self._here.has_version(old_newest, branch)
        versions: list[NumberedVersion] = []
        for version, is_next in list_standing_versions(self._here, branch):
            if not is_next:
                return None
            versions.append(version)
            if is_same_version(version, old_newest) or (has_own and version.number <= old_newest.number):
                if (
                    not has_own
                    and not has_version_arrived(version, old_newest)
                    and not has_version_arrived(old_newest, version)
                ):
                    return None
                is_undone = not is_same_version(version, old_newest)
                return LaterLanceVersions(
                    versions[::-1],
                    lineage,
                    lambda each: self._landing.read_side(each, branch),
                    is_undone=is_undone,
                )
        return None

    # -- versions ------------------------------------------------------------------------------------------

    def _merge_versions(self, base: TableSide, source: TableSide, branch: str) -> None:
        """What became of one of Lance's branches, on top of what it is here."""
        old_version, version, now = (side.find_newest(branch) for side in (base, source, self._here))
        if version is None or is_same_version(version, old_version) or is_same_version(version, now):
            return
        is_reapplied = False
        if includes_version(self._here, source, version, branch):
            is_reapplied = self._is_part and has_undone_version(self._here, version, branch)
            if not is_reapplied:
                return
        if is_same_version(now, old_version) and self._take_versions(source, now, branch):
            return
        history = find_history_since(source, base, branch)
        if is_same_version(now, old_version):
            compared = list_versions_to_compare((self._here, source), branch)
            trace = self._landing.trace_whole_version(version, now, history, compared, branch)
            arrived = self._make_merge_record(history, trace, version)
            parted = find_parting_version(source, base, branch)
            self._add_version(
                self._landing.write_whole_version(version, now, arrived, branch, parted), branch
            )
            return
        if old_version is None or now is None:
            raise FormatRefused(f"got its first version on both sides; {WAY_OUT}")
        if (
            landed := self._combine_changes(base, source, history, branch, is_reapplied=is_reapplied)
        ) is not None:
            self._add_version(landed, branch)

    def _combine_changes(
        self, base: TableSide, source: TableSide, history: SidesHistory, branch: str, *, is_reapplied: bool
    ) -> NumberedVersion | None:
        """What was done on the other side and what was done here, together.

        ``is_reapplied`` tells that it is a commit that was here, and was reverted.
        """
        old_version, version, now = (side.find_newest(branch) for side in (base, source, self._here))
        assert old_version is not None
        assert version is not None
        assert now is not None
        mine = find_history_since(self._here, base, branch)
        try:
            is_below = self._is_target_rebased(history, mine, source)
            check_operations(
                *(history.operations for history in ((mine, history) if is_below else (history, mine)))
            )
        except GraftRefused as problem:
            raise make_refusal(problem, self._here.content.location) from None
        states = [base, *self._others]
        if not self._is_part:  # of a commit nothing comes but what it did to the state before it
            states = select_newest_states(
                [*states, *find_sides_at_common_versions(base, self._here, source, self._objects, branch)],
                branch,
            )
        compared = list_versions_to_compare([*states, self._here, source], branch)
        lineage = self._landing.open_lineage(find_rewrites(compared), branch)
        here, their_history = (
            _make_side_history(lineage, side, history, states, branch)
            for side, history in ((self._here, mine), (source, history))
        )
        if is_reapplied and here.changes is None:
            raise FormatRefused(
                "had the commit reverted, and its history since then is no longer complete; repeat the "
                "change, or revert the commit that reverted it"
            )
        strange: RowSet = {}
        if (
            self._is_part
            and not is_reapplied
            and their_history.changes is not None
            and their_history.changes.has_reverts
        ):
            strange = self._find_rows_removed_elsewhere(lineage, base, branch)
        arrived = self._make_merge_record(history, None, version)
        bases = [
            (version, _find_removed_rows(lineage, state, states, branch))
            for state, version in _list_newest_versions(states, branch)
        ]
        mover, ground = (version, their_history), (now, here)
        if is_below:
            mover, ground = ground, mover
        return self._landing.write_graft(
            bases,
            mover,
            ground,
            now,
            lineage,
            arrived,
            history,
            branch,
            is_reapplied=is_reapplied,
            strange=strange,
        )

    def _find_rows_removed_elsewhere(self, lineage: RowLineage, base: TableSide, branch: str) -> RowSet:
        """The rows that another side had and removed since it parted from this one."""
        changes = lineage.find_row_changes(lineage.trace_rows(find_history_since(base, self._here, branch)))
        if changes is None:
            raise FormatRefused(
                "cannot get the revert on this branch: its history differs from that of the branch where "
                "the revert was made, and was cleaned up in part; revert the original commit on this "
                "branch instead"
            )
        return changes.list_removed_rows()

    def _is_target_rebased(self, history: SidesHistory, mine: SidesHistory, source: TableSide) -> bool:
        """Whether what was done here is put on top of the other side's newest version.

        So a branch takes in the default one, whatever was done there: it becomes what that is, with its own
        changes. And so what was done on the other side comes that is not about rows.
        """
        ours, theirs = {*mine.operations}, {*history.operations}
        if not OF_ROWS.issuperset(ours):
            return False
        if self._chain.owner and not source.state.owner:
            return not (OF_ROWS if self._is_part else PLAIN).issuperset(theirs)
        others = theirs - OF_ROWS
        may_go = bool(others) and _ABOUT_TABLES.issuperset(others) and not self._is_part
        return may_go and ManifestOperation.REWRITE not in ours  # it would be undone

    def _make_merge_record(
        self, history: SidesHistory, trace: RowTrace | None, version: NumberedVersion
    ) -> MergeArrivals:
        """The record of a merge: operations, fragments and trace that arrive with the other side's newest
        version."""
        arrived = MergeArrivals(
            operations=tuple(sorted(set(history.operations))), taken=history.taken_marks, trace=trace
        )
        if self._is_part:
            return arrived
        return msgspec.structs.replace(arrived, number=version.number, id=version.id)

    def _take_versions(self, source: TableSide, now: NumberedVersion | None, branch: str) -> bool:
        """Take the versions of the other side as they are, if they were written for this chain."""
        coming: list[NumberedVersion] = []
        for version in source.list_versions(branch):
            if now is not None and version.number <= now.number:
                break
            coming.append(version)
        follows = now is None or source.has_version(now, branch)
        if not follows or any(version.version.chain != self._chain.folder for version in coming):
            return False
        for version in coming:
            self._add_version(version, branch)
        return True

    def _add_version(self, version: NumberedVersion, branch: str) -> None:
        self._changes[encode_version_key(branch, version.number)] = version.version
        self._goes_on = True

    def _forget_removed_versions(self, base: TableSide, source: TableSide, keys: list[bytes]) -> None:
        """Forget versions that were forgotten on the other side, where nothing here leads to them."""
        parted, newest = base.find_newest(), self._here.find_newest()
        if parted is None or newest is None or not source.has_version(parted):
            return  # what the other side does not have may be of a chain that it never had
        needed = {(tag.branch, tag.version) for tag in self._here.versions.list_tags().values()}
        needed |= {(branch.parent, branch.version) for branch in self._here.versions.list_branches().values()}
        needed |= {
            (change.branch, change.version) for change in self._changes.values() if isinstance(change, OwnTag)
        }
        for key in keys:
            named = parse_version_key(key)
            if named is None or named[0] != MAIN or named in needed or named[1] == newest.number:
                continue
            before = base.versions.get_version(*named)
            is_gone = before is not None and source.versions.get_version(*named) is None
            if is_gone and self._here.versions.get_version(*named) == before:
                self._changes[key] = None

    # -- Lance's own branches and tags ---------------------------------------------------------------------

    def _merge_branch(self, base: TableSide, source: TableSide, name: str) -> None:
        old_branch, new_branch, now = (side.get_own_state(name) for side in (base, source, self._here))
        if new_branch in (old_branch, now):
            return
        sides = [side.find_newest(name) for side in (base, source, self._here)]
        if now != old_branch and not (now[0] == old_branch[0] and is_same_version(sides[0], sides[2])):
            if any(side is None or side.version.chain != self._chain.folder for side in sides):
                raise FormatRefused(f"had Lance's own branch '{name}' changed on both sides; {WAY_OUT}")
            self._merge_versions(base, source, name)
            return
        if new_branch[0] is None:
            self._drop_branch(name)
        elif new_branch[0] == old_branch[0] and not self._chain.owner:
            self._merge_versions(base, source, name)  # those of a line cannot be here as they are
        else:
            self._take_branch(source, name)

    def _take_branch(self, source: TableSide, name: str) -> None:
        """Take one of Lance's own branches as it is on the other side."""
        for version in source.list_versions(name):
            if self._here.has_version(version, name):
                break
            if not self._chain.owner and version.version.chain:
                raise FormatRefused(
                    f"has versions of Lance's own branch '{name}' on the other side, which cannot be merged: "
                    "their files are in that branch's folder; create the branch here, repeat its changes, "
                    "and only then delete it there, which deletes its versions"
                )
            self._changes[encode_version_key(name, version.number)] = version.version
        self._changes[encode_branch_key(name)] = source.versions.get_branch(name)

    def _drop_branch(self, name: str) -> None:
        for version in self._here.list_versions(name):
            self._changes[encode_version_key(name, version.number)] = None
        self._changes[encode_branch_key(name)] = None

    def _check_dropped(self) -> None:
        """``FormatRefused`` if a tag or a branch of the result leads to a branch that goes: who made it does
        not know."""
        tags, branches = self._here.versions.list_tags(), self._here.versions.list_branches()
        changes: Changes = {encode_tag_key(name): tag for name, tag in tags.items()}
        changes |= {encode_branch_key(name): branch for name, branch in branches.items()}
        changes |= self._changes
        dropped = {name for name in branches if changes[encode_branch_key(name)] is None}
        for tag in changes.values():
            leads_to = (
                tag.branch if isinstance(tag, OwnTag) else tag.parent if isinstance(tag, OwnBranch) else ""
            )
            if leads_to in dropped:
                what = "tagged" if isinstance(tag, OwnTag) else "forked"
                raise FormatRefused(
                    f"had Lance's own branch '{leads_to}' dropped on one side, and {what} on the other;"
                    f" {WAY_OUT}"
                )

    def _merge_tags(self, before: Mapping[str, OwnTag], source: TableSide) -> None:
        """Take the tags that differ from what they were before on the other side."""
        tags, here = source.versions.list_tags(), self._here.versions.list_tags()
        for name in before.keys() | tags.keys():
            old_tag, comes, now = before.get(name), tags.get(name), here.get(name)
            if comes in (old_tag, now):
                continue
            if now != old_tag:
                clash = PathClash(f"tag '{name}'", _describe_tag(old_tag), _describe_tag(now))
                raise FormatRefused(
                    f"had one of Lance's own tags changed {self._both_sides}", clashes=[clash]
                )
            self._changes[encode_tag_key(name)] = (
                None if comes is None else self._copy_tag(name, comes, source)
            )

    def _copy_tag(self, name: str, tag: OwnTag, source: TableSide) -> OwnTag:
        """A tag of the other side, at the same version here."""
        version = source.versions.get_version(tag.branch, tag.version)
        if version is None:
            raise FormatRefused(
                f"has a tag '{name}' on the source branch that points to no version; delete it there"
            )
        meant = NumberedVersion(tag.version, version)
        landed = self._changes.get(encode_version_key(tag.branch, tag.version))
        if landed == version or (landed is None and self._here.has_version(meant, tag.branch)):
            return tag
        if tag.branch == MAIN:
            for candidate in (*self._list_landed_versions(), self._here.find_newest()):
                if candidate is not None and is_same_version(candidate, meant):
                    return msgspec.structs.replace(tag, version=candidate.number)
        raise FormatRefused(
            f"has a tag '{name}' on the source branch, at version {tag.version}, which the merge does "
            "not bring; "
            "delete the tag there, or move it to the newest version"
        )

    def _list_landed_versions(self) -> list[NumberedVersion]:
        """The versions that this merge adds to Lance's main branch."""
        named = ((parse_version_key(key), version) for key, version in self._changes.items())
        return [
            NumberedVersion(at[1], version)
            for at, version in named
            if at and at[0] == MAIN and isinstance(version, LanceTableVersion)
        ]

    def _merge_property(self, name: str, old_value: str | None, new_value: str | None) -> None:
        now = self._properties.get(name)
        if new_value in (old_value, now):
            return
        if now != old_value:
            clash = PathClash(f"property '{name}'", old_value or "nothing", now or "nothing")
            raise FormatRefused(f"had a property changed {self._both_sides}", clashes=[clash])
        if new_value is None:
            self._properties.pop(name, None)
        else:
            self._properties[name] = new_value

    # -- the result ----------------------------------------------------------------------------------------

    def _build_result(self) -> AppliedChange:
        state, blobs = apply_changes(self._objects, self._here.state, self._changes)
        state = msgspec.structs.replace(state, properties=self._properties)
        if self._goes_on:
            state = msgspec.structs.replace(state, chain=self._chain.folder, owner=self._chain.owner)
        return AppliedChange(encode_state_into_table(self._here.content, state), blobs)


def has_same_names(side: TableSide, other: TableSide) -> bool:
    """Whether all is the same on two sides beside the versions of Lance's main branch."""
    branches = side.versions.list_branches()
    return (
        side.state.properties == other.state.properties
        and side.versions.list_tags() == other.versions.list_tags()
        and branches == other.versions.list_branches()
        and all(side.get_own_state(name) == other.get_own_state(name) for name in branches)
    )


def _list_newest_versions(
    states: Sequence[TableSide], branch: str
) -> Iterator[tuple[TableSide, NumberedVersion]]:
    """The newest version of each of some states, those that are the same once."""
    versions: list[NumberedVersion] = []
    for state in states:
        newest = state.find_newest(branch)
        if newest is not None and newest not in versions:
            versions.append(newest)
            yield state, newest


def _make_side_history(
    lineage: RowLineage, side: TableSide, history: SidesHistory, states: Sequence[TableSide], branch: str
) -> SideHistory:
    trace = lineage.trace_rows(history)
    unknown = [state for state in states if not is_based_on(side, state, branch)]
    return SideHistory(
        frozenset(history.operations),
        lineage.find_row_changes(trace),
        ManifestOperation.UPDATE in history.operations and (trace is None or trace.has_inserts),
        frozenset(history.taken_marks),
        not unknown,
        _find_replaced_rows(lineage, side, unknown, branch),
    )


def _find_replaced_rows(
    lineage: RowLineage, side: TableSide, states: Sequence[TableSide], branch: str
) -> RowSet | None:
    """The rows that some states have put in the place of others, and a side has not; ``None`` if unknown."""
    row_sets: list[RowSet] = []
    for state in states:
        changes = lineage.find_row_changes(lineage.trace_rows(find_history_since(state, side, branch)))
        if changes is None:
            return None
        row_sets += [change.added for change in changes.updates.values()]
    return unite_row_sets(row_sets)


def _find_removed_rows(
    lineage: RowLineage, state: TableSide, others: Sequence[TableSide], branch: str
) -> RowSet:
    """The rows that a common state has removed and another common state may have."""
    row_sets: list[RowSet] = []
    for other in others:
        if other is not state:
            changes = lineage.find_row_changes(lineage.trace_rows(find_history_since(state, other, branch)))
            row_sets.append({} if changes is None else changes.list_removed_rows())
    return unite_row_sets(row_sets)


def _list_branches(keys: list[bytes]) -> list[str]:
    """Lance's own branches, but the main one, that keys of a tree are about."""
    versions = {named[0] for key in keys if (named := parse_version_key(key)) is not None}
    branches = {name for key in keys if (name := parse_branch_key(key)) is not None}
    return sorted((versions | branches) - {MAIN})


def _describe_tag(tag: OwnTag | None) -> str:
    return "no version" if tag is None else f"version {tag.version}"
